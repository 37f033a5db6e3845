"""The members of a queue, in the order of their turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from itertools import islice
from math import inf

from headway.core.base import DELIVERY_WORK, NO_TIMER, Reason, WorkSteps
from headway.core.consumer import Delivery, Departed, QueueTerms, Session, SharedReader, Subscription, patience_for
from headway.core.delivery import delivery_record, has_room, lose, moves, waits_for_client
from headway.core.log import Chunk
from headway.core.queue.backlog import Backlog, QueuePort
from headway.core.queue.drops import Drops
from headway.core.queue.picking import Picking
from headway.core.queue.places import QueueCursor
from headway.core.routing import EXPIRED_WORK, Registry

# -- members -----------------------------------------------------------------------------------------------------------


WATCHED_AT_ONCE = 64
"""So many members begin to be looked at by the governor when a queue is dispatched; the others in the next turns."""


class Members(dict[Subscription, None]):
    __slots__ = (
        "_alone", "_of_session", "_pushed", "_slow", "_terms", "_there", "departed", "exclusive", "leaving",
        "leaving_since_s", "picking", "ring", "unwatched",
    )  # fmt: skip

    def __init__(self, terms: QueueTerms, picking: Picking) -> None:
        super().__init__()
        self.picking = picking
        """The pickers of members with selectors."""
        self.departed = Departed()
        """Members that left with unsettled deliveries."""
        self.leaving: dict[Subscription, None] = {}
        """Members that are gone, and whose unsettled records come back over the turns to come (deferred.py)."""
        self.leaving_since_s = 0.0
        self.exclusive: dict[Subscription, None] = {}
        """The consumer that asked to be the only one, if there is one."""
        self.ring: dict[Subscription, None] = {}
        """The members that records are offered to, in the order of their turns. The others can take none before their
        clients do something; they are in their sessions' ``aside``."""
        self.unwatched: dict[Subscription, None] = {}
        """The members that the governor may not look at. It looks at all others (``Registry.watched``)."""
        self._alone: dict[Subscription, None] = {}
        """The members that are to get all records."""
        self._terms = terms
        self._of_session: Counter[Session] = Counter()
        """The number of members of each session."""
        self._there: dict[Subscription, None] = {}
        """The members whose sessions were not seen to have ended (``anybody_there``)."""
        self._pushed = 0
        """The number of members that records are pushed to."""
        self._slow = {True: 0, False: 0}
        """The numbers of slow members that ask for each record (True), and that records are pushed to."""

    @property
    def single(self) -> bool:
        """Tells whether one consumer gets all records: the queue, or a consumer, was declared so."""
        return self._terms.single_active or bool(self._alone)

    def add(self, member: Subscription) -> None:
        if member.request.alone:
            if not self._alone:
                self.picking.end_groups()
            self._alone[member] = None
        self[member] = self.ring[member] = self.unwatched[member] = self._there[member] = None
        self._of_session[member.session] += 1
        self._pushed += not member.request.polling

    def remove(self, member: Subscription) -> bool:
        """Removes a member. Returns whether its session has no other members."""
        session = member.session
        self.picking.leave(member)
        for table in (self.ring, self.unwatched, self._there, self._alone, self.exclusive, self.leaving, session.aside):
            table.pop(member, None)
        if self.pop(member, self) is None:
            self._of_session[session] -= 1
            self._pushed -= not member.request.polling
        if self._of_session[session]:
            return False
        del self._of_session[session]
        return True

    @property
    def anybody_there(self) -> bool:
        """Tells whether the session of a member has not ended. A member whose session has is looked at once."""
        while self._there:
            member = next(reversed(self._there))
            if not member.session.ended:
                return True
            del self._there[member]
        return False

    @property
    def consumers(self) -> list[Subscription]:
        """The members that records are pushed to."""
        return [member for member in self if not member.request.polling and not member.gone]

    @property
    def eligible(self) -> list[Subscription]:
        """The members that could get the waiting records. Standby consumers are not among them. Members that ask for
        each record are among them only if there are no others."""
        if self.single:
            members = (member for member in self._alone or self if not member.request.polling and not member.gone)
            return list(islice(members, 1)) or list(islice(self, 1))
        return self.consumers or list(self)

    @property
    def all_slow(self) -> bool:
        """Tells whether every eligible member is slow. One that is not slow can serve the queue."""
        if self.single:
            return all(member.case.slow for member in self.eligible)
        return self._slow[False] == self._pushed if self._pushed else self._slow[True] == len(self)

    @property
    def slow(self) -> int:
        """The number of slow members."""
        return sum(self._slow.values())

    def count_slow(self, member: Subscription, change: int) -> None:
        """Counts a member that is marked slow (1) or no longer is (-1)."""
        if member in self:
            self._slow[member.request.polling] += change

    def all_gate(self, gates: Container[Subscription]) -> bool:
        """Tells whether every eligible member is among the gates. Looks first at those that had their turn last."""
        if not self.single and any(
            member not in gates and not member.request.polling and not member.gone for member in reversed(self)
        ):
            return False
        return all(member in gates for member in self.eligible)

    @property
    def any_consumer(self) -> bool:
        """Tells whether there is a member that records are pushed to."""
        return any(not member.request.polling and not member.gone for member in self)

    def ready(self, now: float, most: int, ring: Mapping[Subscription, None]) -> list[Subscription]:
        """Returns the eligible consumers of a ring that have room and credit, those that come next: ``most`` at most,
        which is at least one. Those before them that wait for their clients are set aside."""
        if self.single:
            return [member for member in self.eligible if not member.request.polling and has_room(member, now)
                    and member in ring]  # fmt: skip
        ready, stuck = [], []
        for member in ring:
            if has_room(member, now):
                ready.append(member)
                if len(ready) == most:
                    break
            elif waits_for_client(member):
                stuck.append(member)
        for member in stuck:
            del self.ring[member]
            member.session.aside[member] = None
            if self.picking.pickers:
                self.picking.set_aside(member)
        return ready

    def watch(self, on_lag: Callable[[Subscription, float], None], now: float) -> bool:
        """Has the governor look at the members that could get the waiting records: ``WATCHED_AT_ONCE`` more of them.
        Returns whether these were all."""
        some = self.eligible if self.single else list(islice(self.unwatched, WATCHED_AT_ONCE))
        for member in some:
            on_lag(member, now)
            self.unwatched.pop(member, None)
        return self.single or not self.unwatched

    def not_watched(self, member: Subscription) -> None:
        """Notes that the governor looks at the member no more."""
        if member in self:
            self.unwatched[member] = None

    def look_again(self, member: Subscription) -> None:
        """Offers records to the member again."""
        if member in self and member not in self.ring:
            member.session.aside.pop(member, None)
            self.ring[member] = None
            if self.picking.pickers:
                self.picking.offer_again(member)

    def check(self) -> None:
        """Asserts the invariants. It visits every member."""
        for member in self:
            aside = member.session.aside
            assert (member in self.ring) + (member in aside) == 1, "it is in the ring, or aside"
            assert member in self.ring or waits_for_client(member), "whoever can take a record is offered some"
            assert not self.picking or self.picking.offers(member) is (member in self.ring), "its picker knows as well"
        self.picking.check()
        assert self.unwatched.keys() <= self.keys()
        assert self._pushed == sum(not member.request.polling for member in self)
        for polling, count in self._slow.items():
            assert count == sum(member.case.slow for member in self if member.request.polling is polling)

    def anybody_moves(self, late_s: float, asked_s: float, among: list[Subscription]) -> bool:
        """Tells whether a member can take records, or could since ``late_s``. ``asked_s`` is the time when a member
        last asked for one. ``among``: those that are looked at."""
        if asked_s > late_s and any(member.request.polling for member in self):
            return True
        return any(moves(member, late_s) for member in among if not member.request.polling)

    def to_the_back(self, member: Subscription) -> None:
        """Moves a member that had its turn behind the others."""
        if len(self) > 1 and not self.single:
            for table in (self, self.ring):
                if table.pop(member, self) is None:
                    table[member] = None
            if self.picking.pickers:
                self.picking.to_the_back(member)


