"""Queues: many members, one place; each record goes to one of them.

Theory of operation. A queue has no records, it reads a lane as any consumer does. Its place is a list of *stretches*:
cursors, each in the lane of one feed up to where the queue left it for another (its bindings changed); nearly always
there is one, which has no end. Records are handed out in small portions to members that have room and credit, in turn,
so that a member that is stuck gets no more than it already has while the others share the rest.

A record that is out of its lane's order is *taken*: given back by a member, or of a queue that goes by priority. It is
a reference (chunk and index) on a heap ordered by priority and place, so what comes back takes its old place again; it
keeps its chunk as an unacknowledged one does.

What a member did not settle when it went is taken back and given to another, marked as redelivered; except for
exactly-once deliveries, which MQTT forbids to give to anybody else (MQTT 5, 4.8.2): these are counted as a gap.

Who has everything *listens* to its feed; who has not is not visited until it is *woken*: by room, by credit, or by what
a member gives back. So a stuck queue costs a turn nothing.

A shared subscription's group is a queue that ends with its last member.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from headway.core.channel import Delivery
from headway.core.chunk import Chunk
from headway.core.cursor import Cursor
from headway.core.delivery import doom, record_at
from headway.core.effects import DeadLetter
from headway.core.errors import Reason
from headway.core.fanout import PUMP_BYTES, Fanout
from headway.core.feed import Feed
from headway.core.handing import BATCH_BYTES, has_room, moves, send_batch, send_one
from headway.core.options import QueueTerms
from headway.core.registry import Registry
from headway.core.session import Session
from headway.core.subscription import Skip, Subscription

PORTION_RECORDS = 32
DROPS_MAX = 1000
"""Records dropped one by one in a row; the rest waits for the next turn."""


class Stretch(Cursor):
    """Part of what a queue reads: the lane of ``feed``, up to ``stop_number`` (None: as far as it goes)."""

    __slots__ = ("feed", "order", "stop_number", "stop_position")

    def __init__(self, feed: Feed, order: int) -> None:
        super().__init__(feed.lane)
        self.feed = feed
        self.order = order
        self.stop_number: int | None = None
        self.stop_position = 0

    @property
    def end_number(self) -> int:
        return self.lane.count if self.stop_number is None else self.stop_number

    @property
    def end_position(self) -> int:
        return self.lane.end if self.stop_number is None else self.stop_position

    @property
    def finished(self) -> bool:
        """There is nothing to come but by the next stretch."""
        return self.stop_number is not None and self.position >= self.stop_position


class Place(NamedTuple):
    """A record out of its lane's order. The first three are its order on the heap, and no two are equal in them."""

    rank: int
    order: int
    number: int
    stretch: Stretch
    chunk: Chunk
    at: int
    """Which of its chunk."""
    redelivered: bool

    @property
    def size(self) -> int:
        return self.chunk.ends[self.at] - self.chunk.record_start(self.at)


class Got(NamedTuple):
    """A record that was asked for: as it stands in the lane, and how many more wait."""

    delivery_id: int
    frame: bytes
    redelivered: bool
    records_left: int


