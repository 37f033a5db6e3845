"""A share window is what a consumer was offered, and what it took, over the last half minute of its lag.

Both go by lumps, each in its own time: what was taken is counted from one look to another, and what was offered from
one lump of the feed to another (rhythm.py). So the two are compared as rates.
"""

from __future__ import annotations

from typing import NamedTuple

SHARE_WINDOW_S = 30.0
SHARE_PAUSES = 4.0
"""A share is taken over so many usual pauses, or rests of the feed, if that is longer."""


class Mark(NamedTuple):
    """One look."""

    looked_s: float
    came_s: float
    """The end of the time over which what was offered is measured."""
    end_bytes: int
    reached_bytes: int
    fair_bytes: float = 0.0
    """The consumer's part of what its connection took; 0: it has one for itself."""


class Span(NamedTuple):
    """The bytes that were offered and taken between two looks."""

    taken_bytes: float
    taken_s: float
    offered_bytes: int
    offered_s: float


class ShareWindow:
    __slots__ = ("_end", "_marks", "_whole")

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        """The oldest first."""
        self._whole = self._end = Span(0.0, 0.0, 0, 0.0)
        """The span from the first of them to the last, and the end of it."""

    def due(self, now: float, pace_s: float) -> bool:
        """Tells whether a look is to be kept. ``pace_s``: the usual pause of the client, or the usual rest of its feed
        if that is longer."""
        return not self._marks or now - self._marks[-1].looked_s >= _length(pace_s) / 8

    def keep(self, mark: Mark, pace_s: float, end_s: float) -> None:
        """Remembers a look, an eighth of the window after the last one. One of them is at least a window old.
        ``end_s``: the length of the window's end."""
        window, marks = _length(pace_s), self._marks
        marks.append(mark)
        while len(marks) > 2 and mark.looked_s - marks[1].looked_s >= window:
            del marks[0]
        before = (other for other in reversed(marks) if mark.looked_s - other.looked_s >= end_s)
        self._whole, self._end = _span(marks[0], mark), _span(next(before, marks[0]), mark)

    def clear(self) -> None:
        self._marks.clear()

    def since(self, now: float) -> float:
        """Returns when it begins."""
        return self._marks[0].looked_s if self._marks else now

    def share(self, lump_bytes: float, record_bytes: float) -> float:
        """Returns the share taken of what was offered, or the most that it may be: so much more may have been taken,
        and a record too many was offered."""
        taken, taken_s, offered, offered_s = self._whole
        if offered <= record_bytes or offered_s <= 0 or taken_s <= 0:
            return 1.0
        return min(1.0, (taken + lump_bytes) * offered_s / (taken_s * (offered - record_bytes)))

    def closing(self, lump_bytes: float) -> float:
        """Returns how many bytes a second it took more than it was offered, at the end of the window; less than 0: it
        took less."""
        taken, taken_s, offered, offered_s = self._end
        if taken_s <= 0:
            return 0.0
        return (taken + lump_bytes) / taken_s - offered / (offered_s if offered_s > 0 else taken_s)

    def fork(self) -> ShareWindow:
        """Returns a copy that goes on from here by itself."""
        other = ShareWindow()
        other._marks, other._whole, other._end = self._marks.copy(), self._whole, self._end
        return other


def _length(pace_s: float) -> float:
    return max(SHARE_WINDOW_S, SHARE_PAUSES * pace_s)


def _span(since: Mark, upto: Mark) -> Span:
    """Returns what is between two looks. Taken counts what the consumer took, or what it would have got of what its
    connection took, if that is more: many consumers of one connection are served in turn, each with all that waits."""
    taken = max(upto.reached_bytes - since.reached_bytes, upto.fair_bytes - since.fair_bytes)
    offered = upto.end_bytes - since.end_bytes
    return Span(taken, upto.looked_s - since.looked_s, offered, upto.came_s - since.came_s)