# -- lifetimes ---------------------------------------------------------------------------------------------------------
#
# Lifetimes: the records of a queue that expire while they wait.
#
# A record that expires is dropped when it is at the head, not before. A record that comes while members wait for
# records is handed out even if its lifetime is zero.


class Lifetimes:
    def __init__(self, queue: SharedReader, backlog: Backlog, registry: Registry,
                 drop: Callable[[int, Reason], int]) -> None:
        self.fresh_from: float = 0
        """The number of the first record that came after all others were handed out. Members may be waiting for the
        records from there on, so these do not expire."""
        self._queue = queue
        self._ttl_s = inf if queue.terms.ttl_s is None else queue.terms.ttl_s
        self._backlog = backlog
        self._registry = registry
        self._drop = drop
        self._alarm_s = inf
        self._bell = NO_TIMER

    def stop(self) -> None:
        """Stops the timer, because the queue has ended."""
        self._bell.cancel()
        del self._queue

    def expired(self, chunk: Chunk, index: int, now: float) -> bool:
        if chunk.first_number + index >= self.fresh_from:
            return False
        return self._expires_s(chunk, index) <= now

    def _expires_s(self, chunk: Chunk, index: int) -> float:
        run = chunk.run_of(index)
        return min(chunk.run_expires[run], chunk.run_time[run] + self._ttl_s)

    def head_expired(self, now: float) -> bool:
        """Tells whether the next record has expired. It is dropped at the end of this turn or of a later one."""
        head = self._backlog.head()
        if head is None or not self.expired(*head, now):
            return False
        self._registry.ready_queues[self._queue] = None
        return True

    def drop_expired(self, now: float) -> bool:
        """Drops expired records from the head on, and sets a timer for the next one that will expire. Returns False if
        there are more than this turn has work left for."""
        overdue, begun = self._registry.overdue, False
        while (head := self._backlog.head()) is not None:
            chunk, index = head
            if chunk.soonest_s == inf and self._ttl_s == inf:
                break
            if not self.expired(chunk, index, now):
                self._alarm(self._expires_s(chunk, index))
                break
            if overdue.left <= 0:
                overdue.put_off(self._queue, begun=begun)
                return False
            overdue.left -= EXPIRED_WORK
            self._drop(self._alike(chunk, index), Reason.EXPIRED)
            begun = True
        return True

    def _alike(self, chunk: Chunk, index: int) -> int:
        """Returns how many records have expired with this one, the next: those that came at once, or some of them where
        each of them is work."""
        if self._backlog.has_some_apart or self._queue.terms.dead_letter_exchange is not None:
            return 1
        first, run = chunk.first_number + index, chunk.run_of(index) + 1
        end = chunk.first_number + (chunk.run_first[run] if run < len(chunk.run_first) else len(chunk))
        return int(min(end, self.fresh_from, self._backlog.cursor.end_number)) - first

    def _alarm(self, when: float) -> None:
        if when == inf or self._alarm_s <= when:
            return
        self._alarm_s = when

        def ring(then: float) -> None:
            self._alarm_s = inf
            self._registry.ready_queues[self._queue] = None

        self._bell = self._registry.timers.move(self._bell, when, ring)


