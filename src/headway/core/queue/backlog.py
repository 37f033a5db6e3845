"""The backlog of a queue: the records that it still has to hand out. It reads them from lanes, like any consumer.

A queue has a list of cursors (queue_cursor.py), and reads one after the other.

A *requeued* record is out of its lane's order: a member gave it back, or the queue hands out by priority. It is a
reference (chunk and index) on a heap. The heap is ordered by priority and then by position in the lanes, so a record
that comes back is at its old position again. A requeued record holds its chunk, like an unacknowledged one. Requeued
records are handed out before fresh ones from the lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush, nsmallest
from typing import NamedTuple, cast

from headway.core.consumer import Feed
from headway.core.delivery import record_at
from headway.core.log import Chunk, Cursor
from headway.core.queue.port import QueuePort
from headway.core.queue.queue_cursor import LaneSource, PresentCursor, QueueCursor
from headway.core.routing import Registry


class RequeuedRecord(NamedTuple):
    """A record out of its lane's order. The first three fields order the heap; together they are unique."""

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
    def key(self) -> tuple[int, int]:
        return self.order, self.number

    @property
    def redelivered(self) -> bool:
        return self.returns > 0

    @property
    def size(self) -> int:
        return self.chunk.ends[self.at] - self.chunk.record_start(self.at)


