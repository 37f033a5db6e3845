"""Least and greatest values of a group whose records come and go.

Each value is there with the number of records that have it, and a heap has them by their places. What has no order is
null there, and its place is the last. What is gone is taken
out of the heap when it comes to the top, or when most of the heap is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from headway.core.query import AGGREGATES, Aggregate, with_order
from headway.core.selector import place_of

VALUE_BYTES = 300
"""The memory of a value beside its own bytes, about."""
GONE_MAX = 64


class KeptLeast(Aggregate):
    __slots__ = ("_counts", "_heap")
    down = False

    def __init__(self) -> None:
        self._counts: dict[bytes, tuple[object, int]] = {}
        self._heap: list[bytes] = []

    def add(self, value: object) -> int:
        value = with_order(value)
        place = place_of(value, down=self.down)
        kept, count = self._counts.get(place, (value, 0))
        self._counts[place] = kept, count + 1
        if count:
            return 0
        heappush(self._heap, place)
        return VALUE_BYTES + 2 * len(place)

    def remove(self, value: object) -> int:
        place = place_of(with_order(value), down=self.down)
        kept, count = self._counts[place]
        if count > 1:
            self._counts[place] = kept, count - 1
            return 0
        del self._counts[place]
        if len(self._heap) > 2 * len(self._counts) + GONE_MAX:
            self._heap = list(self._counts)
            heapify(self._heap)
        return -VALUE_BYTES - 2 * len(place)

    @property
    def value(self) -> object:
        while self._heap and self._heap[0] not in self._counts:
            heappop(self._heap)
        return self._counts[self._heap[0]][0] if self._heap else None


class KeptGreatest(KeptLeast):
    __slots__ = ()
    down = True


KEPT: Mapping[str, type[Aggregate]] = {**AGGREGATES, "min": KeptLeast, "max": KeptGreatest}
"""Aggregates from which values can be taken out again."""
