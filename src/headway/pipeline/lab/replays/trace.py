"""Traces: the recorded samples of one subscription, readable at any time. How samples become curves: curves.py.

Times are seconds since the recording began, bytes and records count since the subscription began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Any

from headway.core.base import Reason
from headway.core.clients import POLLS_PROTOCOL
from headway.core.message import parse_shared_filter, spellings
from headway.core.policy import Lateness
from headway.pipeline.lab.replays.curves import ROUNDING_S, STUCK_S, curves, gone_on, next_tight, went_on

# -- lateness ----------------------------------------------------------------------------------------------------------
#
# The broker's own lateness, as recorded: the broker charges it to no consumer, and neither does a replay.
#
# A row of ``broker_samples`` says by how much sweeps have come too late in all. What was added from one row to the next
# is taken as one late stretch in the middle of them: up to its end nobody was looked at, and the sweep that ended it
# judged nobody (core/governance/governor.py).


Late = tuple[float, float]
"""When a late sweep came, in seconds since the recording began, and by how many seconds it was late."""


class RecordedLateness(Lateness):
    """All late stretches of a run, ascending and apart from each other. Unlike the broker's it knows those to come,
    which count for nothing yet."""

    __slots__ = ("_begins", "_ends", "_sums")

    def __init__(self, stretches: Iterable[Late] = ()) -> None:
        super().__init__()
        self._begins: list[float] = []
        self._ends: list[float] = []
        for at, seconds in sorted(stretches):
            begin = max(at - seconds, self._ends[-1] if self._ends else at - seconds)
            if begin < at:
                self._begins.append(begin)
                self._ends.append(at)
        self._sums = [0.0, *accumulate(end - begin for begin, end in zip(self._begins, self._ends, strict=True))]

    def __bool__(self) -> bool:
        return bool(self._ends)

    def within(self, since: float, now: float) -> float:
        """Returns how many of the seconds from ``since`` to ``now`` the broker was late."""
        return max(0.0, self._upto(now) - self._upto(since)) if self._ends else 0.0

    def total(self, now: float) -> float:
        """Returns the sum of the lateness that the governor knew of at that time."""
        return self._sums[bisect_right(self._ends, now)]

    def since(self, now: float, seconds: float) -> float:
        """Returns the time since which so many seconds had passed at ``now``, those of lateness not counted."""
        since = now - seconds
        for k in range(bisect_right(self._begins, now) - 1, -1, -1):
            if self._ends[k] <= since:
                break
            since -= min(self._ends[k], now) - self._begins[k]
        return since

    def next_sweep(self, time: float, sweep_s: float) -> float:
        """Returns when consumers are looked at, if a sweep is due at that time."""
        k = bisect_left(self._ends, time)
        late = k < len(self._ends) and self._begins[k] < time
        return self._ends[k] + sweep_s if late else time

    def _upto(self, time: float) -> float:
        k = bisect_right(self._ends, time)
        begun = k < len(self._begins) and self._begins[k] < time
        return self._sums[k] + (time - self._begins[k] if begun else 0.0)


ON_TIME = RecordedLateness()
AGES = ("lag_age_ms", "blocked_ms", "credit_exhausted_ms", "ack_age_ms", "unread_ms", "unacknowledged_ms")


def on_the_clock(rows: Sequence[Mapping[str, Any]], lateness: RecordedLateness) -> Sequence[Mapping[str, Any]]:
    """Returns the samples with all their ages by the clock, those of the broker's lateness included."""
    return [_by_clock(row, lateness) for row in rows] if lateness else rows


def _by_clock(row: Mapping[str, Any], lateness: RecordedLateness) -> dict[str, Any]:
    time = row["time"]
    ages = {name: (time - lateness.since(time, row[name] / 1000)) * 1000 for name in AGES if (row.get(name) or 0) > 0}
    if row["ended"]:
        ages.pop("lag_age_ms", None)  # in a last row it is by the clock already
    return {**row, **ages}


def late_stretches(rows: Iterable[tuple[float, float, float]]) -> tuple[Late, ...]:
    """Returns the late stretches of a run. ``rows``: of ``broker_samples``, those in which lateness grew: the time of
    the row before, the row's own, and by how many seconds it grew."""
    found = []
    for before, time, seconds in rows:
        at = min(time, (before + time + seconds) / 2)
        found.append((at, seconds))
    return tuple(found)


