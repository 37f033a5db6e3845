"""Curves: from samples to what a consumer was offered and what it could have taken, as functions of time.

Theory of operation. A sample is two points of the curve of what was offered: at its time, and (``lag_age`` earlier)
where the consumer stood. Between points everything is linear. The other curve is what the consumer *could* take:

1. While it lagged from one sample to the next, what it took is what it can take. If it stopped on the way (its socket
   was blocked, or its window full, since then) it took all of it before; if it went on again on the way, all of it
   after, at the pace it kept to from there.
2. While it was caught up only the supply was measured. It can take at least the most it was ever seen to take.
3. Where it fell behind between two samples it kept up until a moment that follows from where it stood at the second.
4. What a policy left out for it was offered and not taken: under a candidate that leaves nothing out it is lag.
5. The most and the least that waited between two samples were as recorded. Who steps (takes something, and then stands
   still) took nothing up to its first step; its usual pause tells when that was.
6. A trace that the recorded broker itself ended for slowness is *extrapolated* to the end of the recording: offered and
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


STEP_S = 0.01
"""How long a step lasts, in the curves."""
FADED = 1.025
"""A usual pause is recorded up to a second after it ended, and may have been longer by so much (docs/POLICIES.md)."""
ROUNDING_S = 1e-6
LOOK_S = 0.25
"""Two looks in a row are not further apart, if the broker is on time."""
SEEN_S = 1.0
"""A lag that lasts longer than this has a sample of its own."""


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
    stopped, moved = _stopped(after, t0), went_on(before, after)
    extremes = [] if skipped else _extremes(start, before, after, offers)
    if after["lag_records"] == 0 and not skipped:  # rule 2
        rate = max(taken / (t1 - t0), peak) if after["connected"] else taken / (t1 - t0)
        takes = [(t1, rate * (t1 - t0))]
        if moved is not None:
            takes.insert(0, (min(moved, t1 - STEP_S), 0.0))
    elif before["lag_records"] == 0 and not skipped:  # rule 3
        takes = _kept_up(start, offers, t0, t1, taken, _pace(after, following, stopped))
    elif stopped is not None:  # rule 1
        takes = [(stopped, taken), (t1, taken)]
        if moved is not None:
            takes.insert(0, (max(t0, min(moved, stopped - STEP_S)), 0.0))
    elif moved is not None:
        takes = [(min(moved, t1 - STEP_S), 0.0), (t1, taken)]
    else:
        takes = [(t1, taken)]
        pace = _pace(after, following, None) if before["blocked_ms"] or before["credit_exhausted_ms"] else 0.0
        if pace * (t1 - t0) > taken:
            takes.insert(0, (t1 - taken / pace, 0.0))
    if extremes:
        takes = _through(takes, extremes, t0, caught_up=after["lag_records"] == 0)
    return _merged(start, offers, [(time, size) for time, size in takes if time > t0])


def went_on(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Returns when a consumer that stood still at a sample first took something after it; None: nobody knows."""
    t0, t1 = before["time"], after["time"]
    pause, known = ((row.get("usual_pause_ms") or 0.0) / 1000 for row in (after, before))
    if before["blocked_ms"] <= 0 or t1 <= t0:
        return None
    if pause <= 0:
        return _only_step(after, t0)
    since = t0 - before["blocked_ms"] / 1000
    if pause > known and since + FADED * pause > t0 and since + pause < t1 + STEP_S:
        return float(max(t0, min(since + pause, t1)))  # the longest pause so far is the one that ended here
    stopped = t1 - after["blocked_ms"] / 1000
    if after["blocked_ms"] > 0 and stopped > t0:
        return float(stopped - pause * ((stopped - t0) // pause)) if pause < stopped - t0 else float(stopped)
    return None


def _only_step(after: Mapping[str, Any], t0: float) -> float | None:
    """Returns when it took something, if it did so once: its lag grew up to the look before that."""
    stopped = after["time"] - after["blocked_ms"] / 1000
    most_s = after["time"] - (after.get("most_lag_ago_ms") or 0.0) / 1000
    once = after["blocked_ms"] > 0 and t0 < stopped - LOOK_S <= most_s <= stopped
    return float(stopped) if once else None


def _extremes(
    start: Point, before: Mapping[str, Any], after: Mapping[str, Any], offers: list[tuple[float, float, float]]
) -> list[tuple[float, float, float]]:
    """Returns (time, bytes taken since ``before``, bytes waiting) where most and where least waited in between. Where
    so much cannot have waited by what was offered (a burst), it was offered by then: that is put into ``offers``."""
    t0, t1 = before["time"], after["time"]
    stood, stands = start.offered - before["lag_bytes"], offers[-1][1] - after["lag_bytes"]
    seen = [
        (t1 - (after.get(f"{which}_lag_ago_ms") or 0.0) / 1000, after.get(f"{which}_lag_bytes") or 0)
        for which in ("most", "least")
    ]
    found: list[tuple[float, float, float]] = []
    for time, lag in sorted(seen):
        if not t0 + STEP_S < time < t1 - STEP_S:
            continue
        curve = [start[:3], *offers]
        place = next(k for k, point in enumerate(curve) if point[0] >= time)
        (_, low, first), (_, high, last) = curve[place - 1], curve[place]
        offered = _linear([(at, size) for at, size, _ in curve], time)
        taken_before = found[-1][1] if found else 0.0
        offered = min(max(offered, low, stood + taken_before + lag), high, stands + lag)
        taken = offered - lag - stood
        if offered < low or taken < taken_before:
            continue  # the three do not agree: something else happened, too
        records = first + (last - first) * (offered - low) / (high - low) if high > low else last
        offers[:] = sorted([*(point for point in offers if point[0] != time), (time, offered, records)])
        found.append((time, taken, float(lag)))
    return found


def _through(
    takes: list[tuple[float, float]], extremes: list[tuple[float, float, float]], t0: float, *, caught_up: bool
) -> list[tuple[float, float]]:
    """Returns what was taken over time, by way of the extremes; of the other points, those that agree with them."""
    through = [(time, taken) for time, taken, _ in extremes]
    since, taken, waited = extremes[-1]
    if caught_up:
        # What it could have taken is more than it took, so it counts from where it had caught up again.
        end, most = takes[-1]
        pace, until = most / (end - t0), max(since + STEP_S, min(end, t0 + SEEN_S))
        reached = taken + waited + pace * (until - since)
        return [*through, (until, reached), *([(end, reached + pace * (end - until))] if end > until else [])]
    return sorted(
        [*through, *((time, size) for time, size in takes
                     if all(time != at and (time < at) == (size <= there) for at, there in through))]
    )  # fmt: skip


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
        if since - ROUNDING_S < x <= until + ROUNDING_S:
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
    """Returns where the curves would be at the horizon if all went on as of late (rule 6). ``row``: the last one."""
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
