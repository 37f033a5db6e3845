"""Needs: the first record that is still needed, of the main stream and of each recorded topic.

Theory of operation. A pass looks at all durable places and at all chunks whose bytes are only in the journal, in
slices. What a place needs only moves forward, so a finding stays valid until the pass is done. Places and chunks that
are new meanwhile are looked at as they come, and so is a place that went back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from headway.core.log import Kept, Ledger, Place
from headway.core.message import overlaps
from headway.server.journal.slices import SlicedPass

SLICE_ITEMS = 1024


class Needs(SlicedPass):
    def __init__(self, ledger: Ledger, sequence: int, filters: Iterable[str], unloaded: Iterable[int] = ()) -> None:
        """``sequence``: the last one assigned; ``filters``: those of recorded topics; ``unloaded``: the first sequence
        of each chunk whose bytes are only in the journal."""
        super().__init__()
        self.main = sequence + 1
        """The first sequence of the main stream that a place needs."""
        self.of_topic = dict.fromkeys(filters, sequence + 1)
        """The first sequence that a place needs, by recorded topic."""
        self.unloaded: float = inf
        """The first sequence that an unloaded chunk needs, whatever its stream."""
        self._ledger = ledger
        self._nothing = sequence + 1
        self._places = list(ledger.kept.values())
        self._chunks = list(unloaded)
        self._last_number = ledger.last_number
        self._seen: dict[int, int] = {}
        """The first sequence each place needed when it was looked at, by the place's number."""

    def _steps(self) -> Iterator[int]:
        """To be advanced right after a commit."""
        while self._places:
            self._look(self._places.pop())
            yield 1
        while self._chunks:
            self.on_unload(self._chunks.pop())
            yield 1

    def on_commit(self, places: Iterable[Place]) -> None:
        """Looks at places that are new since the last commit, and at those that went back."""
        for kept in reversed(self._ledger.kept.values()):
            if kept.number <= self._last_number:
                break
            self._look(kept)
        self._last_number = self._ledger.last_number
        for place in places:
            if place.upto < self._seen.get(place.number, 0) and place.number in self._ledger.kept:
                self._look(self._ledger.kept[place.number])

    def on_unload(self, sequence: int) -> None:
        """The bytes of a chunk that begins with this sequence are only in the journal."""
        self.unloaded = min(self.unloaded, sequence)

    def _look(self, kept: Kept) -> None:
        wanted = min((found for cursor in kept.cursors if (found := cursor.wanted_sequence())), default=self._nothing)
        self._seen[kept.number] = wanted
        if not kept.recorded_only:
            self.main = min(self.main, wanted)
        for filter, needed in self.of_topic.items():
            if wanted < needed and _reads(filter, kept):
                self.of_topic[filter] = wanted


def _reads(filter: str, kept: Kept) -> bool:
    """Whether the place's owner may read topics that this filter matches."""
    return any(overlaps(filter, own) for own in kept.filters() if own[0] != "$")
