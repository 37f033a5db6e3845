"""A recovered position is what the journal says of a durable position: which records are settled."""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from headway.core.log import CommittedPosition

PAIRS_MAX = 1000
"""The number of settled ranges that it holds before it drops those that are before ``upto``."""


class RecoveredPosition:
    """A position as the journal's entries give it: all records before ``upto`` and in the settled ranges are settled.
    """

    __slots__ = ("_limit", "_pairs", "conflated", "unsent", "upto")

    def __init__(self, position: CommittedPosition) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._limit = PAIRS_MAX
        self.replace(position)

    def replace(self, position: CommittedPosition) -> None:
        """Replaces all earlier positions by this one, which is complete."""
        self._pairs.clear()
        self.add(position)

    def add(self, position: CommittedPosition) -> None:
        """Adds a later committed position."""
        self.upto, self.conflated = position.upto, not position.unsent
        self.unsent = position.unsent or max((position.upto, *(end + 1 for end in position.settled[1::2])))
        if position.settled:
            self._pairs += zip(position.settled[::2], position.settled[1::2], strict=True)
            if len(self._pairs) > self._limit:
                self._pairs = [pair for pair in self._pairs if pair[1] >= self.upto]
                self._limit = max(PAIRS_MAX, 2 * len(self._pairs))

    def covers(self, sequence: int) -> bool:
        """Tells whether this record is in a settled range. Called after ``close``."""
        at = bisect_right(self._pairs, (sequence, inf)) - 1
        return at >= 0 and sequence <= self._pairs[at][1]

    def position(self, number: int) -> CommittedPosition:
        """Returns all of it as one committed position with this number."""
        above = [end for pair in self._pairs if pair[1] >= self.upto for end in pair]
        return CommittedPosition(number, self.upto, 0 if self.conflated else self.unsent, tuple(above))

    def close(self) -> None:
        """Merges the ranges, after the last position was added."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self._pairs):
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        self._pairs = merged
