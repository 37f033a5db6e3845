"""Timers: what is to happen later, by the broker's clock. The clock itself is the caller's.

Who asks for one is given it, and cancels it when it is wanted no longer. A cancelled one lets go of its action at once;
its place on the heap is given back when half of the places are such, so cancelling costs next to nothing and there are
never more than twice as many places as timers.

However many are due, ``run`` rings ``RUN_MAX`` of them; ``next_s`` says that there are more.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

DEAD_MIN = 64
"""So few cancelled ones are not worth the tidying."""
RUN_MAX = 512
"""Rung in one go."""


class Timer:
    """One action that is to come."""

    __slots__ = ("_action", "_timers")

    def __init__(self, action: Callable[[float], object], timers: Timers) -> None:
        self._action: Callable[[float], object] | None = action
        self._timers = timers

    def cancel(self) -> None:
        """It is not to happen. Nothing, where it has happened or was cancelled before."""
        if self._action is not None:
            self._action = None
            self._timers.cancelled()

    def ring(self, now: float) -> bool:
        """Its time has come. False: it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action(now)
        return action is not None

    @property
    def waits(self) -> bool:
        return self._action is not None


def stop(timer: Timer | None) -> None:
    """What it stands for, if there is one, is not to happen."""
    if timer is not None:
        timer.cancel()


class Timers:
    """Actions in order of time; those of the same instant in the order they were asked for."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._dead = 0
        self.next_s = inf
        """When there is something to run, at the earliest."""

    def at(self, when: float, action: Callable[[float], object]) -> Timer:
        """Call ``action(now)`` at the first ``run`` at or after ``when``."""
        timer = Timer(action, self)
        heappush(self._heap, (when, next(self._order), timer))
        self.next_s = self._heap[0][0]
        return timer

    def move(self, timer: Timer | None, when: float, action: Callable[[float], object]) -> Timer:
        """The action is to come then; what the timer from before stood for is not."""
        stop(timer)
        return self.at(when, action)

    def run(self, now: float) -> None:
        rung = 0
        while rung < RUN_MAX and self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)[2]
            if timer.ring(now):
                rung += 1
            else:
                self._dead -= 1
        self._look()

    def cancelled(self) -> None:
        """One of them was."""
        self._dead += 1
        if self._dead > DEAD_MIN and self._dead * 2 > len(self._heap):
            self._heap = [place for place in self._heap if place[2].waits]
            heapify(self._heap)
            self._dead = 0
            self._look()

    def _look(self) -> None:
        """Which is the next?"""
        self.next_s = self._heap[0][0] if self._heap else inf

    def __len__(self) -> int:
        """Those that are to come."""
        return len(self._heap) - self._dead

    @property
    def places(self) -> int:
        """Those, and the cancelled ones whose place is still there."""
        return len(self._heap)
