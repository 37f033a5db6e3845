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
   (``Sample.overdue_credit_time``).
10. *A feed that comes in lumps rests in between.* What was offered is measured from one lump to another, and over two
   usual rests at least. A share is the most that it may be, for a record, or a window of them, more or less.
11. *Many consumers of one connection are served in turn*, each with all that waits for it. So the rate of one that only
   the connection holds up is its part of the connection's: the part that it had when it began to lag.

Times are seconds on the broker's monotonic clock; bytes are addresses in the lane.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from math import inf, nan
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

import msgspec

from headway.core.base import (
    ConfigError,
    Names,
    Reason,
    format_count,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_count,
    parse_duration,
    parse_number,
    parse_rate,
    parse_share,
    parse_size,
)
from headway.core.policy.meters.sample import (
    AHEAD,
    ANY_LUMP_BYTES,
    PAUSES,
    RATE_WINDOW_MIN_S,
    RATE_WINDOW_S,
    FairPart,
    Figures,
    Lateness,
    Look,
    Mark,
    Sample,
    ShareWindow,
)

# -- catalogue ---------------------------------------------------------------------------------------------------------
#
# Meters by name: what a condition may compare, and how each meter is read, written and described.
#
# A built-in meter is a field of :class:`Sample` and an entry here. A plugged-in meter is measured by its plug-in at
# each look, if the consumer's policy names it, and its value is in ``Sample.plugged``. Above this file they are the
# same.


class Unit(msgspec.Struct, frozen=True):
    """How a value is written in a config, and in a verdict."""

    parse: Callable[[object], float]
    format: Callable[[float], str]


COUNT = Unit(parse_count, format_count)
BYTES = Unit(parse_size, format_size)
SECONDS = Unit(parse_duration, format_duration)
RATE = Unit(parse_rate, format_rate)
SHARE = Unit(parse_share, format_share)
NUMBER = Unit(parse_number, "{:g}".format)
UNITS = {"number": NUMBER, "count": COUNT, "bytes": BYTES, "seconds": SECONDS, "bytes/s": RATE, "share": SHARE}
"""The units by the names that plug-ins use."""


class PluggedMeter(Protocol):
    """The interface of a plugged-in meter."""

    @property
    def unit(self) -> str:
        """One of ``UNITS``."""

    def measure(self, look: Look, now: float) -> float | None:
        """Returns the value for this consumer; None: there is none, so no comparison holds. ``now`` is in seconds of a
        clock that only goes forward."""


class MeterInfo(msgspec.Struct, frozen=True):
    """All that conditions and verdicts need to know of a meter."""

    read: Callable[[Sample], float]
    """Reads the meter from a sample; ``nan``: it has no value, so no comparison holds."""
    unit: Unit
    reason: Reason
    meaning: str
    """The meter in a few words."""
    finding: Callable[[str, str, Sample], str]
    """Describes a reading that speaks against the consumer, from its value and limit in words."""
    needs_lag: bool = False
    """The meter is 0 while nothing waits; a rate is not judged."""
    own: bool = True
    """The meter is about this consumer, not about the other consumers of its topic."""
    floor: bool = False
    """The meter is a rate: too little of it speaks against the consumer (condition.py, rule 3)."""
    slack: Callable[[Sample], float] | None = None
    """How much more than it reads the meter may be."""
    tells_lag: bool = False
    """The finding says how many records wait."""
    plugged: PluggedMeter | None = None
    origin: str = ""
    """The distribution it was plugged in from."""
    condition: str = ""
    """The plugged-in condition that it tells of."""

    @property
    def plugin(self) -> str:
        """The kind of plug-in and its distribution, in words."""
        return f"{'condition' if self.condition else 'meter'} of {self.origin}"


def records(count: int) -> str:
    return "1 record" if count == 1 else f"{format_count(count)} records"


def waiting(sample: Sample) -> str:
    return f"{records(sample.lag_records)} ({format_size(sample.lag_bytes)})"


