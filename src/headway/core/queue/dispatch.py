"""Dispatch hands out the records of a queue, in turn, to members that have room and credit.

Every member gets a small portion before any member gets the next. A queue that has handed out everything *listens* to
its feed, and runs when the lane grows. Any other queue stops listening, and runs again when it is marked as ready.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count as count_from
from itertools import repeat
from math import inf
from typing import NamedTuple

import msgspec

from headway.core.base import Reason
from headway.core.consumer import NO_LIMIT, Delivery, Grant, Outlet, Revoked, Skip, Subscription, is_patient
from headway.core.delivery import (
    PUMP_BYTES,
    Fanout,
    copy_numbered,
    cut_of,
    drop_reason,
    exactly_once_position,
    has_room,
    record_at,
    take_ids,
    write,
    write_frame,
)
from headway.core.log import NOT_DURABLE, Chunk, Cursor, stretch_bytes
from headway.core.queue.backlog import Backlog, QueuePort
from headway.core.queue.drops import Discards, Drops
from headway.core.queue.members import Lifetimes, Members
from headway.core.queue.picking import Picker
from headway.core.queue.places import QueueCursor, RequeuedRecord
from headway.core.routing import REQUEUED_WORK, SORTED_WORK, Registry

# -- writing -----------------------------------------------------------------------------------------------------------
#
# Writing encodes the records of a queue for the member that gets them.
#
# A member with an envelope (AMQP) gets a batch in one ``send``, straight to its outlet. Records that the outlet does
# not take are not handed out. Only the rest of a half-sent record waits in ``out``, so a stuck member holds no more
# than one record. Other members (MQTT's shared subscriptions) get a batch, too, where the lane has the records as they
# get them, but for packet ids; other records are written one by one, in the member's dialect.


SETTLED_WORK = 4
"""The work of a record that the client has to settle, or that is written alone, in those that are only cut."""
REWRITTEN_WORK = 24
"""The work of a record that has to be read, and written anew: about 30 microseconds."""
BYTES_PER_WORK = 2048
"""Bytes that are written in the time in which one record is cut."""


class SendResult(NamedTuple):
    """The number of records that were sent or, with a ``reason``, dropped. ``deliveries`` are those that the client has
    to settle. ``work``: what it cost, in records that are cut."""

    records: int
    deliveries: list[Delivery] = []  # noqa: RUF012  never changed
    reason: Reason | None = None
    work: int = SETTLED_WORK


def send_one(member: Subscription, cursor: Cursor, chunk: Chunk, index: int, now: float) -> SendResult:
    """Writes one record in the member's dialect."""
    session, request = member.session, member.request
    try:
        record = record_at(member.feed.lane.dialect, chunk, index)
    except OSError:
        return SendResult(1, reason=Reason.SPILL_FAILED)
    if record.expires_s <= now:
        return SendResult(1, reason=Reason.EXPIRED)
    record = msgspec.structs.replace(record, retain=record.retain and request.retain_as_published)
    delivery_id = member.channel.next_id() if min(record.qos, request.qos) else 0
    frame = write_frame(member, record, delivery_id, now)
    if frame is None:
        return SendResult(1, reason=Reason.TOO_LARGE_FOR_CLIENT)
    position = exactly_once_position(member) if delivery_id else NOT_DURABLE
    if position is not NOT_DURABLE:  # per record, and to find the sequence takes a search
        position.record_in_flight(session.client, delivery_id, chunk.sequence_of(index))
    write(member, frame, position)
    member.counters.write(1, len(frame))
    if not delivery_id:
        return SendResult(1)
    delivery = Delivery(member, now, cursor, chunk, index, chunk.first_number + index, record=record)
    member.channel.add(delivery_id, delivery)
    return SendResult(1, [delivery])


