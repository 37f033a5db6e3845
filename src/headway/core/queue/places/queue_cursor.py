"""A queue cursor is a queue's position in the lane of one feed. It ends where the queue went on to another feed,
because its bindings changed. Most queues have one cursor, without an end.

It may leave records standing behind it, which no consumer wanted when it passed them. They wait at their places: a
``Row`` has a byte for each record of a chunk. So a million of them take a megabyte, and are found by a search for a
byte. A row stays until all of its records are settled, and holds its chunk.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Protocol

from headway.core.consumer import Feed, SharedReader
from headway.core.log import Chunk, Cursor, Lane

GONE, WAITS, OUT, CAME_BACK = b"\0\1\2\3"
"""The states of a record in a row: it does not stand here; it waits; it was taken and is not settled; it waits, and a
member may have had it before a restart."""
_WAITING = re.compile(b"[\1\3]")
_ALL_WAITING = re.compile(b"[\1\3]+")
_UNSETTLED = re.compile(b"[\1-\3]+")
NO_STOP = 2**62
"""Behind the end of every lane."""


class LaneSource(Protocol):
    """Fills a lane with records that do not come from publishers."""

    def fill(self, lane: Lane) -> bool:
        """Appends some more records, or searches for them for one step. Returns False if there are no more. Raises
        OSError."""


class Row:
    """The records of one chunk that a cursor left standing."""

    __slots__ = ("chunk", "flags", "unsettled", "waiting")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.flags = bytearray()
        self.waiting = 0
        self.unsettled = 0
        """Those that wait, and those that were taken and are not settled."""

    def next(self, index: int) -> int | None:
        """Returns the first record from ``index`` on that waits."""
        found = _WAITING.search(self.flags, max(0, index))
        return None if found is None else found.start()

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yields the ranges of unsettled records."""
        for found in _UNSETTLED.finditer(self.flags):
            yield found.start(), found.end()

    def waiting_ranges(self) -> list[tuple[int, int]]:
        return [(found.start(), found.end()) for found in _ALL_WAITING.finditer(self.flags)]


