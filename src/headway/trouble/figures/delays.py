"""Delays, counted in buckets that are 1.6 % wide at most, so that an hour of them takes up no more than a second's."""

from __future__ import annotations

from collections import Counter

_BITS = 6


class Delays:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0

    def add(self, nanoseconds: int) -> None:
        shift = max(0, nanoseconds.bit_length() - _BITS - 1)
        self._counts[nanoseconds >> shift << shift] += 1
        self.count += 1

    def add_all(self, others: Delays) -> None:
        self._counts.update(others._counts)
        self.count += others.count

    def quantile_ms(self, share: float) -> float | None:
        """Returns the delay that this share of them did not exceed, in milliseconds; None: there are none."""
        left = share * self.count
        for nanoseconds in sorted(self._counts):
            left -= self._counts[nanoseconds]
            if left <= 0:
                return nanoseconds / 1e6
        return None
