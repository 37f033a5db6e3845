"""Requeued records of a queue: those out of their lane's order, because a member gave them back, or because the queue
hands out by priority. Each is a reference (chunk and index). They stand on a heap, by priority and then by position in
the lanes, so a record that comes back is at its old position again.

A record may be taken from the middle. Its place on the heap is then *stale*, and goes when it comes to the top.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from headway.core.log import Chunk
from headway.core.queue.places.queue_cursor import QueueCursor

Key = tuple[int, int]
"""The order of a record's cursor, and its number in the lane."""
Place = tuple[int, int, int]
"""A record's rank, and its key: places are handed out in this order."""
BEFORE_ALL: Key = (0, 0)
BEHIND_ALL: Key = (2**62, 0)


class RequeuedRecord(NamedTuple):
    """A record out of its lane's order."""

    rank: int
    order: int
    number: int
    cursor: QueueCursor
    chunk: Chunk
    at: int
    """Index in the chunk."""
    returns: int
    """The number of times that members gave it back."""
    late: bool = False
    """Set when it timed out; its member may still settle it."""

    @property
    def key(self) -> Key:
        return self.order, self.number

    @property
    def place(self) -> Place:
        return self.rank, self.order, self.number

    @property
    def redelivered(self) -> bool:
        return self.returns > 0

    @property
    def size(self) -> int:
        return self.chunk.ends[self.at] - self.chunk.record_start(self.at)


class Requeued:
    __slots__ = ("_heap", "_stale", "by_key", "chunks", "size")

    def __init__(self) -> None:
        self.by_key: dict[Key, RequeuedRecord] = {}
        """All of them."""
        self.size = 0
        """Their bytes."""
        self._heap: list[Place] = []
        """Their places. The top is never a stale one."""
        self._stale: set[Key] = set()
        self.chunks: dict[Chunk, int] = {}
        """Number of records of each chunk."""

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[RequeuedRecord]:
        return iter(self.by_key.values())

    @property
    def top(self) -> RequeuedRecord | None:
        """The record that is handed out next."""
        if not self.by_key:
            return None
        _, order, number = self._heap[0]
        return self.by_key[order, number]

    def places(self) -> list[Place]:
        """Returns their places, as a heap. Some may be stale."""
        return self._heap.copy()

    def put(self, record: RequeuedRecord) -> None:
        key = record.key
        if key in self._stale:
            self._stale.remove(key)
        else:
            heappush(self._heap, record.place)
        self.by_key[key] = record
        self.size += record.size
        self.chunks[record.chunk] = self.chunks.get(record.chunk, 0) + 1

    def take(self, key: Key) -> RequeuedRecord:
        """Removes one, which must be here."""
        record = self.by_key.pop(key)
        self.size -= record.size
        left = self.chunks[record.chunk] = self.chunks[record.chunk] - 1
        assert left >= 0 <= self.size
        if not left:
            del self.chunks[record.chunk]
        self._stale.add(key)
        while self._stale and self._heap[0][1:] in self._stale:
            self._stale.remove(heappop(self._heap)[1:])
        return record

    def clear(self) -> None:
        self.size = 0
        for table in (self.by_key, self._heap, self._stale, self.chunks):
            table.clear()

    def check(self) -> None:
        """Asserts the invariants. It visits all records."""
        places = {record.place for record in self}
        assert len(self._heap) == len(places) + len(self._stale)
        assert not places or self._heap[0] == min(places), "the next record is at the top"
        assert self.size == sum(record.size for record in self)
        assert self.chunks == Counter(record.chunk for record in self)
        for record in self:
            cursor, number = record.cursor, record.number
            row = cursor.taken.get(number)
            kept = cursor.aside if number in cursor.aside else cursor.unacknowledged
            held = row.chunk if row is not None else kept[number]
            assert held is record.chunk, "a requeued record holds its chunk"
