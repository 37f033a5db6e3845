"""Reach: how much of what a client was given had reached it, as a function of time.

Its host acknowledges in steps. Samples tell where it stood each time, since when it has stood still, and how long it
usually does. So the steps between two samples are placed where they were seen to be: the last one by the second sample,
the others a usual pause apart. Where that is not known it went on evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headway.pipeline.lab.replays.curves import ROUNDING_S, went_on

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
