"""Timers: what is to happen later, by the broker's clock. The clock itself is the caller's."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Timers:
    """Actions in order of time; those of the same instant in the order they were asked for."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    def at(self, when: float, action: Callable[[float], None]) -> None:
        """Call ``action(now)`` at the first ``run`` at or after ``when``."""
        heappush(self._heap, (when, next(self._order), action))

    def run(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            heappop(self._heap)[2](now)

    def __len__(self) -> int:
        return len(self._heap)
