"""Slices: what has to look at all there is does so a little at a time, at the ends of turns that are not too close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PAUSE_S = 0.01
"""Between two slices there is time for everybody else."""


class Slices:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], float], turn_soon: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._now = now
        self._turn_soon = turn_soon
        self._next_s = now()
        self._timer: asyncio.TimerHandle | None = None

    def due(self, now: float) -> bool:
        return now >= self._next_s

    def over(self, *, more: bool) -> None:
        """There was one; and a turn for the next one there will be, if there is ``more``."""
        self._next_s = self._now() + PAUSE_S
        if more and self._timer is None:
            self._timer = self._loop.call_later(PAUSE_S, self._ring)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self._turn_soon()
