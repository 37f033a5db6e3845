"""Needs: the first record that is still needed, of the main stream and of each recorded topic.

Theory of operation. A pass looks at all durable positions and at all chunks whose bytes are only in the journal, in
slices. What a position needs only moves forward, so a finding stays valid until the pass is done. Positions and chunks
that are new meanwhile are looked at as they come, and so is a position that went back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from headway.core.log import CommittedPosition, DurablePosition, Ledger
from headway.core.message import overlaps
from headway.server.journal.compaction.slices import SlicedPass

SLICE_ITEMS = 1024


class Needs(SlicedPass):
    def __init__(self, ledger: Ledger, sequence: int, filters: Iterable[str], unloaded: Iterable[int] = ()) -> None:
        """``sequence``: the last one assigned; ``filters``: those of recorded topics; ``unloaded``: the first sequence
        of each chunk whose bytes are only in the journal."""
        super().__init__()
        self.main = sequence + 1
        """The first sequence of the main stream that a position needs."""
        self.of_topic = dict.fromkeys(filters, sequence + 1)
        """The first sequence that a position needs, by recorded topic."""
        self.unloaded: float = inf
        """The first sequence that an unloaded chunk needs, in any stream."""
        self._ledger = ledger
        self._nothing = sequence + 1
        self._positions = list(ledger.positions.values())
        self._chunks = list(unloaded)
        self._last_number = ledger.last_number
        self._seen: dict[int, int] = {}
        """The first sequence that each position needed when it was looked at, by its number."""

    def _steps(self) -> Iterator[int]:
        """Looks at positions, then at chunks. To be advanced right after a commit."""
        while self._positions:
            self._look(self._positions.pop())
            yield 1
        while self._chunks:
            self.on_unload(self._chunks.pop())
            yield 1

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        """Looks at positions that are new since the last commit, and at those that went back."""
        for position in reversed(self._ledger.positions.values()):
            if position.number <= self._last_number:
                break
            self._look(position)
        self._last_number = self._ledger.last_number
        for committed in positions:
            if committed.upto < self._seen.get(committed.number, 0) and committed.number in self._ledger.positions:
                self._look(self._ledger.positions[committed.number])

    def on_unload(self, sequence: int) -> None:
        """Notes that the bytes of a chunk that begins with this sequence are only in the journal."""
        self.unloaded = min(self.unloaded, sequence)

    def _look(self, position: DurablePosition) -> None:
        wanted = min(
            (found for cursor in position.cursors if (found := cursor.wanted_sequence())), default=self._nothing
        )
        self._seen[position.number] = wanted
        if not position.recorded_only:
            self.main = min(self.main, wanted)
        for filter, needed in self.of_topic.items():
            if wanted < needed and _reads(filter, position):
                self.of_topic[filter] = wanted


def _reads(filter: str, position: DurablePosition) -> bool:
    """Returns whether the position's owner may read topics that this filter matches."""
    return any(overlaps(filter, own) for own in position.filters() if own[0] != "$")
