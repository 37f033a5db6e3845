"""A subscription is one consumer, with its cursor, its backfills and its gap.

Its ``Reader`` is the source of its records. Its ``Counters`` count them. Its ``Conflation`` sends the latest record per
key, and its ``Case`` is the governor's data on it.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from headway.core.base import NO_TIMER, Reason, moved
from headway.core.consumer.channel import ENDED, MOVES, OPEN, PAUSED, Channel, Delivery, Life
from headway.core.consumer.credit import NO_LIMIT, Window
from headway.core.consumer.progress import (
    NO_VOLUME,
    NONE_LEFT_OUT,
    Backfill,
    BackfillSource,
    Counters,
    LeftOut,
    Skip,
    ViewAge,
    Volume,
)
from headway.core.consumer.reader import EVERY_RECORD, LANE_READER, Conflation, Reader
from headway.core.consumer.request import SubscribeRequest
from headway.core.log import NO_PROGRESS, NO_RECEIPTS, Chunk, Cursor, OutOfOrderProgress, StatePass, records_between
from headway.core.message import Gap
from headway.core.policy import Case

if TYPE_CHECKING:
    from headway.core.consumer.feed import Feed
    from headway.core.consumer.session import Session


# -- subscription ------------------------------------------------------------------------------------------------------


OLDEST_LOOKED_AT = 1000
"""The number of a channel's deliveries that are searched for the oldest one of a consumer."""


