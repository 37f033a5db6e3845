"""The backlog of a queue: what it has still to hand out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from math import inf
from typing import Protocol, cast

from headway.core.consumer import Feed, SharedReader
from headway.core.delivery import record_at
from headway.core.log import Chunk, Cursor
from headway.core.queue.places import (
    Key,
    LaneSource,
    PresentCursor,
    QueueCursor,
    Requeued,
    RequeuedRecord,
    Standing,
    StandingRecord,
)
from headway.core.routing import Registry

# -- port --------------------------------------------------------------------------------------------------------------
#
# The queue port: the methods of a queue that its parts (backlog, dispatch) may call.


class QueuePort(SharedReader, Protocol):
    def moved_on(self) -> None:
        """Called when the backlog has gone on to another lane."""

    def source_failed(self) -> None:
        """Called when a source can no longer be read. The number of its remaining records is unknown."""

    def miss(self, now: float) -> None:
        """Called when records wait and the queue has no members."""


# -- lane reads --------------------------------------------------------------------------------------------------------
#
# Lane reads: the lanes that a queue reads, one after the other, with a cursor in each.
#
# Most queues read one lane. When the bindings of a queue change, it goes on in another lane where the old one stopped.
# A cursor that was read to its end *drains*: it stays until the last record that members have of it is settled.


class LaneReads:
    def __init__(self, queue: QueuePort, registry: Registry) -> None:
        self.cursors: list[QueueCursor] = []
        """The first one is read now, the last one reads what comes next. The list stays the same one."""
        self.draining: dict[QueueCursor, None] = {}
        """Cursors that were read to their end and have unsettled records."""
        self.present = cast("Cursor", PresentCursor(self.cursors))
        """That which is read now, for the members."""
        self._queue = queue
        self._registry = registry
        self._orders = 0
        self._passed_records = 0
        """The records that cursors which are no longer in ``cursors`` have read."""

    def go_on_in(self, feed: Feed, source: LaneSource | None = None) -> None:
        """Goes on in another feed's lane, from its end, after the records that wait now. ``source`` fills that lane."""
        if self.cursors:
            last = self.cursors[-1]
            last.stop()
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
        if self.cursors[0].source is not None:
            self._fill()
        while self.cursors[0].finished:
            self._done_with(self.cursors.pop(0))
            self._queue.moved_on()
            if self.cursors[0].source is not None:
                self._fill()

    def _fill(self) -> None:
        try:
            self.cursors[0].fill()
        except OSError:
            self.cursors[0].stop_filling()
            self._queue.source_failed()

    def _done_with(self, cursor: QueueCursor) -> None:
        self._passed_records += cursor.passed_records
        cursor.detach()
        self.draining[cursor] = None
        self._settled(cursor)

    def settled(self, cursor: object) -> None:
        """Notes that a record of this cursor was settled. A draining cursor is removed with its last record."""
        if isinstance(cursor, QueueCursor) and cursor in self.draining:
            self._settled(cursor)

    def _settled(self, cursor: QueueCursor) -> None:
        if not cursor.leaves:
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
        """Leaves all feeds, because the queue has ended."""
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

    @property
    def grouped(self) -> bool:
        """Tells whether a lane that it still reads has records of a message group."""
        if len(self.cursors) == 1 and not self.draining:
            return self.cursors[0].lane.grouped
        return any(cursor.lane.grouped for cursor in (*self.cursors, *self.draining))

    @property
    def passed_records(self) -> int:
        """The records that were read, of all lanes."""
        return self._passed_records + sum(cursor.passed_records for cursor in self.cursors)

    def check(self) -> None:
        """Asserts the invariants. It visits all unacknowledged records."""
        orders = [cursor.order for cursor in self.cursors]
        assert orders == sorted(set(orders))
        stops = [cursor.stop_number is not None or cursor.source is not None for cursor in self.cursors]
        assert all(stops[:-1]), "only the last cursor has no stop"
        for cursor in [*self.cursors, *self.draining]:
            cursor.check()
            assert cursor.position <= cursor.end_position
        assert all(cursor.leaves and not cursor.attached for cursor in self.draining)


# -- backlog -----------------------------------------------------------------------------------------------------------
#
# The backlog of a queue: the records that it still has to hand out. It reads them from lanes, like any consumer.
#
# Its lane reads are a list of cursors, which are read one after the other.
#
# A *requeued* record (places.py) is out of its lane's order: a member gave it back, or the queue hands out by
# priority. A *standing* record (places.py) was passed, because a member with a selector looked for others. Both hold
# their chunks, like unacknowledged ones, and are handed out before fresh ones from the lane; of the two, what is at an
# earlier position comes first.


