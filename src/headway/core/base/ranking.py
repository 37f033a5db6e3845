"""Rankings: who of a pool holds the most, found without asking all of them.

Theory of operation. What is known of a lane is a figure on a heap. A lane that has grown says so (``put``); one that
has become smaller says nothing, so what is known may be too much, and is put right only where it comes to the top. So
the top of the heap, once its figure is right, holds the most; a lane nobody asks about costs nothing; and each chunk
that comes or goes costs one step on the heap.

Whoever has been looked at for nothing *rests*: for a while it is passed over, whatever it holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

PUT_RIGHT_MAX = 1000
"""Figures that were too much, put right in one go; the others wait for the next."""
SLACK = 64


class Ranking(Generic[T]):
    """``holds``: a lane's figure as it is. ``told`` is called with what is known of a lane from now on; 0: nothing."""

    def __init__(
        self, holds: Callable[[T], int], lanes: Iterable[T] = (), *, told: Callable[[T, int], None] | None = None
    ) -> None:
        self.holds = holds
        self._told = told
        self._numbers = count()
        self._known: dict[T, tuple[int, int, T]] = {}
        self._resting: dict[T, float] = {}
        self._wakes: deque[tuple[float, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        """What is known, the most first; and what was known before, which counts no more."""
        for lane in lanes:
            self.put(lane)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, lane: T) -> None:
        """It may hold more than is known."""
        held = self.holds(lane)
        known = self._known.get(lane)
        if lane not in self._resting and held > (0 if known is None else -known[0]):
            heappush(self._heap, self._note(lane, held))
            if len(self._heap) > 2 * len(self._known) + SLACK:
                self._heap = list(self._known.values())
                heapify(self._heap)

    def forget(self, lane: T) -> None:
        """It is no more, or is not to be found until it is put there again."""
        self._resting.pop(lane, None)
        if self._known.pop(lane, None) is not None:
            self._tell(lane, 0)

    def known(self, lane: T) -> int | None:
        """What is known of it; None: it rests."""
        return None if lane in self._resting else -self._known.get(lane, (0,))[0]

    def most(self, at_least: int = 1) -> T | None:
        """The one that holds the most, if it is so much; None also while too many figures are to be put right."""
        heap, known = self._heap, self._known
        for _ in range(PUT_RIGHT_MAX):
            if not heap or -heap[0][0] < at_least:
                return None
            entry = heap[0]
            figure, _, lane = entry
            if known.get(lane) is not entry:
                heappop(heap)
                continue
            held = self.holds(lane)
            if held >= -figure:
                return lane
            if held > 0:
                heapreplace(heap, self._note(lane, held))
            else:
                heappop(heap)
                del known[lane]
                self._tell(lane, 0)
        return None

    def rest(self, lane: T, until_s: float) -> None:
        """Pass it over until then. All rest for equally long."""
        self.forget(lane)
        self._resting[lane] = until_s
        self._wakes.append((until_s, lane))

    def wake(self, now: float) -> None:
        """Those that have rested are asked again."""
        while self._wakes and self._wakes[0][0] <= now:
            until_s, lane = self._wakes.popleft()
            if self._resting.get(lane) == until_s:
                del self._resting[lane]
                self.put(lane)

    def _note(self, lane: T, held: int) -> tuple[int, int, T]:
        entry = self._known[lane] = (-held, next(self._numbers), lane)
        self._tell(lane, held)
        return entry

    def _tell(self, lane: T, known: int) -> None:
        if self._told is not None:
            self._told(lane, known)