class Subscription:
    """One consumer."""

    __slots__ = (
        "_feed", "astray", "backfills", "case", "channel", "clock", "conflation", "counters", "current_s",
        "cursor", "dialect", "filter", "gap", "job_patience", "lease", "left_out", "life", "metadata_number", "number",
        "priority", "reader", "renewals", "request", "session", "skips", "start_sequence", "stop_number", "tab_bytes",
        "view", "window",
    )  # fmt: skip

    def __init__(self, session: Session, request: SubscribeRequest, feed: Feed, case: Case) -> None:
        self.number = 0
        """The consumer's number in the lake; 0 if it is not recorded there yet."""
        self.metadata_number = 0
        """The consumer's number in the durable metadata; 0 if it is not durable."""
        self.session = session
        self.request = request
        self.filter = request.filter
        self.priority = feed.priority
        self.dialect = request.dialect
        self.tab_bytes = 0
        """The bytes that it counts for on its session's tab."""
        self._feed = feed
        self.channel: Channel = session.channel
        """The channel in which its deliveries are numbered and acknowledged."""
        self.window: Window = session.channel
        """The limit of its own deliveries in flight; often the window of its channel."""
        self.cursor = Cursor(feed.lane, self)
        self.counters = Counters(feed.lane.count, feed.lane.end)
        self.stop_number = NO_LIMIT
        """The number of the first record that is not for this subscription, if another one has replaced it."""
        self.start_sequence = feed.lane.last_sequence
        """The sequence of the last record before the subscription began."""
        self.case = case
        self.reader: Reader = LANE_READER
        self.life = OPEN
        """Only ``become`` sets it."""
        self.lease = NO_TIMER
        """The timer that ends the subscription unless its client renews it."""
        self.clock = NO_TIMER
        """The timer of a consumer that is conflated by an interval."""
        self.job_patience = False
        """Set if it was sent a message that asks for patience."""
        self.renewals = 0
        """How often its client has subscribed again on the same terms."""

        self.backfills: list[Backfill] = []
        """Records that come before any more from the lane. The first one is being read."""
        self.conflation = Conflation(request.options.interval_s)
        self.current_s = 0.0
        """The time when the consumer was last caught up, or asked for older records. Its lag is no older than this."""
        self.skips: list[Skip] = []
        self.left_out = NONE_LEFT_OUT

        self.astray = False
        """Set if it has left out something that deltas which wait for it in its lane may need."""
        self.view: ViewAge | None = None
        """Estimates how old the records are that its client reads now; None: it has not lagged."""
        self.gap: Gap | None = None
        """Skipped records that are not announced to the consumer yet."""

    @property
    def feed(self) -> Feed:
        """The feed that it reads, or its queue does."""
        queue = self.reader.queue
        return self._feed if queue is None else queue.feed

    def become(self, life: Life) -> None:
        self.life = moved(MOVES, self.life, life)

    def let_flow(self, flows: bool) -> None:
        """Opens or pauses the subscription. Does nothing if it has been replaced or has ended."""
        to, source = (OPEN, PAUSED) if flows else (PAUSED, OPEN)
        if self.life is source:
            self.become(to)
            (self.session.let_on if flows else self.session.pause)(self)

    @property
    def has_channel(self) -> bool:
        """Tells whether it is a consumer on a channel of its client (AMQP), which can be cancelled alone."""
        return self.channel is not self.session.channel

    @property
    def ended(self) -> bool:
        return self.life is ENDED

    @property
    def gone(self) -> bool:
        """Tells whether its session or channel has ended. The subscription may end some turns later (deferred.py)."""
        return self.session.ended or self.channel.closed

    @property
    def special(self) -> bool:
        """Tells whether records cannot go from the lane to the outlet as they are."""
        if self.backfills or self.skips or self.gap is not None or self.conflation.mode is not EVERY_RECORD:
            return True
        if self.left_out.records:
            return True
        return self.astray or self.session.max_packet_bytes < self.cursor.lane.largest

    @property
    def record_bytes_max(self) -> int:
        """The largest record that its client takes, in the form in which it is sent."""
        return min(self.session.max_packet_bytes, self.window.record_bytes_max)

    @property
    def overrun(self) -> bool:
        """Tells whether there are more records in its lane than it has room for."""
        return self.cursor.lane.count - self.cursor.number > self.room

    @property
    def conflating(self) -> bool:
        """Tells whether the consumer gets the latest record per key. Its cursor is detached then."""
        return self.conflation.mode is not EVERY_RECORD

    @property
    def stop(self) -> int:
        """Returns the number of the first record that is not for this subscription."""
        return min(self.feed.lane.count, self.stop_number)

    @property
    def durable(self) -> bool:
        """Tells whether the subscription outlives its client's connection."""
        return self.reader.durable(self)

    @property
    def promised(self) -> bool:
        """Tells whether records that were confirmed to their publisher are kept while the consumer is away."""
        return self.session.expiry_s > 0 and self.request.qos > 0

    @property
    def has_more(self) -> bool:
        """Tells whether records wait for this consumer."""
        return self.reader.has_more(self)

    @property
    def lag_records(self) -> int:
        """Returns how many records it is still to get, conflated or not."""
        return self.reader.lag_records(self)

    @property
    def lag_bytes(self) -> int:
        """Returns the size of these records in the lane."""
        return self.reader.lag_bytes(self)

    @property
    def gating_bytes(self) -> int:
        """Returns how many bytes of the lane are held for it."""
        return self.reader.gating_bytes(self)

    @property
    def delivered(self) -> Volume:
        """Returns the volume that was sent to it."""
        return self.reader.delivered(self)

    def oldest_time(self) -> float:
        """Returns the time since when records wait for it; ``inf`` if none do."""
        return self.reader.oldest_time(self)

    def lag_age_s(self, now: float) -> float:
        """Returns for how long the oldest of these records has waited; 0 if none do."""
        return max(0.0, now - self.oldest_time()) if self.has_more else 0.0

    def sent_upto(self, last_sequence: int, now: float) -> tuple[int, float] | None:
        """Returns the sequence up to which its client was sent everything, and since when more waits, in seconds (0:
        nothing does). None while it gets a snapshot, older records or the latest per key, which are not in order."""
        if self.backfills or self.reader.queue is not None:
            return None
        self.feed.lane.receive()
        conflation, cursor, live = self.conflation, self.cursor, self.feed.live
        if live is not None and cursor.number == cursor.lane.count:
            return live.told_upto(last_sequence, now)
        if self.conflating:
            all_sent = cursor.number == cursor.lane.count
            return (last_sequence, 0.0) if all_sent else (conflation.upto, conflation.every_s or 0.0)
        unsent, oldest_s = cursor.unsent_sequence(), self.oldest_time()
        if not unsent or oldest_s == inf:
            return last_sequence, 0.0
        return unsent - 1, max(0.0, now - oldest_s)

    def note_view(self) -> None:
        """Notes what its client will read when it has read all that was taken."""
        next_s, outlet = self.oldest_time(), self.session.outlet
        if next_s < inf:
            if self.view is None:
                self.view = ViewAge()
            self.view.note(outlet.taken_bytes + len(outlet.out), next_s)

    def view_age_s(self, now: float) -> float:
        """Returns how old the records are that its client reads now, about; 0 while it is away."""
        if self.view is None or not self.session.connected:
            return 0.0
        return self.view.seconds(self.session.outlet.seen_bytes(), self.oldest_time(), now)

    def stop_timers(self) -> None:
        self.lease.cancel()
        self.clock.cancel()

    # -- credit -----------------------------------------------------------------------------------------------------

    @property
    def counts_credit(self) -> bool:
        """Tells whether it gets no more than its client permits."""
        return self.request.qos > 0 or self.window.grants

    @property
    def credit_left(self) -> int:
        return min(self.window.left, self.channel.left, self.channel.whole.left)

    @property
    def room(self) -> int:
        """Returns for how many more records of its lane there is room, if it acknowledges them by their number, or its
        client grants so many."""
        if self.window.grants:
            return self.credit_left
        if not self.window.counts:
            return NO_LIMIT
        self.note_sent()
        return self.window.left

    def out_of_room(self, now: float) -> bool:
        """Tells whether there is none; notes since when. Then it is sent nothing until it is let on: until its client
        grants more, or acknowledges some."""
        if self.room > 0:
            return False
        self.note_exhausted(now)
        self.session.pause(self)
        return True

    def note_exhausted(self, now: float) -> None:
        """Notes since when records wait because the client permits no more."""
        for window in (self.window, self.channel, self.channel.whole):
            if window.left <= 0 and window.exhausted_since_s is None:
                window.exhausted_since_s = now

    def note_sent(self) -> None:
        """Has a counted window know how many records it was sent."""
        self.window.sent(self.reader.delivered(self).records)

    @property
    def credit_exhausted_since_s(self) -> float:
        """Returns since when records wait because its client permits no more; ``inf``: that is not noted."""
        windows = (self.window, self.channel, self.channel.whole)
        return next((w.exhausted_since_s for w in windows if w.exhausted_since_s is not None), inf)

    @property
    def keyed(self) -> bool:
        """Tells whether the latest record per key of what waits is kept for all, and it is not owed every record."""
        state = self.conflation.state
        if state is None or not state.declared or self.durable or not self.reader.conflatable:
            return False
        return self.conflating or self.conflation.covers(self)

    @property
    def prefetch(self) -> int:
        """Returns how many deliveries its client permits to be in flight; 0 if it acknowledges none."""
        acknowledges = self.counts_credit or self.window.counts
        return min(self.window.limit, self.channel.limit, self.channel.whole.limit) if acknowledges else 0

    @property
    def patience_s(self) -> float:
        """Returns for how long its client may hold a delivery without being slow: what it asked for, or what its
        policy grants if that is less; 0 if it asked for nothing, or acknowledges nothing."""
        asked_s = self.request.options.patience_s
        return min(asked_s, self.case.policy.patience_max_s) if asked_s and self.request.qos else 0.0

    def oldest_unacknowledged_s(self) -> float:
        """Returns the time when the oldest unacknowledged delivery was sent; ``inf`` if there is none."""
        if self.window is self.channel:
            return self.channel.oldest_sent_s()
        if not self.window.used:
            return inf
        some = islice(self.channel.in_flight.values(), OLDEST_LOOKED_AT)
        return next((delivery.sent_s for delivery in some if delivery.subscription is self), inf)

    # -- gaps -------------------------------------------------------------------------------------------------------

    def note_gap(self, records: int, first: int, last: int, reason: Reason) -> None:
        """Counts skipped records and adds them to the gap to be announced. Expired records are announced only to
        consumers that asked for it."""
        if records > 0 and first:  # 0: nobody knows which records these are
            self.feed.lane.receipts.lost(self, first, last, reason)
        self._note_gap(records, first, last, reason)

    def _note_gap(self, records: int, first: int, last: int, reason: Reason) -> None:
        if records <= 0:
            return
        self.counters.gap(records, reason)
        if (deltas := self.feed.deltas) is not None and not self.conflating and reason is not Reason.CONFLATED:
            deltas.raise_floor(self.feed.lane.last_sequence)
            self.astray = self.cursor.number < self.feed.lane.count
        if reason is Reason.EXPIRED and not self.request.options.expiries:
            return
        old = self.gap
        if old is None:
            self.gap = Gap(records, first, last, reason)
        else:
            told = old.reason if reason is Reason.CONFLATED else reason  # conflation loses nothing of a state
            self.gap = Gap(old.records + records, min(old.first_sequence, first), max(old.last_sequence, last), told)

    def skip_to(self, number: int, reason: Reason) -> dict[int, int]:
        """Skips all records before ``number``. Returns the number of skipped records by publisher."""
        cursor = self.cursor
        here = cursor.number
        if not cursor.attached or number <= here:
            return {}
        if self.left_out.records:
            losses, waiting = Counter[int](), self.left_out.all_waiting(cursor.chunk, here, number)
            for chunk, found in groupby(list(waiting), key=itemgetter(0)):
                losses.update(self.leave_out(chunk, [(first, last) for _, first, last in found], reason))
            sent = cursor.position - cursor.chunk.start - cursor.chunk.record_start(here - cursor.chunk.first_number)
            self.case.meter.skipped(-sent)  # what was sent of a record that was half sent is counted as drained
            self.counters.skipped_bytes -= sent
            self._pass_left_out(number)
            return losses
        between = records_between(cursor.chunk, here, number)
        before = cursor.position
        cursor.skip_to(number)
        self.case.meter.skipped(cursor.position - before)
        self.counters.skip(number - here, cursor.position - before)
        self.note_gap(number - here, between.first_sequence, between.last_sequence, reason)
        return between.by_publisher

    def leave_out(self, chunk: Chunk, ranges: list[tuple[int, int]], reason: Reason) -> dict[int, int]:
        """Leaves out ranges of records that wait, all of one chunk. The cursor passes them later. Returns their number
        by publisher."""
        records, size, receipts = 0, 0, self.feed.lane.receipts
        losses = Counter[int]()
        for first, last in ranges:
            records += last - first
            size += chunk.ends[last - 1] - chunk.record_start(first)
            if len(chunk.by_publisher) > 1:
                losses.update(chunk.publishers(first, last))
            if receipts is not NO_RECEIPTS:
                receipts.lost(self, chunk.sequence_of(first), chunk.sequence_of(last - 1), reason)
        losses = losses or Counter(dict.fromkeys(chunk.by_publisher, records))
        self.own_left_out().add(chunk, ranges, size)
        self.case.meter.skipped(size)
        self.counters.skipped_bytes += size
        self._note_gap(records, chunk.sequence_of(ranges[0][0]), chunk.sequence_of(ranges[-1][1] - 1), reason)
        return losses

    def own_left_out(self) -> LeftOut:
        if self.left_out is NONE_LEFT_OUT:
            self.left_out = LeftOut()
        return self.left_out

    def pass_left_out(self) -> bool:
        """Moves on to the next record that is not left out. Returns whether it moved."""
        cursor = self.cursor
        if not self.left_out.records or not cursor.attached or not cursor.at_boundary:
            return False
        here, end = cursor.number, cursor.lane.count
        found = next(self.left_out.all_waiting(cursor.chunk, here, end), None)
        number = end if found is None else found[0].first_number + found[1]
        if number > here:
            self._pass_left_out(number)
        return number > here

    def _pass_left_out(self, number: int) -> None:
        """Moves on to this record. All before it are left out."""
        cursor, here, before = self.cursor, self.cursor.number, self.cursor.position
        records = self.left_out.passed(cursor.chunk, here, number)
        cursor.skip_to(number)
        self.counters.pass_over(records, cursor.position - before)

    def add_backfill(
        self, records: BackfillSource, since_s: float, *, retained: bool = False,
        out_of_order: OutOfOrderProgress = NO_PROGRESS,
    ) -> None:  # fmt: skip
        """Adds records to be sent after all other backfills and before any more from the lane. They wait since then."""
        self.backfills.append(Backfill(records, retained, self.start_sequence, since_s, out_of_order))

    @property
    def backfilling(self) -> bool:
        """Tells whether records are left in its backfills. The last batch may be on its way to its client yet."""
        return bool(self.backfills) and not self.backfills[-1].done

    def backfill_lag(self) -> Volume:
        """Returns what is to be sent before any more from the lane, with what is rendered and not taken."""
        if not self.backfills:
            return NO_VOLUME
        records, size = self.backfills[0].unsent(self.session.outlet)
        for backfill in self.backfills:
            more_records, more_bytes = backfill.records.waiting()
            records, size = records + more_records, size + more_bytes
        if self.conflation.mode is EVERY_RECORD:  # a last pass, or one pass
            records, size = records + self.conflation.owed_records, size + self.conflation.owed_bytes
        return Volume(records, size)

    def close_backfills(self) -> None:
        while self.backfills:
            self.backfills.pop(0).records.close()

    def end_backfill(self) -> None:
        """Removes the first backfill, which was read to its end."""
        backfill = self.backfills.pop(0)
        records = backfill.records
        backfill.out_of_order.finish()
        if isinstance(records, StatePass):
            self.conflation.passed_over(self, records)
        records.close()
        if not self.backfills:
            self.conflation.own_up(self)

    def rewind_record(self) -> None:
        """Moves back to the start of a half-sent record, after the connection broke, so that it is sent again whole."""
        before = self.cursor.position
        self.cursor.rewind_record()
        self.counters.rewound_bytes += before - self.cursor.position