class Backlog:
    def __init__(self, queue: QueuePort, registry: Registry) -> None:
        self.cursors: list[QueueCursor] = []
        self.present = cast("Cursor", PresentCursor(self.cursors))
        """That which is read now, for the members."""
        self.draining: dict[QueueCursor, None] = {}
        """Cursors that were read to their end and have unsettled records."""
        self.handed_records = 0
        self.handed_bytes = 0
        """Records and bytes that left the backlog since the queue began: handed to a member or dropped. A requeued
        record counts each time."""
        self._returned_records = 0
        """How often members gave records back."""
        self._passed_records = 0
        """The records that cursors which are no longer in ``cursors`` have read."""
        self._queue = queue
        self._registry = registry
        self._requeued: list[RequeuedRecord] = []
        """A heap. The record at its top is never a withdrawn one."""
        self._requeued_bytes = 0
        self._requeued_by_chunk: dict[Chunk, int] = {}
        """Number of requeued records of each chunk."""
        self._late: dict[tuple[int, int], RequeuedRecord] = {}
        """Requeued records that their member may still settle, by ``key``."""
        self._withdrawn: set[tuple[int, int]] = set()
        """Keys of records that were settled late. They leave the heap when they come to its top."""
        self._orders = 0

    # -- cursors ----------------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> QueueCursor:
        """The cursor that is read now."""
        return self.cursors[0]

    @property
    def reading(self) -> QueueCursor:
        """The cursor that reads what comes next, after what waits for the others."""
        return self.cursors[-1]

    def read(self, feed: Feed, source: LaneSource | None = None) -> None:
        """Goes on in another feed's lane, from its end, after the records that wait now. ``source`` fills that lane."""
        if self.cursors:
            last = self.cursors[-1]
            last.stop_number, last.stop_position = last.lane.count, last.lane.end
            last.ended = self._registry.sequence
            last.feed.listening.pop(self._queue, None)
            last.feed.limited.pop(self._queue, None)
        self._orders += 1
        self.cursors.append(QueueCursor(self._queue, feed, self._orders, source))
        feed.queues[self._queue] = None
        feed.reading += 1

    def leave_empty(self) -> None:
        """Removes the last cursor but one if it has no records, so that it does not wait for its turn."""
        if len(self.cursors) > 2 and self.cursors[-2].finished:
            self._done_with(self.cursors.pop(-2))

    def step(self) -> None:
        """Moves on from cursors that were read to their end."""
        self._fill()
        while self.cursors[0].finished:
            self._done_with(self.cursors.pop(0))
            self._queue.moved_on()
            self._fill()

    def _done_with(self, cursor: QueueCursor) -> None:
        self._passed_records += cursor.passed_records
        cursor.detach()
        self.draining[cursor] = None
        self._settled(cursor)

    def _fill(self) -> None:
        if self.cursors[0].source is not None:
            try:
                self.cursors[0].fill()
            except OSError:
                self.cursors[0].source = None
                self._queue.source_failed()

    def settled(self, cursor: Cursor | None) -> None:
        """Notes that a record of this cursor was settled. A draining cursor is removed with its last record."""
        if isinstance(cursor, QueueCursor) and cursor in self.draining:
            self._settled(cursor)

    def _settled(self, cursor: QueueCursor) -> None:
        if not cursor.unacknowledged:
            del self.draining[cursor]
            self._leave(cursor)

    def _leave(self, cursor: QueueCursor) -> None:
        feed = cursor.feed
        cursor.close()
        cursor.durable_position.drop(cursor)
        feed.reading -= 1
        if feed not in (other.feed for other in [*self.cursors, *self.draining]):
            feed.queues.pop(self._queue, None)
            feed.listening.pop(self._queue, None)
        self._release_feed(feed)

    def _release_feed(self, feed: Feed) -> None:
        """Leaves a feed that this queue no longer reads. Marks a queue that has read all of it as ready, so that the
        lane is emptied."""
        if feed.listening:
            self._registry.ready_queues[next(iter(feed.listening))] = None
        self._registry.close_if_unread(feed)

    def close(self) -> None:
        """Drops all records and cursors, because the queue has ended."""
        for table in (self._requeued, self._requeued_by_chunk, self._late, self._withdrawn):
            table.clear()
        self._requeued_bytes = 0
        for cursor in [*self.cursors, *self.draining]:
            cursor.close()
            cursor.feed.reading -= 1
            cursor.feed.queues.pop(self._queue, None)
            cursor.feed.listening.pop(self._queue, None)
            cursor.feed.limited.pop(self._queue, None)
            self._release_feed(cursor.feed)
        self.draining.clear()
        last = self.cursors[-1]
        last.source, last.stop_number, last.stop_position = None, last.number, last.position
        self.cursors[:] = [last]
        del self._queue

    # -- lag --------------------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        cursor = self.cursors[0]
        return bool(self._requeued) or cursor.position != cursor.end_position or len(self.cursors) > 1

    @property
    def has_some(self) -> bool:
        """Tells whether a record can be handed out now. A record that a source has not found yet cannot."""
        cursor = self.cursors[0]
        return bool(self._requeued) or cursor.position != cursor.end_position

    @property
    def _requeued_records(self) -> int:
        return len(self._requeued) - len(self._withdrawn)

    @property
    def lag_records(self) -> int:
        return self._requeued_records + sum(
            cursor.end_number - cursor.number for cursor in self.cursors
            if cursor.attached and cursor.position != cursor.end_position
        )  # fmt: skip

    @property
    def lag_bytes(self) -> int:
        return self._requeued_bytes + sum(cursor.end_position - cursor.position for cursor in self.cursors)

    @property
    def body_bytes(self) -> int:
        """An estimate of the body bytes of the waiting records. It takes each record to have as many bytes before its
        body as the next one."""
        head = self.head()
        if head is None:
            return 0
        chunk, index = head
        try:
            body = len(record_at(self.cursor.lane.dialect, chunk, index).payload)
        except OSError:
            return self.lag_bytes
        front = chunk.ends[index] - chunk.record_start(index) - body
        return self.lag_bytes - self.lag_records * front

    @property
    def unacknowledged(self) -> int:
        """The number of records that members have and may give back."""
        out = sum(len(cursor.unacknowledged) for cursor in [*self.cursors, *self.draining])
        return out - self._requeued_records

    def oldest_time(self) -> float | None:
        """Returns the time when the next record was published; None if no record waits."""
        if self._requeued:
            return self._requeued[0].chunk.time_of(self._requeued[0].at)
        return next((time for s in self.cursors if (time := s.oldest_time()) is not None), None)

    @property
    def head_is_held(self) -> bool:
        """Tells whether the next record was promised to its publisher, and so must not be dropped."""
        head = self.head()
        return head is not None and head[0].held_from(head[1]) == head[1]

    def wants(self, chunk: Chunk) -> bool:
        """Tells whether records of the chunk are still to be handed out."""
        waits = any(s.chunk is chunk and s.position != s.end_position for s in self.cursors)
        return waits or chunk in self._requeued_by_chunk

    def oldest_wanted(self, chunk: Chunk) -> Chunk:
        """Returns the first chunk with waiting records, in the oldest lane that has one; else this chunk."""
        firsts = (cursor.lane.first for cursor in [*self.draining, *self.cursors])
        return next((first for first in firsts if self.wants(first)), chunk)

    # -- the next record --------------------------------------------------------------------------------------------

    @property
    def next_requeued(self) -> RequeuedRecord | None:
        """The requeued record that is handed out next."""
        return self._requeued[0] if self._requeued else None

    def has_fresh(self) -> bool:
        """Returns whether the lane has records that were never handed out."""
        self.step()
        return self.cursor.position != self.cursor.end_position

    def fresh(self) -> tuple[QueueCursor, Chunk, int]:
        """Returns the next fresh record of the lane, which there must be: its cursor, its chunk and its index there."""
        cursor = self.cursor
        cursor.step()
        chunk = cursor.chunk
        assert chunk is not None
        return cursor, chunk, chunk.index_at(cursor.position)

    def head(self) -> tuple[Chunk, int] | None:
        """Returns the next record to be handed out: its chunk and its index there."""
        if self._requeued:
            return self._requeued[0].chunk, self._requeued[0].at
        return self.fresh()[1:] if self.has_fresh() else None

    def waiting(self, most: int) -> Iterator[tuple[Chunk, int, int]]:
        """Yields the records that wait, in the order in which they are handed out, ``most`` at most: chunk, index
        there, and how often it came back. Nothing may be handed out meanwhile."""
        returned = [one for one in nsmallest(most + len(self._withdrawn), self._requeued)
                    if one.key not in self._withdrawn]  # fmt: skip
        for one in returned[:most]:
            yield one.chunk, one.at, one.returns
        most -= len(returned)
        for cursor in self.cursors:
            if most <= 0 or cursor.position == cursor.end_position:
                continue
            cursor.step()
            chunk, number = cursor.chunk, cursor.number
            while chunk is not None and most > 0 and number < cursor.end_number:
                first, last = number - chunk.first_number, min(len(chunk), cursor.end_number - chunk.first_number)
                for index in range(first, min(last, first + most)):
                    yield chunk, index, 0
                most -= last - first
                number = chunk.first_number + len(chunk)
                chunk = chunk.next

    def requeue(self, cursor: QueueCursor, chunk: Chunk, index: int, *, returns: int, late: bool = False) -> None:
        """Puts a record that is out of its lane's order onto the heap."""
        self._returned_records += returns > 0
        rank = self._rank(chunk, index) if self._queue.terms.priorities else 0
        self.put(RequeuedRecord(rank, cursor.order, chunk.first_number + index, cursor, chunk, index, returns, late))

    def put(self, record: RequeuedRecord) -> None:
        heappush(self._requeued, record)
        self._requeued_bytes += record.size
        self._requeued_by_chunk[record.chunk] = self._requeued_by_chunk.get(record.chunk, 0) + 1
        if record.late:
            self._late[record.key] = record

    def pop(self) -> RequeuedRecord:
        record = heappop(self._requeued)
        self._count_out(record)
        self._clear_top()
        return record

    def take_requeued(self) -> tuple[list[Chunk], list[RequeuedRecord]]:
        """Removes all requeued records, and counts them as dropped. Returns their chunks and them; the caller frees
        them."""
        chunks, taken = list(self._requeued_by_chunk), self._requeued
        if self._withdrawn:
            taken = [record for record in taken if record.key not in self._withdrawn]
        self.handed(len(taken), self._requeued_bytes)
        self._requeued, self._requeued_bytes = [], 0
        for table in (self._requeued_by_chunk, self._late, self._withdrawn):
            table.clear()
        return chunks, taken

    def _count_out(self, record: RequeuedRecord) -> None:
        self._requeued_bytes -= record.size
        left = self._requeued_by_chunk[record.chunk] = self._requeued_by_chunk[record.chunk] - 1
        assert left >= 0 <= self._requeued_bytes
        if not left:
            del self._requeued_by_chunk[record.chunk]
        if record.late:
            del self._late[record.key]

    def _clear_top(self) -> None:
        while self._withdrawn and self._requeued[0].key in self._withdrawn:
            self._withdrawn.remove(heappop(self._requeued).key)

    def withdraw(self, cursor: QueueCursor, number: int) -> None:
        """Drops a requeued record that was settled after it timed out, if it was not handed out again."""
        record = self._late.get((cursor.order, number))
        if record is not None:
            self._count_out(record)
            self._withdrawn.add(record.key)
            self._clear_top()
            self.handed(1, record.size)
            self.free(record.cursor, record.number)

    def sort_in(self) -> None:
        """Moves the next fresh record to the heap, which orders by priority."""
        cursor, chunk, index = self.fresh()
        cursor.sent(chunk.first_number + index, chunk)
        self.requeue(cursor, chunk, index, returns=0)
        cursor.advance(chunk.ends[index] - chunk.record_start(index))

    def _rank(self, chunk: Chunk, index: int) -> int:
        try:
            record = record_at(self.cursor.lane.dialect, chunk, index)
        except OSError:
            return 0
        priority = record.properties.user_value("priority")
        return -min(self._queue.terms.priorities, int(priority) if priority and priority.isdecimal() else 0)

    def free(self, cursor: QueueCursor, number: int) -> None:
        """Notes that a record that was requeued or in flight is settled or dropped."""
        cursor.acknowledge(number)
        self.settled(cursor)

    def handed(self, records: int, size: int) -> None:
        """Counts records that left the backlog, to a member or dropped."""
        self.handed_records += records
        self.handed_bytes += size

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants of a queue that has not ended. It visits all requeued and unacknowledged records."""
        passed = self._passed_records + sum(cursor.passed_records for cursor in self.cursors)
        out = self.handed_records - self._returned_records + self._requeued_records
        assert out == passed, f"{passed} records passed, {out} handed out, dropped or requeued: some lost or doubled"
        orders = [cursor.order for cursor in self.cursors]
        assert orders == sorted(set(orders))
        assert all(cursor.stop_number is not None for cursor in self.cursors[:-1]), "only the last cursor has no stop"
        for cursor in [*self.cursors, *self.draining]:
            cursor.check()
            assert cursor.position <= cursor.end_position
        assert all(cursor.unacknowledged and not cursor.attached for cursor in self.draining)
        records = [record for record in self._requeued if record.key not in self._withdrawn]
        assert len(records) == self._requeued_records
        assert self._requeued == [] or self._requeued[0] == min(self._requeued), "the next record is at the top"
        assert self._requeued == [] or self._requeued[0].key not in self._withdrawn
        assert self._requeued_bytes == sum(record.size for record in records)
        assert self._requeued_by_chunk == Counter(record.chunk for record in records)
        assert self._late == {record.key: record for record in records if record.late}
        for record in records:
            assert record.cursor.unacknowledged[record.number] is record.chunk, "a requeued record holds its chunk"
