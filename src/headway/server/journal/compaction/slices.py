"""Slices: a pass over everything there is, done a part at a time at the ends of turns.

A ``SlicedPass`` is the work. ``SlicePacer`` says when the next slice is due, so that other work runs between slices.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

PAUSE_S = 0.01
"""From the end of one slice to the next."""


class SlicedPass(ABC):
    """A pass over everything there is; each call of ``advance`` does a slice of it."""

    def __init__(self) -> None:
        self.done = False
        self._remaining = self._steps()

    @abstractmethod
    def _steps(self) -> Iterator[int]:
        """Does one step at a time and yields how many items it looked at."""

    def advance(self, items: int | None = None) -> None:
        """Looks at about this many items; None looks at all that remain."""
        for looked_at in self._remaining:
            if items is not None:
                items -= looked_at
                if items <= 0:
                    return
        self.done = True


class SlicePacer:
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

    def slice_done(self, *, more: bool) -> None:
        """Starts the pause after a slice. ``more`` asks for a turn at its end."""
        self._next_s = self._now() + PAUSE_S
        if more and self._timer is None:
            self._timer = self._loop.call_later(PAUSE_S, self._ring)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        self._turn_soon()