# -- reach -------------------------------------------------------------------------------------------------------------
#
# Reach: how much of what a client was given had reached it, as a function of time.
#
# Its host acknowledges in steps. Samples tell where it stood each time, since when it has stood still, and how long it
# usually does. So the steps between two samples are placed where they were seen to be: the last one by the second
# sample, the others a usual pause apart. Where that is not known it went on evenly.


SAME_LOOK_S = 0.05
"""Looks of a replay and of the recording are the same if they are this close. A step is seen at a look."""
STEPS_MAX = 10


class Reach:
    def __init__(self, rows: Sequence[Mapping[str, Any]], capacity: Callable[[float], float]) -> None:
        """``rows``: the samples in order. ``capacity``: what it could have taken until then, which tells how what it
        was given between two samples is spread over the time."""
        self._seen = [row["time"] for row in rows]
        self._drained = [float(row["drained_bytes"]) for row in rows]
        self._lumps = [row.get("lump_bytes") or 0.0 for row in rows]
        self._capacity = capacity
        self._known = any(row.get("unacknowledged_bytes") for row in rows)
        self._times: list[float] = []
        self._reached: list[float] = []
        for time, reached in _points(rows) if self._known else ():
            self._times.append(time)
            self._reached.append(reached)

    def unacknowledged(self, time: float) -> int:
        """Returns how many bytes of those that it was given had not reached it."""
        return max(0, round(self._given(time) - self._at(time))) if self._known else 0

    def lump(self, time: float) -> float:
        """Returns how many of them it may have read all the same."""
        return self._lumps[max(0, bisect_right(self._seen, time + SAME_LOOK_S) - 1)]

    def _given(self, time: float) -> float:
        k = bisect_right(self._seen, time)
        if k == 0 or k == len(self._seen):
            return self._drained[max(0, k - 1)]
        low, high = (self._capacity(self._seen[index]) for index in (k - 1, k))
        part = (self._capacity(time) - low) / (high - low) if high > low else 1.0
        return self._drained[k - 1] + part * (self._drained[k] - self._drained[k - 1])

    def _at(self, time: float) -> float:
        k = bisect_right(self._times, time)
        if k == 0 or k == len(self._times):
            return self._reached[max(0, k - 1)]
        (t0, t1), (low, high) = self._times[k - 1 : k + 1], self._reached[k - 1 : k + 1]
        return low + (high - low) * (time - t0) / (t1 - t0) if t1 > t0 else high


