"""Moves: what is done with the cursor of a slow consumer."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.base import Reason, WorkSteps
from headway.core.clients import Admission, Ending, Queues
from headway.core.consumer import REPLACED, CloseChannel, Poll, Revoked, Session, Skip, Subscription, rest_skipped
from headway.core.delivery import (
    CHUNK_WORK,
    LOOKED_AT_WORK,
    PRIORITY,
    RANGE_WORK,
    UNREADABLE,
    at_most,
    conflate_once,
    enough,
    figures_of,
    free_cursor,
    lose,
    neighbours,
    predicate_of,
)
from headway.core.log import CHUNK_BYTES, GRACE_S, Chunk, Cursor, stretch_bytes
from headway.core.policy import Action, FlapControl, Which
from headway.core.queue import queue_behind
from headway.core.routing import Advisories, Registry

# -- cutting -----------------------------------------------------------------------------------------------------------
#
# Cutting closes the channel or the connection of a consumer that costs others too much.
#
# A cut takes far longer than a look. So at most ``CUTS_MAX`` consumers are cut in a turn, and the others in the next
# turns. One that is far behind counts as several.


CUTS_MAX = 32
CUT_BYTES = 64 * CHUNK_BYTES
"""So much that a consumer has not read takes the time of a cut, for each of its chunks is visited."""


class Cutter:
    def __init__(
        self, registry: Registry, admission: Admission, queues: Queues, advisories: Advisories, flap: FlapControl
    ) -> None:
        self._registry = registry
        self._admission = admission
        self._queues = queues
        self._advisories = advisories
        self._flap = flap
        self.cuts_left = CUTS_MAX
        """The number of consumers that may still be cut in this turn."""

    def begin_turn(self) -> None:
        self.cuts_left = CUTS_MAX

    def count(self, subscription: Subscription) -> None:
        """Takes the end of a consumer off the cuts that are left in this turn."""
        of_lane = queue_behind(subscription) is None
        self.cuts_left -= 1 + (subscription.gating_bytes // CUT_BYTES if of_lane else 0)

    def cut(
        self, subscription: Subscription, reason: Reason, text: str, now: float, *, connection: bool = False
    ) -> None:
        """Closes the consumer's channel if its client has consumers on other channels, else the connection.
        ``connection``: in any case."""
        session, channel = subscription.session, subscription.channel
        self.count(subscription)
        own = (channel, session.channel)  # outside of its channels a client has only what its library follows
        alone = connection or channel is session.channel
        if alone or all(other.channel in own for other in session.subscriptions.values()):
            self.disconnect(session, reason, text, now)
            return
        self._flap.strike(session.client, now)
        self._queues.close_channel(session, channel, now)
        self._registry.effects.append(CloseChannel(session, channel, reason, text))
        self._advisories.tell("disconnected", session.client, now, reason=reason, text=text, channel=channel.number)

    def end_broken(self, broken: list[tuple[Subscription, str]], now: float) -> None:
        """Ends those whose live queries cannot go on, and tells them why. It is not their fault."""
        for subscription, why in broken:
            session = subscription.session
            if subscription.ended or subscription.gone:
                continue
            text = f"what it has asked to be kept of the state of {subscription.filter} is kept no more: {why}"
            if subscription.has_channel:
                subscription.let_flow(False)
                self._registry.effects.append(Revoked(subscription, text, Reason.CLIENT_MEMORY))
                self._advisories.tell("close_consumer", session.client, now, filter=subscription.filter, text=text)
            else:
                self._admission.expel(session, Reason.CLIENT_MEMORY, text, now)

    def end_stream(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Ends the connection of a client whose one subscription ends."""
        self._admission.expel(session, reason, text, now)

    def disconnect(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Disconnects a client that costs others too much. A durable session keeps its subscriptions."""
        if not session.connected:
            return
        shut_out_s = self._flap.strike(session.client, now)
        if shut_out_s:
            text += f"; readmitted in {shut_out_s:g} s"
        self._admission.expel(session, reason, text, now)
        self._advisories.tell("disconnected", session.client, now, reason=reason, text=text)


# -- moves -------------------------------------------------------------------------------------------------------------
#
# Moves: the effects of actions on a consumer. An action moves the cursor, or leaves out records ahead of it: these are
# counted and told at once, and are no lag any more.
#
# ========================= ==================================================================================
# conflate                  detach the cursor; send the latest record per key whenever there is room
# discard oldest            move the cursor towards the end until no more waits than the action allows
# discard newest            keep the first of the waiting records; leave out the others, and new ones until the rule
#                           steps back
# discard selector, topics  leave out the records that match, and new ones likewise
# discard lowest_priority   leave out records of the lowest priorities until no more waits than the action allows
# discard older_per_key     conflate once; records left out count as discarded
# offline                   write the chunks that the cursor still needs to disk, once for all their consumers
# ========================= ==================================================================================
#
# A record that is half sent is finished first (fanout.py). There may be a million records to leave out ahead of a
# cursor, so that is deferred work (deferred.py): a step looks at a chunk, or at some of its records.


CURSORS_MAX = 256
"""Where more consumers than this are behind in a lane, no bytes in its middle are dropped."""


def discard(subscription: Subscription, action: Action, registry: Registry, now: float) -> None:
    """Applies a discard. Called at each look while its rule is active."""
    if isinstance(subscription, Poll):
        subscription.discard(action)
        return
    cursor = subscription.cursor
    queue = queue_behind(subscription)
    if not cursor.attached or (queue is not None and not queue.members.all_slow):
        return
    subscription.session.outlet.freshen()
    which = action.which
    if queue is not None:
        queue.discards.look(subscription, action)
    elif which is Which.OLDER_PER_KEY:
        conflate_once(subscription)
    else:
        free_cursor(subscription)
        left_out, excess = subscription.left_out, max(_excess(subscription, action))
        if which is Which.OLDEST and not left_out.records:
            registry.lost(subscription.skip_to(_oldest_kept(subscription, action), Reason.DISCARDED), Reason.DISCARDED)
        elif which in (Which.OLDEST, Which.LOWEST_PRIORITY):
            if excess > 0 and action not in left_out.looks:
                leave_out = _leave_out_oldest if which is Which.OLDEST else _leave_out_lowest
                registry.deferred.begin(leave_out(subscription, action, registry), now, client=subscription.session)
        elif (skip := next((one for one in subscription.skips if one.order == action and one.open), None)) is not None:
            _apply(subscription, skip, registry, now)
        elif which is not Which.NEWEST:
            skip = Skip(cursor.number, predicate_of(action), Reason.DISCARDED, action)
            subscription.skips.append(skip)
            _apply(subscription, skip, registry, now)
        elif action not in left_out.looks:
            registry.deferred.begin(_leave_out_newest(subscription, action, registry), now, client=subscription.session)


def stop_discarding(subscription: Subscription, action: Action, registry: Registry, now: float) -> None:
    """Ends the skips of this action, so that records published from now on are not left out."""
    subscription.cursor.lane.receive()  # that was published before
    for skip in [skip for skip in subscription.skips if skip.order == action]:
        skip.stop = min(skip.stop, subscription.cursor.lane.count)
        if queue_behind(subscription) is None and subscription.cursor.attached:
            _apply(subscription, skip, registry, now)


# -- what is left out -----------------------------------------------------------------------------------------------


def _excess(subscription: Subscription, action: Action) -> tuple[float, float]:
    """Returns how many records and bytes more wait in the lane than the action would leave. A snapshot, or what else
    comes before these, is sent whole."""
    kept, before = action.records_kept(subscription.prefetch), subscription.backfill_lag()
    return subscription.lag_records - before.records - kept, subscription.lag_bytes - before.bytes - action.bytes_kept


def _excess_before(
    subscription: Subscription, action: Action, end: tuple[int, int]
) -> tuple[float, float] | None:
    """Returns how many more wait of those that waited before ``end``, without what has come since; None: no more."""
    (records, size), (number, position) = _excess(subscription, action), _end(subscription)
    excess = records - number + end[0], size - position + end[1]
    return excess if max(excess) > 0 else None


def _first_of(
    chunk: Chunk, ranges: Iterable[tuple[int, int]], excess: tuple[float, float]
) -> list[tuple[int, int]]:
    """Returns the first of some ranges of records, as many as are in excess."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if not (count := enough(chunk, first, last, *excess)):
            break
        found.append((first, first + count))
        excess = excess[0] - count, excess[1] - stretch_bytes(chunk, first, first + count)
    return found


def _end(subscription: Subscription) -> tuple[int, int]:
    """Returns the number and the position in the lane where what waits ends."""
    rest, lane = rest_skipped(subscription.skips), subscription.cursor.lane
    return (lane.count, lane.end) if rest is None else (rest.upto, rest.position)


def _oldest_kept(subscription: Subscription, action: Action) -> int:
    """Returns the number of the first record that stays if the oldest ones go, of which none was left out."""
    cursor, excess = subscription.cursor, _excess(subscription, action)
    number = cursor.number
    for chunk, first, last in subscription.left_out.all_waiting(cursor.chunk, number, cursor.lane.count):
        if not (count := enough(chunk, first, last, *excess)):
            break
        excess = excess[0] - count, excess[1] - stretch_bytes(chunk, first, first + count)
        number = chunk.first_number + first + count
    return number


def _apply(subscription: Subscription, skip: Skip, registry: Registry, now: float) -> None:
    """Applies a skip to what waits, unless that is under way."""
    if skip not in subscription.left_out.looks:
        registry.deferred.begin(_leave_out(subscription, skip, registry), now, client=subscription.session)


def _leave_out(subscription: Subscription, skip: Skip, registry: Registry) -> WorkSteps:
    """Leaves out the waiting records that a skip is for."""
    cursor, chunk, predicate = subscription.cursor, subscription.cursor.chunk, skip.predicate
    subscription.own_left_out().looks.add(skip)
    while skip in subscription.skips and not subscription.ended and cursor.attached:
        chunk, number = _place(subscription, chunk, skip.upto)
        rest = rest_skipped(subscription.skips)  # what comes after it is left out in any case, and is no lag already
        stop = int(min(skip.stop, cursor.lane.count if rest in (None, skip) else rest.upto))
        if number >= stop:
            break
        first, last, work = number - chunk.first_number, min(len(chunk), stop - chunk.first_number), CHUNK_WORK
        ranges = list(subscription.left_out.waiting(chunk, first, last))
        if predicate is not None:
            figures = figures_of(subscription, chunk, predicate, first)
            last, work = min(last, len(figures)), LOOKED_AT_WORK * (len(figures) - first)
            ranges = [run for a, b in ranges for run in neighbours(figures, True, a, min(b, last))]
        if ranges:
            registry.lost(subscription.leave_out(chunk, ranges, skip.reason), skip.reason)
        skip.upto, skip.position = chunk.first_number + last, chunk.start + chunk.record_start(last)
        yield work + RANGE_WORK * len(ranges)
    subscription.left_out.looks.discard(skip)
    if skip.upto >= skip.stop and skip in subscription.skips:
        subscription.skips.remove(skip)
    _free(subscription)


def _leave_out_newest(subscription: Subscription, action: Action, registry: Registry) -> WorkSteps:
    """Keeps the first records that wait, and begins a skip of all others."""
    cursor, rest, looks = subscription.cursor, rest_skipped(subscription.skips), subscription.own_left_out().looks
    records, size, chunk = action.records_kept(subscription.prefetch), action.bytes_kept, cursor.chunk
    number, end, full = cursor.number, cursor.lane.count if rest is None else rest.upto, False
    position = cursor.position
    looks.add(action)
    while not full and not subscription.ended and cursor.attached:
        chunk, number = _place(subscription, chunk, number)
        first, last, work = number - chunk.first_number, min(len(chunk), end - chunk.first_number), CHUNK_WORK
        if first >= last:
            break
        for begin, stop in subscription.left_out.waiting(chunk, first, last):
            work += 1
            kept = begin + at_most(chunk, begin, stop, records, size)
            if full := kept < stop:
                last = kept
                break
            records, size = records - (stop - begin), size - stretch_bytes(chunk, begin, stop)
        number, position = chunk.first_number + last, chunk.start + chunk.record_start(last)
        yield work
    looks.discard(action)
    if not subscription.ended and cursor.attached:
        skip = Skip(number, None, Reason.DISCARDED, action)
        skip.position = position
        if rest is not None:
            skip.stop = rest.upto
        subscription.skips.append(skip)
        yield from _leave_out(subscription, skip, registry)


def _leave_out_oldest(subscription: Subscription, action: Action, registry: Registry) -> WorkSteps:
    """Leaves out the oldest records that wait now, until no more of them wait than the action allows."""
    cursor, number = subscription.cursor, 0
    chunk, end = cursor.chunk, _end(subscription)
    subscription.own_left_out().looks.add(action)
    while not subscription.ended and cursor.attached:
        chunk, number = _place(subscription, chunk, number)
        first, last = number - chunk.first_number, min(len(chunk), end[0] - chunk.first_number)
        if first >= last or not (excess := _excess_before(subscription, action, end)):
            break
        ranges = _first_of(chunk, subscription.left_out.waiting(chunk, first, last), excess)
        if ranges:
            registry.lost(subscription.leave_out(chunk, ranges, Reason.DISCARDED), Reason.DISCARDED)
        number = chunk.first_number + last
        yield CHUNK_WORK + RANGE_WORK * len(ranges)
    subscription.left_out.looks.discard(action)
    _free(subscription)


def _leave_out_lowest(subscription: Subscription, action: Action, registry: Registry) -> WorkSteps:
    """Leaves out records of the lowest priority that wait now, and then of the next one, until no more of them wait
    than the action allows, also if its rule has stepped back by then. Of one priority the oldest go first."""
    cursor, number = subscription.cursor, 0
    chunk, end = cursor.chunk, _end(subscription)
    with_priority: dict[int, list[Chunk]] = {}
    subscription.own_left_out().looks.add(action)
    while not subscription.ended and cursor.attached:
        chunk, number = _place(subscription, chunk, number)
        first, last = number - chunk.first_number, min(len(chunk), end[0] - chunk.first_number)
        if first >= last:
            break
        looked_at = last
        if any(True for _ in subscription.left_out.waiting(chunk, first, last)):
            figures = figures_of(subscription, chunk, PRIORITY, first)
            looked_at = min(last, len(figures))
            for priority in set(figures) - {UNREADABLE} if looked_at == last else ():
                with_priority.setdefault(priority, []).append(chunk)
        number = chunk.first_number + looked_at
        yield CHUNK_WORK + LOOKED_AT_WORK * (looked_at - first)
    for priority, chunk in [(level, one) for level in sorted(with_priority) for one in with_priority[level]]:
        if subscription.ended or not cursor.attached:
            break
        if chunk.first_number < cursor.chunk.first_number:
            continue  # it has read on meanwhile
        if not (excess := _excess_before(subscription, action, end)):
            break
        first = _place(subscription, chunk, chunk.first_number)[1] - chunk.first_number
        figures = (chunk.marks or {}).get(PRIORITY.key, b"")
        last = min(len(figures), end[0] - chunk.first_number)
        waiting = subscription.left_out.waiting(chunk, first, max(first, last))
        ranges = _first_of(chunk, (run for a, b in waiting for run in neighbours(figures, priority, a, b)), excess)
        if ranges:
            registry.lost(subscription.leave_out(chunk, ranges, Reason.DISCARDED), Reason.DISCARDED)
        yield CHUNK_WORK + RANGE_WORK * len(ranges)
    subscription.left_out.looks.discard(action)
    _free(subscription)


def _free(subscription: Subscription) -> None:
    """Lets go of what nobody needs any more after a look: what comes next in the lane and is left out, and the bytes of
    chunks that are left out as a whole, for all cursors that have not passed them."""
    subscription.pass_left_out()
    whole, lane, behind = subscription.left_out.whole(), subscription.cursor.lane, list[Cursor]()
    for chunk in (*lane.chunks_with_cursors, lane.tail) if whole else ():
        behind += chunk.cursors_here
        if len(behind) > CURSORS_MAX:
            return
    for chunk in whole:
        if chunk not in lane.hollow and not chunk.kept_by and all(
            isinstance(cursor.owner, Subscription) and cursor.owner.left_out.is_whole(chunk)
            for cursor in behind if cursor.floor is not None and cursor.floor.start <= chunk.start
        ):  # fmt: skip
            lane.drop_bytes(chunk)


def _place(subscription: Subscription, chunk: Chunk, number: int) -> tuple[Chunk, int]:
    """Returns the record from ``number`` on that may be left out, and its chunk: this one or one behind it, but none
    that the cursor has passed."""
    cursor = subscription.cursor
    number = max(number, cursor.number + (not cursor.at_boundary))
    if chunk.first_number < cursor.chunk.first_number:
        chunk = cursor.chunk
    while chunk.next is not None and number >= chunk.next.first_number:
        chunk = chunk.next
    return chunk, number


# -- write off ---------------------------------------------------------------------------------------------------------
#
# Writing off drops the records of an evicted consumer.


def write_off(
    registry: Registry, ending: Ending, subscription: Subscription, reason: Reason, now: float, *, unreadable: bool
) -> None:
    """Moves the subscription past the records that it loses, which become a gap.

    A subscription with promised records loses the records before the first of these. Any other subscription loses all
    records. If records are ``unreadable``, it loses exactly those."""
    cursor = subscription.cursor
    queue = queue_behind(subscription)
    if queue is not None:
        queue.write_off(subscription, reason, now - GRACE_S)
        return
    if subscription.promised and not unreadable:
        upto = cursor.held_number(subscription.stop)
        registry.lost(subscription.skip_to(upto, reason), reason)
        _settle_down(registry, ending, subscription, reason, now)
        return
    channel = subscription.channel
    in_flight = [(i, channel.in_flight[i]) for i in channel.ids_of(subscription)]
    stop = subscription.stop
    if unreadable:
        chunks = {cursor.chunk, *(delivery.chunk for _, delivery in in_flight)}
        bad = {chunk for chunk in chunks if chunk is not None and not chunk.readable()}
        in_flight = [(i, delivery) for i, delivery in in_flight if delivery.chunk in bad]
        stop = min(stop, cursor.chunk.first_number + len(cursor.chunk)) if cursor.chunk in bad else cursor.number
    for delivery_id, delivery in in_flight:
        lose(subscription, delivery_id)
        if delivery.chunk is not None:
            sequence = delivery.chunk.sequence_of(delivery.index)  # while its chunk is still there
            subscription.note_gap(1, sequence, sequence, reason)
        else:
            subscription.feed.lane.receipts.lost(subscription, delivery.number, delivery.number, reason)
        delivery.cursor.acknowledge(delivery.number)
    registry.lost(subscription.skip_to(stop, reason), reason)
    _settle_down(registry, ending, subscription, reason, now)


def _settle_down(
    registry: Registry, ending: Ending, subscription: Subscription, reason: Reason, now: float
) -> None:
    """Ends the subscription, or makes it wait, if its cursor has reached the end."""
    session = subscription.session
    if subscription.life is REPLACED and subscription.cursor.number >= subscription.stop:
        ending.end(subscription, reason, now)
    elif subscription in session.lagging and not subscription.has_more:
        subscription.feed.wait(subscription)
        registry.dirty[subscription.feed] = None
