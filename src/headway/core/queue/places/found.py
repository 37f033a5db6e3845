"""Found records of a queue: those that pickers came upon, that some members want, and that still wait. Each is known
once for the whole queue, by the key of its place, whichever pickers found it.

A record stands in the heap of each picker that found it, until its group belongs to a member. From then on it is
*reserved*: it stands in the heap of that member alone (groups.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

from headway.core.queue.places.requeued import Key, Place

if TYPE_CHECKING:
    from headway.core.consumer import Subscription

STALE_MAX = 64
"""A heap with so many more stale places than others is made anew."""


class Finder(Protocol):
    """A picker, as the records know it that it found."""

    free: FoundHeap
    handed_records: int
    handed_bytes: int


class FoundRecord:
    """A record that was found and still waits."""

    __slots__ = ("closes", "finders", "group", "key", "owner", "place", "size", "wanted")

    def __init__(self, place: Place, size: int, group: str, closes: bool) -> None:
        self.place = place
        self.key: Key = place[1:]
        self.size = size
        self.group = group
        """Empty: it is in no group."""
        self.closes = closes
        """Set if it closes its group."""
        self.finders: list[Finder] = []
        self.owner: Subscription | None = None
        """The member for which it is reserved."""
        self.wanted = True
        """Unset if that member's selector does not want it."""


class FoundHeap:
    """Some found records, in their order. Whatever is removed leaves a stale place on the heap, which goes later."""

    __slots__ = ("_heap", "by_key", "size")

    def __init__(self) -> None:
        self.by_key: dict[Key, FoundRecord] = {}
        self.size = 0
        """Their bytes."""
        self._heap: list[Place] = []

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[FoundRecord]:
        return iter(self.by_key.values())

    def put(self, record: FoundRecord) -> None:
        self.by_key[record.key] = record
        self.size += record.size
        heappush(self._heap, record.place)
        if len(self._heap) > 2 * len(self.by_key) + STALE_MAX:
            self._heap = [one.place for one in self.by_key.values()]
            heapify(self._heap)

    def remove(self, record: FoundRecord) -> None:
        if self.by_key.pop(record.key, None) is not None:
            self.size -= record.size

    def first(self) -> FoundRecord | None:
        heap, by_key = self._heap, self.by_key
        while heap:
            place = heap[0]
            record = by_key.get(place[1:])
            if record is not None and record.place == place:
                return record
            heappop(heap)
        return None

    def clear(self) -> None:
        self.by_key.clear()
        self._heap.clear()
        self.size = 0

    def check(self) -> None:
        """Asserts the invariants. It visits all records."""
        assert self.size == sum(record.size for record in self)
        assert {record.place for record in self} <= set(self._heap)