def plugged_meter(name: str, plugged: PluggedMeter, origin: str) -> MeterInfo:
    """Makes a plug-in a meter. Raises ConfigError."""
    unit = UNITS.get(str(getattr(plugged, "unit", None)))
    if unit is None or not callable(getattr(plugged, "measure", None)):
        raise ConfigError(f"it is not a meter: a meter has measure(look, now) and a unit, one of {', '.join(UNITS)}")
    return MeterInfo(
        read_plugged(name), unit, Reason.PLUGIN, name,
        lambda value, limit, sample: f"{name} {value} (limit {limit})", plugged=plugged, origin=origin,
    )  # fmt: skip


def read_plugged(name: str) -> Callable[[Sample], float]:
    """Returns what reads the plugged-in meter of this name."""
    return lambda sample: nan if sample.plugged is None else sample.plugged.get(name, nan)


def _drained(value: str, limit: str, sample: Sample) -> str:
    if sample.drain_rate >= 1 and value == RATE.format(0):  # by a rule that excuses no pauses
        return f"nothing taken for {format_duration(sample.stood)} (at least {limit} asked)"
    over = f" over {format_duration(sample.rate_window)}" if sample.rate_window else ""
    taken = f"only {value}" if sample.drain_rate >= 1 else "nothing"
    return f"{taken} taken{over} (at least {limit} asked)"


def _blocked(value: str, limit: str, sample: Sample) -> str:
    usual = f", its usual pause is {format_duration(sample.usual_pause)}" if sample.usual_pause >= 1 else ""
    return f"{'it has not moved on' if sample.reads_itself else 'no bytes taken'} for {value} (limit {limit}{usual})"


def _unread(value: str, limit: str, sample: Sample) -> str:
    usual = f", its usual pause counts as {format_duration(sample.unread_pause)}" if sample.unread_pause >= 1 else ""
    return f"nothing read for {value} (limit {limit}{usual})"


def _unacknowledged(value: str, limit: str, sample: Sample) -> str:
    usual = f", its usual pause is {format_duration(sample.ack_pause)}" if sample.ack_pause >= 1 else ""
    return f"nothing of {records(sample.in_flight)} acknowledged for {value} (limit {limit}{usual})"


def _catch_up(value: str, limit: str, sample: Sample) -> str:
    when = f"in {value}" if sample.catching_up < inf else "never"
    return f"at this pace it will have taken the {waiting(sample)} that wait {when} (limit {limit})"


NEVER = Unit(parse_duration, lambda value: format_duration(value) if value < inf else "never")


METERS: Names[MeterInfo] = Names("meter", {
    "lag_records": MeterInfo(
        attrgetter("lag_records"), COUNT, Reason.LAG_RECORDS, "records waiting",
        lambda value, limit, sample: f"{value} records ({format_size(sample.lag_bytes)}) waited (limit {limit})",
        needs_lag=True, tells_lag=True,
    ),
    "lag_bytes": MeterInfo(
        attrgetter("lag_bytes"), BYTES, Reason.LAG_BYTES, "bytes waiting",
        lambda value, limit, sample: f"{value} waited in {records(sample.lag_records)} (limit {limit})",
        needs_lag=True, tells_lag=True,
    ),
    "lag_age": MeterInfo(
        attrgetter("lag_age"), SECONDS, Reason.LAG_AGE, "age of the oldest waiting record",
        lambda value, limit, sample: f"the oldest of {waiting(sample)} had waited {value} (limit {limit})",
        needs_lag=True, tells_lag=True,
    ),
    "drain_rate": MeterInfo(
        attrgetter("drain_rate"), RATE, Reason.DRAIN_RATE, "drain rate", _drained, needs_lag=True, floor=True,
        slack=attrgetter("drain_slack"),
    ),
    "blocked_time": MeterInfo(
        attrgetter("overdue_time"), SECONDS, Reason.BLOCKED, "time without a byte taken", _blocked, needs_lag=True,
    ),
    "unread_time": MeterInfo(
        attrgetter("overdue_unread_time"), SECONDS, Reason.BLOCKED, "time without a byte read", _unread, needs_lag=True,
    ),
    "drain_share": MeterInfo(
        attrgetter("drain_share"), SHARE, Reason.DRAIN_RATE, "share taken of what was offered",
        lambda value, limit, sample: f"only {value} of what was offered was taken (at least {limit} asked)",
        needs_lag=True, floor=True,
    ),
    "catching_up": MeterInfo(
        attrgetter("catching_up"), NEVER, Reason.DRAIN_RATE, "time until all that waits is taken", _catch_up,
        needs_lag=True,
    ),
    "credit_exhausted_time": MeterInfo(
        attrgetter("overdue_credit_time"), SECONDS, Reason.CREDIT_EXHAUSTED, "time with a full window",
        lambda value, limit, sample:
            f"its window full for {value} (limit {limit}) with {records(sample.in_flight)} unacknowledged",
        needs_lag=True,
    ),
    "unacknowledged_time": MeterInfo(
        attrgetter("overdue_unacknowledged_time"), SECONDS, Reason.ACK_AGE, "time without an acknowledgement",
        _unacknowledged,
    ),
    "slow_count": MeterInfo(
        attrgetter("slow_count"), COUNT, Reason.SLOW_COUNT, "times marked slow",
        lambda value, limit, sample: f"marked slow {value} times (limit {limit})",
    ),
    "ack_age": MeterInfo(
        attrgetter("ack_age"), SECONDS, Reason.ACK_AGE, "age of the oldest unacknowledged record",
        lambda value, limit, sample:
            f"the oldest of {records(sample.in_flight)} unacknowledged for {value} (limit {limit})",
    ),
    "pool_share": MeterInfo(
        attrgetter("pool_share"), SHARE, Reason.POOL_SHARE, "share of the pool",
        lambda value, limit, sample: f"{value} of the pool held (limit {limit})",
    ),
    "slow_fraction": MeterInfo(
        attrgetter("slow_fraction"), SHARE, Reason.SLOW_FRACTION, "slow consumers of the topic",
        lambda value, limit, sample: f"{value} of the topic's consumers slow (limit {limit})", own=False,
    ),
}, beside=("all", "any"))  # fmt: skip


