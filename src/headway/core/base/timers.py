"""Timers: actions to run later, by the broker's clock. The caller passes the time in.

``at`` returns a timer, which its owner cancels when it is no longer needed. A cancelled timer drops its action at once.
Its heap entry stays until half of the entries are cancelled ones, so a cancel is cheap and the heap is never more than
twice as large as the number of timers.

``run`` runs at most ``RUN_MAX`` timers that are due; ``next_s`` then shows that more are due.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final

DEAD_MIN = 64
"""The heap is not rebuilt for fewer cancelled entries."""
RUN_MAX = 512
"""The number of timers that one call runs."""


class Timer:
    """One action to run later."""

    __slots__ = ("_action", "_timers")

    def __init__(self, action: Callable[[float], object] | None, timers: Timers) -> None:
        self._action = action
        self._timers = timers

    def cancel(self) -> None:
        """Drops the action. Does nothing if it has run or was cancelled before."""
        if self._action is not None:
            self._action = None
            self._timers.cancelled()

    def ring(self, now: float) -> bool:
        """Runs the action. Returns False if it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action(now)
        return action is not None

    @property
    def waits(self) -> bool:
        return self._action is not None


class Timers:
    """Actions by time; actions of the same instant in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._dead = 0
        self.next_s = inf
        """The time of the earliest timer."""

    def at(self, when: float, action: Callable[[float], object]) -> Timer:
        """Calls ``action(now)`` at the first ``run`` at or after ``when``."""
        timer = Timer(action, self)
        heappush(self._heap, (when, next(self._order), timer))
        self.next_s = self._heap[0][0]
        return timer

    def move(self, timer: Timer, when: float, action: Callable[[float], object]) -> Timer:
        """Cancels ``timer`` and runs the action at ``when`` instead."""
        timer.cancel()
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
        """Counts a cancelled timer; rebuilds the heap when half of it is cancelled."""
        self._dead += 1
        if self._dead > DEAD_MIN and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].waits]
            heapify(self._heap)
            self._dead = 0
            self._look()

    def _look(self) -> None:
        self.next_s = self._heap[0][0] if self._heap else inf

    def __len__(self) -> int:
        """Returns the number of timers that have neither run nor been cancelled."""
        return len(self._heap) - self._dead

    @property
    def places(self) -> int:
        """The number of heap entries, cancelled ones included."""
        return len(self._heap)


NO_TIMER: Final = Timer(None, Timers())
"""A timer with nothing to run."""
