"""Backlogs: what a queue has still to hand out. It has no records, it reads lanes as any consumer does.

A queue's place is a list of stretches (stretch.py), read one after the other.

A record that is out of its lane's order is *taken*: given back by a member, or of a queue that goes by priority. It is
a reference (chunk and index) on a heap ordered by priority and place, so what comes back takes its old place again; it
keeps its chunk as an unacknowledged one does. What is taken comes before what is fresh in the lane.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import NamedTuple

from headway.core.consumer import Feed
from headway.core.delivery import record_at
from headway.core.log import Chunk, Cursor
from headway.core.queue.owner import Owner
from headway.core.queue.stretch import Source, Stretch
from headway.core.routing import Registry


class Place(NamedTuple):
    """A record out of its lane's order. The first three are its order on the heap, and no two are equal in them."""

    rank: int
    order: int
    number: int
    stretch: Stretch
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
    def __init__(self, queue: Owner, registry: Registry) -> None:
        self.stretches: list[Stretch] = []
        self.settling: dict[Stretch, None] = {}
        """Read to their end, and not all of it settled."""
        self.handed_records = 0
        self.handed_bytes = 0
        """Given to whichever member, or left out, since the queue began; some twice."""
        self._requeued_records = 0
        """Those that came back in between."""
        self._passed_records = 0
        """Records of stretches that were read to their end."""
        self._queue = queue
        self._registry = registry
        self._taken: list[Place] = []
        """A heap, and never one that is withdrawn on its top."""
        self._taken_bytes = 0
        self._taken_of: dict[Chunk, int] = {}
        """How many of them are of each chunk."""
        self._late: dict[tuple[int, int], Place] = {}
        """Those of them that may be withdrawn."""
        self._withdrawn: set[tuple[int, int]] = set()
        """Those that were; they leave the heap when they come to its top."""
        self._orders = 0

    # -- where it reads ---------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> Stretch:
        """Where it reads on now."""
        return self.stretches[0]

    def read(self, feed: Feed, source: Source | None = None) -> None:
        """Go on in another feed's lane, from its end, once what waits has been handed out. ``source`` fills it."""
        if self.stretches:
            last = self.stretches[-1]
            last.stop_number, last.stop_position = last.lane.count, last.lane.end
            last.ended = self._registry.sequence
            last.feed.listening.pop(self._queue, None)
            last.feed.limited.pop(self._queue, None)
        self._orders += 1
        self.stretches.append(Stretch(self._queue, feed, self._orders, source))
        feed.queues[self._queue] = None
        feed.reading += 1

    def leave_empty(self) -> None:
        """Nothing came into the last but one: it would stand there until all in front of it is handed out."""
        if len(self.stretches) > 2 and self.stretches[-2].finished:
            self._done_with(self.stretches.pop(-2))

    def step(self) -> None:
        """Leave stretches that were read to their end."""
        self._fill()
        while self.stretches[0].finished:
            self._done_with(self.stretches.pop(0))
            self._queue.moved_on()
            self._fill()

    def _done_with(self, stretch: Stretch) -> None:
        self._passed_records += stretch.passed_records
        stretch.detach()
        self.settling[stretch] = None
        self._settled(stretch)

    def _fill(self) -> None:
        if self.stretches[0].source is not None:
            try:
                self.stretches[0].fill()
            except OSError:
                self.stretches[0].source = None
                self._queue.source_failed()

    def settled(self, cursor: Cursor | None) -> None:
        """A record of one of the stretches needs to be kept no longer."""
        if isinstance(cursor, Stretch) and cursor in self.settling:
            self._settled(cursor)

    def _settled(self, stretch: Stretch) -> None:
        if not stretch.unacknowledged:
            del self.settling[stretch]
            self._leave(stretch)

    def _leave(self, stretch: Stretch) -> None:
        feed = stretch.feed
        stretch.close()
        if stretch.kept is not None:
            stretch.kept.drop(stretch)
        feed.reading -= 1
        if feed not in (other.feed for other in [*self.stretches, *self.settling]):
            feed.queues.pop(self._queue, None)
            feed.listening.pop(self._queue, None)
        self._let_go(feed)

    def _let_go(self, feed: Feed) -> None:
        """It is read no longer; it may be that nobody else needs the rest of it."""
        if feed.listening:
            self._registry.woken[next(iter(feed.listening))] = None
        self._registry.close_if_unread(feed)

    def close(self) -> None:
        """The queue is over."""
        for table in (self._taken, self._taken_of, self._late, self._withdrawn):
            table.clear()
        self._taken_bytes = 0
        for stretch in [*self.stretches, *self.settling]:
            stretch.close()
            stretch.feed.reading -= 1
            stretch.feed.queues.pop(self._queue, None)
            stretch.feed.listening.pop(self._queue, None)
            stretch.feed.limited.pop(self._queue, None)
            self._let_go(stretch.feed)
        self.settling.clear()
        del self._queue

    # -- how much waits ---------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        cursor = self.stretches[0]
        return bool(self._taken) or cursor.position != cursor.end_position or len(self.stretches) > 1

    @property
    def has_some(self) -> bool:
        """There is something to hand out now; what a source has not found yet is not."""
        cursor = self.stretches[0]
        return bool(self._taken) or cursor.position != cursor.end_position

    @property
    def _taken_records(self) -> int:
        return len(self._taken) - len(self._withdrawn)

    @property
    def lag_records(self) -> int:
        return self._taken_records + sum(
            stretch.end_number - stretch.number for stretch in self.stretches
            if stretch.attached and stretch.position != stretch.end_position
        )  # fmt: skip

    @property
    def lag_bytes(self) -> int:
        return self._taken_bytes + sum(stretch.end_position - stretch.position for stretch in self.stretches)

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
        out = sum(len(stretch.unacknowledged) for stretch in [*self.stretches, *self.settling])
        return out - self._taken_records

    def oldest_time(self) -> float | None:
        """When what is to be handed out next was published; None when nothing is."""
        if self._taken:
            return self._taken[0].chunk.time_of(self._taken[0].at)
        return next((time for s in self.stretches if (time := s.oldest_time()) is not None), None)

    @property
    def head_is_held(self) -> bool:
        """What is to be handed out next may not be given up."""
        head = self.head()
        return head is not None and head[0].held_from(head[1]) == head[1]

    def wants(self, chunk: Chunk) -> bool:
        """Some of the chunk is still to be handed out."""
        waits = any(s.chunk is chunk and s.position != s.end_position for s in self.stretches)
        return waits or chunk in self._taken_of

    def oldest_wanted(self, chunk: Chunk) -> Chunk:
        """The oldest chunk of a lane it has left, if it wants that; else this one."""
        firsts = (stretch.lane.first for stretch in [*self.settling, *self.stretches])
        return next((first for first in firsts if self.wants(first)), chunk)

    # -- one after the other ----------------------------------------------------------------------------------------

    @property
    def taken(self) -> Place | None:
        """The next of those out of order."""
        return self._taken[0] if self._taken else None

    def has_fresh(self) -> bool:
        """There is more in the lane."""
        self.step()
        return self.cursor.position != self.cursor.end_position

    def fresh(self) -> tuple[Stretch, Chunk, int]:
        """The next record in the lane, where there is one: its stretch, its chunk, and which of that."""
        stretch = self.cursor
        stretch.step()
        chunk = stretch.chunk
        assert chunk is not None
        return stretch, chunk, chunk.index_at(stretch.position)

    def head(self) -> tuple[Chunk, int] | None:
        """The record that comes next."""
        if self._taken:
            return self._taken[0].chunk, self._taken[0].at
        return self.fresh()[1:] if self.has_fresh() else None

    def take(self, stretch: Stretch, chunk: Chunk, index: int, *, returns: int, late: bool = False) -> None:
        """Put a record that is out of order where it belongs."""
        self._requeued_records += returns > 0
        rank = self._rank(chunk, index) if self._queue.terms.priorities else 0
        self.put(Place(rank, stretch.order, chunk.first_number + index, stretch, chunk, index, returns, late))

    def put(self, place: Place) -> None:
        heappush(self._taken, place)
        self._taken_bytes += place.size
        self._taken_of[place.chunk] = self._taken_of.get(place.chunk, 0) + 1
        if place.late:
            self._late[place.key] = place

    def pop(self) -> Place:
        place = heappop(self._taken)
        self._not_taken(place)
        self._clear_top()
        return place

    def _not_taken(self, place: Place) -> None:
        self._taken_bytes -= place.size
        left = self._taken_of[place.chunk] = self._taken_of[place.chunk] - 1
        assert left >= 0 <= self._taken_bytes
        if not left:
            del self._taken_of[place.chunk]
        if place.late:
            del self._late[place.key]

    def _clear_top(self) -> None:
        while self._withdrawn and self._taken[0].key in self._withdrawn:
            self._withdrawn.remove(heappop(self._taken).key)

    def withdraw(self, stretch: Stretch, number: int) -> None:
        """Leave out a record that was taken back, if it is still there."""
        place = self._late.get((stretch.order, number))
        if place is not None:
            self._not_taken(place)
            self._withdrawn.add(place.key)
            self._clear_top()
            self.handed(1, place.size)
            self.free(place.stretch, place.number)

    def sort_in(self) -> None:
        """Put what came where its priority has it."""
        while self.has_fresh():
            stretch, chunk, index = self.fresh()
            stretch.sent(chunk.first_number + index, chunk)
            self.take(stretch, chunk, index, returns=0)
            stretch.advance(chunk.ends[index] - chunk.record_start(index))

    def _rank(self, chunk: Chunk, index: int) -> int:
        try:
            record = record_at(self.cursor.lane.dialect, chunk, index)
        except OSError:
            return 0
        priority = record.properties.user_value("priority")
        return -min(self._queue.terms.priorities, int(priority) if priority and priority.isdecimal() else 0)

    def free(self, stretch: Stretch, number: int) -> None:
        """A record that was taken, or in flight, needs to be kept no longer."""
        stretch.acknowledge(number)
        self.settled(stretch)

    def handed(self, records: int, size: int) -> None:
        """So much is out of it, to a member or to nobody."""
        self.handed_records += records
        self.handed_bytes += size

    # -- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what always holds, while the queue lasts. It goes through all that is taken or unacknowledged."""
        passed = self._passed_records + sum(stretch.passed_records for stretch in self.stretches)
        out = self.handed_records - self._requeued_records + self._taken_records
        assert out == passed, f"{passed} records passed, {out} handed out, left out or taken: some are lost or doubled"
        orders = [stretch.order for stretch in self.stretches]
        assert orders == sorted(set(orders))
        assert all(stretch.stop_number is not None for stretch in self.stretches[:-1]), "one is read after the other"
        for stretch in [*self.stretches, *self.settling]:
            stretch.check()
            assert stretch.position <= stretch.end_position
        assert all(stretch.unacknowledged and not stretch.attached for stretch in self.settling)
        places = [place for place in self._taken if place.key not in self._withdrawn]
        assert len(places) == self._taken_records
        assert self._taken == [] or self._taken[0] == min(self._taken), "the next one is on top"
        assert self._taken == [] or self._taken[0].key not in self._withdrawn
        assert self._taken_bytes == sum(place.size for place in places)
        assert self._taken_of == Counter(place.chunk for place in places)
        assert self._late == {place.key: place for place in places if place.late}
        for place in places:
            assert place.stretch.unacknowledged[place.number] is place.chunk, "what is taken keeps its chunk"