# -- usual pause -------------------------------------------------------------------------------------------------------
#
# Usual pauses: for how long somebody who takes one step after the other usually stands still in between.
#
# It is the longest of the last pauses, and fades by half in ``FADES_S``. A long pause, of ``rare_s`` or more, counts as
# a whole only if it belongs to a *rhythm*: it is in proportion to what is usual, or to the last pause, and the time
# between that one and this, in which somebody moved on, is no more than a ``RHYTHM``-th of it. Any other is trouble and
# not a habit, also if it comes again, or grows each time: it counts as ``rare_s``.


FADES_S = 30.0
RARE_S = 5.0
USUAL_MAX_S = 15.0
"""A reader of 7 kB/s takes so long for a full lump."""
RHYTHM = 4.0
"""A rhythm has so many times as much standing still as moving on in between."""
MOVES_S = 1.0
"""Steps that are closer together are moving on."""


class UsualPause:
    __slots__ = ("_at_s", "_last_s", "_most_s", "_rare_s", "_seconds", "_stood_until_s", "_unknown_s")

    def __init__(self, unknown_s: float = 0.0, most_s: float = USUAL_MAX_S, rare_s: float = RARE_S) -> None:
        """``unknown_s``: what holds until there was a pause; ``most_s``: the most that it can be."""
        self._unknown_s, self._most_s, self._rare_s = unknown_s, most_s, rare_s
        self._seconds = self._at_s = 0.0
        self._last_s, self._stood_until_s = 0.0, -math.inf
        """The last pause of ``MOVES_S`` or more, and when it ended."""

    def note(self, pause_s: float, now: float, times: float = 1.0, began_s: float | None = None) -> bool:
        """Notes a pause that has just ended; it counts so many ``times``, unless it breaks a rhythm. ``began_s``: when
        it may have begun already, if somebody moved on unseen. Returns whether it is the longest."""
        counted_s, moved_on = pause_s, self._moved_on(pause_s, now - pause_s if began_s is None else began_s)
        if pause_s >= self._rare_s and (moved_on or not self._in_proportion(pause_s, now)):
            counted_s = self._rare_s
            times = 1.0 if moved_on and self._last_s else times
        noted_s = min(counted_s * times, self._most_s)
        if pause_s >= MOVES_S:
            self._last_s, self._stood_until_s = pause_s, now
        if self._seconds and noted_s < self.seconds(now):
            return False
        self._seconds, self._at_s = noted_s, now
        return True

    def fork(self) -> UsualPause:
        """Returns a copy that goes on from here by itself."""
        return copy.copy(self)

    def _moved_on(self, pause_s: float, began_s: float) -> bool:
        """Tells whether it moved on for long between the last pause and this one, as far as it is known."""
        return self._seconds > 0 and RHYTHM * (began_s - self._stood_until_s) > pause_s

    def _in_proportion(self, pause_s: float, now: float) -> bool:
        return pause_s < PAUSES * max(self.seconds(now - pause_s), self._last_s)

    def seconds(self, now: float) -> float:
        """Returns the usual pause. ``now``: when the last step was, so that a pause which goes on fades nothing."""
        if not self._seconds:
            return self._unknown_s
        return self._seconds * float(0.5 ** (max(0.0, now - self._at_s) / FADES_S))


