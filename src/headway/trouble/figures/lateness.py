"""How late this program is itself: a loop that wakes up late measures its own lateness as the broker's."""

from __future__ import annotations

import asyncio
import time

from headway.trouble.figures.delays import Delays

STEP_S = 0.005


class Lateness:
    def __init__(self) -> None:
        self.before, self.beside = Delays(), Delays()
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()
        self._now = self.before
        self.cpu_share = 0.0
        """The share of a core that this process used beside the trouble."""

    def trouble_begins(self) -> None:
        self._now = self.beside
        self._began_s, self._cpu_s = time.monotonic(), time.process_time()

    def trouble_ends(self) -> None:
        self.cpu_share = (time.process_time() - self._cpu_s) / max(1e-9, time.monotonic() - self._began_s)
        self._now = Delays()  # what comes now is of no interest

    async def watch(self) -> None:
        """Measures until it is cancelled."""
        while True:
            due_ns = time.monotonic_ns() + int(STEP_S * 1e9)
            await asyncio.sleep(STEP_S)
            self._now.add(max(0, time.monotonic_ns() - due_ns))