def _points(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Returns (time, bytes that have reached it), times ascending; between two of them it goes on evenly."""
    found = [(rows[0]["time"], _reached(rows[0]))]
    for before, after in pairwise(rows):
        (t0, low), (t1, high) = (before["time"], _reached(before)), (after["time"], _reached(after))
        last, after_t0 = t1 - after["blocked_ms"] / 1000, t0 + ROUNDING_S
        if after["blocked_ms"] > 0 and t0 < last and high > low:
            first = went_on(before, after)
            if first is None:
                first = last if before["blocked_ms"] > 0 else t0
            pause = (after.get("usual_pause_ms") or 0.0) / 1000
            steps = 1 + round((last - first) / pause) if pause > 0 else STEPS_MAX
            if first == t0 or steps >= STEPS_MAX:
                found += [(max(t0, first - SAME_LOOK_S), low), (max(after_t0, last - SAME_LOOK_S), high)]
            else:
                for step in range(steps):
                    time = max(after_t0, first + (last - first) * step / max(1, steps - 1) - SAME_LOOK_S)
                    found += [(time, low + (high - low) * part / steps) for part in (step, step + 1)]
        found.append((t1, high))
    return _ascending(found)


def _reached(row: Mapping[str, Any]) -> float:
    return float(row["drained_bytes"] - (row.get("unacknowledged_bytes") or 0))


def _ascending(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the points, none of which is before another in time or in bytes."""
    found = [points[0]]
    for time, reached in points[1:]:
        found.append((max(time, found[-1][0]), max(reached, found[-1][1])))
    return found


# -- stretches ---------------------------------------------------------------------------------------------------------
#
# Stretches: when a consumer stood still, since when, and for how long it usually does, as its samples tell.


STANDS = {
    "blocked_ms": "usual_pause_ms", "unread_ms": "unread_pause_ms", "credit_exhausted_ms": "",
    "unacknowledged_ms": "ack_pause_ms",
}  # fmt: skip
"""For how long a consumer has taken, read or acknowledged nothing; and for how long it usually does."""
_SAME_S = 0.05
"""The most by which two samples of one blocked stretch differ in its beginning."""


class Stretches:
    """Times at which a condition held, and since when: its socket was blocked, or its window full."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], column: str, end: float) -> None:
        """``column``: for how many milliseconds it has been so, 0 if it is not. What has long been so in the last row
        stays so up to ``end``; any other stretch ends where the consumer went on, or at the last row that says so."""
        self._seen = [row["time"] for row in rows]
        self._pauses = seconds_of(rows, STANDS[column])
        self._since: list[float] = []
        self._until: list[float] = []
        before: Mapping[str, Any] | None = None
        for row in rows:
            moved = went_on(before, row) if before is not None and column == "blocked_ms" else None
            was_so = before is not None and before[column] > 0
            of_last_look = row["ended"] and before is not None and 0 < before[column] <= row[column]
            before = row
            if moved is not None and self._until:
                self._until[-1] = max(self._until[-1], moved)
            if row[column] <= 0:
                continue
            time = row["time"]
            since = time - row[column] / 1000
            if self._since and (since <= self._since[-1] + _SAME_S or of_last_look):
                self._until[-1] = time
            else:
                if was_so and column == "credit_exhausted_ms":
                    self._until[-1] = max(self._until[-1], since)  # it gets a record for each it settles
                self._since.append(since)
                self._until.append(time)
        if self._until and rows[-1][column] >= STUCK_S * 1000:
            self._until[-1] = max(end, self._until[-1])

    def pause(self, time: float) -> float:
        """Returns for how long the client usually stood so between two steps, as of that time.

        It grows only with a step. So where the client has stood still up to the next sample, that sample has it; it may
        be the first that does, because only a consumer that lags is measured."""
        following = bisect_left(self._seen, time)
        if following < len(self._seen) and self.since(self._seen[following]) <= time:
            return self._pauses[following]
        return self._pauses[max(0, bisect_right(self._seen, time) - 1)]

    def since(self, time: float) -> float:
        """Returns since when it has been so at that time; ``inf`` if it is not."""
        k = bisect_right(self._since, time) - 1
        following = k + 1
        if following < len(self._since) and self._since[following] <= time + SAME_LOOK_S:
            seen = bisect_left(self._seen, time - ROUNDING_S)
            if self._seen[seen] > self._since[following]:
                return self._since[following]  # the look that saw it begin, and none that did not yet
        return self._since[k] if k >= 0 and time <= self._until[k] else inf


def seconds_of(rows: Sequence[Mapping[str, Any]], column: str) -> list[float]:
    """Returns a column in seconds; 0 where an older lake does not have it."""
    return [(row.get(column) or 0.0) / 1000 for row in rows]


# -- trace -------------------------------------------------------------------------------------------------------------


COLUMNS = (
    "run", "time", "subscription", "seq", "client", "filter", "lane", "listener", "protocol", "durable",
    "policy_asked", "connected", "ended", "offered_records", "offered_bytes", "drained_records", "drained_bytes",
    "skipped_records", "skipped_bytes", "lag_records", "lag_bytes", "lag_age_ms", "drain_rate", "blocked_ms",
    "credit_exhausted_ms", "ack_age_ms", "in_flight", "prefetch", "pool_share", "slow_fraction", "usual_pause_ms",
    "most_lag_bytes", "most_lag_ago_ms", "least_lag_bytes", "least_lag_ago_ms",
    "excused_ms", "topics", "conflates", "unacknowledged_bytes", "lump_bytes", "patience_ms", "unacked_ms",
    "window_full_ms", "keyed", "unread_ms", "unread_pause_ms", "unacknowledged_ms", "ack_pause_ms",
)  # fmt: skip
"""Columns of ``consumer_samples`` that a replay needs."""

CUT_BY_BROKER = frozenset(
    {
        Reason.LAG_RECORDS, Reason.LAG_BYTES, Reason.LAG_AGE, Reason.DRAIN_RATE, Reason.BLOCKED,
        Reason.CREDIT_EXHAUSTED, Reason.SLOW_COUNT, Reason.ACK_AGE, Reason.SLOW_FRACTION, Reason.POOL_SHARE,
        Reason.PLUGIN, Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.CLIENT_SHARE, Reason.SPILL_FAILED,
    }
)  # fmt: skip
"""Reasons of ends that a policy or a pool brought about; under another they might not have come."""
HELD_MS = 1000.0
"""A consumer that acknowledges sooner than this is in time for any policy."""
FIRST_S = 1.0
"""The first sample of a consumer is taken within this time."""


class ConsumerTrace:
    """One subscription from its first sample to its last, and beyond if the recorded broker ended it."""

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], horizon: float, lateness: RecordedLateness = ON_TIME
    ) -> None:
        """``rows``: its samples in order, ``time`` in seconds; ``horizon``: when the recording ends; ``lateness``: of
        the broker that recorded them."""
        self.lateness = lateness
        left_out = is_shared(rows[0]) or bool(rows[0].get("conflates"))
        rows = _without_last_look(rows) if is_shared(rows[0]) else rows
        rows = [_whole(row) for row in on_the_clock(rows, lateness)]
        self.own_share = [_own_share(before, after) for before, after in pairwise(rows)] if left_out else []
        rows = [_as_taken(row) for row in rows] if left_out else rows
        first, last = rows[0], rows[-1]
        self.run: str = first["run"]
        self.client: str = first["client"]
        self.filter: str = first["filter"]
        self.subscription: int = first["subscription"]
        self.lane: str = first["lane"]
        self.protocol: str = first["protocol"]
        self.listener: str = first["listener"]
        self.durable: bool = first["durable"]
        self.policy_asked: str = first["policy_asked"]
        self.topics = _topics(last)  # by which its policy is chosen
        self.keyed = any(row.get("keyed") for row in rows)  # an older lake does not tell
        self.patience_asked_s = _patience_asked_s(first)
        self.ended: str = last["ended"]
        self.begin: float = first["time"]
        self.recorded_end: float = last["time"]
        self.extrapolated = last["ended"] in CUT_BY_BROKER and last["time"] < horizon
        self.end: float = horizon if self.extrapolated else last["time"]
        self.waits_from = _waits_from(rows)
        """The earliest time since which records can have waited for it; None: what it was offered tells."""
        self.start_bytes = float(first["offered_bytes"] - first["lag_bytes"])
        """The position of the consumer at the first sample."""
        self.seen: list[float] = [row["time"] for row in rows]
        self.in_flight: list[int] = [row["in_flight"] for row in rows]
        self.prefetch: list[int] = [row["prefetch"] for row in rows]
        self.connected: list[bool] = [row["connected"] for row in rows]
        self.slow_fraction: list[float] = [row["slow_fraction"] for row in rows]
        self.pool_share: list[float] = [row["pool_share"] for row in rows]
        self.lag_bytes: list[int] = [row["lag_bytes"] for row in rows]
        self.blocked, self.unread, self.credit, self.silence = (Stretches(rows, name, self.end) for name in STANDS)
        self.acknowledged = [max(0, row["drained_records"] - row["in_flight"]) for row in rows]
        self._excused = seconds_of(rows, "excused_ms")
        self._unacked = _unacked_since(rows)
        self._held = [at for at, row in enumerate(rows) if row["ack_age_ms"] >= HELD_MS]
        """The samples at which something was unacknowledged for long."""

        points = curves(rows)
        if self.extrapolated:
            self.connected[-1] = True  # it was, until the recorded broker saw to it
            points.append(gone_on(points, last, horizon))
        self.times = [point.time for point in points]
        self.offered = [point.offered for point in points]
        self.records = [point.records for point in points]
        self.capacity = [point.capacity for point in points]
        self._tight = next_tight(points)
        self.reach = Reach(rows, lambda time: self.at(time)[2])

    def at(self, time: float) -> tuple[float, float, float]:
        """Returns (bytes offered, records offered, bytes that could have been taken) until then."""
        place = _place(self.times, time)
        return _value(self.offered, *place), _value(self.records, *place), _value(self.capacity, *place)

    def standing(self, position: float) -> tuple[float, float]:
        """Returns (records offered before, time of the first byte offered behind) a position."""
        place = _place(self.offered, position)
        return _value(self.records, *place), _value(self.times, *place)

    def position_of(self, record: float) -> float:
        """Returns the position at which a record begins, by its number."""
        return _value(self.offered, *_place(self.records, record))

    def falls_behind(self, time: float) -> float | None:
        """Returns when, from then on, a consumer that is caught up is next offered more than it can take."""
        k = max(1, bisect_right(self.times, time))
        if k >= len(self.times):
            return None
        tight = self._tight[k]
        return None if tight is None else max(time, self.times[tight - 1])

    def corner_after(self, time: float) -> float:
        """Returns the next breakpoint of the curves; beyond the last one there is none for ever so long."""
        k = bisect_right(self.times, time + 1e-6)
        return self.times[k] if k < len(self.times) else time + 1e6

    def sample_at(self, time: float) -> int:
        """Returns the index of the last sample not after that time (0 before the first)."""
        return max(0, bisect_right(self.seen, time) - 1)

    def looked_after(self, time: float) -> float | None:
        """Returns when, after that time, the next sample was taken; None: none was before its end."""
        k = bisect_right(self.seen, time + 1e-6)
        return self.seen[k] if k < len(self.seen) - bool(self.ended) else None

    def holds_from(self, time: float) -> float | None:
        """Returns from when on, after that time, it is next seen to hold something unacknowledged for long."""
        k = bisect_left(self._held, time + 1e-6, key=self.seen.__getitem__)
        return None if k == len(self._held) else max(time, self._unacked[self._held[k]] or time)

    def unacked_since(self, time: float) -> float:
        """Returns when the oldest record in flight was sent, at least as long ago as the next sample says; ``inf`` if
        there is none."""
        since = self._unacked[min(bisect_left(self.seen, time), len(self.seen) - 1)]
        return since if since <= time else inf

    def excused_until(self, time: float) -> float | None:
        """Returns until when the client was excused for what filled its window, as of that time; None: nothing did.

        Its window was filled between two samples, and emptied between two: both count in full."""
        before, after = self.sample_at(time), min(bisect_left(self.seen, time), len(self.seen) - 1)
        excused = next((k for k in (after, before) if self._excused[k]), None)
        return None if excused is None else self.seen[excused] + self._excused[excused]

    def takes_nothing_since(self) -> float:
        """Returns since when it takes nothing any more; the end of the recording if it takes something up to there."""
        k = len(self.times) - 1
        while k > 0 and self.capacity[k - 1] > self.capacity[-1] - 0.5:
            k -= 1
        return self.times[k]

    def own_part(self, time: float) -> float:
        """Returns which part of what was taken about that time went to this consumer: not to other members of its
        group, nor left out as it asked."""
        if not self.own_share:
            return 1.0
        return self.own_share[min(max(0, bisect_left(self.seen, time) - 1), len(self.own_share) - 1)]

    def comes_back(self, time: float) -> float | None:
        """Returns when, after that time, the client of a durable subscription was seen to come back."""
        for index in range(self.sample_at(time) + 1, len(self.seen)):
            if self.connected[index] and not self.connected[index - 1]:
                return self.seen[index]
        return None


def _whole(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a sample whose ages begin with what they are of, also where patience has kept meters from counting. An
    older lake does not tell who reads."""
    raw = {"ack_age_ms": row.get("unacked_ms"), "credit_exhausted_ms": row.get("window_full_ms")}
    unread_ms = row.get("unread_ms")
    return {
        **row, **{name: max(row[name], value) for name, value in raw.items() if value},
        "unread_ms": row["blocked_ms"] if unread_ms is None else unread_ms,
        "unacknowledged_ms": row.get("unacknowledged_ms") or 0.0,
    }  # fmt: skip


def _unacked_since(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Returns since when its oldest delivery was unacknowledged, at each sample; ``inf``: none was."""
    return [row["time"] - row["ack_age_ms"] / 1000 if row["ack_age_ms"] > 0 else inf for row in rows]


def _patience_asked_s(row: Mapping[str, Any]) -> float:
    """Returns for how long its client asked to be waited for at a job. A cursor's patience is replayed as recorded."""
    return 0.0 if row["protocol"] == POLLS_PROTOCOL else (row.get("patience_ms") or 0.0) / 1000


def _waits_from(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Returns when a subscription began whose first sample is there: at that sample, or a little before. No record
    waits longer than its consumer exists, as meters count it; the first sample may tell the age of the record."""
    first, following = rows[0], rows[min(1, len(rows) - 1)]
    if first["seq"]:
        return None
    waited_s = following["lag_age_ms"] / 1000 if following["lag_records"] > 0 and not following["ended"] else 0.0
    return float(min(first["time"], max(first["time"] - FIRST_S, following["time"] - waited_s)))


def _topics(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row.get("topics"):
        return tuple(dict.fromkeys(one for name in row["topics"].split("\n") for one in spellings(name)))
    shared = parse_shared_filter(row["filter"])
    if shared is not None:
        return (shared[1],)
    return (*spellings(row["filter"]), "#") if row["filter"].startswith("$queue/") else (row["filter"],)


def is_shared(row: Mapping[str, Any]) -> bool:
    """Tells whether it is a sample of one of the members of a group or a queue, who all have its lag."""
    return parse_shared_filter(row["filter"]) is not None or row["protocol"].startswith("amqp")


def _without_last_look(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Returns the samples of a group's member, the last one with the figures of the one before if it has ended: what it
    held and had not acknowledged waits for the others again, and it was not looked at any more."""
    if len(rows) < 2 or not rows[-1]["ended"]:
        return rows
    before, last = rows[-2:]
    passed_ms = (last["time"] - before["time"]) * 1000
    ages = {name: before[name] + passed_ms for name in AGES if before[name] > 0}
    ended = {**before, **ages, **{name: last[name] for name in ("time", "seq", "ended", "connected")}}
    return [*rows[:-1], ended]


def _own_share(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    own = after["drained_bytes"] - before["drained_bytes"]
    others = after["skipped_bytes"] - before["skipped_bytes"]
    return float(own / (own + others)) if own + others > 0 else 1.0


def _as_taken(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a sample with what was left out for it counted as taken: that went to others of its group, or it asked
    for the latest records only. No policy had a part in that."""
    taken = {f"drained_{unit}": row[f"drained_{unit}"] + row[f"skipped_{unit}"] for unit in ("records", "bytes")}
    return {**row, **taken, "skipped_records": 0, "skipped_bytes": 0}


def _place(values: Sequence[float], value: float) -> tuple[int, int, float]:
    """Finds a value among ascending ones: the index before, the index after, and how far it is from one to the other.
    A value outside of them is at their end."""
    k = bisect_right(values, value)
    if k == 0 or k == len(values):
        end = max(0, k - 1)
        return end, end, 0.0
    return k - 1, k, (value - values[k - 1]) / (values[k] - values[k - 1])


def _value(values: Sequence[float], before: int, after: int, part: float) -> float:
    return values[before] + part * (values[after] - values[before])


def read_traces(
    columns: Mapping[str, Sequence[Any]], origin_us: int, horizon: float, lateness: RecordedLateness = ON_TIME
) -> dict[str, list[ConsumerTrace]]:
    """The traces of one client in one run, by filter, in order of time. ``columns``: as ``COLUMNS``, in any order and
    with rows twice; ``time`` in microseconds since 1970. ``origin_us``: when the recording began; ``horizon``: for how
    many seconds it goes on."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    names = [name for name in COLUMNS if name in columns]
    for values in zip(*(columns[name] for name in names), strict=True):
        row = dict(zip(names, values, strict=True))
        row["time"] = (row["time"] - origin_us) / 1e6
        rows[row["subscription"], row["seq"]] = row
    by_subscription: dict[int, list[dict[str, Any]]] = {}
    for key in sorted(rows):
        by_subscription.setdefault(key[0], []).append(rows[key])
    traces: dict[str, list[ConsumerTrace]] = {}
    for samples in by_subscription.values():
        traces.setdefault(samples[0]["filter"], []).append(ConsumerTrace(samples, horizon, lateness))
    for chain in traces.values():
        chain.sort(key=lambda trace: trace.begin)
    return dict(sorted(traces.items()))
