"""Lane reads: the lanes that a queue reads, one after the other, with a cursor in each.

Most queues read one lane. When the bindings of a queue change, it goes on in another lane where the old one stopped. A
cursor that was read to its end *drains*: it stays until the last record that members have of it is settled.
"""

from __future__ import annotations

from typing import cast

from headway.core.consumer import Feed
from headway.core.log import Cursor
from headway.core.queue.backlog.port import QueuePort
from headway.core.queue.places import LaneSource, PresentCursor, QueueCursor
from headway.core.routing import Registry


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
