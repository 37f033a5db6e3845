"""A meter measures one consumer.

Theory of operation. A consumer is a position in a lane, so nearly every figure about it is a subtraction. The governor
calls :meth:`Meter.observe` at each look, which happens only to consumers that lag. It passes plain numbers
(:class:`Figures`) and gets a :class:`Sample`. Policies judge samples, in the broker and in the Spark lab alike.

Rules that keep the figures fair:

1. *There are two kinds of slow, measured apart.* ``blocked_time``: the socket takes no bytes.
   ``credit_exhausted_time``: the client's own window is full. Both count only while records wait for *this*
   subscription.
2. *A rate is judged only over time in which the consumer could have been faster.* If a consumer has taken everything
   that waited at the look before, its rate was that of the publisher, and the window starts again at this look. A
   window shorter than ``RATE_WINDOW_MIN_S`` is not judged: ``drain_rate`` is reported, but ``rate_judged`` is False.
   What counts as drained has reached the client. A client takes bytes in lumps, so a rate is measured over whole lumps:
   from one step to another, and over two *usual pauses* at least. For the same reason a consumer is late only if it
   stands still for ``PAUSES`` of its usual pauses (``Sample.overdue_time``).
3. *Clocks restart when the lag was gone.* ``waited`` is how long records have waited without a break: one big message a
   minute is not a minute of slowness. The lag is gone when a look finds none, when :meth:`caught_up` is called, when
   members of its queue have taken all since the last look, or when there was no look for a while and all that waited
   at the last one has been taken.
4. *A cursor that a policy moves does not drain.* :meth:`skipped` takes such bytes out of the drain rate.
5. *The broker's own lateness is not charged to a consumer.* All times leave out the seconds in :class:`Lateness`.
6. *Who falls behind is told from who catches up.* ``drain_share`` is what the consumer took of what was offered over
   the last half minute of its lag, and ``catching_up`` is when it will have taken all that waits if both rates last.
   Lag alone grows and shrinks for both.
7. *No record waits longer than the consumer exists.* When old records are replayed, ``lag_age`` counts from the
   subscription, not from the day on which a record was published. Likewise a snapshot waits since it was asked for.
8. *A client that asked for patience is not late while that lasts.* ``ack_age`` begins to count when it is over, and so
   does every time if it is the job that keeps the consumer from taking more (*excused*). Its rates are not judged then.
   Likewise excused is a client that has settled everything, and gets no more because of what others of its user have
   in flight (``user_full``).
9. *A worker whose window is full moves on with its acknowledgements.* Their usual pause is its pace: its rates are
   measured over whole jobs, and it is late only if it acknowledges nothing for ``PAUSES`` of them
   (``Sample.overdue_credit_time``, ack_pace.py).
10. *A feed that comes in lumps rests in between.* What was offered is measured from one lump to another, and over two
   usual rests at least. A share is the most that it may be, for a record, or a window of them, more or less.
11. *Many consumers of one connection are served in turn*, each with all that waits for it. So the rate of one that only
   the connection holds up is its part of the connection's: the part that it had when it began to lag.

Times are seconds on the broker's monotonic clock; bytes are addresses in the lane.
"""

from __future__ import annotations

import copy
from math import inf
from typing import NamedTuple

import msgspec

from headway.core.policy.meters.ack_pace import AckPace
from headway.core.policy.meters.fair_part import FairPart
from headway.core.policy.meters.figures import ANY_LUMP_BYTES, Figures
from headway.core.policy.meters.lateness import Lateness
from headway.core.policy.meters.rhythm import NO_RHYTHM, Rhythm
from headway.core.policy.meters.sample import AHEAD, PAUSES, RATE_WINDOW_MIN_S, RATE_WINDOW_S, Sample
from headway.core.policy.meters.share_window import Mark, ShareWindow

