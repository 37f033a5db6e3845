"""Backlogs: what a queue has still to hand out. It has no records, it reads lanes as any consumer does.

A queue has a list of cursors (queue_cursor.py), which it reads one after the other.

A *requeued* record stands out of its lane's order: a member gave it back, or the queue hands out by priority. It is a
reference (chunk and index) on a heap that is ordered by priority and then by place in the lanes, so a record that comes
back takes its old place again. It keeps its chunk as an unacknowledged record does. Requeued records are handed out
before fresh ones from the lane.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import NamedTuple

from headway.core.consumer import Feed
from headway.core.delivery import record_at
from headway.core.log import Chunk, Cursor
from headway.core.queue.port import QueuePort
from headway.core.queue.queue_cursor import LaneSource, QueueCursor
from headway.core.routing import Registry


class RequeuedRecord(NamedTuple):
    """A record out of its lane's order. The first three are its order on the heap, and no two are equal in them."""

    rank: int
    order: int
    number: int
    cursor: QueueCursor
    chunk: Chunk
    at: int
    """Which of its chunk."""
    returns: int
    """How often it came back from a member."""
    late: bool = False
    """It was taken back from one who may settle it after all."""

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
        self.settling: dict[QueueCursor, None] = {}
        """Read to their end, and not all of it settled."""
        self.handed_records = 0
        self.handed_bytes = 0
        """Given to whichever member, or left out, since the queue began; some twice."""
        self._returned_records = 0
        """Those that came back in between."""
        self._passed_records = 0
        """Records of cursors that were read to their end."""
        self._queue = queue
        self._registry = registry
        self._requeued: list[RequeuedRecord] = []
        """A heap, and never one that is withdrawn on its top."""
        self._requeued_bytes = 0
        self._requeued_by_chunk: dict[Chunk, int] = {}
        """How many of them are of each chunk."""
        self._late: dict[tuple[int, int], RequeuedRecord] = {}
        """Those of them that may be withdrawn."""
        self._withdrawn: set[tuple[int, int]] = set()
        """Those that were; they leave the heap when they come to its top."""
        self._orders = 0

    # -- where it reads ---------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> QueueCursor:
        """Where it reads on now."""
        return self.cursors[0]

    def read(self, feed: Feed, source: LaneSource | None = None) -> None:
        """Go on in another feed's lane, from its end, once what waits has been handed out. ``source`` fills it."""
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
        """Nothing came into the last but one: it would stand there until all in front of it is handed out."""
        if len(self.cursors) > 2 and self.cursors[-2].finished:
            self._done_with(self.cursors.pop(-2))

    def step(self) -> None:
        """Leave cursors that were read to their end."""
        self._fill()
        while self.cursors[0].finished:
            self._done_with(self.cursors.pop(0))
            self._queue.moved_on()
            self._fill()

    def _done_with(self, cursor: QueueCursor) -> None:
        self._passed_records += cursor.passed_records
        cursor.detach()
        self.settling[cursor] = None
        self._settled(cursor)

    def _fill(self) -> None:
        if self.cursors[0].source is not None:
            try:
                self.cursors[0].fill()
            except OSError:
                self.cursors[0].source = None
                self._queue.source_failed()

    def settled(self, cursor: Cursor | None) -> None:
        """A record of one of the cursors needs to be kept no longer."""
        if isinstance(cursor, QueueCursor) and cursor in self.settling:
            self._settled(cursor)

    def _settled(self, cursor: QueueCursor) -> None:
        if not cursor.unacknowledged:
            del self.settling[cursor]
            self._leave(cursor)

    def _leave(self, cursor: QueueCursor) -> None:
        feed = cursor.feed
        cursor.close()
        if cursor.kept is not None:
            cursor.kept.drop(cursor)
        feed.reading -= 1
        if feed not in (other.feed for other in [*self.cursors, *self.settling]):
            feed.queues.pop(self._queue, None)
            feed.listening.pop(self._queue, None)
        self._let_go(feed)

    def _let_go(self, feed: Feed) -> None:
        """It is read no longer; it may be that nobody else needs the rest of it."""
        if feed.listening:
            self._registry.woken[next(iter(feed.listening))] = None
        self._registry.close_if_unread(feed)

    def close(self) -> None:
        """Ends the queue: nothing waits in it any more."""
        for table in (self._requeued, self._requeued_by_chunk, self._late, self._withdrawn):
            table.clear()
        self._requeued_bytes = 0
        for cursor in [*self.cursors, *self.settling]:
            cursor.close()
            cursor.feed.reading -= 1
            cursor.feed.queues.pop(self._queue, None)
            cursor.feed.listening.pop(self._queue, None)
            cursor.feed.limited.pop(self._queue, None)
            self._let_go(cursor.feed)
        self.settling.clear()
        last = self.cursors[-1]
        last.source, last.stop_number, last.stop_position = None, last.number, last.position
        self.cursors = [last]
        del self._queue

    # -- how much waits ---------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        cursor = self.cursors[0]
        return bool(self._requeued) or cursor.position != cursor.end_position or len(self.cursors) > 1

    @property
    def has_some(self) -> bool:
        """There is something to hand out now; what a source has not found yet is not."""
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
        """What the bodies of those that wait come to, if what stands in front of each is as long as with the next."""
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
        """Records that are with members, and may come back."""
        out = sum(len(cursor.unacknowledged) for cursor in [*self.cursors, *self.settling])
        return out - self._requeued_records

    def oldest_time(self) -> float | None:
        """When what is to be handed out next was published; None when nothing is."""
        if self._requeued:
            return self._requeued[0].chunk.time_of(self._requeued[0].at)
        return next((time for s in self.cursors if (time := s.oldest_time()) is not None), None)

    @property
    def head_is_held(self) -> bool:
        """What is to be handed out next may not be given up."""
        head = self.head()
        return head is not None and head[0].held_from(head[1]) == head[1]

    def wants(self, chunk: Chunk) -> bool:
        """Some of the chunk is still to be handed out."""
        waits = any(s.chunk is chunk and s.position != s.end_position for s in self.cursors)
        return waits or chunk in self._requeued_by_chunk

    def oldest_wanted(self, chunk: Chunk) -> Chunk:
        """The oldest chunk of a lane it has left, if it wants that; else this one."""
        firsts = (cursor.lane.first for cursor in [*self.settling, *self.cursors])
        return next((first for first in firsts if self.wants(first)), chunk)

    # -- one after the other ----------------------------------------------------------------------------------------

    @property
    def next_requeued(self) -> RequeuedRecord | None:
        """The next of those out of order."""
        return self._requeued[0] if self._requeued else None

    def has_fresh(self) -> bool:
        """There is more in the lane."""
        self.step()
        return self.cursor.position != self.cursor.end_position

    def fresh(self) -> tuple[QueueCursor, Chunk, int]:
        """The next record in the lane, where there is one: its cursor, its chunk, and which of that."""
        cursor = self.cursor
        cursor.step()
        chunk = cursor.chunk
        assert chunk is not None
        return cursor, chunk, chunk.index_at(cursor.position)

    def head(self) -> tuple[Chunk, int] | None:
        """The record that comes next."""
        if self._requeued:
            return self._requeued[0].chunk, self._requeued[0].at
        return self.fresh()[1:] if self.has_fresh() else None

    def requeue(self, cursor: QueueCursor, chunk: Chunk, index: int, *, returns: int, late: bool = False) -> None:
        """Put a record that is out of order where it belongs."""
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
        """Leave out a record that was taken back, if it is still there."""
        record = self._late.get((cursor.order, number))
        if record is not None:
            self._count_out(record)
            self._withdrawn.add(record.key)
            self._clear_top()
            self.handed(1, record.size)
            self.free(record.cursor, record.number)

    def sort_in(self) -> None:
        """Puts the next fresh record where its priority has it."""
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
        """A record that was taken, or in flight, needs to be kept no longer."""
        cursor.acknowledge(number)
        self.settled(cursor)

    def handed(self, records: int, size: int) -> None:
        """So much is out of it, to a member or to nobody."""
        self.handed_records += records
        self.handed_bytes += size

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what always holds, while the queue lasts. It goes through all that is taken or unacknowledged."""
        passed = self._passed_records + sum(cursor.passed_records for cursor in self.cursors)
        out = self.handed_records - self._returned_records + self._requeued_records
        assert out == passed, f"{passed} records passed, {out} handed out, dropped or requeued: some lost or doubled"
        orders = [cursor.order for cursor in self.cursors]
        assert orders == sorted(set(orders))
        assert all(cursor.stop_number is not None for cursor in self.cursors[:-1]), "one is read after the other"
        for cursor in [*self.cursors, *self.settling]:
            cursor.check()
            assert cursor.position <= cursor.end_position
        assert all(cursor.unacknowledged and not cursor.attached for cursor in self.settling)
        records = [record for record in self._requeued if record.key not in self._withdrawn]
        assert len(records) == self._requeued_records
        assert self._requeued == [] or self._requeued[0] == min(self._requeued), "the next one is on top"
        assert self._requeued == [] or self._requeued[0].key not in self._withdrawn
        assert self._requeued_bytes == sum(record.size for record in records)
        assert self._requeued_by_chunk == Counter(record.chunk for record in records)
        assert self._late == {record.key: record for record in records if record.late}
        for record in records:
            assert record.cursor.unacknowledged[record.number] is record.chunk, "a requeued record keeps its chunk"
