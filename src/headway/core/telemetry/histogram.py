"""A histogram of durations, in buckets that grow by a tenth. Its size is fixed."""

from __future__ import annotations

from bisect import bisect_left

RATIO = 1.1
LEAST_S, MOST_S = 10e-6, 100.0
"""Shorter and longer durations count as these; the longest duration is also stored exactly."""


def _bounds() -> list[float]:
    bounds = [LEAST_S]
    while bounds[-1] < MOST_S:
        bounds.append(bounds[-1] * RATIO)
    return bounds


_BOUNDS = _bounds()


class Histogram:
    """Durations in seconds. A quantile is the upper end of its bucket: at most a tenth too long."""

    __slots__ = ("_counts", "count", "longest_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self.count = 0
        self.longest_s = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        if seconds > self.longest_s:
            self.longest_s = seconds

    def quantile(self, share: float) -> float:
        """Returns the duration that ``share`` of all durations do not exceed; 0 if there are none."""
        wanted = share * self.count
        seen = 0
        for bound, count in zip(_BOUNDS, self._counts, strict=False):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.longest_s)
        return self.longest_s
