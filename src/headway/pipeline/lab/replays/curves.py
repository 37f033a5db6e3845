"""Curves: from samples to what a consumer was offered and what it could have taken, as functions of time.

Theory of operation. A sample is two points of the curve of what was offered: at its time, and (``lag_age`` earlier)
where the consumer stood. Between points everything is linear. The other curve is what the consumer *could* take:

1. While it lagged from one sample to the next, what it took is what it can take. If it stopped on the way (its socket
   was blocked, or its window full, since then) it took all of it before; if it went on again on the way, all of it
   after, at the pace it kept to from there.
2. While it was caught up only the supply was measured. It can take at least the most it was ever seen to take.
3. Where it fell behind between two samples it kept up until a moment that follows from where it stood at the second.
4. What a policy left out for it was offered and not taken: under a candidate that leaves nothing out it is lag.
5. A trace that the recorded broker itself ended for slowness is *extrapolated* to the end of the recording: offered and
   taken go on as they did of late. Who had taken nothing for ``STUCK_S`` stays like that (a socket that is blocked for
   less is one that is read slowly). What would have been is not known, only likely.

So with no policy at all a consumer stands at every sample where it was recorded, unless something was left out for
it. What publishers would have sent had they not been held back cannot be known: offered is what was let in.

Times are seconds since the recording began, bytes and records count since the subscription began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

OFFERED_GOES_ON_S = 10.0
TAKEN_GOES_ON_S = 5.0
STUCK_S = 1.0
PEAK_INTERVAL_S = 0.2
"""The shortest interval that gives a rate; over less it is noise."""


class Point(NamedTuple):
    """A breakpoint of the curves: bytes and records offered, and bytes that could have been taken, until then."""

    time: float
    offered: float
    records: float
    capacity: float


def curves(rows: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The breakpoints; times and values ascend."""
    peak = _peak(rows)
    first = rows[0]
    points = []
    if first["lag_records"] > 0 and first["lag_age_ms"] > 0:  # it lagged already when the recording began
        stood = float(first["offered_bytes"] - first["lag_bytes"])
        points.append(
            Point(first["time"] - first["lag_age_ms"] / 1000, stood, first["offered_records"] - first["lag_records"], 0)
        )
    points.append(Point(first["time"], float(first["offered_bytes"]), float(first["offered_records"]), 0.0))
    for index, (before, after) in enumerate(pairwise(rows)):
        if after["time"] <= before["time"]:
            continue
        following = rows[index + 2] if index + 2 < len(rows) else None
        points += _interval(points[-1], before, after, following, peak)
    return points


def _peak(rows: Sequence[Mapping[str, Any]]) -> float:
    """The most it was ever seen to take, in bytes per second."""
    rates = (
        (after["drained_bytes"] - before["drained_bytes"]) / (after["time"] - before["time"])
        for before, after in pairwise(rows)
        if after["time"] - before["time"] >= PEAK_INTERVAL_S
    )
    return max(rates, default=0.0)


def _interval(
    start: Point, before: Mapping[str, Any], after: Mapping[str, Any], following: Mapping[str, Any] | None, peak: float
) -> list[Point]:
    """The breakpoints after ``before`` up to ``after``."""
    t0, t1 = before["time"], after["time"]
    taken = max(0.0, float(after["drained_bytes"] - before["drained_bytes"]))
    skipped = after["skipped_records"] > before["skipped_records"]
    offers = _offers(start, after, t0, skipped)
    stopped = _stopped(after, t0)
    if after["lag_records"] == 0 and not skipped:  # rule 2
        rate = max(taken / (t1 - t0), peak) if after["connected"] else taken / (t1 - t0)
        takes = [(t1, rate * (t1 - t0))]
    elif before["lag_records"] == 0 and not skipped:  # rule 3
        takes = _kept_up(start, offers, t0, t1, taken, _pace(after, following, stopped))
    elif stopped is not None:  # rule 1
        takes = [(stopped, taken), (t1, taken)]
    else:
        takes = [(t1, taken)]
        pace = _pace(after, following, None) if before["blocked_ms"] or before["credit_exhausted_ms"] else 0.0
        if pace * (t1 - t0) > taken:
            takes.insert(0, (t1 - taken / pace, 0.0))
    return _merged(start, offers, takes)


