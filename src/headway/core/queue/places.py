"""Places: where the records of a queue wait that are not handed out yet, and how far each cursor has read."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headway.core.consumer import Feed, SharedReader
from headway.core.log import Chunk, Cursor, Lane

if TYPE_CHECKING:
    from headway.core.consumer import Subscription


# -- queue cursor ------------------------------------------------------------------------------------------------------
#
# A queue cursor is a queue's position in the lane of one feed. It ends where the queue went on to another feed, because
# its bindings changed. Most queues have one cursor, without an end.
#
# It may leave records standing behind it, which no consumer wanted when it passed them. They wait at their places: a
# ``Row`` has a byte for each record of a chunk. So a million of them take a megabyte, and are found by a search for a
# byte. A row stays until all of its records are settled, and holds its chunk.


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


# -- requeued ----------------------------------------------------------------------------------------------------------
#
# Requeued records of a queue: those out of their lane's order, because a member gave them back, or because the queue
# hands out by priority. Each is a reference (chunk and index). They stand on a heap, by priority and then by position
# in the lanes, so a record that comes back is at its old position again.
#
# A record may be taken from the middle. Its place on the heap is then *stale*, and goes when it comes to the top.


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


# -- found -------------------------------------------------------------------------------------------------------------
#
# Found records of a queue: those that pickers came upon, that some members want, and that still wait. Each is known
# once for the whole queue, by the key of its place, whichever pickers found it.
#
# A record stands in the heap of each picker that found it, until its group belongs to a member. From then on it is
# *reserved*: it stands in the heap of that member alone (groups.py).


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


# -- standing ----------------------------------------------------------------------------------------------------------
#
# Standing records of a queue: its cursors have passed them, because no member that looked at them wanted them. They
# wait at their places, and come before all that the cursors still have to read.


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