BURST_WINDOW_S = 10.0
"""A burst is compared with the usual rate: that of one or two of these windows before the consumer fell behind."""
BURST_LASTS_S = 60.0
"""A rate that has lasted for longer than this is usual."""
UNSEEN_S = 1.0
"""A consumer that was not looked at for longer than this did not lag meanwhile. Sweeps come every 0.2 s or so."""
STEP_S = 0.25
"""A consumer that moved this long ago has just moved, as far as looks can tell."""
STANDS = 1.5
"""A client that has not moved for so many of its usual pauses stands still, for a share."""
CLOSING_WINDOW_S = 7.5
"""When a consumer will be current goes by this last part of it, for what came in a burst comes no more."""
SHARE_WINDOW_MIN_S = 15.0
"""A share over less time than this, or less than ``PAUSES`` usual pauses or rests, says nothing, and counts as 1."""


class Seen(NamedTuple):
    """The figures of one look."""

    time_s: float
    drained_bytes: int
    waiting_bytes: float
    end_bytes: int


NOTHING_SEEN = Seen(-inf, 0, inf, 0)


class Meter:
    """The meter of one subscription. It holds a handful of tuples, and those only while the consumer lags."""

    __slots__ = (
        "_ack_pace", "_before", "_behind_since", "_bunch_bytes", "_empties", "_excused_upto", "_fair", "_feed", "_last",
        "_late", "_longer", "_longest", "_looks", "_offers", "_rates", "_shares", "_since", "_skipped", "_slow_since",
        "_starved_since", "_waiting_since", "slow_count",
    )  # fmt: skip

    def __init__(self, now: float = -inf, end_bytes: int = 0, lateness: Lateness | None = None) -> None:
        """``now`` is when the subscription began, and ``end_bytes`` the end of its lane at that time."""
        self._since = now
        self._late = lateness if lateness is not None else Lateness()
        self._skipped = self._empties = 0
        self._excused_upto = -inf
        """When it was last excused (rule 8)."""
        self._ack_pace: AckPace | None = None
        """The pace of its acknowledgements; None: its window was never full (rule 9)."""
        self._bunch_bytes: int | None = None
        """The bytes that it took at the end of its usual pause between two of them; None: there was none."""
        self._starved_since = inf
        """When its window became full, as far as the last look knows; never: it had room."""
        self._waiting_since = self._slow_since = inf
        self._looks: list[tuple[float, float, int]] = []
        """(time, when it last moved, bytes drained) at a few looks, the oldest first, while it could have been faster
        (rule 2)."""
        self._shares = ShareWindow()
        """The share that it took over the last half minute of lag (rule 6)."""
        self._offers: list[tuple[float, float, int]] = []
        """(time, when more last came, lane end) at a few looks since records began to wait."""
        self._feed: Rhythm = NO_RHYTHM
        """The rhythm of its lane while it lags (rule 10)."""
        self._fair: FairPart | None = None
        self._last = NOTHING_SEEN
        """The last look while it lags."""
        self._rates = (0.0, 0.0, 0.0, 1.0)
        """Drain rate, its window, offered rate and burst at the last look."""
        self._longest = self._longer = (now, end_bytes)
        """(time, lane end) from which the usual rate is counted, and from which it will be counted next."""
        self._behind_since = now
        self._before = (0.0, 0.0)
        """The usual rate when it fell behind, and over how many seconds it was measured."""
        self.slow_count = 0

    # -- events -----------------------------------------------------------------------------------------------------

    def skipped(self, count_bytes: int) -> None:
        """Notes that the cursor was moved past so many bytes, which the consumer did not take."""
        self._skipped += count_bytes

    def caught_up(self, now: float) -> None:
        """Notes that the cursor has reached the end of its lane: all clocks restart."""
        self._waiting_since = inf
        self._looks.clear()
        self._offers.clear()
        self._shares.clear()
        self._last, self._feed, self._fair = NOTHING_SEEN, NO_RHYTHM, None

    def mark_slow(self, now: float) -> bool:
        """Marks the consumer slow. Returns whether it was not marked before; then ``slow_count`` goes up by one."""
        if self.slow:
            return False
        self._slow_since = now
        self.slow_count += 1
        return True

    def slow_again(self) -> None:
        """Counts one more time if the consumer is marked slow already: it was well for a moment."""
        self.slow_count += self.slow

    def mark_recovered(self, now: float) -> float:
        """Marks the consumer recovered. Returns for how many seconds it was slow."""
        since, self._slow_since = self._slow_since, inf
        return self._span(since, now)

    @property
    def slow(self) -> bool:
        return self._slow_since < inf

    def fork(self) -> Meter:
        """Returns a copy that goes on from here by itself."""
        other = copy.copy(self)
        other._looks, other._offers, other._shares = self._looks.copy(), self._offers.copy(), self._shares.fork()
        other._ack_pace = None if self._ack_pace is None else self._ack_pace.fork()
        other._feed = self._feed.fork()
        other._fair = None if self._fair is None else self._fair.fork()
        return other

    # -- the look ---------------------------------------------------------------------------------------------------

    def observe(self, now: float, of: Figures) -> Sample:
        """Takes one sample."""
        drained, waits = of.position_bytes - self._skipped, of.lag_records > 0
        of = self._at_its_jobs(now, of, drained)
        if of.flows_since_s > self._longest[0]:  # the silence before it is no rate to compare with
            self._longest = of.flows_since_s, self._longest[1]
        if of.empties != self._empties:
            self._empties = of.empties
            self.caught_up(now)
        self._notice_breaks(now, drained)
        waiting = self._wait(now, of) if waits else now
        if self._waiting_since < inf:  # it lags, or did so until now
            self._feed.look(now, of.end_bytes)
        if of.lump_bytes >= ANY_LUMP_BYTES:
            self._looks.clear()
            self._shares.clear()
        if of.excused:
            self._excuse(now, of.patient_until)
        if of.user_full and not of.credit_exhausted:
            self._excuse(now, inf)
        if not of.connected:
            self._shares.clear()  # it takes nothing because it is away
        if self._last.time_s != now:  # a second look at the same time gets the same rates
            self._measure(now, of, drained)
        drain_share, catching_up = self._share(now, of)
        if waits:
            _keep(self._offers, (now, self._feed.came_s, of.end_bytes), max(RATE_WINDOW_S, 2 * self._feed.rest_s))
            self._last = Seen(now, drained, of.waiting_bytes, of.end_bytes)
        else:
            self.caught_up(now)
            drain_share, catching_up = 1.0, 0.0
        return self._sample(now, of, waiting, drain_share, catching_up)

    def _sample(self, now: float, of: Figures, waiting: float, drain_share: float, catching_up: float) -> Sample:
        """Returns the sample of this look. ``waiting``: since when records wait; now: none does."""
        waits, counted = of.lag_records > 0, max(waiting, self._excused_upto)
        drain_rate, window, offered_rate, burst = self._rates
        return Sample(
            lag_records=of.lag_records,
            lag_bytes=max(0, of.waiting_bytes) if waits else 0,
            lag_age=self._span(of.oldest_time_s, now, self._excused_upto) if waits else 0.0,
            drain_rate=drain_rate,
            drain_slack=of.lump_bytes / max(window, now - of.blocked_since) if window else 0.0,
            offered_rate=offered_rate,
            blocked_time=self._span(of.blocked_since, now, counted),
            usual_pause=of.usual_pause,
            unread_time=self._span(of.unread(), now, self._excused_upto) if waits else 0.0,
            unread_pause=max(of.usual_pause, of.unread_pause),
            drain_share=drain_share,
            catching_up=catching_up,
            credit_exhausted_time=self._span(of.credit_exhausted_since, now, counted) if waits else 0.0,
            unacknowledged_time=self._span(of.unacknowledged_since, now, of.patient_until) if of.in_flight else 0.0,
            ack_pause=of.ack_pause,
            slow_count=self.slow_count,
            ack_age=self._span(of.oldest_unacked_s, now, of.patient_until) if of.in_flight > 0 else 0.0,
            patience_left=max(0.0, of.patient_until - now) if of.in_flight or of.excused else 0.0,
            pool_share=of.pool_share,
            slow_fraction=of.slow_fraction,
            in_flight=of.in_flight,
            prefetch=of.prefetch,
            held_bytes=of.held_bytes,
            offered_burst=burst,
            credit_exhausted=of.credit_exhausted and waits,
            user_full=of.user_full and waits,
            peer_window_closed=of.peer_window_closed,
            retransmitting=of.retransmitting,
            rate_window=window,
            waited=self._span(waiting, now),
            unacknowledged_bytes=of.unacknowledged_bytes,
            lump_bytes=of.lump_bytes,
        )

    def _wait(self, now: float, of: Figures) -> float:
        """Returns since when records wait without a break."""
        if self._waiting_since == inf:
            self._waiting_since = min(now, max(of.oldest_time_s, self._since))
            self._feed = Rhythm(now, of.end_bytes, self._late)
            self._offers.append((self._waiting_since, self._waiting_since, of.position_bytes))
            self._fall_behind(self._waiting_since, of.position_bytes)
        return self._waiting_since

    def _excuse(self, now: float, until: float) -> None:
        """Excuses the consumer up to that time (rule 8)."""
        self._excused_upto = max(self._excused_upto, min(now, until))
        if now < until:
            self._looks.clear()
            self._shares.clear()

    def _at_its_jobs(self, now: float, of: Figures, drained: int) -> Figures:
        """Returns the figures with the pace of a client whose window is full: that of its acknowledgements (rule 9)."""
        since = of.credit_exhausted_since if of.lag_records > 0 else inf
        before, self._starved_since = self._starved_since, since
        full, was_full = since < inf, before < inf
        if not (full or was_full):
            return of
        pace = self._ack_pace = self._ack_pace or AckPace(self._since)
        if not was_full:
            pace.fills_up(since, of.acknowledged, of.prefetch)
        elif since != before and of.lag_records > 0:
            longest = pace.acknowledges(self._span(before, since if full else now))
            if full:
                pace.stays_full(since, of.acknowledged, of.prefetch)
            if self._last is not NOTHING_SEEN and (longest or self._bunch_bytes is None):
                self._bunch_bytes = drained - self._last.drained_bytes
        if not full or of.blocked:
            return of
        return msgspec.structs.replace(of, moved_since=since, usual_pause=pace.usual_s)

    # -- measuring --------------------------------------------------------------------------------------------------

    def _measure(self, now: float, of: Figures, drained: int) -> None:
        """Takes the rates of this look, and remembers it."""
        moved, reached = of.moved(now), drained - of.unacknowledged_bytes
        fair = self._fair_bytes(of)
        pace = (now, moved, int(fair) if fair else reached, of.usual_pause)
        self._rates = (*self._drain(*pace), *self._offered(now, of.end_bytes))
        if of.lag_records > 0:
            _keep(self._looks, pace[:3], max(RATE_WINDOW_S, 2 * of.usual_pause))
            in_a_lump = STEP_S <= now - moved <= STANDS * of.usual_pause
            if of.connected and not in_a_lump and self._shares.due(now, pace_s := self._pace(of)):
                mark = Mark(now, self._feed.upto(now), of.end_bytes, reached, fair)
                self._shares.keep(mark, pace_s, max(CLOSING_WINDOW_S, PAUSES * pace_s))

    def _fair_bytes(self, of: Figures) -> float:
        """Returns the consumer's part of what its connection took; 0 if it does not go by that (rule 11)."""
        if of.connection_bytes is None:
            return 0.0
        if self._fair is None:
            self._fair = FairPart(of)
        if not self._fair.look(of):
            self._looks.clear()
            self._shares.clear()
        return self._fair.bytes

    def _notice_breaks(self, now: float, drained: int) -> None:
        """Starts clocks or windows again if the consumer has taken all that waited at the last look (rules 2, 3)."""
        last = self._last
        if drained - last.drained_bytes < max(last.waiting_bytes, 1):
            return
        if now - last.time_s > UNSEEN_S:
            self.caught_up(now)
        else:
            self._looks.clear()
            self._fall_behind(last.time_s, last.end_bytes)  # as far as it is behind at all, it is so since then

    def _fall_behind(self, since: float, end_bytes: int) -> None:
        """Notes the usual rate up to that time."""
        before_s = max(0.0, since - self._longest[0])
        self._behind_since = since
        self._before = ((end_bytes - self._longest[1]) / before_s if before_s else 0.0, before_s)

    def _drain(self, now: float, moved: float, reached: int, usual_pause: float) -> tuple[float, float]:
        """Returns bytes drained per second, and the window in seconds; without a window, the rate since the last look.

        A client that stands still for no longer than usual is measured up to its last step."""
        if self._looks:
            looked_then, moved_then, reached_then = self._looks[0]
            stands = now - moved > usual_pause
            window = self._span(looked_then, now) if stands else self._span(moved_then, moved)
            if window > 0:
                return max(0.0, (reached - reached_then) / window), window
            if not stands:
                return self._rates[0], 0.0  # in the middle of its first step
        passed_s = now - self._last.time_s
        return max(0.0, (reached - self._last.drained_bytes) / passed_s) if passed_s > 0 else 0.0, 0.0

    def _pace(self, of: Figures) -> float:
        """Returns the usual pause of the client, or the usual rest of its feed if that is longer."""
        return max(of.usual_pause, self._feed.rest_s)

    def _share(self, now: float, of: Figures) -> tuple[float, float]:
        """Returns the share taken of what was offered, and the seconds until all that waits is taken (rule 6). Of both,
        the most that it may be: a lump is on its way, and what came last came early."""
        pace_s = self._pace(of)
        if now - self._shares.since(now) < max(SHARE_WINDOW_MIN_S, PAUSES * pace_s):
            return 1.0, 0.0
        record_bytes = of.record_bytes
        share = self._shares.share(of.lump_bytes + self._bunch(of), record_bytes)
        closing = self._shares.closing(of.lump_bytes)
        drain_rate, rate_window, offered_rate, _ = self._rates
        if rate_window >= RATE_WINDOW_MIN_S:  # and it takes more now than is offered, whatever came before
            least = drain_rate - record_bytes / rate_window
            closing = max(closing, least - offered_rate if least > AHEAD * offered_rate else 0.0)
        return share, of.waiting_bytes / closing if closing > 0 else inf

    def _bunch(self, of: Figures) -> float:
        """Returns the bytes that it may take at once when it next acknowledges (rule 10)."""
        if self._bunch_bytes is not None:
            return self._bunch_bytes
        return of.in_flight * of.record_bytes if of.credit_exhausted else 0.0

    def _offered(self, now: float, end_bytes: int) -> tuple[float, float]:
        """Returns bytes offered per second of late, and that rate as a multiple of the usual one."""
        lasts = now - self._behind_since >= BURST_LASTS_S
        if now - self._longer[0] >= BURST_WINDOW_S and (lasts or self._waiting_since == inf):
            self._longest, self._longer = self._longer, (now, end_bytes)
        if not self._offers:
            return 0.0, 1.0
        looked_then, came_then, end_then = self._offers[0]
        feed = self._feed
        short_s = feed.came_s - came_then if feed.keeps_time(now) else now - looked_then
        if short_s <= 0:
            return 0.0, 1.0
        offered = max(0.0, (end_bytes - end_then) / short_s)
        usual, long_s = self._before
        if lasts:
            long_s = now - self._longest[0]
            usual = (end_bytes - self._longest[1]) / long_s if long_s > 0 else 0.0
        known = short_s >= RATE_WINDOW_MIN_S and long_s >= 4 * short_s and usual > 0
        return offered, offered / usual if known else 1.0

    def _span(self, since: float, now: float, counted: float = -inf) -> float:
        """Returns the seconds since then, and since ``counted``, that count against the consumer (rules 5, 7, 8)."""
        since = max(since, self._since, counted)
        return max(0.0, now - since - self._late.within(since, now))


def _keep(looks: list[tuple[float, float, int]], look: tuple[float, float, int], window_s: float) -> None:
    """Remembers a look. Looks are kept a quarter of a window apart, and one of them is at least a window old."""
    if not looks or look[0] - looks[-1][0] >= window_s / 4:
        looks.append(look)
    while len(looks) > 2 and look[0] - looks[1][0] >= window_s:
        del looks[0]