def _offers(start: Point, after: Mapping[str, Any], t0: float, skipped: bool) -> list[tuple[float, float, float]]:
    """Returns (time, bytes, records) offered: where the consumer stood at the sample was offered ``lag_age`` before
    it."""
    t1 = after["time"]
    offered, records = max(start.offered, after["offered_bytes"]), max(start.records, after["offered_records"])
    offers = [(t1, float(offered), float(records))]
    stood = t1 - after["lag_age_ms"] / 1000
    if after["lag_records"] > 0 and t0 < stood < t1 and not skipped:
        point = (stood, offered - after["lag_bytes"], records - after["lag_records"])
        if start.offered <= point[1] and start.records <= point[2]:
            offers.insert(0, point)
    return offers


def _stopped(after: Mapping[str, Any], t0: float) -> float | None:
    """Returns when, on the way to this sample, it stopped taking anything."""
    still_s = _still_s(after)
    since = after["time"] - still_s
    return since if still_s > 0 and since > t0 else None


def _still_s(row: Mapping[str, Any]) -> float:
    """Returns for how long it had taken nothing at this sample."""
    return float(max(row["blocked_ms"], row["credit_exhausted_ms"])) / 1000


def _pace(after: Mapping[str, Any], following: Mapping[str, Any] | None, stopped: float | None) -> float:
    """Returns how fast it takes while it lags, where it has just fallen behind."""
    if stopped is not None:
        return 0.0
    if following is not None and following["lag_records"] > 0 and following["time"] > after["time"]:
        taken = following["drained_bytes"] - after["drained_bytes"]
        return max(0.0, float(taken) / float(following["time"] - after["time"]))
    return float(after["drain_rate"])


def _kept_up(
    start: Point, offers: list[tuple[float, float, float]], t0: float, t1: float, taken: float, pace: float
) -> list[tuple[float, float]]:
    """Returns (time, bytes taken since ``t0``): everything there was up to some moment, and from then on at its own
    pace."""
    target = start.offered + taken
    pieces = list(pairwise([(start.time, start.offered), *((time, offered) for time, offered, _ in offers)]))
    for (since, low), (until, high) in reversed(pieces):
        # It kept up until x if offered(x) + pace * (t1 - x) is where it stood in the end.
        slope = (high - low) / (until - since) - pace
        missing = target - pace * (t1 - since) - low
        x = since + missing / slope if slope > 0 else since
        if since < x <= until:
            kept = low + (high - low) * (x - since) / (until - since) - start.offered
            return [(x, kept), (t1, taken)] if x < t1 else [(t1, taken)]
    return [(t1, taken)]


def _merged(
    start: Point, offers: list[tuple[float, float, float]], takes: list[tuple[float, float]]
) -> list[Point]:
    """Returns both curves at the breakpoints of either."""
    found = []
    for time in sorted({time for time, _, _ in offers} | {time for time, _ in takes}):
        offered = _linear([(start.time, start.offered), *((t, size) for t, size, _ in offers)], time)
        records = _linear([(start.time, start.records), *((t, count) for t, _, count in offers)], time)
        capacity = start.capacity + _linear([(start.time, 0.0), *takes], time)
        found.append(Point(time, offered, records, capacity))
    return found


def _linear(points: list[tuple[float, float]], time: float) -> float:
    for (t0, low), (t1, high) in pairwise(points):
        if time <= t1:
            return high if t1 <= t0 else low + (high - low) * (time - t0) / (t1 - t0)
    return points[-1][1]


def gone_on(points: list[Point], row: Mapping[str, Any], horizon: float) -> Point:
    """Returns where the curves would be at the horizon if all went on as of late (rule 5). ``row``: the last one."""
    last, end = points[-1], row["time"]

    def growth(field: int, over_s: float) -> float:
        since = max(points[0].time, end - over_s)
        values = [(point.time, point[field]) for point in points]
        return (last[field] - _linear(values, since)) / (end - since) if end > since else 0.0

    ahead = horizon - end
    return Point(
        horizon,
        last.offered + ahead * growth(1, OFFERED_GOES_ON_S),
        last.records + ahead * growth(2, OFFERED_GOES_ON_S),
        last.capacity + (0.0 if _still_s(row) >= STUCK_S else ahead * growth(3, TAKEN_GOES_ON_S)),
    )


def next_tight(points: Sequence[Point]) -> list[int | None]:
    """Finds for each breakpoint the first from there on that ends a piece in which more is offered than can be
    taken."""
    found: list[int | None] = [None] * len(points)
    following: int | None = None
    for k in range(len(points) - 1, 0, -1):
        if points[k].offered - points[k - 1].offered > points[k].capacity - points[k - 1].capacity + 0.5:
            following = k
        found[k] = following
    return found