# -- ack pace ----------------------------------------------------------------------------------------------------------
#
# The pace of acknowledgements: for how long a client usually acknowledges nothing while its window is full.
#
# Theory of operation. Between two acknowledgements a worker is at its jobs, so what is usual is learnt as usual pauses
# are. Two things are of their own:
#
# 1. *Only time with a full window counts*, also for fading. A client that has room, or for which nothing waits, may
# have
#    nothing to acknowledge, so that time tells nothing against what was learnt before.
# 2. *What it acknowledged with room to spare counts, if that was quicker*: then the pause between two acknowledgements
#    was no more, on average, than one window of records takes. That is known without a look at any of them.


RARE_JOB_S = 10.0
USUAL_JOB_MAX_S = 20.0


class AckPace:
    """The pace of one client."""

    __slots__ = ("_clock_s", "_pause", "_seen_s", "_sent")

    def __init__(self, since: float) -> None:
        """``since``: when its subscription began."""
        self._pause = UsualPause(most_s=USUAL_JOB_MAX_S, rare_s=RARE_JOB_S)
        self._clock_s = 0.0
        """Seconds in which it acknowledged, as far as they count."""
        self._seen_s, self._sent = since, 0
        """When its window was last seen to be full, and how many records it had been sent by then."""

    def fork(self) -> AckPace:
        other = copy.copy(self)
        other._pause = self._pause.fork()
        return other

    def stays_full(self, now: float, acked: int, window: int) -> None:
        """Notes that its window is full again, without having had room for long."""
        self._seen_s, self._sent = now, acked + window

    def fills_up(self, now: float, acked: int, window: int) -> None:
        """Notes that its window is full, and had room before."""
        took_s, count = now - self._seen_s, acked - self._sent
        self.stays_full(now, acked, window)
        if count > 0 and took_s > 0:  # so many were sent and acknowledged in this time
            pause_s = took_s * window / count
            if pause_s < self.usual_s:
                self._clock_s += took_s
                self._pause.note(pause_s, self._clock_s)

    def acknowledges(self, pause_s: float) -> bool:
        """Notes that it has acknowledged something, after its window was full for so long. Returns whether that is the
        usual pause now."""
        self._clock_s += pause_s
        return self._pause.note(pause_s, self._clock_s)

    @property
    def usual_s(self) -> float:
        """Returns for how long it usually acknowledges nothing; 0: not known."""
        return self._pause.seconds(self._clock_s)


# -- rhythm ------------------------------------------------------------------------------------------------------------
#
# A rhythm is that of a feed which does not come evenly: for how long it usually rests between two lumps.
#
# It is seen at looks only, and only while records wait. Rests that are shorter than ``SHORT_S`` cannot be told from the
# time between two looks.


SHORT_S = 0.3
OVERDUE = 1.25
"""A feed that has rested for so many of its usual rests no longer keeps to them."""


class Rhythm:
    __slots__ = ("_end_bytes", "_late", "_usual", "came_s", "rest_s")

    def __init__(self, now: float, end_bytes: int, late: Lateness) -> None:
        self.came_s = now
        """When more was last seen to have come."""
        self.rest_s = 0.0
        """For how long it usually rests; 0: it comes evenly, as far as is known."""
        self._end_bytes = end_bytes
        self._late = late
        self._usual = UsualPause()

    def look(self, now: float, end_bytes: int) -> None:
        """Takes in how far the feed is."""
        if end_bytes > self._end_bytes:
            rest_s = now - self.came_s - self._late.within(self.came_s, now)
            if rest_s >= SHORT_S:
                self._usual.note(rest_s, now)
            self.came_s, self.rest_s = now, self._usual.seconds(now)
        self._end_bytes = end_bytes

    def keeps_time(self, now: float) -> bool:
        """Tells whether it comes in lumps, and the next one is not overdue."""
        return self.rest_s > 0 and now - self.came_s <= OVERDUE * self.rest_s

    def upto(self, now: float) -> float:
        """Returns the end of the time over which its rate is measured: when its last lump came, until the next one is
        overdue."""
        return self.came_s if self.keeps_time(now) else now

    def fork(self) -> Rhythm:
        """Returns a copy that goes on from here by itself."""
        other = copy.copy(self)
        other._usual = self._usual.fork()
        return other


