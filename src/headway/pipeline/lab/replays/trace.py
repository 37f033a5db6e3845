"""Traces: the recorded samples of one subscription, readable at any time. How samples become curves: curves.py.

Times are seconds since the recording began, bytes and records count since the subscription began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

from headway.core.base import Reason
from headway.core.clients import POLLS_PROTOCOL
from headway.core.message import parse_shared_filter, spellings
from headway.pipeline.lab.replays.curves import curves, gone_on, next_tight
from headway.pipeline.lab.replays.lateness import AGES, ON_TIME, RecordedLateness, on_the_clock
from headway.pipeline.lab.replays.reach import Reach
from headway.pipeline.lab.replays.stretches import STANDS, Stretches, seconds_of

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
