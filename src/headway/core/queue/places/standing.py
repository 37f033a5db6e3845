"""Standing records of a queue: its cursors have passed them, because no member that looked at them wanted them. They
wait at their places (queue_cursor.py), and come before all that the cursors still have to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headway.core.log import Chunk
from headway.core.queue.places.queue_cursor import CAME_BACK, WAITS, QueueCursor, Row
from headway.core.queue.places.requeued import Key, Place, RequeuedRecord


class StandingRecord(NamedTuple):
    cursor: QueueCursor
    row: Row
    at: int

    @property
    def key(self) -> Key:
        return self.cursor.order, self.row.chunk.first_number + self.at

    @property
    def place(self) -> Place:
        return (0, *self.key)

    @property
    def chunk(self) -> Chunk:
        return self.row.chunk

    def requeued(self) -> RequeuedRecord:
        came_back = self.row.flags[self.at] == CAME_BACK
        return RequeuedRecord(*self.place, self.cursor, self.chunk, self.at, int(came_back))


class Standing:
    """The counts of all standing records, and the ways to them."""

    __slots__ = ("_cursors", "_draining", "records", "size")

    def __init__(self, cursors: Sequence[QueueCursor], draining: Mapping[QueueCursor, None]) -> None:
        self._cursors = cursors
        self._draining = draining
        self.records = 0
        self.size = 0
        """Their bytes."""

    def leave(self, cursor: QueueCursor, chunk: Chunk, first: int, last: int, *, came_back: bool = False) -> None:
        """Leaves records ``first`` … ``last - 1`` of a chunk standing; see ``QueueCursor.leave``."""
        cursor.leave(chunk, first, last, CAME_BACK if came_back else WAITS)
        self.records += last - first
        self.size += chunk.ends[last - 1] - chunk.record_start(first)

    @property
    def readers(self) -> list[QueueCursor]:
        """The cursors that may have left some, the first one first."""
        return [*self._draining, *self._cursors]

    def next(self, order: int = 0, number: int = 0) -> StandingRecord | None:
        """Returns the first record that waits, from this place on."""
        for cursor in self.readers if self.records else ():
            if cursor.order < order:
                continue
            here = number if cursor.order == order else 0
            for at in range(cursor.row_from(here), len(cursor.rows)):
                row = cursor.rows[at]
                index = row.next(here - row.chunk.first_number) if row.waiting else None
                if index is not None:
                    return StandingRecord(cursor, row, index)
        return None

    def find(self, order: int, number: int) -> StandingRecord | None:
        """Returns the record at this place; None if none waits there."""
        found = self.next(order, number)
        return found if found is not None and found.key == (order, number) else None

    def take(self, one: StandingRecord) -> RequeuedRecord:
        """Takes a record out. It is the caller's to hand out, to drop or to requeue."""
        record = one.requeued()
        one.cursor.take(one.row, one.at)
        self.records -= 1
        self.size -= record.size
        return record

    def settle(self, cursor: QueueCursor, row: Row, first: int, last: int) -> None:
        """Settles neighbours that wait."""
        self.records -= last - first
        self.size -= row.chunk.ends[last - 1] - row.chunk.record_start(first)
        cursor.settle_standing(row, first, last)

    def give_up(self) -> Iterator[tuple[Chunk, int, int]]:
        """Settles all that wait, and yields their ranges: chunk, first index, and the index behind the last."""
        for cursor in self.readers:
            for row in list(cursor.rows):
                for first, last in row.waiting_ranges():
                    self.settle(cursor, row, first, last)
                    yield row.chunk, first, last

    def walk(self) -> Iterator[RequeuedRecord]:
        """Yields all that wait, in order, and leaves them standing."""
        for cursor in self.readers:
            for row in cursor.rows:
                index = row.next(0)
                while index is not None:
                    yield StandingRecord(cursor, row, index).requeued()
                    index = row.next(index + 1)

    def wants(self, chunk: Chunk) -> bool:
        return self.records > 0 and any(
            cursor.rows[at].chunk is chunk and cursor.rows[at].waiting > 0
            for cursor in self.readers for at in range(*_place(cursor, chunk.first_number))
        )  # fmt: skip

    def order_of(self, chunk: Chunk) -> int | None:
        """Returns the order of the cursor that a chunk belongs to. None in a queue with many cursors, if none of them
        left something of it standing."""
        readers = self.readers
        if len(readers) == 1:
            return readers[0].order
        return next((
            cursor.order for cursor in readers for at in range(*_place(cursor, chunk.first_number))
            if cursor.rows[at].chunk is chunk
        ), None)  # fmt: skip

    def clear(self) -> None:
        self.records = self.size = 0

    def check(self) -> None:
        """Asserts the invariants. It visits all records."""
        found = list(self.walk())
        assert self.records == len(found)
        assert self.size == sum(record.size for record in found)


def _place(cursor: QueueCursor, number: int) -> tuple[int, int]:
    """Returns the range of the rows, one at most, of the chunk that begins with this number."""
    at = cursor.row_from(number)
    return at, min(at + 1, len(cursor.rows))