def send_copied(
    member: Subscription, cursor: Cursor, chunk: Chunk, first: int, last: int, now: float
) -> SendResult | None:
    """Offers records ``first`` … ``last - 1`` to the member's outlet, as many as stand in the lane as the member gets
    them, but for their ids. None: the first does not, or its id is not free."""
    session, channel, dialect = member.session, member.channel, member.dialect
    if member.gap is not None or session.held_back.size or chunk.expiries or chunk.largest > member.record_bytes_max:
        return None
    begin = chunk.record_start(first)
    try:
        piece = chunk.read(begin, chunk.ends[last - 1])
    except OSError:
        return None
    ends = [end - begin for end in chunk.ends[first:last]]
    kinds = bytes(map(piece.__getitem__, (0, *ends[:-1])))
    count = len(kinds) - len(kinds.lstrip(kinds[:1]))
    if not member.feed.lane.dialect.writes_as(dialect, kinds[0]):
        return None
    frames: bytes | bytearray | memoryview = piece[: ends[count - 1]]
    first_id = 0
    if chunk.holes and chunk.holes[first]:
        if exactly_once_position(member) is not NOT_DURABLE or not (first_id := channel.take_row(count)):
            return None
        frames = copy_numbered(chunk, first, frames, count, first_id, dialect.id_bytes)
    taken = session.outlet.send([frames], len(frames))
    if not session.outlet.took(taken, len(frames), now):
        count, taken = _rest_waits(session.outlet, frames, ends[:count], taken)
    member.counters.write(count, taken)
    work = count + taken // BYTES_PER_WORK
    if not first_id or not count:
        return SendResult(count, work=work)
    deliveries = deliveries_of(member, cursor, chunk, first, count, now)
    channel.add_all(first_id, deliveries, member.window, chunk, first)
    return SendResult(count, deliveries, work=work + SETTLED_WORK * count)


def _rest_waits(
    outlet: Outlet, frames: bytes | bytearray | memoryview, ends: Sequence[int], taken: int
) -> tuple[int, int]:
    """Has the rest of a half-sent frame wait in ``out``, if an outlet has taken so many bytes of some. Returns how many
    frames are sent then, and their bytes."""
    count = bisect_right(ends, taken)
    if taken > (ends[count - 1] if count else 0):
        outlet.out += frames[taken : ends[count]]
        taken = ends[count]
        count += 1
    return count, taken


def send_batch(
    registry: Registry, member: Subscription, cursor: Cursor, chunk: Chunk, first: int, last: int, now: float, *,
    redelivered: int, opens: bool = False,
) -> SendResult:  # fmt: skip
    """Offers records ``first`` … ``last - 1`` to the member's outlet; those that are settled at once may go on in the
    next chunks. ``redelivered``: how often they came back.
    ``opens``: it is one, the first of its group that the member gets."""
    outlet, envelope, channel = member.session.outlet, member.request.envelope, member.channel
    assert envelope is not None
    try:
        shared = member.feed.reading > 1
        known = len(registry.cuts)
        rewritten = envelope.rewritten
        cut = cut_of(registry.cuts, member, chunk, first, last, shared=shared, redelivered=redelivered)
    except OSError:
        return SendResult(1, reason=Reason.SPILL_FAILED)
    if opens:
        cut = envelope.opening(cut)
    count = last - first
    if member.window.record_bytes_max < NO_LIMIT:
        count = cut.count_within(count, member.window.record_bytes_max)
        if not count:
            _end_too_small(registry, member, len(cut.pieces[0]))
            return SendResult(0, work=last - first + (envelope.rewritten - rewritten) * REWRITTEN_WORK)
    frames = envelope.write(cut, 0, count, channel.last_id + 1)
    taken = outlet.send([frames], len(frames))
    if not outlet.took(taken, len(frames), now):
        count, taken = _rest_waits(outlet, frames, envelope.ends(cut, 0, count), taken)
    first_id = take_ids(member, cut, count)
    member.counters.write(count, taken)
    work = taken // BYTES_PER_WORK + (envelope.rewritten - rewritten) * REWRITTEN_WORK
    if not shared or len(registry.cuts) > known:
        work += last - first  # another consumer's cut costs nothing
    if not member.request.qos:
        return SendResult(count, work=work)
    deliveries = deliveries_of(member, cursor, chunk, first, count, now)
    channel.add_all(first_id, deliveries, member.window, chunk, first)
    return SendResult(count, deliveries, work=work + SETTLED_WORK * count)


