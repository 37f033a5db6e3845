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


class ShareWindow:
    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: list[Mark] = []
        """The oldest first."""

    def keep(self, mark: Mark, pace_s: float) -> None:
        """Remembers a look. They are kept an eighth of the window apart, and one of them is at least a window old.
        ``pace_s``: the usual pause of the client, or the usual rest of its feed if that is longer."""
        window, marks = max(SHARE_WINDOW_S, SHARE_PAUSES * pace_s), self._marks
        if not marks or mark.looked_s - marks[-1].looked_s >= window / 8:
            marks.append(mark)
        while len(marks) > 2 and mark.looked_s - marks[1].looked_s >= window:
            del marks[0]

    def clear(self) -> None:
        self._marks.clear()

    def since(self, now: float) -> float:
        """Returns when it begins."""
        return self._marks[0].looked_s if self._marks else now

    def share(self, lump_bytes: float, record_bytes: float) -> float:
        """Returns the share taken of what was offered, or the most that it may be: so much more may have been taken,
        and a record too many was offered."""
        since, upto = self._marks[0], self._marks[-1]
        offered = upto.end_bytes - since.end_bytes - record_bytes
        taken_s, offered_s = upto.looked_s - since.looked_s, upto.came_s - since.came_s
        if offered <= 0 or offered_s <= 0 or taken_s <= 0:
            return 1.0
        return min(1.0, (_taken(since, upto) + lump_bytes) / taken_s / (offered / offered_s))

    def closing(self, window_s: float, lump_bytes: float) -> float:
        """Returns how many bytes a second it took more than it was offered, over so long at the end of the window; less
        than 0: it took less."""
        upto = self._marks[-1]
        before = (mark for mark in reversed(self._marks) if upto.looked_s - mark.looked_s >= window_s)
        since = next(before, self._marks[0])
        taken_s, offered_s = upto.looked_s - since.looked_s, upto.came_s - since.came_s
        if taken_s <= 0:
            return 0.0
        taken = _taken(since, upto) + lump_bytes
        offered = upto.end_bytes - since.end_bytes
        return taken / taken_s - offered / (offered_s if offered_s > 0 else taken_s)

    def fork(self) -> ShareWindow:
        """Returns a copy that goes on from here by itself."""
        other = ShareWindow()
        other._marks = self._marks.copy()
        return other


def _taken(since: Mark, upto: Mark) -> float:
    """Returns what it took, or what it would have got of what its connection took, if that is more: many consumers of
    one connection are served in turn, each with all that waits."""
    return max(upto.reached_bytes - since.reached_bytes, upto.fair_bytes - since.fair_bytes)
