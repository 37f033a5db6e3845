"""Needs: up to where nobody who has a place needs a record any more, of the main stream and of each recorded topic.

Theory of operation. All places are looked at, in slices (slices.py). What a place wants only comes later and later, so
what was seen of it holds for as long as it takes to see the others. What is new meanwhile is looked at as it comes, and
so is a place that went back.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.log import Kept, Ledger, Place
from headway.core.message import overlaps

SLICE_PLACES = 1024


class Needs:
    def __init__(self, ledger: Ledger, sequence: int, filters: Iterable[str]) -> None:
        """``sequence``: the last there is; ``filters``: of recorded topics."""
        self.main = sequence + 1
        """Nobody needs what is before this one."""
        self.of_topic = dict.fromkeys(filters, sequence + 1)
        self._ledger = ledger
        self._nothing = sequence + 1
        self._left = list(ledger.kept.values())
        self._last_number = ledger.last_number
        self._seen: dict[int, int] = {}
        """What each place wanted first, by number."""

    @property
    def whole(self) -> bool:
        """All places there are have been looked at."""
        return not self._left

    def go_on(self, places: int) -> None:
        """Look at some more. To be called right after a commit."""
        left = self._left
        for _ in range(min(places, len(left))):
            self._look(left.pop())

    def told(self, places: Iterable[Place]) -> None:
        """There was another commit."""
        for kept in reversed(self._ledger.kept.values()):
            if kept.number <= self._last_number:
                break
            self._look(kept)
        self._last_number = self._ledger.last_number
        for place in places:
            if place.upto < self._seen.get(place.number, 0) and place.number in self._ledger.kept:
                self._look(self._ledger.kept[place.number])

    def _look(self, kept: Kept) -> None:
        wanted = min((found for cursor in kept.cursors if (found := cursor.wanted_sequence())), default=self._nothing)
        self._seen[kept.number] = wanted
        if not kept.recorded_only:
            self.main = min(self.main, wanted)
        for filter, needed in self.of_topic.items():
            if wanted < needed and _reads(filter, kept):
                self.of_topic[filter] = wanted


def _reads(filter: str, kept: Kept) -> bool:
    """Whoever has this place may read topics that this filter matches."""
    return any(overlaps(filter, own) for own in kept.filters() if own[0] != "$")
