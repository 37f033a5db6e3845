"""Unneeded ranges: sequences between two snapshots of the main stream of which no record is needed any more.

Theory of operation. An old record that is still needed keeps its segment. The segments behind it may have no needed
records. The later of two snapshots repeats all metadata and positions between them, but not the records. So the range
between two snapshots can be removed when none of its records is needed.

The search begins with all ranges and strikes out each range with a needed record. It looks at lanes, then at unloaded
chunks, then at the out-of-order progress of durable positions, in slices. This order is safe while the broker works:
new records have later sequences than all ranges, and a record moves from a lane to one of the other two, but never
back. A position that moves meanwhile is looked at again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from headway.core.broker import Broker
from headway.core.log import Chunk, CommittedPosition, DurablePosition, Ledger, OutOfOrderProgress
from headway.server.journal.compaction.slices import SlicedPass

SLICE_CHUNKS = 256


class SequenceRange(NamedTuple):
    """Sequences, both inclusive."""

    first: int
    last: int


def snapshot_ranges(snapshots: Sequence[int], before: float) -> list[SequenceRange]:
    """Returns the ranges between neighbouring snapshots that end before this sequence."""
    return [SequenceRange(first, after - 1) for first, after in pairwise(snapshots) if after <= before]


class UnneededRanges(SlicedPass):
    def __init__(
        self, broker: Broker, ledger: Ledger, unloaded: Iterable[Chunk], ranges: Sequence[SequenceRange]
    ) -> None:
        """``ranges`` are in order and all in the past. ``unloaded`` are the unloaded chunks."""
        super().__init__()
        self.found = dict.fromkeys(ranges)
        """The ranges in which no needed record was found yet."""
        self._broker = broker
        self._ledger = ledger
        self._unloaded = unloaded
        self._ranges = ranges

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        """Looks again at the positions that moved."""
        for committed in positions:
            if committed.number in self._ledger.positions:
                self._look_at_position(self._ledger.positions[committed.number])

    def _steps(self) -> Iterator[int]:
        if not self.found:
            return
        for feed in list(self._broker.registry.router.feeds.values()):
            lane = feed.lane
            chunk: Chunk | None = lane.first
            while chunk is not None and not self._is_behind(chunk):
                yield self._look_at_chunk(chunk)
                chunk = chunk.next if chunk.start >= lane.first.start else lane.first
            for apart in list(lane.apart):  # last, because a chunk of the list may have become one of these
                yield self._look_at_chunk(apart)
            yield 1
        for chunk in list(self._unloaded):
            yield self._look_at_chunk(chunk)
        for position in list(self._ledger.positions.values()):
            yield self._look_at_position(position)

    def _is_behind(self, chunk: Chunk) -> bool:
        """Tells whether the chunk, and so the rest of its lane, comes after all ranges."""
        return len(chunk) > 0 and chunk.run_sequence[0] > self._ranges[-1].last

    def _look_at_chunk(self, chunk: Chunk) -> int:
        if not len(chunk):
            return 1
        found = self._among(chunk.run_sequence[0], chunk.sequence_of(len(chunk) - 1))
        for range_ in found:
            if range_ in self.found and _has_some(chunk, range_):
                del self.found[range_]
        return 1 + len(found)

    def _look_at_position(self, position: DurablePosition) -> int:
        looked_at = 1
        for cursor in position.cursors:
            if isinstance(cursor, OutOfOrderProgress):
                for first, last in cursor.unsettled_ranges(0):
                    found = self._among(first, last)
                    looked_at += 1 + len(found)
                    for range_ in found:
                        self.found.pop(range_, None)
        return looked_at

    def _among(self, first: int, last: int) -> Sequence[SequenceRange]:
        """Returns the ranges that have some of these sequences."""
        start = bisect_left(self._ranges, first, key=lambda range_: range_.last)
        return self._ranges[start : bisect_right(self._ranges, last, key=lambda range_: range_.first)]


def _has_some(chunk: Chunk, range_: SequenceRange) -> bool:
    at = bisect_right(chunk.run_sequence, range_.last) - 1
    if at < 0:
        return False
    stop = chunk.run_first[at + 1] if at + 1 < len(chunk.run_first) else len(chunk)
    return chunk.run_sequence[at] + stop - chunk.run_first[at] > range_.first
