"""Needs: finds the first record that is still needed, of the main stream and of each recorded topic.

Theory of operation. A pass looks at all durable positions and at all unloaded chunks, in slices. The first record that
a position needs only moves forward, so a finding stays valid until the pass is done. Positions and chunks that are new
meanwhile are looked at as they come. So is a position that moved back.
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
        """``sequence`` is the newest of the broker. ``filters`` are those of recorded topics. ``unloaded`` are the
        first sequences of unloaded chunks."""
        super().__init__()
        self.main = sequence + 1
        """The first sequence of the main stream that a durable position needs."""
        self.of_topic = dict.fromkeys(filters, sequence + 1)
        """The first sequence that a durable position needs, by recorded topic."""
        self.unloaded: float = inf
        """The first sequence that an unloaded chunk needs, in any stream."""
        self._ledger = ledger
        self._nothing = sequence + 1
        self._positions = list(ledger.positions.values())
        self._chunks = list(unloaded)
        self._last_number = ledger.last_number
        self._seen: dict[int, int] = {}
        """The first sequence that each position needed at its last look, by the position's number."""

    def _steps(self) -> Iterator[int]:
        """Looks at one position or chunk in each step. Advanced right after a commit."""
        while self._positions:
            self._look(self._positions.pop())
            yield 1
        while self._chunks:
            self.on_unload(self._chunks.pop())
            yield 1

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        """Looks at positions that are new since the last commit, and at those that moved back."""
        for position in reversed(self._ledger.positions.values()):
            if position.number <= self._last_number:
                break
            self._look(position)
        self._last_number = self._ledger.last_number
        for committed in positions:
            if committed.upto < self._seen.get(committed.number, 0) and committed.number in self._ledger.positions:
                self._look(self._ledger.positions[committed.number])

    def on_unload(self, sequence: int) -> None:
        """Notes an unloaded chunk, which begins with this sequence."""
        self.unloaded = min(self.unloaded, sequence)

    def _look(self, position: DurablePosition) -> None:
        first = min(
            (found for cursor in position.cursors if (found := cursor.unsettled_sequence())), default=self._nothing
        )
        self._seen[position.number] = first
        if not position.recorded_only:
            self.main = min(self.main, first)
        for filter, needed in self.of_topic.items():
            if first < needed and _reads(filter, position):
                self.of_topic[filter] = first


def _reads(filter: str, position: DurablePosition) -> bool:
    """Tells whether the position's owner may read topics that this filter matches."""
    return any(overlaps(filter, own) for own in position.filters() if own[0] != "$")