def _end_too_small(registry: Registry, member: Subscription, size: int) -> None:
    """Ends a consumer that does not take records as large as the next one, which stays in the queue for others. Until
    its client is told, it gets no more."""
    window = member.window
    assert isinstance(window, Grant)
    window.use_up()
    text = larger_than(size, window.record_bytes_max)
    registry.effects.append(Revoked(member, text, Reason.TOO_LARGE_FOR_CLIENT))


def larger_than(size: int, most: int) -> str:
    return (f"the next message has {size:,} bytes, and this receiver takes {most:,} at most; it stays in the queue: "
            "begin to consume again with a larger limit, or none")  # fmt: skip


def deliveries_of(
    member: Subscription, cursor: Cursor, chunk: Chunk, first: int, count: int, now: float
) -> list[Delivery]:
    """Makes the deliveries of neighbours, from record ``first`` of the chunk on."""
    places, numbers = range(first, first + count), count_from(chunk.first_number + first)
    return list(map(Delivery, repeat(member), repeat(now), repeat(cursor), repeat(chunk), places, numbers))


def resend(member: Subscription, delivery_id: int, now: float) -> bool:
    """Sends a record in flight to the same member again, with a new id. Returns False if the record cannot be read."""
    channel, envelope, outlet = member.channel, member.request.envelope, member.session.outlet
    delivery = channel.in_flight[delivery_id]
    chunk, index = delivery.chunk, delivery.index
    if envelope is None or chunk is None:
        return False
    try:
        data = chunk.read(chunk.record_start(index), chunk.ends[index])
    except OSError:
        return False
    cut = envelope.cut(data, [len(data)], redelivered=max(1, delivery.returns))
    channel.remove(delivery_id)
    again = take_ids(member, cut, 1)
    channel.add(again, delivery)
    delivery.sent_s = now
    frames = envelope.write(cut, 0, 1, again)
    outlet.out += frames
    member.counters.write(1, len(frames))
    return True


# -- dispatch ----------------------------------------------------------------------------------------------------------


PORTION_RECORDS = 128
"""So many go to a member in one write, if its share of what waits is that large. A write takes the kernel about as long
as forty records take otherwise, so a window of a hundred is filled with one."""
SEND_WORK = 40
"""The work of such a write, in records that are cut (``Registry.handed_work``)."""
ROUND_MEMBERS = 256
"""So many members get a portion before the queue looks at what it has handed out in this turn."""
BATCH_BYTES = 64 * 1024
RUN_WORK = 6144
"""So much work a queue's run hands out: about 8 ms. One client may permit a million deliveries, and the
records may be tiny."""
BATCH_RECORDS = 1024
"""So many records are written at once: what they cost is known afterwards, and each may have to be written anew."""
BATCH_RECORDS_COUNTED = 256
"""So many to a member that counts credit, for which each record is more work."""
OLDER_WAIT_S = 0.1
"""So long fresh records wait for older ones to come back. A client may leave with much else to be done before that."""
STRETCH_BYTES = 256 * 1024
"""So much of several chunks is sent at once, to a member that settles nothing and was sent all that there was before.
What one that lags does not take was written in vain, so it is sent a chunk at a time."""


class FetchedRecord(NamedTuple):
    """A record that a client asked for, with its bytes as in the lane, how often it came back, and the number of
    records that still wait."""

    delivery_id: int
    frame: bytes
    redelivered: int
    records_left: int


