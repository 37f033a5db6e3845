"""Subscriptions: a session's filter, its cursor, and what is known and decided about this one consumer."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from headway.core.base import Reason, Timer, moved, stop
from headway.core.consumer.backfill import Backfill, BackfillSource
from headway.core.consumer.channel import Channel, Window
from headway.core.consumer.conflation import EVERY_RECORD, Conflation
from headway.core.consumer.counters import Counters, Volume
from headway.core.consumer.life import ENDED, MOVES, OPEN, PAUSED, Life
from headway.core.consumer.options import SubscribeRequest
from headway.core.consumer.reader import LANE_READER, Reader
from headway.core.consumer.skip import Skip
from headway.core.log import Cursor, LooseEnds, StatePass
from headway.core.message import Gap
from headway.core.policy import Case

if TYPE_CHECKING:
    from headway.core.consumer.feed import Feed
    from headway.core.consumer.session import Session


OLDEST_LOOKED_AT = 1000
"""Deliveries of a channel looked at for the oldest of one of its consumers."""


class Subscription:
    """One consumer. ``session`` and ``feed`` are given; everything else starts out empty."""

    __slots__ = (
        "backfills", "case", "channel", "clock", "conflation", "counters", "current_s", "cursor", "dialect", "feed",
        "filter", "gap", "lease", "life", "number", "number_kept", "reader", "renewals", "request", "session", "skips",
        "start_sequence", "stop_number", "tab_bytes", "window",
    )  # fmt: skip

    def __init__(self, session: Session, request: SubscribeRequest, feed: Feed, case: Case) -> None:
        self.number = 0
        """By which it is known in what is put on record; 0 while nothing is."""
        self.number_kept = 0
        """By which the journal knows it; 0: it does not."""
        self.session = session
        self.request = request
        self.filter = request.filter
        self.dialect = request.dialect
        self.tab_bytes = 0
        """What it is counted as on its session's tab."""
        self.feed = feed
        self.channel: Channel = session.channel
        """Where its deliveries are numbered and acknowledged."""
        self.window: Window = session.channel
        """What it may have in flight itself; often that of its channel."""
        self.cursor = Cursor(feed.lane, self)
        self.counters = Counters(feed.lane.count, feed.lane.end)
        self.stop_number: int | None = None
        """It was replaced, and what replaced it reads its records before this one."""
        self.start_sequence = feed.lane.last_sequence
        """Of the last record before it began."""
        self.case = case
        """What the governor has on it."""
        self.reader: Reader = LANE_READER
        """How it comes by its records."""
        self.life = OPEN
        """Is read by everybody, and set by nobody but ``become``."""
        self.lease: Timer | None = None
        """Ends it."""
        self.clock: Timer | None = None
        """Has it given what has changed, where it is conflated by an interval."""
        self.renewals = 0
        """How often it was subscribed to once more, all the same."""

        self.backfills: list[Backfill] = []
        """Records that come before any more from the lane: retained ones, a snapshot, a conflated stretch."""
        self.conflation = Conflation()
        """Whether it gets every record, or the latest per key, and what it is owed of those."""
        self.current_s = 0.0
        """When it was last known to have everything there was, or asked for what was there before."""
        self.skips: list[Skip] = []

        self.gap: Gap | None = None
        """Skipped records the consumer has not been told of."""

    def become(self, life: Life) -> None:
        self.life = moved(MOVES, self.life, life)

    def let_flow(self, flows: bool) -> None:
        """Whether its client wants anything for now; of who is over nobody asks that any more."""
        wanted, there = (OPEN, PAUSED) if flows else (PAUSED, OPEN)
        if self.life is there:
            self.become(wanted)

    @property
    def ended(self) -> bool:
        return self.life is ENDED

    @property
    def gone(self) -> bool:
        """Its session, or its channel, is over; its own turn may be to come (deferred.py)."""
        return self.session.ended or self.channel.closed

    @property
    def special(self) -> bool:
        """Records may not go from the lane to the outlet as they are."""
        if self.backfills or self.skips or self.gap is not None or self.conflation.mode is not EVERY_RECORD:
            return True
        return self.session.max_packet_bytes < self.feed.lane.largest

    @property
    def conflating(self) -> bool:
        """The cursor is detached; the consumer gets the latest record per key whenever it has room (or each tick)."""
        return self.conflation.mode is not EVERY_RECORD

    @property
    def stop(self) -> int:
        """Records from this number on are not its own to be given."""
        return self.feed.lane.count if self.stop_number is None else self.stop_number

    @property
    def durable(self) -> bool:
        """It is there while its client is away."""
        return self.reader.durable(self)

    @property
    def promised(self) -> bool:
        """What was confirmed to its publisher is kept for it while its client is away."""
        return self.session.expiry_s > 0 and self.request.qos > 0

    @property
    def has_more(self) -> bool:
        """Something waits for this consumer."""
        return self.reader.has_more(self)

    @property
    def lag_records(self) -> int:
        """Records it has not been given, in whatever form, and is going to be."""
        return self.reader.lag_records(self)

    @property
    def lag_bytes(self) -> int:
        """Bytes of the lane it has not been given, in whatever form, and is going to be."""
        return self.reader.lag_bytes(self)

    @property
    def gating_bytes(self) -> int:
        """How much of the lane must be kept for it."""
        return self.reader.gating_bytes(self)

    @property
    def delivered(self) -> Volume:
        """What it was given."""
        return self.reader.delivered(self)

    def oldest_time(self) -> float | None:
        """Since when something waits for it; None when nothing does."""
        return self.reader.oldest_time(self)

    def stop_timers(self) -> None:
        """Neither its lease nor its clock is to be looked at any more."""
        stop(self.lease)
        stop(self.clock)

    # -- credit -----------------------------------------------------------------------------------------------------

    @property
    def credit_left(self) -> int:
        return min(self.window.left, self.channel.left, self.channel.whole.left)

    @property
    def credit_exhausted_since_s(self) -> float | None:
        windows = (self.window, self.channel, self.channel.whole)
        return next((w.exhausted_since_s for w in windows if w.exhausted_since_s is not None), None)

    @property
    def prefetch(self) -> int:
        """How many deliveries its client lets be in flight; 0: it acknowledges none."""
        return min(self.window.limit, self.channel.limit, self.channel.whole.limit) if self.request.qos else 0

    def oldest_unacknowledged_s(self) -> float | None:
        """When the delivery that has waited longest for its acknowledgement was sent."""
        if self.window is self.channel:
            return next((delivery.sent_s for delivery in self.channel.in_flight.values()), None)
        if not self.window.used:
            return None
        some = islice(self.channel.in_flight.values(), OLDEST_LOOKED_AT)
        return next((delivery.sent_s for delivery in some if delivery.subscription is self), None)

    # -- what it is not given -----------------------------------------------------------------------------------------

    def note_gap(self, records: int, first: int, last: int, reason: Reason) -> None:
        """Records were skipped: count them, and owe the consumer an announcement. Whose lifetime was over is missed by
        nobody: that is announced only to who asked for it."""
        if records <= 0:
            return
        self.counters.gap(records, reason)
        if reason is Reason.EXPIRED and not self.request.options.expiries:
            return
        old = self.gap
        if old is None:
            self.gap = Gap(records, first, last, reason)
        else:
            self.gap = Gap(
                old.records + records, min(old.first_sequence, first), max(old.last_sequence, last), reason
            )

    def skip_to(self, number: int, reason: Reason) -> dict[int, int]:
        """Leave out everything before record ``number``, at record boundaries. Returns how many of each publisher's."""
        cursor = self.cursor
        chunk = cursor.chunk
        here = cursor.number
        if chunk is None or number <= here:
            return {}
        first = chunk.sequence_of(here - chunk.first_number) if here - chunk.first_number < len(chunk) else 0
        last = first
        losses: Counter[int] = Counter()
        at = here
        while chunk is not None and chunk.first_number < number:
            begin, stop = at - chunk.first_number, min(number - chunk.first_number, len(chunk))
            if stop > begin:
                losses.update(chunk.publishers(begin, stop))
                last = chunk.sequence_of(stop - 1)
                first = first or chunk.sequence_of(begin)
            at = chunk.first_number + stop
            chunk = chunk.next
        before = cursor.position
        cursor.skip_to(number)
        self.case.meter.skipped(cursor.position - before)
        self.counters.skip(number - here, cursor.position - before)
        self.note_gap(number - here, first, last, reason)
        return losses

    @property
    def backfill(self) -> Backfill | None:
        """The one that is being read."""
        return self.backfills[0] if self.backfills else None

    def add_backfill(self, records: BackfillSource, *, retained: bool = False, loose: LooseEnds | None = None) -> None:
        """Read these after the backfills there are, and before any more from the lane."""
        self.backfills.append(Backfill(records, retained, self.start_sequence, loose))

    def close_backfills(self) -> None:
        while self.backfills:
            self.backfills.pop(0).records.close()

    def end_backfill(self) -> None:
        """The backfill was read to its end; there may be another."""
        backfill = self.backfills.pop(0)
        records = backfill.records
        if backfill.loose is not None:
            backfill.loose.finish()
        if isinstance(records, StatePass):
            self.conflation.passed_over(self, records)
        records.close()
        if not self.backfills:
            self.conflation.own_up(self)

    def rewind_record(self) -> None:
        """The connection broke in the middle of a record: it is to be sent again, whole."""
        before = self.cursor.position
        self.cursor.rewind_record()
        self.counters.rewound_bytes += before - self.cursor.position
