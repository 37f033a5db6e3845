"""A ranking finds the lane (or client) of a pool that holds the most, without a look at all of them.

Theory of operation, told of lanes. A heap has the last known figure of each lane. A lane that grows reports it
(``put``). A lane that shrinks reports nothing, so its figure may be too large; it is corrected only when it comes to
the top of the heap. A lane at the top whose figure is correct holds the most. Lanes below the top cost nothing, and
each chunk that comes or goes costs one heap operation.

A lane in which a look found nothing to do *rests*: it is skipped for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

PUT_RIGHT_MAX = 1000
"""The number of figures that one call corrects; the next call corrects the others."""
SLACK = 64


class Ranking(Generic[T]):
    """``holds`` returns the current figure of a lane. ``told`` is called with each new known figure; 0 means none."""

    def __init__(
        self, holds: Callable[[T], int], lanes: Iterable[T] = (), *,
        told: Callable[[T, int], None] = lambda lane, known: None,
    ) -> None:  # fmt: skip
        self.holds = holds
        self._tell = told
        self._numbers = count()
        self._known: dict[T, tuple[int, int, T]] = {}
        self._resting: dict[T, float] = {}
        self._wakes: deque[tuple[float, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        """Known figures, the largest first, among outdated ones that are dropped when they come to the top."""
        for lane in lanes:
            self.put(lane)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, lane: T) -> None:
        """Records the figure of a lane that may have grown."""
        held = self.holds(lane)
        known = self._known.get(lane)
        if lane not in self._resting and held > (0 if known is None else -known[0]):
            heappush(self._heap, self._note(lane, held))
            if len(self._heap) > 2 * len(self._known) + SLACK:
                self._heap = list(self._known.values())
                heapify(self._heap)

    def forget(self, lane: T) -> None:
        """Removes a lane until it is put again."""
        self._resting.pop(lane, None)
        if self._known.pop(lane, None) is not None:
            self._tell(lane, 0)

    def known(self, lane: T) -> int | None:
        """Returns the last known figure of the lane; None if it rests."""
        return None if lane in self._resting else -self._known.get(lane, (0,))[0]

    def most(self, at_least: int = 1) -> T | None:
        """Returns the lane that holds the most, if it holds ``at_least``. Returns None also while too many figures need
        correction."""
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
        """Skips the lane until ``until_s``. All lanes rest for equally long, so ``_wakes`` is in order."""
        self.forget(lane)
        self._resting[lane] = until_s
        self._wakes.append((until_s, lane))

    def wake(self, now: float) -> None:
        """Puts the lanes back whose rest has ended."""
        while self._wakes and self._wakes[0][0] <= now:
            until_s, lane = self._wakes.popleft()
            if self._resting.get(lane) == until_s:
                del self._resting[lane]
                self.put(lane)

    def _note(self, lane: T, held: int) -> tuple[int, int, T]:
        entry = self._known[lane] = (-held, next(self._numbers), lane)
        self._tell(lane, held)
        return entry