# -- patience ----------------------------------------------------------------------------------------------------------
#
# Patience is for how long a client may hold a delivery without being slow: it asks for it, or a message does.


class Due(NamedTuple):
    """A delivery that is to be settled by then, with all patience for it."""

    at_s: float
    patience_s: float


def patience_for(subscription: Subscription, delivery: Delivery) -> float:
    """Returns the patience for this delivery: what the client asked for, or the message, if that is more."""
    return max(subscription.patience_s, min(delivery.patience_s, subscription.case.policy.patience_max_s))


def is_patient(subscription: Subscription) -> bool:
    """Tells whether its client, or a message that it was sent, asked for patience."""
    return subscription.job_patience or subscription.patience_s > 0


def due_of(subscription: Subscription) -> Due | None:
    """Returns when the first of its unacknowledged deliveries is due; None if there is none."""
    patience_s = subscription.patience_s
    if not subscription.job_patience:
        oldest_s = subscription.oldest_unacknowledged_s()
        return Due(oldest_s + patience_s, patience_s) if oldest_s < inf else None
    some = islice(subscription.channel.in_flight.values(), OLDEST_LOOKED_AT)
    theirs = [(one.sent_s, patience_for(subscription, one)) for one in some if one.subscription is subscription]
    return min((Due(sent_s + patient_s, patient_s) for sent_s, patient_s in theirs), default=None)


# -- departed ----------------------------------------------------------------------------------------------------------


DEPARTED_MIN = 16


class Departed(dict[Subscription, None]):
    """Members that have left with unsettled deliveries. Those that have settled them since are dropped now and then: at
    most, there are twice as many as have some, or ``DEPARTED_MIN``."""

    __slots__ = ("_most",)

    def __init__(self) -> None:
        super().__init__()
        self._most = DEPARTED_MIN

    def add(self, member: Subscription) -> None:
        self[member] = None
        if len(self) > self._most:
            self.forget_settled()
            self._most = max(DEPARTED_MIN, 2 * len(self))

    def forget_settled(self) -> None:
        for member in [member for member in self if not member.window.used]:
            del self[member]
        for channel, members in self.by_channel().items():
            if next(iter(members)).window is channel:  # which does not say whose deliveries are in flight
                for member in members.keys() - {delivery.subscription for delivery in channel.in_flight.values()}:
                    del self[member]

    def by_channel(self) -> dict[Channel, dict[Subscription, None]]:
        """Returns them by channel: to look for each of them in all that a channel has in flight would take long."""
        found: dict[Channel, dict[Subscription, None]] = {}
        for member in self:
            found.setdefault(member.channel, {})[member] = None
        return found