class Backlog:
    def __init__(self, queue: QueuePort, registry: Registry) -> None:
        self.reads = LaneReads(queue, registry)
        self.cursors, self.draining = self.reads.cursors, self.reads.draining
        """Those of the reads, to look at."""
        self.handed_records = 0
        self.handed_bytes = 0
        """Records and bytes that left the backlog since the queue began: handed to a member or dropped. A requeued
        record counts each time."""
        self.empties = 0
        """How often members have taken all that waited."""
        self._returned_records = 0
        """How often members gave records back."""
        self._queue = queue
        self.requeued = Requeued()
        self.standing = Standing(self.cursors, self.draining)
        self.on_put: Callable[[RequeuedRecord, bool], None] | None = None
        """Is told of each requeued record, and whether it was with a member; None: nobody looks for such records."""
        self.on_gone: Callable[[Key], None] | None = None
        """Is told of each record out of order that waits no more."""

    @property
    def cursor(self) -> QueueCursor:
        """The cursor that is read now."""
        return self.cursors[0]

    @property
    def reading(self) -> QueueCursor:
        """The cursor that reads what comes next, after what waits for the others."""
        return self.cursors[-1]

    def close(self) -> None:
        """Drops all records and cursors, because the queue has ended."""
        self.requeued.clear()
        self.standing.clear()
        self.reads.close()
        del self._queue

    @property
    def sorts(self) -> bool:
        """Tells whether all records are sorted by their priorities, and so requeued, before they are handed out."""
        return self._queue.terms.priorities > 0

    # -- lag --------------------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        cursor = self.cursors[0]
        return cursor.position != cursor.end_position or len(self.cursors) > 1 or self.has_some_apart

    @property
    def has_some(self) -> bool:
        """Tells whether a record can be handed out now. A record that a source has not found yet cannot."""
        return self.cursors[0].position != self.cursors[0].end_position or self.has_some_apart

    @property
    def has_some_apart(self) -> bool:
        """Tells whether records wait one by one: requeued or standing ones."""
        return bool(self.requeued.by_key or self.standing.records)

    @property
    def lag_records(self) -> int:
        return len(self.requeued.by_key) + self.standing.records + sum(
            cursor.end_number - cursor.number for cursor in self.cursors
            if cursor.attached and cursor.position != cursor.end_position
        )  # fmt: skip

    @property
    def lag_bytes(self) -> int:
        unread = sum(cursor.end_position - cursor.position for cursor in self.cursors)
        return self.requeued.size + self.standing.size + unread

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
        cursors = [*self.cursors, *self.draining]
        return sum(one.owed_records for one in cursors) - len(self.requeued)

    def oldest_time(self) -> float:
        """Returns the time when the next record was published; ``inf`` if no record waits."""
        times = []
        if (top := self.requeued.top) is not None:
            times.append(top.chunk.time_of(top.at))
        if (first := self.standing.next()) is not None:
            times.append(first.chunk.time_of(first.at))
        if times:
            return min(times)
        return next((time for s in self.cursors if (time := s.oldest_time()) < inf), inf)

    @property
    def head_is_held(self) -> bool:
        """Tells whether the next record was promised to its publisher, and so must not be dropped."""
        head = self.head()
        return head is not None and head[0].held_from(head[1]) == head[1]

    def wants(self, chunk: Chunk) -> bool:
        """Tells whether records of the chunk are still to be handed out."""
        waits = any(s.chunk is chunk and s.position != s.end_position for s in self.cursors)
        return waits or chunk in self.requeued.chunks or self.standing.wants(chunk)

    def oldest_wanted(self, chunk: Chunk) -> Chunk:
        """Returns the first chunk with waiting records, in the oldest lane that has one; else this chunk."""
        found = self.next_apart()
        if found is not None and found.chunk in found.cursor.lane.apart:
            return found.chunk
        firsts = (cursor.lane.first for cursor in [*self.draining, *self.cursors])
        return next((first for first in firsts if self.wants(first)), next(iter(self.requeued.chunks), chunk))

    # -- the next record --------------------------------------------------------------------------------------------

    def next_apart(self) -> RequeuedRecord | StandingRecord | None:
        """Returns the record that comes next of those that wait one by one."""
        if not self.requeued.by_key and not self.standing.records:
            return None
        top, first = self.requeued.top, self.standing.next()
        return top if first is None or (top is not None and top.key < first.key) else first

    def has_fresh(self) -> bool:
        """Returns whether the lane has records that were never handed out."""
        self.reads.step()
        return self.cursor.position != self.cursor.end_position

    def fresh(self) -> tuple[QueueCursor, Chunk, int]:
        """Returns the next fresh record of the lane, which there must be: its cursor, its chunk and its index there."""
        cursor = self.cursor
        cursor.step()
        chunk = cursor.chunk
        return cursor, chunk, chunk.index_at(cursor.position)

    def head(self) -> tuple[Chunk, int] | None:
        """Returns the next record to be handed out: its chunk and its index there."""
        if (found := self.next_apart()) is not None:
            return found.chunk, found.at
        return self.fresh()[1:] if self.has_fresh() else None

    def waiting(self, most: int) -> Iterator[tuple[Chunk, int, int]]:
        """Yields the records that wait, in the order in which they are handed out, ``most`` at most: chunk, index
        there, and how often it came back. Nothing may be handed out meanwhile."""
        for one in islice(merge(sorted(self.requeued), self.standing.walk()), most):
            yield one.chunk, one.at, one.returns
            most -= 1
        for cursor in self.cursors:
            if most <= 0 or cursor.position == cursor.end_position:
                continue
            cursor.step()
            chunk: Chunk | None = cursor.chunk
            number = cursor.number
            while chunk is not None and most > 0 and number < cursor.end_number:
                first, last = number - chunk.first_number, min(len(chunk), cursor.end_number - chunk.first_number)
                for index in range(first, min(last, first + most)):
                    yield chunk, index, 0
                most -= last - first
                number = chunk.first_number + len(chunk)
                chunk = chunk.next

    def requeue(self, cursor: QueueCursor, chunk: Chunk, index: int, *, returns: int, late: bool = False) -> None:
        """Puts a record that was handed out back at its place."""
        self._returned_records += 1
        self.put(self._out_of_order(cursor, chunk, index)._replace(returns=returns, late=late), again=True)

    def _out_of_order(self, cursor: QueueCursor, chunk: Chunk, index: int) -> RequeuedRecord:
        rank = self._rank(chunk, index) if self.sorts else 0
        return RequeuedRecord(rank, cursor.order, chunk.first_number + index, cursor, chunk, index, 0)

    def put(self, record: RequeuedRecord, *, again: bool = False) -> None:
        """Requeues a record. ``again``: it was with a member."""
        self.requeued.put(record)
        if self.on_put is not None:
            self.on_put(record, again)

    def pop(self) -> RequeuedRecord:
        """Takes out the next record of those that wait one by one, of which there must be one."""
        found = self.next_apart()
        assert found is not None
        return self.take(found)

    def find(self, order: int, number: int) -> RequeuedRecord | StandingRecord | None:
        """Returns the record at this place if it was passed or requeued, and still waits."""
        return self.requeued.by_key.get((order, number)) or self.standing.find(order, number)

    def take(self, found: RequeuedRecord | StandingRecord) -> RequeuedRecord:
        """Takes out what was found. It is the caller's to hand out, to drop or to requeue."""
        if isinstance(found, StandingRecord):
            return self.standing.take(found)
        return self.requeued.take(found.key)

    def leave_standing(self, most: int) -> None:
        """Lets the cursor pass some fresh records, of which there must be one."""
        cursor, chunk, first = self.fresh()
        last = min(first + most, len(chunk), cursor.end_number - chunk.first_number)
        self.standing.leave(cursor, chunk, first, last)
        cursor.advance(chunk.ends[last - 1] - chunk.record_start(first))
        self.reads.step()

    def restored(self, cursor: QueueCursor, chunk: Chunk, index: int) -> None:
        """Takes in a record that a member may have had when the previous process ended."""
        if self.sorts:
            cursor.sent(chunk.first_number + index, chunk)
            self.requeue(cursor, chunk, index, returns=1)
        else:
            self._returned_records += 1
            self.standing.leave(cursor, chunk, index, index + 1, came_back=True)

    def take_requeued(self) -> tuple[list[Chunk], list[RequeuedRecord]]:
        """Removes all requeued records, and counts them as dropped. Returns their chunks and them; the caller frees
        them."""
        chunks, taken = list(self.requeued.chunks), sorted(self.requeued)
        self.handed(len(taken), self.requeued.size)
        self.requeued.clear()
        return chunks, taken

    def withdraw(self, cursor: QueueCursor, number: int) -> None:
        """Drops a requeued record that was settled after it timed out, if it was not handed out again."""
        record = self.requeued.by_key.get((cursor.order, number))
        if record is not None and record.late:
            self.requeued.take(record.key)
            self.handed(1, record.size, record.key)
            self.free(record.cursor, record.number)

    def sort_in(self) -> None:
        """Moves the next fresh record to the heap, which orders by priority."""
        cursor, chunk, index = self.fresh()
        cursor.sent(chunk.first_number + index, chunk)
        self.put(self._out_of_order(cursor, chunk, index))
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
        self.reads.settled(cursor)

    def handed(self, records: int, size: int, key: Key | None = None) -> None:
        """Counts records that left the backlog, to a member or dropped. ``key``: of one out of order."""
        self.handed_records += records
        self.handed_bytes += size
        if key is not None and self.on_gone is not None:
            self.on_gone(key)

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants of a queue that has not ended. It visits all requeued and unacknowledged records."""
        passed, out = self.reads.passed_records, self.handed_records - self._returned_records
        out += len(self.requeued) + self.standing.records
        assert out == passed, f"{passed} records passed, {out} handed out, dropped or requeued: some lost or doubled"
        self.reads.check()
        self.requeued.check()
        self.standing.check()