# -- unsettled ---------------------------------------------------------------------------------------------------------
#
# Unsettled: a queue's records that members have in flight, and their ways back.


class Unsettled:
    """Requeues or drops the records that members do not settle."""

    def __init__(self, queue: QueuePort, backlog: Backlog, drops: Drops, lifetimes: Lifetimes,
                 registry: Registry) -> None:
        self._queue = queue
        self._ended = False
        self._terms = queue.terms
        self._ends_with_members = queue.ends_with_members
        self._backlog = backlog
        self._drops = drops
        self._lifetimes = lifetimes
        self._registry = registry
        self._returning: dict[Subscription, None] = {}
        """Members whose late records are being requeued."""

    def stop(self) -> None:
        """Requeues nothing any more, because the queue has ended."""
        self._ended = True
        self._returning.clear()
        del self._queue

    def requeue(self, delivery: Delivery, *, late: bool = False, failed: bool = True) -> None:
        """Puts a record that was handed out back at its old position, marked as redelivered. Drops it if it has come
        back too often. ``late`` says that its member may still settle it. Not ``failed``: its member never tried it,
        so it is as before."""
        if self._ended:
            return
        cursor, chunk = _place_of(delivery)
        returns, limit = delivery.returns + failed, self._terms.returns_max
        if limit is not None and returns > limit:
            self._drops.give_up(chunk, delivery.index, Reason.DELIVERY_LIMIT)
            self._backlog.free(cursor, delivery.number)
        else:
            self._backlog.requeue(cursor, chunk, delivery.index, returns=returns, late=late)
        self._lifetimes.fresh_from = inf
        self._queue.feed.listening.pop(self._queue, None)
        self._registry.ready_queues[self._queue] = None
        self._registry.came_back[self._queue] = None

    def withdraw(self, delivery: Delivery) -> None:
        """Drops a record that its member settled after it timed out, if no other member has it yet."""
        if not self._ended and isinstance(delivery.cursor, QueueCursor):
            self._backlog.withdraw(delivery.cursor, delivery.number)

    def reject(self, delivery: Delivery) -> None:
        """Drops a record that a member rejected."""
        if self._ended:
            return
        cursor, chunk = _place_of(delivery)
        self._drops.reject(chunk, delivery.index)
        self._backlog.free(cursor, delivery.number)

    def requeue_late(self, member: Subscription, now: float, older_s: float | None = None) -> list[Delivery]:
        """Requeues the member's unsettled records that were sent ``older_s`` ago and are beyond the patience for them;
        without ``older_s``, those alone for which there was some. They still use up the member's credit. Returns them.

        What is too much for one turn is requeued in the next ones (deferred.py); until then, nothing else is late."""
        if self._ends_with_members or member in self._returning:
            return []  # MQTT: a member keeps its deliveries until its session ends
        channel, late = member.channel, []
        for delivery_id in channel.ids_of(member):
            delivery = channel.in_flight[delivery_id]
            patience_s = patience_for(member, delivery)
            wait_s = max(patience_s, older_s) if older_s is not None else patience_s or inf
            if delivery.sent_s <= now - wait_s:
                late.append((delivery_id, delivery))
        if late:
            self._returning[member] = None
            self._registry.deferred.begin(self._time_out_all(member, late), now, client=member.session)
        return [delivery for _, delivery in late]

    def _time_out_all(self, member: Subscription, late: list[tuple[int, Delivery]]) -> WorkSteps:
        """Requeues deliveries, except those that the client has settled since."""
        in_flight = member.channel.in_flight
        try:
            for delivery_id, delivery in late:
                if in_flight.get(delivery_id) is delivery:
                    member.channel.time_out(delivery_id)
                    self.requeue(delivery, late=True)
                yield DELIVERY_WORK
        finally:
            self._returning.pop(member, None)

    def requeue_all(self, member: Subscription, reason: Reason, *, all_of_it: bool = True) -> None:
        """Requeues the member's unsettled records. Exactly-once records, which no other client may get, are lost;
        without ``all_of_it`` the member keeps them. Those that have arrived at the client are settled."""
        for _ in self.requeue_in_steps(member, reason, all_of_it=all_of_it):
            pass

    def requeue_in_steps(self, member: Subscription, reason: Reason, *, all_of_it: bool = True) -> WorkSteps:
        """Does that in steps, of a record each."""
        channel = member.channel
        for delivery_id in list(channel.ids_of(member)):
            yield DELIVERY_WORK
            held = channel.in_flight.get(delivery_id)
            if held is None or (not all_of_it and not others_may_get(held)):
                continue
            delivery = lose(member, delivery_id)
            assert delivery is not None
            if delivery.released:
                delivery.cursor.acknowledge(delivery.number)
            elif others_may_get(delivery):
                self.requeue(delivery)
            elif isinstance(delivery.cursor, QueueCursor):
                self.lose(delivery, reason)
        if not member.session.ended:
            self._registry.wake(member.session)  # its other consumers have the credit

    def lose(self, delivery: Delivery, reason: Reason) -> None:
        """Drops a record that its member had in flight, and notes it in the member's gap."""
        if self._ended:
            return
        cursor, chunk = _place_of(delivery)
        self._drops.lose(delivery.subscription, chunk, delivery.index, delivery.index + 1, reason)
        self._backlog.free(cursor, delivery.number)

    def gets_back_from(self, member: Subscription) -> bool:
        """Returns whether a write-off of the member would free some of its deliveries: others may get them, or the
        member was promised nothing."""
        held = map(member.channel.in_flight.__getitem__, member.channel.ids_of(member))
        return any(not member.promised or others_may_get(delivery) for delivery in held)


def others_may_get(delivery: Delivery) -> bool:
    """Tells whether a record may go to another client: one that is delivered exactly once may not, nor may one that has
    arrived."""
    if delivery.released:
        return False
    record, qos = delivery.record, delivery.subscription.request.qos
    if record is None and qos > 1:
        try:
            record = delivery_record(delivery)
        except OSError:  # the disk failed, and nobody can be sent it
            return False
    return record is None or min(record.qos, qos) == 1


def _place_of(delivery: Delivery) -> tuple[QueueCursor, Chunk]:
    """Returns where the record of a delivery from a queue is."""
    cursor, chunk = delivery.cursor, delivery.chunk
    assert isinstance(cursor, QueueCursor)
    assert chunk is not None
    return cursor, chunk