NO_RHYTHM: Final = Rhythm(-inf, 0, Lateness())
"""The rhythm of a feed that nobody lags behind. Nobody looks at it."""


# -- meter -------------------------------------------------------------------------------------------------------------


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


# -- holding -----------------------------------------------------------------------------------------------------------
#
# A holding is what one client has not acknowledged: how much of it, and for how long it usually acknowledges nothing.
#
# Theory of operation. A client that stops to acknowledge goes unnoticed where nothing waits: its window is wide, or
# others of its queue take what comes. But it holds more and more, or all that its window permits. So it is *late* as
# long as it acknowledges nothing and
#
# - its window is full while records wait, or
# - it holds ``MORE`` times what it usually holds, or more. Who acknowledges by the dozen holds up to eleven for as long
#   as no more comes, and who does one job after the other holds one, however long it takes: neither is late.
#
# What it usually holds, and for how long it then acknowledges nothing, is learnt from looks, a second apart or more.
# What was sent and acknowledged between two of them is no pause. Until it has acknowledged something, nobody knows, and
# it is not late. Clients for which nothing waits are glanced at (governance/watching.py).


MORE = 1.5
FEWEST = 2
"""A client that holds fewer records than this is at its work."""
FADES = 0.9
"""The usual number of records fades by so much with each look that finds more acknowledged."""


class Holding:
    """The holding of one client. Times are seconds on the broker's clock."""

    __slots__ = ("_acked", "_clock_s", "_held", "_many_since_s", "_most", "_moved_s", "_pause", "_sent_s", "_usual",
                 "looked_s")

    def __init__(self, now: float, acked: int) -> None:
        self.looked_s = -inf
        self._acked = acked
        self._moved_s = now
        """When it was last seen to have acknowledged more."""
        self._sent_s = inf
        """When the oldest of what it holds was sent; never: it held nothing at the last look."""
        self._held = self._most = 0
        """How many records it holds, and the most since it acknowledged any."""
        self._usual = 0.0
        """How many it usually holds."""
        self._many_since_s = inf
        """The time since when it holds more than usual; never: it does not."""
        self._pause = UsualPause(inf, inf, RARE_JOB_S)
        self._clock_s = 0.0
        """The sum of all pauses: only these fade what is usual."""

    def look(self, now: float, acked: int, held: int, sent_s: float) -> None:
        """Takes in how many records it has acknowledged, how many it holds, and when the oldest of them was sent."""
        self.looked_s = now
        if acked > self._acked:
            if self._sent_s < inf:
                pause_s = now - max(self._moved_s, self._sent_s)
                self._clock_s += pause_s
                self._pause.note(pause_s, self._clock_s)
            self._usual = max(self._most, FADES * self._usual)
            self._acked, self._moved_s, self._most, self._many_since_s = acked, now, 0, inf
        self._held, self._sent_s = held, sent_s if held else inf
        self._most = max(self._most, held)
        few = held < max(FEWEST, MORE * self._usual)
        self._many_since_s = inf if few else min(self._many_since_s, now)

    def late_since(self, full_since_s: float) -> float:
        """Returns since when it is late. ``full_since_s``: the time since when its window is full while records wait.
        ``inf`` is never."""
        if not self._acked:
            return inf
        return max(self._moved_s, self._sent_s, min(full_since_s, self._many_since_s))

    @property
    def usual_pause_s(self) -> float:
        """Returns for how long it usually acknowledges nothing of what it holds; 0: no look has found such a time."""
        seconds = self._pause.seconds(self._clock_s)
        return seconds if seconds < inf else 0.0
