"""The broker's own lateness, as recorded: the broker charges it to no consumer, and neither does a replay.

A row of ``broker_samples`` says by how much sweeps have come too late in all. What was added from one row to the next
is taken as one late stretch in the middle of them: up to its end nobody was looked at, and the sweep that ended it
judged nobody (core/governance/governor.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from headway.core.policy import Lateness

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
