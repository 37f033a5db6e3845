"""Backoff: waits for a broker that is away, with pauses that become longer, and not for ever."""

from __future__ import annotations

import time

PAUSE_S = 0.05
PAUSE_MAX_S = 2.0


class Backoff:
    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self._pause_s = PAUSE_S

    def wait(self, error: Exception) -> None:
        """Pauses; raises the error once it has waited too long."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise error
        time.sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