class Dispatch:
    def __init__(self, queue: QueuePort, members: Members, backlog: Backlog, drops: Drops, discards: Discards,
                 lifetimes: Lifetimes, skips: Sequence[Skip], registry: Registry, fanout: Fanout,
                 on_lag: Callable[[Subscription, float], None]) -> None:
        self._queue = queue
        self._terms = queue.terms
        self._members = members
        self._backlog = backlog
        self._drops = drops
        self._discards = discards
        self._lifetimes = lifetimes
        self._skips = skips
        self._registry = registry
        self._fanout = fanout
        self._on_lag = on_lag
        self._bytes_end = self._work_end = 0
        """Where this run ends: what was handed out in all by then."""
        self._kept_up = False
        """Whether all records were handed out the last time. Then it is likely that all of the next are taken, too."""

    def stop(self) -> None:
        """Ends the dispatch, because the queue has ended."""
        del self._queue

    def run(self, now: float) -> None:
        """Hands out the waiting records to members that can take them, as far as this turn's work goes."""
        backlog, drops, lifetimes = self._backlog, self._drops, self._lifetimes
        sorts, discards, picking = self._terms.priorities, self._discards.begun, self._members.picking
        self._bytes_end, self._work_end = backlog.handed_bytes + PUMP_BYTES, self._registry.handed_work + RUN_WORK
        if lifetimes.drop_expired(now) and (not sorts or self.sort_in()) and (not discards or self._discards.go_on()):
            if not picking.pickers and not backlog.reads.grouped:
                self._hand_out(now)
            if picking.pickers or backlog.reads.grouped:
                self._hand_out_found(now)
            lifetimes.fresh_from = inf
            lifetimes.drop_expired(now)
            if self._terms.drops_oldest:
                drops.keep_within()
        self._kept_up = not backlog.has_more
        if not self._kept_up:
            self._queue.feed.listening.pop(self._queue, None)
        else:
            if picking.pickers:
                picking.all_handed_out()
            if self._registry.handed_work > self._work_end - RUN_WORK:  # members took it: what is dropped hides nothing
                backlog.empties += 1
            backlog.cursor.step()  # so that it does not hold a chunk that was read
            self._queue.feed.listening[self._queue] = None
            lifetimes.fresh_from = backlog.cursor.end_number

    @property
    def _is_spent(self) -> bool:
        """Tells whether this run has handed out as much as one may."""
        return self._backlog.handed_bytes > self._bytes_end or self._registry.handed_work >= self._work_end

    def waits_for_older(self, now: float) -> bool:
        """Tells whether only fresh records wait, and older ones are about to come back from a member that is gone, as
        deferred work of its client. If that has much else to do first, the others do not wait for it."""
        members, begun = self._members, self._registry.deferred.begun
        return (bool(members.leaving) and now < members.leaving_since_s + OLDER_WAIT_S
                and not self._backlog.has_some_apart and any(one.session in begun for one in members.leaving))

    def sort_in(self) -> bool:
        """Sorts fresh records by priority, as far as this turn's work goes. Returns whether that was all of them."""
        overdue, before = self._registry.overdue, self._registry.overdue.left
        while self._backlog.has_fresh():
            if overdue.left <= 0:
                overdue.put_off(self._queue, begun=before > 0)
                return False
            self._backlog.sort_in()
            overdue.left -= SORTED_WORK
        return True

    def _hand_out(self, now: float) -> None:
        """Hands out the next record to the next member, until members have pickers."""
        backlog, returning, before = self._backlog, self._registry.returning, self._backlog.handed_records
        overdue = self._registry.overdue
        while backlog.has_more:
            backlog.reads.step()
            waiting = backlog.lag_records
            most = max(1, min(waiting, ROUND_MEMBERS))  # each of them may get a record
            ready = self._members.ready(now, most, self._members.ring)
            if not ready:
                if not self._members:
                    self._queue.miss(now)
                self._members_are_stuck(now)
                return
            if self._is_spent or not backlog.has_some or self.waits_for_older(now):
                self._registry.ready_queues[self._queue] = None
                return
            if backlog.has_some_apart and returning.left <= 0:
                returning.put_off(self._queue, begun=backlog.handed_records > before)
                return
            sharers = max(len(ready), len(self._members.ring))
            portion = waiting if sharers == 1 else max(1, min(PORTION_RECORDS, waiting // sharers))
            given = 0
            for member in ready:
                if some := self._give(member, portion, now):
                    self._members.to_the_back(member)
                    given += some
                if self._members.picking.pickers:
                    return  # a record was too large for this member
                if self._is_spent:
                    break
            if not given and overdue.left <= 0:
                overdue.put_off(self._queue, begun=backlog.handed_records > before)
                return
            if not self._lifetimes.drop_expired(now):
                return

    def _hand_out_found(self, now: float) -> None:
        """Hands out records where members have selectors: each picker has its turn, until no member gets more. Of the
        work of a turn each may have its part; so one with a million records to look at holds up none of the others."""
        backlog, returning, before = self._backlog, self._registry.returning, self._registry.returning.left
        picking, stuck = self._members.picking, False
        self._queue.feed.limited[self._queue] = None
        if backlog.reads.grouped and not picking.grouped:
            picking.begin_groups(self._members)
        served, part = True, max(1, returning.left // max(1, len(picking.pickers)))
        while served and backlog.has_some and returning.left > 0:
            served = False
            for picker in picking.in_turn():
                if self._is_spent:
                    self._registry.ready_queues[self._queue] = None
                    return
                ready = self._members.ready(now, ROUND_MEMBERS, picker.ring)
                if picking.grouped and not self._members.single:
                    ready = list(dict.fromkeys(picking.with_reserved(picker, now) + ready))
                left = returning.left
                if ready and (self._serve(picker, ready, part, now) or returning.left < left):  # it looked
                    picking.had_its_turn(picker)
                    served = True
                stuck = stuck or not ready or bool(picking.groups.reserved)
            part *= 2  # few look: they have the others' parts
        if returning.left <= 0:
            returning.put_off(self._queue, begun=before > 0)
        if not self._members and backlog.has_more:
            self._queue.miss(now)
        if stuck and backlog.has_more:
            self._members_are_stuck(now)

    def _serve(self, picker: Picker, ready: list[Subscription], part: int, now: float) -> int:
        """Gives a portion to each of a picker's members that are ready. Returns how many records they got. ``part``:
        the work of this turn that the picker may look for."""
        given, returning, picking = 0, self._registry.returning, self._members.picking
        if picker.looks:
            picking.look(picker, ready, returning, max(0, returning.left - part))
        share = (picker.lag_records if picker.looks else self._backlog.lag_records) // len(ready)
        for member in ready:
            give = self._give_found if picker.looks else self._give
            portion = max(1, min(PORTION_RECORDS, share + picking.reserved_for(member)))
            if some := give(member, portion, now):
                self._members.to_the_back(member)
                given += some
            if self._is_spent or returning.left <= 0:
                break
        return given

    def _give_found(self, member: Subscription, portion: int, now: float) -> int:
        """Hands up to ``portion`` of the records that a picker found to a member of it; see ``_give``."""
        given, backlog, returning, picking = 0, self._backlog, self._registry.returning, self._members.picking
        while given < portion and not self._is_spent and returning.left > 0 and has_room(member, now):
            offer = picking.next_for(member)
            if offer is None:
                break
            chunk, at = offer.found.chunk, offer.found.at
            reason = self._why_not(member, chunk, at, now)
            if reason is not None and not self._drops.affordable_at_least(1):
                self._registry.overdue.put_off(self._queue, begun=given > 0)
                break
            returning.left -= REQUEUED_WORK
            record = backlog.take(offer.found)
            if reason is not None:
                self._drops.drop_out_of_order(record, reason)
            elif not self._send(member, record.cursor, chunk, at, at + 1, now, requeued=record, opens=offer.first):
                backlog.put(record)
                break
            picking.done(member, offer, got=reason is None)
            given += 1
            if offer.first:
                break  # the next new group is for the next member
        if member.request.envelope is None:
            self._pump(member, given, now)
        return given

    def _members_are_stuck(self, now: float) -> None:
        """Has the governor look at the members. Marks the queue as ready again if that was not all of them, or if
        unsent answers to a member's commands are in the way: there is no event when they are sent."""
        if not self._members.watch(self._on_lag, now):
            self._registry.ready_queues[self._queue] = None
        for member in self._members.eligible if self._members.single else self._members.ring:
            outlet = member.session.outlet
            if outlet.out and not outlet.blocked:
                self._fanout.again[member.session] = None
                self._registry.ready_queues[self._queue] = None

    def _give(self, member: Subscription, portion: int, now: float) -> int:
        """Hands up to ``portion`` records to a member, as far as its room, its credit and this run allow. Returns how
        many."""
        given, backlog = 0, self._backlog
        while given < portion and backlog.has_some and not self._is_spent and has_room(member, now):
            some = self._give_some(member, portion - given, now)
            if not some:
                break
            given += some
        if given and len(member.session.queues) > 1:
            member.session.served(self._queue)
        if member.request.envelope is None:
            self._pump(member, given, now)
        return given

    def _pump(self, member: Subscription, given: int, now: float) -> None:
        """Sends what was given to a member without an envelope. A queue's is a write of its own."""
        if given:
            self._registry.handed_work += SEND_WORK
        self._fanout.pump(member.session, now)

    def _give_some(self, member: Subscription, portion: int, now: float) -> int:
        """Hands out or drops the next few records. Returns how many."""
        backlog, drops = self._backlog, self._drops
        if (found := backlog.next_apart()) is not None:
            chunk, at = found.chunk, found.at
            if self._lifetimes.expired(chunk, at, now):
                return drops.drop(drops.affordable(1), Reason.EXPIRED)
            if self._registry.returning.left <= 0:
                return 0
            self._registry.returning.left -= REQUEUED_WORK
            requeued = backlog.take(found)
            given = self._send(member, requeued.cursor, chunk, at, at + 1, now, requeued=requeued)
            if not given:
                backlog.put(requeued)
            return given
        if self.waits_for_older(now):
            return 0
        cursor, chunk, first = backlog.fresh()
        portion = min(portion, BATCH_RECORDS_COUNTED if member.counts_credit else BATCH_RECORDS)
        last = min(first + portion, cursor.end_number - chunk.first_number)
        if member.counts_credit:
            last = min(last, first + member.credit_left)
            if member.request.qos and member.channel.in_flight_bytes.counts:
                last = member.channel.in_flight_bytes.permits(chunk.ends, first, last)
        last = min(last, max(first + 1, bisect_right(chunk.ends, chunk.record_start(first) + BATCH_BYTES)))
        if self._skips or chunk.soonest_s <= now or self._lifetimes.expired(chunk, first, now):
            last, reason = self._alike(member, chunk, first, last, now)
            if reason is not None:
                affordable = drops.affordable if reason is Reason.EXPIRED else drops.affordable_at_least
                return drops.drop(affordable(last - first), reason)
        elif self._kept_up and last == len(chunk) and member.request.envelope is not None and not member.counts_credit:
            last = self._end_of_stretch(cursor, chunk, first + portion)
        return self._send(member, cursor, chunk, first, last, now)

    def _alike(
        self, member: Subscription, chunk: Chunk, first: int, last: int, now: float
    ) -> tuple[int, Reason | None]:
        """Returns the end of the records that are dropped for the same reason as the first, or (None) are all sent."""

        reason = self._why_not(member, chunk, first, now)
        upto = first + 1
        while upto < last and self._why_not(member, chunk, upto, now) == reason:
            upto += 1
        return upto, reason

    def _why_not(self, member: Subscription, chunk: Chunk, index: int, now: float) -> Reason | None:
        """Returns why a record is not handed out; None: it is."""
        if self._lifetimes.expired(chunk, index, now):
            return Reason.EXPIRED
        try:
            return drop_reason(member, chunk, index) if self._skips else None
        except OSError:
            return None  # the disk fails: sending the record will report it

    def _send(self, member: Subscription, cursor: QueueCursor, chunk: Chunk, first: int, last: int, now: float, *,
              requeued: RequeuedRecord | None = None, opens: bool = False) -> int:
        """Writes records for a member and counts them. ``opens``: it is the first of its group that the member gets.
        Returns how many were sent or dropped."""
        if member.request.envelope is None:
            together = requeued is None and not self._members.picking.pickers  # else each picker has its turn
            copied = send_copied(member, cursor, chunk, first, last, now) if together else None
            sent = copied or send_one(member, cursor, chunk, first, now)
        else:
            again = requeued.returns if requeued is not None else 0
            sent = send_batch(
                self._registry, member, cursor, chunk, first, last, now, redelivered=again, opens=opens
            )
        if not sent.records:
            return 0
        self._registry.handed_work += sent.work
        size = stretch_bytes(chunk, first, first + sent.records)
        if sent.reason is not None:
            members = self._members
            if sent.reason is Reason.TOO_LARGE_FOR_CLIENT and members.picking.begin_limits(member, members):
                return 0  # another member can take it
            self._drops.lose(member, chunk, first, first + 1, sent.reason)
        else:
            member.counters.handed_bytes += size
        self._handed_over(member, cursor, chunk, first, sent.records, size, sent.deliveries, requeued, now)
        return sent.records

    def _end_of_stretch(self, cursor: QueueCursor, chunk: Chunk, last: int) -> int:
        """Returns how far the records go on, up to ``last``, that can be sent at once: those in memory. None of them
        expires, because they came after all others were handed out (members.py)."""
        last = min(last, cursor.end_number - chunk.first_number)
        end, size, following = len(chunk), chunk.size, chunk.next
        while following is not None and following.resident and end < last and size < STRETCH_BYTES:
            end, size, following = end + len(following), size + following.size, following.next
        return min(last, end)

    def _handed_over(self, member: Subscription, cursor: QueueCursor, chunk: Chunk, first: int, count: int, size: int,
                     deliveries: list[Delivery], requeued: RequeuedRecord | None, now: float) -> None:
        """Notes that records left the backlog, and the deliveries that the member has to settle. Without deliveries the
        records are settled at once."""
        backlog, number = self._backlog, chunk.first_number + first
        if requeued is not None:
            backlog.handed(count, size, requeued.key)
            for delivery in deliveries:
                delivery.returns = requeued.returns
            if not deliveries:
                backlog.free(cursor, number)
        else:
            backlog.handed(count, size)
            if deliveries:
                cursor.sent(number, chunk, len(deliveries))
            else:
                cursor.done(count)
            cursor.advance(size)
            backlog.reads.step()
        if chunk.run_patience:
            for delivery in deliveries:
                delivery.patience_s = chunk.patience_s(delivery.index)
                member.job_patience = member.job_patience or delivery.patience_s > 0
        if deliveries and (member.case.policy.minds_acks or self._registry.trials_mind_acks or is_patient(member)):
            self._on_lag(member, now)

    def get(self, member: Subscription, now: float) -> FetchedRecord | None:
        """Hands the next record to a member that asks for it. Returns None if no record waits, or its client holds too
        many already; the prefetch of its channel is for consumers. Raises OSError (failing disk)."""
        backlog, drops, lifetimes = self._backlog, self._drops, self._lifetimes
        if self._terms.priorities:
            self.sort_in()
        lifetimes.drop_expired(now)
        while (head := backlog.head()) is not None and lifetimes.expired(*head, now):
            drops.drop(1, Reason.EXPIRED)
        if head is None or (member.request.qos and member.channel.whole.left <= 0):
            return None
        chunk, index = head
        begin, end = chunk.record_start(index), chunk.ends[index]
        frame = bytes(chunk.read(begin, end))
        requeued = backlog.pop() if backlog.has_some_apart else None
        cursor = requeued.cursor if requeued is not None else backlog.cursor
        delivery_id = member.channel.take_ids(1)
        deliveries = deliveries_of(member, cursor, chunk, index, 1, now) if member.request.qos else []
        member.channel.add_all(delivery_id, deliveries, member.window, chunk, index)
        self._handed_over(member, cursor, chunk, index, 1, end - begin, deliveries, requeued, now)
        member.counters.write(1, end - begin)
        member.counters.handed_bytes += end - begin
        if not backlog.has_more:
            self._registry.ready_queues[self._queue] = None
        return FetchedRecord(delivery_id, frame, 0 if requeued is None else requeued.returns, backlog.lag_records)