class Queue:
    def __init__(self, name: str, feed: Feed, terms: QueueTerms, registry: Registry, fanout: Fanout,
                 on_lag: Callable[[Subscription, float], None], *, ends_with_members: bool = False) -> None:
        self.name = name
        self.terms = terms
        self.feed = feed
        self.members: dict[Subscription, None] = {}
        self.ends_with_members = ends_with_members
        self.ended = False
        self.skips: list[Skip] = []
        """Those of all its members."""
        self.handed_records = 0
        self.handed_bytes = 0
        """Given to whichever member, or left out, since the queue began; some twice."""
        self.dropped: Counter[Reason] = Counter()
        """Records left out, by reason."""
        self.filters: tuple[str, ...] = ()
        """The names it goes by for policies: ``$queue/NAME``, and those of its bindings."""
        self.owner: Session | None = None
        """Whose it is alone."""
        self.exclusive_consumer: Subscription | None = None
        """Who is to be its only consumer."""
        self.called = False
        """It was published to by its name."""
        self.used_s = 0.0
        """When somebody last asked for a record or declared it."""
        self._registry = registry
        self._fanout = fanout
        self._on_lag = on_lag
        self._taken: list[Place] = []
        self._taken_bytes = 0
        self._alarm_s = inf
        self._came: float = 0
        """Records from this number on came since everyone had everything, so somebody may be waiting for them."""
        self.stretches: list[Stretch] = []
        self._settling: dict[Stretch, None] = {}
        """Read to their end, and not all of it settled."""
        self._orders = 0
        self.read(feed)

    # -- where it reads ---------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> Stretch:
        """Where it reads on now."""
        return self.stretches[0]

    def read(self, feed: Feed) -> None:
        """Go on in another feed's lane, from its end, once what waits has been handed out."""
        if self.stretches:
            last = self.stretches[-1]
            last.stop_number, last.stop_position = last.lane.count, last.lane.end
            last.feed.listening.pop(self, None)
            last.feed.limited.pop(self, None)
            self._move_gates(last.feed, feed)
        self._orders += 1
        self.stretches.append(Stretch(feed, self._orders))
        feed.queues[self] = None
        feed.reading += 1
        if self.terms.limited and not self.terms.refuses:
            feed.limited[self] = None
        for member in self.members:
            self._registry.moved(member, feed)
        self.feed = feed
        self._step()
        self._registry.woken[self] = None

    def _move_gates(self, old: Feed, new: Feed) -> None:
        """Members that hold back publishers do so where they read now; who waited for the lane they left goes on."""
        for member in self.members:
            since = old.gates.pop(member, None)
            if since is not None:
                new.gates[member] = since
        self._registry.timers.at(0.0, lambda now: self._registry.ungate(old, now))

    def _step(self) -> None:
        """Leave stretches that were read to their end."""
        while self.stretches[0].finished:
            done = self.stretches.pop(0)
            done.detach()
            self._settling[done] = None
            self._settled(done)
            for member in self.members:
                member.cursor = self.stretches[0]
            self.skips.clear()

    def settled(self, cursor: Cursor | None) -> None:
        """A record of one of the stretches needs to be kept no longer."""
        if isinstance(cursor, Stretch) and cursor in self._settling:
            self._settled(cursor)

    def _settled(self, stretch: Stretch) -> None:
        if not stretch.unacknowledged:
            del self._settling[stretch]
            self._leave(stretch)

    def _leave(self, stretch: Stretch) -> None:
        feed = stretch.feed
        stretch.close()
        feed.reading -= 1
        if feed.listening:
            self._registry.woken[next(iter(feed.listening))] = None  # it may be that nobody needs the rest of it
        if feed not in (other.feed for other in [*self.stretches, *self._settling]):
            feed.queues.pop(self, None)
            feed.listening.pop(self, None)
        self._registry.close_if_unread(feed)

    def close(self) -> None:
        """The queue is over; its members have left."""
        self.ended = True
        self._registry.woken.pop(self, None)
        self._taken.clear()
        self._taken_bytes = 0
        for stretch in [*self.stretches, *self._settling]:
            stretch.close()
            stretch.feed.reading -= 1
            stretch.feed.queues.pop(self, None)
            stretch.feed.listening.pop(self, None)
            stretch.feed.limited.pop(self, None)
            self._registry.close_if_unread(stretch.feed)
        self._settling.clear()

    # -- how much waits ---------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        cursor = self.stretches[0]
        return bool(self._taken) or cursor.position != cursor.end_position or len(self.stretches) > 1

    @property
    def lag_records(self) -> int:
        return len(self._taken) + sum(
            stretch.end_number - stretch.number for stretch in self.stretches
            if stretch.attached and stretch.position != stretch.end_position
        )  # fmt: skip

    @property
    def lag_bytes(self) -> int:
        return self._taken_bytes + sum(stretch.end_position - stretch.position for stretch in self.stretches)

    @property
    def body_bytes(self) -> int:
        """What the bodies of those that wait come to, if what stands in front of each is as long as with the next."""
        head = self._head()
        if head is None:
            return 0
        chunk, index = head
        try:
            body = len(record_at(self.feed.lane.dialect, chunk, index).payload)
        except OSError:
            return self.lag_bytes
        front = chunk.ends[index] - chunk.record_start(index) - body
        return self.lag_bytes - self.lag_records * front

    def oldest_time(self) -> float | None:
        """When what is to be handed out next was published; None when nothing is."""
        if self._taken:
            return self._taken[0].chunk.time_of(self._taken[0].at)
        return next((time for s in self.stretches if (time := s.oldest_time()) is not None), None)

    # -- members ----------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> list[Subscription]:
        """The members that are given records without asking."""
        return [member for member in self.members if not member.request.polling]

    @property
    def unacknowledged(self) -> int:
        """Records that are with consumers, and may come back."""
        out = sum(len(stretch.unacknowledged) for stretch in [*self.stretches, *self._settling])
        return out - len(self._taken)

    @property
    def _next_member(self) -> Subscription | None:
        """Who is told of what nobody gets."""
        return next(iter(self.members), None)

    @property
    def takers(self) -> list[Subscription]:
        """The members that what waits could go to; not those that stand by, nor, if there are others, those that ask."""
        takers = self.consumers or list(self.members)
        return takers[:1] if self.terms.single_active else takers

    @property
    def all_slow(self) -> bool:
        """One slow consumer is no problem of a queue; it is when there is no other."""
        return all(member.meter.slow for member in self.takers)

    @property
    def gates(self) -> bool:
        """All of its members would hold back publishers."""
        return all(member in self.feed.gates for member in self.takers)

    def join(self, subscription: Subscription) -> None:
        subscription.cursor.close()
        subscription.cursor = self.cursor
        subscription.queue = self
        subscription.skips = self.skips
        subscription.start_number, subscription.start_position = self.handed_records, self.handed_bytes
        self.members[subscription] = None
        subscription.session.queues[self] = None
        self._registry.woken[self] = None

    def leave(self, member: Subscription) -> None:
        """The member is gone for good. What its session, if that has ended, had not settled goes to the others."""
        self.members.pop(member, None)
        session = member.session
        if not any(other.session is session for other in self.members):
            session.queues.pop(self, None)
        if self.exclusive_consumer is member:
            self.exclusive_consumer = None
        if not self.members:
            self.skips.clear()
        if not member.request.polling:
            self._registry.unused[self] = None
        if session.ended:
            self.take_back(member, Reason.SUBSCRIPTION_ENDED)
        elif self.ends_with_members:  # the client is still there and settles what it was sent
            for delivery in member.channel.in_flight.values():
                if delivery.subscription is member and delivery.cursor is not None:
                    delivery.cursor.acknowledge(delivery.number)
                    delivery.cursor = delivery.chunk = None
        if self.ends_with_members and not self.members:
            self._give_up(member, Reason.SUBSCRIPTION_ENDED)
        self._registry.woken[self] = None

    def return_late(self, member: Subscription, before_s: float) -> int:
        """What the member was sent before then and has not settled is for others; it gets no more in its place. Returns
        how much that is."""
        if self.ends_with_members:
            return 0  # MQTT: only the end of its session takes anything from a member
        flight = member.channel.in_flight.items()
        old = [i for i, d in flight if d.subscription is member and d.sent_s <= before_s]
        for delivery_id in old:
            self.give_back(member.channel.take_back(delivery_id))
        return len(old)

    def take_back(self, member: Subscription, reason: Reason) -> None:
        """What the member has not settled is for others, unless nobody else may have it."""
        channel = member.channel
        for delivery_id in [i for i, d in channel.in_flight.items() if d.subscription is member]:
            delivery = channel.remove(delivery_id)
            assert delivery is not None
            if delivery.record is None or min(delivery.record.qos, member.request.qos) == 1:
                self.give_back(delivery)
            elif isinstance(delivery.cursor, Stretch):
                assert delivery.chunk is not None
                self._lose(member, delivery.chunk, delivery.index, reason)
                self._free(delivery.cursor, delivery.number)

    def give_back(self, delivery: Delivery) -> None:
        """A record that was handed out takes its old place again, marked as redelivered."""
        stretch, chunk = delivery.cursor, delivery.chunk
        if self.ended:
            return
        assert isinstance(stretch, Stretch)
        assert chunk is not None
        self._take(stretch, chunk, delivery.index, redelivered=True)
        self._came = inf
        self.feed.listening.pop(self, None)
        self._registry.woken[self] = None

    def _take(self, stretch: Stretch, chunk: Chunk, index: int, *, redelivered: bool) -> None:
        rank = self._rank(chunk, index) if self.terms.priorities else 0
        place = Place(rank, stretch.order, chunk.first_number + index, stretch, chunk, index, redelivered)
        heappush(self._taken, place)
        self._taken_bytes += place.size

    def _pop(self) -> Place:
        place = heappop(self._taken)
        self._taken_bytes -= place.size
        return place

    def _rank(self, chunk: Chunk, index: int) -> int:
        try:
            record = record_at(self.feed.lane.dialect, chunk, index)
        except OSError:
            return 0
        priority = record.properties.user_value("priority")
        return -min(self.terms.priorities, int(priority) if priority and priority.isdecimal() else 0)

    def _free(self, stretch: Stretch, number: int) -> None:
        """A record that was taken, or in flight, needs to be kept no longer."""
        stretch.acknowledge(number)
        self.settled(stretch)

    # -- letting go -------------------------------------------------------------------------------------------------

    def _give_up(self, member: Subscription, reason: Reason) -> None:
        """Nobody takes what waits: it is counted with this member."""
        while self._taken:
            place = self._pop()
            self._lose(member, place.chunk, place.at, reason)
            self._free(place.stretch, place.number)
        self._handed(self.cursor.lag_records, self.cursor.lag_bytes)
        self._registry.lost(member.skip_to(self.feed.lane.count, reason), reason)

    def _lose(self, member: Subscription | None, chunk: Chunk, index: int, reason: Reason) -> None:
        sequence = chunk.sequence_of(index)
        if member is not None:
            member.note_gap(1, sequence, sequence, reason)
        self.dropped[reason] += 1
        self._registry.lost({chunk.run_publisher[chunk.run_of(index)]: 1}, reason)

    def purge(self) -> int:
        """Forget what waits. Returns how many records that was."""
        return self.drop(self.lag_records, Reason.PURGED)

    def drop(self, records: int, reason: Reason) -> int:
        """Leave out the records that would be handed out next. Returns how many that was."""
        dead = self.terms.dead_letter_exchange is not None and reason is not Reason.PURGED
        done = 0
        while done < records and self._taken:
            place = self._pop()
            self._drop_one(place.stretch, place.chunk, place.at, reason)
            self._free(place.stretch, place.number)
            done += 1
        while done < records and self._has_fresh():
            stretch = self.cursor
            stretch.step()
            chunk = stretch.chunk
            assert chunk is not None
            first = chunk.index_at(stretch.position)
            last = min(first + records - done, len(chunk), stretch.end_number - chunk.first_number)
            if dead:
                for index in range(first, last):
                    self._drop_one(stretch, chunk, index, reason)
            else:
                self.dropped[reason] += last - first
                self._handed(last - first, chunk.record_start(last) - chunk.record_start(first))
                if reason is not Reason.PURGED:
                    self._registry.lost(chunk.publishers(first, last), reason)
                    if (member := self._next_member) is not None:
                        member.note_gap(last - first, chunk.sequence_of(first), chunk.sequence_of(last - 1), reason)
            stretch.skip_to(chunk.first_number + last)
            done += last - first
            self._step()
        if not self.has_more:
            self._registry.woken[self] = None  # so that its lane lets go of what was dropped
        return done

    def _has_fresh(self) -> bool:
        self._step()
        return self.cursor.position != self.cursor.end_position

    def _drop_one(self, stretch: Stretch, chunk: Chunk, index: int, reason: Reason) -> None:
        """One record is left out; it has a second chance where the queue has a dead letter exchange."""
        self._handed(1, chunk.ends[index] - chunk.record_start(index))
        if reason is Reason.PURGED:
            self.dropped[reason] += 1
        elif self.terms.dead_letter_exchange is None or not self._dead_letter(chunk, index, reason):
            self._lose(self._next_member, chunk, index, reason)

    def _dead_letter(self, chunk: Chunk, index: int, reason: Reason) -> bool:
        try:
            record = record_at(self.feed.lane.dialect, chunk, index)
        except OSError:
            return False
        self.dropped[reason] += 1
        self._registry.effects.append(DeadLetter(self.name, self.terms, record, reason))
        return True

    def reject(self, delivery: Delivery) -> None:
        """A member wants this record to go to nobody."""
        stretch, chunk = delivery.cursor, delivery.chunk
        if self.ended:
            return
        assert isinstance(stretch, Stretch)
        assert chunk is not None
        dead = self.terms.dead_letter_exchange is not None
        if not dead or not self._dead_letter(chunk, delivery.index, Reason.REJECTED):
            self.dropped[Reason.REJECTED] += 1
        self._free(stretch, delivery.number)

    # -- limits -----------------------------------------------------------------------------------------------------

    def room(self, record_bytes: int) -> int:
        """How many more records with bodies of about this size it takes."""
        terms, found = self.terms, 2**62
        if terms.records_max is not None:
            found = terms.records_max - self.lag_records
        if terms.bytes_max is not None:
            found = min(found, (terms.bytes_max - self.body_bytes) // max(1, record_bytes))
        return max(0, found)

    def _keep_within(self) -> None:
        """Drop what has waited longest, while more waits than may."""
        terms = self.terms
        if terms.records_max is not None and (excess := self.lag_records - terms.records_max) > 0:
            self.drop(excess, Reason.QUEUE_LENGTH)
        while terms.bytes_max is not None and (excess := self.body_bytes - terms.bytes_max) > 0:
            self.drop(max(1, excess * self.lag_records // self.lag_bytes), Reason.QUEUE_LENGTH)

    def keep_bytes(self, limit: int, reason: Reason) -> None:
        """Leave out what would be handed out next until no more than so many bytes wait."""
        while (excess := self.lag_bytes - limit) > 0 and (records := self.lag_records):
            self.drop(max(1, excess * records // self.lag_bytes), reason)

    def _expired(self, chunk: Chunk, index: int, now: float) -> bool:
        if chunk.first_number + index >= self._came:
            return False  # no lifetime at all is enough for who waits for it
        run = chunk.run_of(index)
        ttl_s = self.terms.ttl_s
        return chunk.run_expires[run] <= now or (ttl_s is not None and chunk.run_time[run] + ttl_s <= now)

    def _expires_s(self, chunk: Chunk, index: int) -> float:
        run = chunk.run_of(index)
        ttl_s = self.terms.ttl_s
        return min(chunk.run_expires[run], inf if ttl_s is None else chunk.run_time[run] + ttl_s)

    def _drop_expired(self, now: float) -> None:
        """Leave out what has expired, from the head on; see to it that this is done again when the next one does."""
        for _ in range(DROPS_MAX):
            head = self._head()
            if head is None:
                return
            chunk, index = head
            if chunk.soonest_s == inf and self.terms.ttl_s is None:
                return
            if not self._expired(chunk, index, now):
                self._alarm(self._expires_s(chunk, index), now)
                return
            self.drop(1, Reason.EXPIRED)
        self._registry.woken[self] = None

    def _head(self) -> tuple[Chunk, int] | None:
        if self._taken:
            return self._taken[0].chunk, self._taken[0].at
        if not self._has_fresh():
            return None
        self.cursor.step()
        chunk = self.cursor.chunk
        assert chunk is not None
        return chunk, chunk.index_at(self.cursor.position)

    def _alarm(self, when: float, now: float) -> None:
        if when == inf or self._alarm_s <= when:
            return
        self._alarm_s = when

        def ring(then: float) -> None:
            if self._alarm_s <= then:
                self._alarm_s = inf
            if not self.ended:
                self._registry.woken[self] = None

        self._registry.timers.at(when, ring)

    # -- when room is wanted ----------------------------------------------------------------------------------------

    def holders(self, chunk: Chunk, late_s: float) -> list[Subscription]:
        """Who keeps the lane from letting go of a chunk: those who have long not settled what they were sent of it, or,
        if some of it was not sent, all of them; nobody, while somebody still takes records."""
        if self.wants(chunk):
            return [] if self._anybody_moves(late_s) else list(self.members)
        return [
            member for member in self.members
            if any(d.chunk is chunk and d.subscription is member and d.sent_s <= late_s
                   for d in member.channel.in_flight.values())
        ]  # fmt: skip

    def write_off(self, member: Subscription, reason: Reason, late_s: float) -> None:
        """The member keeps its session, and nothing else: others get what it held; if nobody can, it is given up."""
        self.take_back(member, reason)
        if self.wants(self.feed.lane.first) and not self._anybody_moves(late_s):
            self._give_up(member, reason)

    def give_up_chunk(self, chunk: Chunk, reason: Reason) -> None:
        """Nobody takes records from this queue, and room is wanted: what it keeps of this chunk is dropped; if it keeps
        older ones, in a lane it has left, of the oldest."""
        firsts = (stretch.lane.first for stretch in [*self._settling, *self.stretches])
        chunk = next((first for first in firsts if self.wants(first)), chunk)
        while self._taken and any(place.chunk is chunk for place in self._taken):
            self.drop(1, reason)
        while self._has_fresh() and self.cursor.chunk is chunk and self.cursor.position != chunk.stop:
            self.drop(chunk.first_number + len(chunk) - self.cursor.number, reason)
            self.cursor.step()

    def wants(self, chunk: Chunk) -> bool:
        """Some of the chunk is still to be handed out."""
        waits = any(s.chunk is chunk and s.position != s.end_position for s in self.stretches)
        return waits or any(place.chunk is chunk for place in self._taken)

    def _anybody_moves(self, late_s: float) -> bool:
        if self.used_s > late_s and any(member.request.polling for member in self.members):
            return True  # somebody asked
        return any(moves(member, late_s) for member in self.takers if not member.request.polling)

    # -- handing out ------------------------------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Hand out what there is to whoever can take it."""
        if self.ended:
            return
        budget = self.handed_bytes + PUMP_BYTES
        self._drop_expired(now)
        if self.terms.priorities:
            self._sort_in()
        while self.has_more:
            self._step()
            ready = self._ready(now)
            if not ready:
                self.feed.listening.pop(self, None)
                for member in self.takers if self.terms.single_active else self.members:
                    self._on_lag(member, now)
                self._after_answers()
                break
            if self.handed_bytes > budget:
                self.feed.listening.pop(self, None)
                self._registry.woken[self] = None
                break
            waiting = self.lag_records
            portion = waiting if len(ready) == 1 else max(1, min(PORTION_RECORDS, waiting // len(ready)))
            for member in ready:
                if self._give(member, portion, now) and len(self.members) > 1 and not self.terms.single_active:
                    self.members.pop(member)
                    self.members[member] = None  # to the back: everybody gets a turn
            self._drop_expired(now)
        self._came = inf
        self._drop_expired(now)
        if self.terms.limited and not self.terms.refuses:
            self._keep_within()
        if not self.has_more:
            self.cursor.step()  # or it would keep a chunk that it has read
            self.feed.listening[self] = None
            self._came = self.cursor.end_number

    def takes_at_once(self, now: float) -> bool:
        """One more record would not have to wait."""
        self.dispatch(now)
        return not self.has_more and bool(self._ready(now))

    def _after_answers(self) -> None:
        """In the middle of a turn an answer may stand in a member's way, and nobody will say when it has gone."""
        for member in self.members:
            outlet = member.session.outlet
            if outlet is not None and outlet.out and not outlet.blocked:
                self._fanout.again[member.session] = None
                self._registry.woken[self] = None

    def _sort_in(self) -> None:
        """Put what came where its priority has it."""
        while self._has_fresh():
            stretch = self.cursor
            stretch.step()
            chunk = stretch.chunk
            assert chunk is not None
            index = chunk.index_at(stretch.position)
            stretch.sent(chunk.first_number + index, chunk)
            self._take(stretch, chunk, index, redelivered=False)
            stretch.advance(chunk.ends[index] - chunk.record_start(index))

    def _ready(self, now: float) -> list[Subscription]:
        if self.terms.single_active:
            first = next(iter(self.consumers), None)
            return [first] if first is not None and has_room(first, now) else []
        return [member for member in self.members if has_room(member, now)]

    def _give(self, member: Subscription, portion: int, now: float) -> int:
        """Hand up to ``portion`` records to a member, as far as its room and credit go. Returns how many it was."""
        given = 0
        while given < portion and self.has_more and has_room(member, now):
            some = self._give_some(member, portion - given, now)
            if not some:
                break
            given += some
        if member.request.envelope is None:
            self._fanout.pump(member.session, now)
        return given

    def _give_some(self, member: Subscription, portion: int, now: float) -> int:
        """Returns how many were handed out, or left out."""
        if self._taken:
            if self._expired(self._taken[0].chunk, self._taken[0].at, now):
                return self.drop(1, Reason.EXPIRED)
            place = self._pop()
            if self._send(member, place.stretch, place.chunk, place.at, place.at + 1, now, taken=place):
                return 1
            heappush(self._taken, place)
            self._taken_bytes += place.size
            return 0
        stretch = self.cursor
        stretch.step()
        chunk = stretch.chunk
        assert chunk is not None
        first = chunk.index_at(stretch.position)
        last = min(first + portion, stretch.end_number - chunk.first_number)
        if member.request.qos:
            last = min(last, first + member.credit_left)
        last = min(last, max(first + 1, bisect_right(chunk.ends, chunk.record_start(first) + BATCH_BYTES)))
        if self.skips or chunk.soonest_s <= now or self._expired(chunk, first, now):
            last, reason = self._alike(member, chunk, first, last, now)
            if reason is not None:
                self.drop(last - first, reason)
                return last - first
        return self._send(member, stretch, chunk, first, last, now)

    def _alike(
        self, member: Subscription, chunk: Chunk, first: int, last: int, now: float
    ) -> tuple[int, Reason | None]:
        """How far the records are left out for one reason, or (None) are not."""

        def why(index: int) -> Reason | None:
            if self._expired(chunk, index, now):
                return Reason.EXPIRED
            try:
                return doom(member, chunk, index, now)
            except OSError:
                return None  # its disk fails: that is seen when it is to be sent

        reason = why(first)
        upto = first + 1
        while upto < last and why(upto) == reason:
            upto += 1
        return upto, reason

    def _send(self, member: Subscription, stretch: Stretch, chunk: Chunk, first: int, last: int, now: float, *,
              taken: Place | None = None) -> int:
        """Write records for a member, and note what became of them. Returns how many it was."""
        number = chunk.first_number + first
        if member.request.envelope is None:
            sent = send_one(member, chunk, first, now)
        else:
            again = taken is not None and taken.redelivered
            sent = send_batch(self._registry, member, chunk, first, last, now, redelivered=again)
        if not sent.records:
            return 0
        size = chunk.ends[first + sent.records - 1] - chunk.record_start(first)
        self._handed(sent.records, size)
        if sent.reason is not None:
            self._lose(member, chunk, first, sent.reason)
        else:
            member.handed_bytes += size
        if sent.deliveries and _minds_acks(member):
            self._on_lag(member, now)
        for at, delivery in enumerate(sent.deliveries):
            delivery.cursor, delivery.chunk, delivery.index, delivery.number = stretch, chunk, first + at, number + at
            if taken is None:
                stretch.sent(number + at, chunk)
        if taken is None:
            stretch.advance(size)
            self._step()
        elif not sent.deliveries:
            self._free(stretch, number)
        return sent.records

    def get(self, member: Subscription, now: float) -> Got | None:
        """Hand the next record to a member that asks for it; None: there is none, or it has no credit. Raises OSError
        (failing disk)."""
        self.used_s = now
        if self.terms.priorities:
            self._sort_in()
        self._drop_expired(now)
        while (head := self._head()) is not None and self._expired(*head, now):
            self._drop_expired(now)
        if head is None or (member.request.qos and member.credit_left <= 0):
            return None
        chunk, index = head
        begin, end = chunk.record_start(index), chunk.ends[index]
        frame = bytes(chunk.read(begin, end))
        place = self._pop() if self._taken else None
        stretch: Stretch = place.stretch if place is not None else self.cursor
        number = chunk.first_number + index
        delivery_id = member.channel.take_ids(1)
        if member.request.qos:
            delivery = Delivery(member, now)
            delivery.cursor, delivery.chunk, delivery.index, delivery.number = stretch, chunk, index, number
            member.channel.add_all(delivery_id, [delivery], member.window)
            if _minds_acks(member):
                self._on_lag(member, now)
            if place is None:
                stretch.sent(number, chunk)
        elif place is not None:
            self._free(stretch, number)
        if place is None:
            stretch.advance(end - begin)
            self._step()
        member.state_records += 1
        member.state_bytes += end - begin
        member.handed_bytes += end - begin
        self._handed(1, end - begin)
        if not self.has_more:
            self._registry.woken[self] = None
        return Got(delivery_id, frame, place is not None and place.redelivered, self.lag_records)

    def _handed(self, records: int, size: int) -> None:
        self.handed_records += records
        self.handed_bytes += size


def _minds_acks(member: Subscription) -> bool:
    """It is to be looked at though nothing waits: some rule is about how long its acknowledgements take."""
    return any(leaf.meter == "ack_age" for rule in member.policy.rules for leaf in rule.when.leaves())