class QueueCursor(Cursor):
    """Reads the lane of ``feed`` up to record ``stop_number`` (None: without an end)."""

    __slots__ = (
        "feed", "first_number", "order", "rows", "rows_aside", "source", "stop_number", "stop_position", "taken",
    )  # fmt: skip

    def __init__(self, reader: SharedReader, feed: Feed, order: int, source: LaneSource | None = None) -> None:
        self.rows: list[Row] = []
        """The records that it left standing, in order."""
        self.rows_aside = 0
        """So many of the rows, the first ones, were set aside."""
        self.taken: dict[int, Row] = {}
        """Those of them that were taken and are not settled, by number."""
        super().__init__(feed.lane, reader)
        self.source = source
        """Fills the lane; None: publishers do, or it has no more records."""
        self.feed = feed
        self.order = order
        self.stop_number: int | None = None
        self.stop_position = NO_STOP
        self.first_number = feed.lane.count
        """The number of the first record that it reads."""

    @property
    def end_number(self) -> int:
        return self.lane.count if self.stop_number is None else self.stop_number

    @property
    def end_position(self) -> int:
        return self.lane.end if self.stop_number is None else self.stop_position

    @property
    def finished(self) -> bool:
        """Tells whether all records up to the stop were read, so that the queue goes on with its next cursor."""
        return self.position >= self.stop_position

    def fill(self) -> None:
        """Lets the source append more records if the lane was read to its end. Raises OSError."""
        if self.source is not None and self.position >= self.lane.end and not self.source.fill(self.lane):
            self.stop_filling()

    def stop_filling(self) -> None:
        """Ends at the present end of the lane, because the source has no more records."""
        self.source = None
        self.stop()

    def stop(self) -> None:
        """Ends at the present end of the lane; while a source fills it, where the source ends."""
        if self.source is None:
            self.lane.receive()
            self.stop_number, self.stop_position = self.lane.count, self.lane.end

    def start_at(self, chunk: Chunk, index: int) -> None:
        super().start_at(chunk, index)
        self.first_number = self.number

    @property
    def passed_records(self) -> int:
        """The number of records that it has read."""
        return self.number - self.first_number

    # -- records that stand -----------------------------------------------------------------------------------------

    @property
    def leaves(self) -> int:
        return super().leaves + bool(self.rows)

    @property
    def owed_records(self) -> int:
        return super().owed_records + len(self.taken)

    def owes(self, number: int) -> bool:
        if super().owes(number) or not self.rows:
            return super().owes(number)
        at = self.row_from(number)
        index = number - self.rows[at].chunk.first_number if at < len(self.rows) else -1
        return 0 <= index < len(self.rows[at].flags) and self.rows[at].flags[index] != GONE

    def leave(self, chunk: Chunk, first: int, last: int, flag: int = WAITS) -> None:
        """Leaves records ``first`` … ``last - 1`` of a chunk standing. Called before the cursor moves past them."""
        if not self.rows:
            self.lane.cursors_awaiting_acks += 1
        if not self.rows or self.rows[-1].chunk is not chunk:
            self.rows.append(Row(chunk))
        row = self.rows[-1]
        row.flags += bytes(first - len(row.flags)) + bytes((flag,)) * (last - first)
        row.waiting += last - first
        row.unsettled += last - first

    def row_from(self, number: int) -> int:
        """Returns the place of the first row with records from ``number`` on; ``len(rows)`` if there is none."""
        at = bisect_right(self.rows, number, key=_first_number) - 1
        return at if at >= 0 and number < self.rows[at].chunk.first_number + len(self.rows[at].flags) else at + 1

    def take(self, row: Row, index: int) -> None:
        """Takes a record that waits out of its row."""
        row.flags[index] = OUT
        row.waiting -= 1
        self.taken[row.chunk.first_number + index] = row

    def _acknowledge_other(self, number: int) -> None:
        row = self.taken.pop(number, None)
        if row is None:
            super()._acknowledge_other(number)
            return
        index = number - row.chunk.first_number
        self._settle(row, index, index + 1)

    def settle_standing(self, row: Row, first: int, last: int) -> None:
        """Settles records that wait in a row."""
        row.waiting -= last - first
        self._settle(row, first, last)

    def _settle(self, row: Row, first: int, last: int) -> None:
        chunk, number = row.chunk, row.chunk.first_number
        if self.durable_position.durable:
            sequences = chunk.sequence_of(first), chunk.sequence_of(last - 1)
            self.durable_position.settled(self, number + first, sequences[0], number + last - 1, sequences[1])
        row.flags[first:last] = bytes(last - first)
        row.unsettled -= last - first
        if not row.unsettled:
            at = self.row_from(number + first)
            del self.rows[at]
            if at < self.rows_aside:
                self.rows_aside -= 1
                self.lane.let_go(chunk, self, 1)
            if not self.rows:
                self.lane.cursors_awaiting_acks -= 1
                if not self.awaits_acks:
                    self.step()
            self._lower_to(super()._oldest())

    def _oldest(self) -> Chunk | None:
        oldest = super()._oldest()
        standing = self.rows[self.rows_aside].chunk if self.rows_aside < len(self.rows) else oldest
        return standing if oldest is None or (standing is not None and standing.start < oldest.start) else oldest

    def _lower_to(self, chunk: Chunk | None) -> None:
        if self.rows:
            chunk = self._oldest()
        elif chunk is self.floor:
            return
        super()._lower_to(chunk)

    def _mostly_settled(self, floor: Chunk, rows: int = 0) -> bool:
        return super()._mostly_settled(floor, len(self.rows) - self.rows_aside)

    def set_aside(self) -> None:
        for row in self.rows[self.rows_aside :]:
            row.chunk.keep(self, 1)
        self.rows_aside = len(self.rows)
        super().set_aside()

    def close(self) -> None:
        if self.rows:
            for row in self.rows[: self.rows_aside]:
                self.lane.let_go(row.chunk, self, 1)
            self.rows_aside = 0
            self.rows.clear()
            self.taken.clear()
            self.lane.cursors_awaiting_acks -= 1
        super().close()

    def unsettled_sequence(self) -> int:
        found = super().unsettled_sequence()
        for row in self.rows[:1]:
            first = row.chunk.sequence_of(next(row.ranges())[0])
            return min(first, found) if found else first
        return found

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        ranges = super().unsettled_ranges(last)
        for row in self.rows:
            chunk = row.chunk
            ranges += [(chunk.sequence_of(first), chunk.sequence_of(stop - 1)) for first, stop in row.ranges()]
        return ranges

    def check(self) -> None:
        super().check()
        for row in self.rows:
            assert row.waiting == sum(flag in (WAITS, CAME_BACK) for flag in row.flags)
            assert row.unsettled == sum(flag != GONE for flag in row.flags) > 0
            assert len(row.flags) <= len(row.chunk)
        firsts = [row.chunk.first_number for row in self.rows]
        assert firsts == sorted(set(firsts))
        assert sum(row.unsettled - row.waiting for row in self.rows) == len(self.taken)
        assert 0 <= self.rows_aside <= len(self.rows)

    def aside_by_chunk(self) -> dict[Chunk, int]:
        found = super().aside_by_chunk()
        for row in self.rows[: self.rows_aside]:
            found[row.chunk] = found.get(row.chunk, 0) + 1
        return found


def _first_number(row: Row) -> int:
    return row.chunk.first_number


class PresentCursor:
    """Stands for the cursor that a queue reads now, whichever it is. All members have it as theirs, so that none has to
    be visited when the queue goes on to another lane."""

    __slots__ = ("_cursors",)

    def __init__(self, cursors: list[QueueCursor]) -> None:
        self._cursors = cursors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors[0], name)
