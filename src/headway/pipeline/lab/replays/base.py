"""The base: a consumer's replay without any policy, done once and shared by all candidates.

Theory of operation. Until a candidate does something that changes what the consumer gets, all candidates see the very
same samples. And as long as none of a candidate's rules can begin to hold, or an active one step back, it need not see
them at all. So the base is replayed in long steps, from one breakpoint of the history to the next. Between two of them
everything is linear, so what any meter can have shown there follows from the two ends (:class:`MeterRange`). The steps
are kept in blocks; where a block could change something for a candidate it is replayed again at every sweep, as the
governor looks, and those looks are kept for the other candidates. A candidate that goes its own way forks off a block's
replay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from headway.core.governance import SWEEP_S
from headway.core.log import CHUNK_BYTES
from headway.core.policy import EASE, RATE_WINDOW_S, AllOf, AnyOf, Comparison, Condition, Policy, Rule, Sample
from headway.pipeline.lab.replays.consumer_replay import NOTHING, STEP_S, ConsumerReplay
from headway.pipeline.lab.replays.trace import ConsumerTrace

BLOCK_STEPS = 10
TELL_S = 10.0
"""The least time of recording after a hit; with less, a consumer might still have caught up."""
OFFLINE, GATES = 1, 2
"""Flags of a bucket: what it holds is on disk; it holds publishers back."""

Answer = Literal["yes", "no", "unknown"]


class Bucket(NamedTuple):
    """The most that a consumer held in one stretch of time (``Recording.bucket_s`` long)."""

    number: int
    lag_bytes: int
    oldest_s: float
    """The time since which the oldest of these bytes waited."""
    end_bytes: int
    """Bytes that had been offered to it; tells how its lane grew."""
    flags: int


class Recording(NamedTuple):
    """Facts shared by all consumers of one run."""

    horizon: float
    """When the recording ends, in seconds since it began."""
    memory_limit: int
    """Memory limit of the recorded pool, in bytes."""
    sweep_s: float = SWEEP_S
    bucket_s: float = 1.0


class MeterRange:
    """Bounds of every meter at any time between two or more looks, each as far from the next as ``next_corner``.

    Lags are at their extremes at the ends of a step. Times grow no faster than the clock, so they are within a step of
    what the ends show. A drain rate is a mean over a window, so it lies between what was taken in single steps; but a
    window over long pauses reaches back further than these steps, and then the rate may be anything. So may the meters
    of ``_LONG``, which look back over half a minute, or over all that the consumer has done."""

    __slots__ = ("high", "idle", "low")

    def __init__(self, samples: Sequence[Sample], paces: Sequence[float]) -> None:
        """``paces``: bytes per second taken between the looks, and between the two before them."""
        values = list(zip(*map(_RANGED, samples), strict=True))
        low, high = [min(of) for of in values], [max(of) for of in values]
        for number in _TIMES:
            low[number] = max(0.0, low[number] - STEP_S)
            high[number] += STEP_S
        usual = [sample.usual_pause for sample in samples]
        slowest = min(paces, default=0.0) if 2 * max(usual) <= RATE_WINDOW_S else 0.0
        unread, silent = ([getattr(sample, name) for sample in samples] for name in ("unread_pause", "ack_pause"))
        # A long usual pause makes little of the time in which nothing was taken, or read (Sample.overdue_time).
        self.low = Sample(
            **dict(zip(_RANGED_NAMES, low, strict=True)), drain_rate=slowest, usual_pause=max(usual),
            unread_pause=max(unread), ack_pause=max(silent),
        )  # fmt: skip
        self.high = Sample(
            **dict(zip(_RANGED_NAMES, high, strict=True)), usual_pause=min(usual), unread_pause=min(unread),
            ack_pause=min(silent),
        )  # fmt: skip
        self.idle = any(sample.idle for sample in samples)


_RANGED_NAMES = (
    "lag_age", "blocked_time", "unread_time", "credit_exhausted_time", "ack_age", "unacknowledged_time", "lag_records",
    "lag_bytes", "slow_fraction", "prefetch",
)  # fmt: skip
_RANGED = attrgetter(*_RANGED_NAMES)
_TIMES = range(6)
"""Indices of the meters that may be off by a step."""
_LONG = ("drain_share", "catching_up")


class Block:
    """A few steps in a row, and the replay as it stood before them."""

    __slots__ = ("_fine", "_sweep_s", "before", "end", "range")

    def __init__(self, before: ConsumerReplay, end: float, range: MeterRange, sweep_s: float) -> None:
        self.before = before
        self.end = end
        self.range = range
        self._sweep_s = sweep_s
        self._fine: list[tuple[float, Sample]] | None = None

    def looks(self) -> list[tuple[float, Sample]]:
        """Returns (time, sample) at every sweep."""
        if self._fine is None:
            self._fine = list(self._replayed())
        return self._fine

    def _replayed(self) -> Iterator[tuple[float, Sample]]:
        replay = self.before.fork()
        while (time := replay.next_look(self._sweep_s)) is not None and time <= self.end + 1e-9:
            replay.advance(time)
            yield time, replay.sample()

    def replay_to(self, time: float) -> ConsumerReplay:
        """Returns a replay of its own, as it stood right after the look at that time."""
        replay = self.before.fork()
        for at, _ in self.looks():
            replay.advance(at)
            replay.sample()
            if at >= time:
                break
        return replay


class Buckets:
    """The highest lag in each stretch of time, where it is worth a chunk."""

    def __init__(self, width_s: float) -> None:
        self._width_s = width_s
        self._found: dict[int, Bucket] = {}
        self.peak_bytes = 0

    def note(self, replay: ConsumerReplay, flags: int = 0) -> None:
        size = int(replay.gating_bytes)
        if size > self.peak_bytes:
            self.peak_bytes = size
        if size < CHUNK_BYTES and not flags & GATES:
            return
        number = int(replay.time // self._width_s)
        known = self._found.get(number)
        if known is None or size >= known.lag_bytes or flags & ~known.flags:
            flags |= known.flags if known is not None else 0
            self._found[number] = Bucket(number, size, replay.oldest, int(replay.end), flags)

    def rows(self) -> Iterator[Bucket]:
        return iter(self._found.values())


class Base:
    """One trace without a policy, from ``begin`` on. Its client has so much patience."""

    def __init__(self, trace: ConsumerTrace, begin: float, recording: Recording, patience_s: float = 0.0) -> None:
        self.trace = trace
        self.begin = begin
        self.blocks: list[Block] = []
        self.times: list[float] = []
        self.lags: list[float] = []
        buckets = Buckets(recording.bucket_s)
        replay = ConsumerReplay(trace, begin, recording.memory_limit, patience_s)
        last, pace = Sample(), 0.0
        while True:
            before, samples, paces = replay.fork(), [last], [pace]
            while len(samples) <= BLOCK_STEPS:
                time = replay.next_corner() if replay.waiting_bytes >= NOTHING else replay.next_look(recording.sweep_s)
                if time is None or time > trace.end:
                    break
                since, reached = replay.time, replay.reached
                replay.advance(time)
                last, pace = replay.sample(), (replay.reached - reached) / (time - since) if time > since else pace
                samples.append(last)
                paces.append(pace)
                self.times.append(time)
                self.lags.append(replay.waiting_bytes)
                buckets.note(replay)
            if len(samples) == 1:
                break
            self.blocks.append(Block(before, replay.time, MeterRange(samples, paces), recording.sweep_s))
        self.buckets = list(buckets.rows())
        self.peak_bytes = buckets.peak_bytes

    def lag_at(self, time: float) -> float:
        """Returns the bytes that waited at the last look not after that time."""
        index = bisect_right(self.times, time) - 1
        return self.lags[index] if index >= 0 else 0.0

    def kept_up(self, time: float, lag_bytes: float) -> bool:
        """Returns whether so little waits that it was offered within the last second."""
        offered = self.trace.at(time)[0] - self.trace.at(time - 1.0)[0]
        return lag_bytes <= max(NOTHING, offered)

    def catches_up(self, hit_s: float) -> Answer:
        """Answers whether, left alone, it would have caught up after it was hit."""
        if self.caught_up_after(hit_s) is not None:
            return "yes"
        if self.trace.extrapolated or self.trace.recorded_end - hit_s < TELL_S:
            return "unknown"
        return "yes" if self.kept_up(self.trace.recorded_end, self.lag_at(self.trace.recorded_end)) else "no"

    def caught_up_after(self, hit_s: float) -> float | None:
        """Returns when in the recording, left alone, it had caught up after that time; None: never."""
        most = self.lag_at(hit_s) / 2
        for index in range(bisect_left(self.times, hit_s + 1e-6), len(self.times)):
            time, lag = self.times[index], self.lags[index]
            if time > self.trace.recorded_end:
                break
            if lag < NOTHING or (lag <= most and self.kept_up(time, lag)):
                return time
        return None

    def behind_since(self, time: float) -> float:
        """Returns since when, at that time, records have waited for it without a break."""
        indexes = range(bisect_right(self.times, time) - 1, -1, -1)
        well = next((self.times[index] for index in indexes if self.lags[index] < NOTHING), None)
        if well is None and self.begin <= self.trace.begin and self.trace.lag_bytes[0]:
            return self.begin
        behind = self.trace.falls_behind(self.begin if well is None else well)
        return time if behind is None else min(time, behind)

    @property
    def stuck_s(self) -> float | None:
        """The time since which it takes nothing that waits, to the end of the recording; None: it takes something."""
        trace = self.trace
        if not trace.connected[-1] or self.kept_up(trace.recorded_end, self.lag_at(trace.recorded_end)):
            return None
        stopped = trace.takes_nothing_since()
        return None if stopped >= trace.recorded_end else max(stopped, self.behind_since(trace.recorded_end))

    @property
    def caught_up_s(self) -> float | None:
        """The time in the recording when it was caught up last; None: never since it was first looked at."""
        if not self.times:
            return self.trace.recorded_end
        for index in range(len(self.times) - 1, -1, -1):
            if self.lags[index] < NOTHING and self.times[index] <= self.trace.recorded_end:
                return self.trace.recorded_end if index == len(self.times) - 1 else self.times[index]
        return None


def changes(range: MeterRange, policy: Policy, active: set[int]) -> bool:
    """Whether, for rules none of which has a clock running, some look within the range may change something."""
    return any(
        _may_step_back(rule, range) if index in active else _may_fire(rule, range)
        for index, rule in enumerate(policy.rules)
    )


def _may_fire(rule: Rule, range: MeterRange) -> bool:
    if rule.excuse_pauses:
        return may_hold(rule.when, range.low, range.high)
    low = msgspec.structs.replace(range.low, usual_pause=0.0, unread_pause=0.0, ack_pause=0.0, drain_rate=0.0)
    return may_hold(rule.when, low, range.high.unexcused())


def may_hold(condition: Condition, low: Sample, high: Sample) -> bool:
    """Whether the condition may hold for a sample whose every meter lies between those of two others."""
    if isinstance(condition, AllOf):
        return all(may_hold(part, low, high) for part in condition.parts)
    if isinstance(condition, AnyOf):
        return any(may_hold(part, low, high) for part in condition.parts)
    if not _comparable(condition, low, high):
        return True
    if condition.meter == "drain_rate":
        judged = msgspec.structs.replace(low, lag_records=1, rate_window=RATE_WINDOW_S)
        return condition.op[0] == ">" or (high.lag_records > 0 and condition.holds(judged))
    return condition.holds(high if condition.op[0] == ">" else low)


def must_hold(condition: Condition, low: Sample, high: Sample, ease: float) -> bool:
    """Whether the condition holds, eased by so much, for every sample between two others."""
    if isinstance(condition, AllOf):
        return all(must_hold(part, low, high, ease) for part in condition.parts)
    if isinstance(condition, AnyOf):
        return any(must_hold(part, low, high, ease) for part in condition.parts)
    if not _comparable(condition, low, high) or condition.meter == "drain_rate":
        return False
    return condition.holds(low if condition.op[0] == ">" else high, ease)


def _comparable(leaf: Comparison, low: Sample, high: Sample) -> bool:
    """Whether the comparison rests on the recording alone, on what a range knows, and on one threshold. Two meters
    depend on the candidate, too."""
    if leaf.meter in ("slow_count", "pool_share", *_LONG):
        return False
    return not leaf.amount.per_prefetch or low.prefetch == high.prefetch


def _may_step_back(rule: Rule, range: MeterRange) -> bool:
    if range.idle:
        return True
    if rule.until is not None:
        return may_hold(rule.until, range.low, range.high)
    return not must_hold(rule.when, rule.judged(range.low), rule.judged(range.high), EASE)
