"""Queues: many members, one place; each record goes to one of them.

Theory of operation. What a queue has to hand out is its backlog (backlog.py), what it leaves out are its drops
(drops.py). Records are handed out in small portions to members that have room and credit, in turn, so that a member
that is stuck gets no more than it already has while the others share the rest.

What a member did not settle when it went is taken back and given to another, marked as redelivered; except for
exactly-once deliveries, which MQTT forbids to give to anybody else (MQTT 5, 4.8.2): these are counted as a gap.

Who has handed out everything *listens* to its feed; who has not is not visited until it is *woken*: by room, by credit,
or by what a member gives back. So a stuck queue costs a turn nothing.

A shared subscription's group is a queue that ends with its last member.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from headway.core.base import Reason, Timer, stop
from headway.core.consumer import DeadLetter, Delivery, Feed, QueueTerms, Reader, Session, Skip, Subscription
from headway.core.delivery import PUMP_BYTES, Fanout, doom, lose
from headway.core.log import Chunk, Cursor, Kept
from headway.core.message import Run
from headway.core.queue.backlog import Backlog, Place, Source, Stretch
from headway.core.queue.dispatch import BATCH_BYTES, has_room, moves, send_batch, send_one
from headway.core.queue.drops import Drops
from headway.core.routing import TAKEN_WORK, Registry

PORTION_RECORDS = 32


class Got(NamedTuple):
    """A record that was asked for: as it stands in the lane, and how many more wait."""

    delivery_id: int
    frame: bytes
    redelivered: bool
    records_left: int


def queue_of(reader: Reader) -> Queue:
    """The reader, which is a queue: there are no others."""
    assert isinstance(reader, Queue)
    return reader


class Queue:
    def __init__(self, name: str, feed: Feed, terms: QueueTerms, registry: Registry, fanout: Fanout,
                 on_lag: Callable[[Subscription, float], None], *, ends_with_members: bool = False) -> None:
        self.name = name
        self.terms = terms
        self.feed = feed
        self.members: dict[Subscription, None] = {}
        self.ends_with_members = ends_with_members
        self.departed: dict[Subscription, None] = {}
        """Members that are gone and have not settled all that they were given; some have, since."""
        self.ended = False
        self.skips: list[Skip] = []
        """Those of all its members."""
        self.filters: tuple[str, ...] = ()
        """The names it goes by for policies: ``$queue/NAME``, and those of its bindings."""
        self.owner: Session | None = None
        """Whose it is alone."""
        self.exclusive_consumer: Subscription | None = None
        """Who is to be its only consumer."""
        self.called = False
        """It was published to by its name."""
        self.stand_in: Callable[[float], Subscription] | None = None
        """Makes one who stands for the consumers of a durable queue that has none; None: nobody is missed."""
        self.absent: Subscription | None = None
        """Who does now. It is judged like any consumer, and is given nothing."""
        self.kept: Kept | None = None
        """Its place in the journal, where it has one."""
        self.expiry: Timer | None = None
        """Ends it, if nobody has used it by then."""
        self.used_s = 0.0
        """When somebody last asked for a record or declared it."""
        self._registry = registry
        self._fanout = fanout
        self._on_lag = on_lag
        self.backlog = Backlog(self, registry)
        self.drops = Drops(self, self.backlog, registry)
        self.read(feed)

    # -- what it reads ----------------------------------------------------------------------------------------------

    def read(self, feed: Feed, source: Source | None = None) -> None:
        """Go on in another feed's lane, from its end, once what waits has been handed out. What a ``source`` fills it
        with is nothing that outlives the process."""
        old, self.feed = self.feed, feed
        self.backlog.read(feed, source)
        if self.kept is not None:
            if source is None:
                self.backlog.stretches[-1].kept = self.kept
                self.kept.cursors.append(self.backlog.stretches[-1])
            self._registry.keep_feed(feed, 1)
            self._registry.keep_feed(old, -1)
        if self.terms.limited and not self.terms.refuses:
            feed.limited[self] = None
        self.dismiss()
        for member in self.members:
            self._registry.moved(member, feed)
        if feed is not old:
            self._move_gates(old, feed)
        self.backlog.leave_empty()
        self.backlog.step()
        self._registry.woken[self] = None

    def _move_gates(self, old: Feed, new: Feed) -> None:
        """Members that hold back publishers do so where they read now; who waited for the lane they left goes on."""
        for member in self.members:
            since = old.gates.pop(member, None)
            if since is not None:
                new.gates[member] = since
        if new.gated and not new.was_gated:
            new.was_gated, new.gated_since_s = True, old.gated_since_s
        self._registry.left[old] = None

    def moved_on(self) -> None:
        """It reads in another lane now."""
        for member in self.members if self.absent is None else (self.absent,):
            member.cursor = self.backlog.cursor
        self.skips.clear()

    def close(self) -> None:
        """The queue is over; its members have left."""
        self.ended = True
        self.stand_in = None
        self.departed.clear()
        stop(self.expiry)
        self._registry.returning.forget(self)
        self.drops.stop()
        self.dismiss()
        self._registry.woken.pop(self, None)
        self.backlog.close()

    # -- members ----------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> list[Subscription]:
        """The members that are given records without asking."""
        return [member for member in self.members if not member.request.polling and not member.gone]

    @property
    def next_member(self) -> Subscription | None:
        """Who is told of what nobody gets."""
        return next(iter(self.members), None)

    @property
    def takers(self) -> list[Subscription]:
        """The members that what waits could go to; not who stands by, nor, if there are others, who asks."""
        takers = self.consumers or list(self.members)
        return takers[:1] if self.terms.single_active else takers

    @property
    def all_slow(self) -> bool:
        """One slow consumer is no problem of a queue; it is when there is no other."""
        return all(member.case.slow for member in self.takers)

    @property
    def gates(self) -> bool:
        """All of its members would hold back publishers."""
        return all(member in self.feed.gates for member in self.takers)

    @property
    def promises(self) -> bool:
        """What it was given outlives any of its consumers' connections."""
        if self.ends_with_members:
            return any(member.promised for member in self.members)
        return self.owner is None

    def gets_back_from(self, member: Subscription) -> bool:
        """Some of what a member has not settled may go to others, or be given up if it was promised nothing."""
        return any(
            d.subscription is member
            and (not member.promised or d.record is None or min(d.record.qos, member.request.qos) == 1)
            for d in member.channel.in_flight.values()
        )

    def miss(self, now: float) -> None:
        """Something waits, and nobody is there to be given it."""
        if self.absent is None and self.stand_in is not None:
            self.absent = self.stand_in(now)
            self.absent.queue, self.absent.cursor, self.absent.skips = self, self.backlog.cursor, self.skips
        if self.absent is not None:
            self._on_lag(self.absent, now)

    def dismiss(self) -> None:
        """Nobody stands in any more."""
        absent, self.absent = self.absent, None
        if absent is not None:
            absent.ended = True
            self._registry.watched.pop(absent, None)
            if absent.case.slow:
                self._registry.count_slow(absent, -1)
            self._registry.woken[self] = None

    def join(self, subscription: Subscription) -> None:
        self.dismiss()
        backlog = self.backlog
        subscription.cursor.close()
        subscription.cursor = backlog.cursor
        subscription.queue = self
        subscription.skips = self.skips
        subscription.start_number, subscription.start_position = backlog.handed_records, backlog.handed_bytes
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
        if member.window.used and not session.ended and not self.ends_with_members:
            self.departed[member] = None
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

    # -- what comes back --------------------------------------------------------------------------------------------

    def settled(self, cursor: Cursor | None) -> None:
        """A member has one of its records for good."""
        self.backlog.settled(cursor)

    def give_back(self, delivery: Delivery, *, late: bool = False) -> None:
        """A record that was handed out takes its old place again, marked as redelivered; unless it has come back too
        often. ``late``: its member may settle it after all."""
        stretch, chunk = delivery.cursor, delivery.chunk
        if self.ended:
            return
        assert isinstance(stretch, Stretch)
        assert chunk is not None
        returns, limit = delivery.returns + 1, self.terms.returns_max
        if limit is not None and returns > limit:
            self.drops.give_up(chunk, delivery.index)
            self.backlog.free(stretch, delivery.number)
        else:
            self.backlog.take(stretch, chunk, delivery.index, returns=returns, late=late)
        self.drops.came = inf
        self.feed.listening.pop(self, None)
        self._registry.woken[self] = None
        self._registry.came_back[self] = None

    def restored(self, cursor: Cursor, chunk: Chunk, index: int) -> None:
        """It was with a member when the process before this one ended."""
        assert isinstance(cursor, Stretch)
        self.backlog.take(cursor, chunk, index, returns=1)

    def withdraw(self, delivery: Delivery) -> None:
        """What was taken back from a member is settled by it after all: if nobody has it yet, nobody needs to."""
        if not self.ended and isinstance(delivery.cursor, Stretch):
            self.backlog.withdraw(delivery.cursor, delivery.number)

    def reject(self, delivery: Delivery) -> None:
        """A member wants this record to go to nobody."""
        stretch, chunk = delivery.cursor, delivery.chunk
        if self.ended:
            return
        assert isinstance(stretch, Stretch)
        assert chunk is not None
        self.drops.reject(chunk, delivery.index)
        self.backlog.free(stretch, delivery.number)

    def return_late(self, member: Subscription, before_s: float) -> int:
        """What the member was sent before then and has not settled is for others; it gets no more in its place. Returns
        how much that is."""
        if self.ends_with_members:
            return 0  # MQTT: only the end of its session takes anything from a member
        flight = member.channel.in_flight.items()
        old = [i for i, d in flight if d.subscription is member and d.sent_s <= before_s]
        for delivery_id in old:
            self.give_back(member.channel.take_back(delivery_id), late=True)
        return len(old)

    def take_back(self, member: Subscription, reason: Reason, *, all_of_it: bool = True) -> None:
        """What the member has not settled is for others, unless nobody else may have it: then it is lost; or, if not
        all is to be taken, still the member's."""
        channel = member.channel
        for delivery_id, held in [(i, d) for i, d in channel.in_flight.items() if d.subscription is member]:
            if not all_of_it and held.record is not None and min(held.record.qos, member.request.qos) != 1:
                continue
            delivery = lose(member, delivery_id)
            assert delivery is not None
            if delivery.record is None or min(delivery.record.qos, member.request.qos) == 1:
                self.give_back(delivery)
            elif isinstance(delivery.cursor, Stretch):
                assert delivery.chunk is not None
                self.drops.lose(member, delivery.chunk, delivery.index, reason)
                self.backlog.free(delivery.cursor, delivery.number)

    def _give_up(self, member: Subscription, reason: Reason) -> None:
        """Nobody takes what waits: it is counted with this member."""
        backlog = self.backlog
        while backlog.taken is not None:
            place = backlog.pop()
            self.drops.lose(member, place.chunk, place.at, reason)
            backlog.free(place.stretch, place.number)
        backlog.handed(backlog.cursor.lag_records, backlog.cursor.lag_bytes)
        self._registry.lost(member.skip_to(self.feed.lane.count, reason), reason)

    # -- when room is wanted ----------------------------------------------------------------------------------------

    def holders(self, chunk: Chunk, late_s: float) -> list[Subscription]:
        """Who keeps the lane from letting go of a chunk: those who have long not settled what they were sent of it, or,
        if some of it was not sent, all whom it could go to; nobody, while somebody still takes records."""
        self.departed = {member: None for member in self.departed if member.window.used}
        if self.members and self.backlog.wants(chunk):
            holders = self.takers if self.terms.single_active else list(self.members)
            return [] if self._anybody_moves(late_s) else holders
        return [
            member for member in [*self.members, *self.departed]
            if any(d.chunk is chunk and d.subscription is member and d.sent_s <= late_s
                   for d in member.channel.in_flight.values())
        ]  # fmt: skip

    def write_off(self, member: Subscription, reason: Reason, late_s: float) -> None:
        """Others get what the member held. If nobody can, it is given up, unless somebody was promised it."""
        self.take_back(member, reason, all_of_it=not member.promised)
        if not self.promises and self.backlog.wants(self.feed.lane.first) and not self._anybody_moves(late_s):
            self._give_up(member, reason)

    def _anybody_moves(self, late_s: float) -> bool:
        if self.used_s > late_s and any(member.request.polling for member in self.members):
            return True  # somebody asked
        return any(moves(member, late_s) for member in self.takers if not member.request.polling)

    # -- handing out ------------------------------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Hand out what there is to whoever can take it."""
        if self.ended:
            return
        backlog, drops = self.backlog, self.drops
        if not drops.drop_expired(now):
            self.feed.listening.pop(self, None)
            return
        if self.terms.priorities:
            backlog.sort_in()
        self._hand_out(now)
        drops.came = inf
        drops.drop_expired(now)
        if self.terms.limited and not self.terms.refuses:
            drops.keep_within()
        if not backlog.has_more:
            backlog.cursor.step()  # or it would keep a chunk that it has read
            self.feed.listening[self] = None
            drops.came = backlog.cursor.end_number

    def _hand_out(self, now: float) -> None:
        backlog, returning, before = self.backlog, self._registry.returning, self.backlog.handed_records
        budget = backlog.handed_bytes + PUMP_BYTES
        while backlog.has_more:
            backlog.step()
            ready = self._ready(now)
            if not ready:
                self.feed.listening.pop(self, None)
                for member in self.takers if self.terms.single_active else self.members:
                    self._on_lag(member, now)
                if not self.members:
                    self.miss(now)
                self._after_answers()
                return
            if backlog.handed_bytes > budget or not backlog.has_some:
                self.feed.listening.pop(self, None)
                self._registry.woken[self] = None
                return
            if backlog.taken is not None and returning.left <= 0:
                self.feed.listening.pop(self, None)
                returning.put_off(self, begun=backlog.handed_records > before)
                return
            waiting = backlog.lag_records
            portion = waiting if len(ready) == 1 else max(1, min(PORTION_RECORDS, waiting // len(ready)))
            for member in ready:
                if self._give(member, portion, now) and len(self.members) > 1 and not self.terms.single_active:
                    self.members.pop(member)
                    self.members[member] = None  # to the back: everybody gets a turn
            if not self.drops.drop_expired(now):
                self.feed.listening.pop(self, None)
                return

    def room_for(self, run: Run, now: float) -> int:
        """How many records of the run it takes, which refuses what is too much."""
        size = (run.ends[-1] - run.bodies[-1]) or 1
        if self.drops.room(size) < len(run):
            self.dispatch(now)  # there may be consumers for some of it
        return self.drops.room(size)

    def refuse(self, run: Run, accepted: int, first: int, now: float) -> None:
        """It has no room for the records of the run behind so many of them."""
        if self.kept is not None and run.kept:
            self.kept.never_had(first + accepted, first + len(run) - 1)
        if self.terms.dead_letter_refused:
            for index in range(accepted, len(run)):
                letter = DeadLetter(self.name, self.terms, run.record(index, first, now), Reason.QUEUE_LENGTH)
                self._registry.effects.append(letter)

    def takes_at_once(self, now: float) -> bool:
        """One more record would not have to wait."""
        self.dispatch(now)
        return not self.backlog.has_more and bool(self._ready(now))

    def _after_answers(self) -> None:
        """In the middle of a turn an answer may stand in a member's way, and nobody will say when it has gone."""
        for member in self.members:
            outlet = member.session.outlet
            if outlet is not None and outlet.out and not outlet.blocked:
                self._fanout.again[member.session] = None
                self._registry.woken[self] = None

    def _ready(self, now: float) -> list[Subscription]:
        if self.terms.single_active:
            first = next(iter(self.consumers), None)
            return [first] if first is not None and has_room(first, now) else []
        return [member for member in self.members if has_room(member, now)]

    def _give(self, member: Subscription, portion: int, now: float) -> int:
        """Hand up to ``portion`` records to a member, as far as its room and credit go. Returns how many it was."""
        given = 0
        while given < portion and self.backlog.has_some and has_room(member, now):
            some = self._give_some(member, portion - given, now)
            if not some:
                break
            given += some
        if member.request.envelope is None:
            self._fanout.pump(member.session, now)
        return given

    def _give_some(self, member: Subscription, portion: int, now: float) -> int:
        """Returns how many were handed out, or left out."""
        backlog, drops, taken = self.backlog, self.drops, self.backlog.taken
        if taken is not None:
            if drops.expired(taken.chunk, taken.at, now):
                return drops.drop(drops.some_of(1), Reason.EXPIRED)
            if self._registry.returning.left <= 0:
                return 0
            self._registry.returning.left -= TAKEN_WORK
            backlog.pop()
            given = self._send(member, taken.stretch, taken.chunk, taken.at, taken.at + 1, now, taken=taken)
            if not given:
                backlog.put(taken)
            return given
        stretch, chunk, first = backlog.fresh()
        last = min(first + portion, stretch.end_number - chunk.first_number)
        if member.request.qos:
            last = min(last, first + member.credit_left)
        last = min(last, max(first + 1, bisect_right(chunk.ends, chunk.record_start(first) + BATCH_BYTES)))
        if self.skips or chunk.soonest_s <= now or drops.expired(chunk, first, now):
            last, reason = self._alike(member, chunk, first, last, now)
            if reason is not None:
                some = drops.some_of(last - first) if reason is Reason.EXPIRED else last - first
                return drops.drop(some, reason)
        return self._send(member, stretch, chunk, first, last, now)

    def _alike(
        self, member: Subscription, chunk: Chunk, first: int, last: int, now: float
    ) -> tuple[int, Reason | None]:
        """How far the records are left out for one reason, or (None) are not."""

        def why(index: int) -> Reason | None:
            if self.drops.expired(chunk, index, now):
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
        if member.request.envelope is None:
            sent = send_one(member, chunk, first, now)
        else:
            again = taken is not None and taken.redelivered
            sent = send_batch(self._registry, member, chunk, first, last, now, redelivered=again)
        if not sent.records:
            return 0
        size = chunk.ends[first + sent.records - 1] - chunk.record_start(first)
        self.backlog.handed(sent.records, size)
        if sent.reason is not None:
            self.drops.lose(member, chunk, first, sent.reason)
        else:
            member.handed_bytes += size
        self._lend(member, stretch, chunk, first, sent.deliveries, taken, now)
        if taken is None:
            if not sent.deliveries:
                stretch.done(sent.records)
            stretch.advance(size)
            self.backlog.step()
        return sent.records

    def _lend(self, member: Subscription, stretch: Stretch, chunk: Chunk, first: int, deliveries: list[Delivery],
              taken: Place | None, now: float) -> None:
        """Records are with a member until it settles them; or for good, if there is nothing to be settled."""
        number = chunk.first_number + first
        for at, delivery in enumerate(deliveries):
            delivery.cursor, delivery.chunk, delivery.index, delivery.number = stretch, chunk, first + at, number + at
            if taken is not None:
                delivery.returns = taken.returns
        if deliveries and taken is None:
            stretch.sent(number, chunk, len(deliveries))
        if deliveries and member.case.state.minds_acks:
            self._on_lag(member, now)
        if taken is not None and not deliveries:
            self.backlog.free(stretch, number)

    def get(self, member: Subscription, now: float) -> Got | None:
        """Hand the next record to a member that asks for it; None: there is none, or it has no credit. Raises OSError
        (failing disk)."""
        self.used_s = now
        backlog, drops = self.backlog, self.drops
        if self.terms.priorities:
            backlog.sort_in()
        drops.drop_expired(now)
        while (head := backlog.head()) is not None and drops.expired(*head, now):
            drops.drop(1, Reason.EXPIRED)
        if head is None or (member.request.qos and member.credit_left <= 0):
            return None
        chunk, index = head
        begin, end = chunk.record_start(index), chunk.ends[index]
        frame = bytes(chunk.read(begin, end))
        taken = backlog.pop() if backlog.taken is not None else None
        stretch = taken.stretch if taken is not None else backlog.cursor
        delivery_id = member.channel.take_ids(1)
        deliveries = [Delivery(member, now)] if member.request.qos else []
        member.channel.add_all(delivery_id, deliveries, member.window)
        self._lend(member, stretch, chunk, index, deliveries, taken, now)
        if taken is None:
            if not deliveries:
                stretch.done(1)
            stretch.advance(end - begin)
            backlog.step()
        member.state_records += 1
        member.state_bytes += end - begin
        member.handed_bytes += end - begin
        backlog.handed(1, end - begin)
        if not backlog.has_more:
            self._registry.woken[self] = None
        return Got(delivery_id, frame, taken is not None and taken.redelivered, backlog.lag_records)
