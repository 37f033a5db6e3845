"""Tidying: removes segments of the journal that are no longer needed.

Rules:
- The main stream loses all segments before the last snapshot that is older than all needed records.
- Behind an old record that is still needed, it loses the ranges between two snapshots that have no needed record
  (unneeded.py). They are searched for once per snapshot.
- A recorded topic loses the segments that are older than its ``keep`` and that no durable position needs.
- Before a segment is removed, the snapshot that repeats its metadata is on disk.
- The writer's thread removes the files. The loop only searches for needed records, in slices.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf

from headway.core.broker import Broker
from headway.core.log import MAIN, Chunk, CommittedPosition, Ledger
from headway.server.config import Keep, TopicTable
from headway.server.journal.compaction.needs import SLICE_ITEMS, Needs
from headway.server.journal.compaction.retained import RETAINED, RetainedLog
from headway.server.journal.compaction.unneeded import SLICE_CHUNKS, SequenceRange, UnneededRanges, snapshot_ranges
from headway.server.journal.entries import Archive, ChunkCache, stream_name
from headway.store.journal import Stream, joined

log = logging.getLogger("headway")


class Tidying:
    def __init__(
        self, broker: Broker, ledger: Ledger, streams: Mapping[str, Stream], archive: Archive, chunk_cache: ChunkCache,
        retained: RetainedLog, topics: Sequence[TopicTable], submit: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """``submit`` hands work to the writer's thread, behind everything that was handed over before."""
        self.snapshots: list[int] = []
        """The sequences of the snapshots in the main stream."""
        self._freed_before = 0
        """The journal may have removed records before this sequence."""
        self._freed_ranges: list[SequenceRange] = []
        """The journal may also have removed records of these sequences."""
        self._first_snapshot = self._searched_snapshot = 0
        """The snapshot that the main stream begins with, and the last one for which ranges were searched."""
        self._search: Needs | UnneededRanges | None = None
        """A search for ranges follows a finished ``Needs`` if an old record keeps its segment."""
        self._broker = broker
        self._ledger = ledger
        self._streams = streams
        self._archive = archive
        self._chunk_cache = chunk_cache
        self._retained = retained
        self._topics = topics
        self._submit = submit

    # -- searching --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts a search for needed records, unless one is running."""
        if self._search is None:
            recorded = [topic.filter for topic in self._topics if topic.keep is not None]
            unloaded = self._chunk_cache.unloaded.values()
            self._search = Needs(self._ledger, self._broker.registry.sequence, recorded, unloaded)

    def on_commit(self, positions: Iterable[CommittedPosition]) -> None:
        if self._search is not None:
            self._search.on_commit(positions)

    def on_unload(self, sequence: int) -> None:
        """Notes a newly unloaded chunk, which begins with this sequence."""
        if isinstance(self._search, Needs):
            self._search.on_unload(sequence)

    @property
    def under_way(self) -> bool:
        """Tells whether a search is running."""
        return self._search is not None and not self._search.done

    @property
    def due(self) -> bool:
        """Tells whether a search is done, so that ``tidy`` can use its result."""
        return self._search is not None and self._search.done

    def advance(self) -> None:
        """Does another slice."""
        if self._search is not None:
            self._search.advance(SLICE_ITEMS if isinstance(self._search, Needs) else SLICE_CHUNKS)

    # -- removing ---------------------------------------------------------------------------------------------------

    def tidy(self, now: float, committed_sequence: int) -> None:
        """Removes unneeded segments and ranges. Called right after a commit, when it is ``due``."""
        search, self._search = self._search, None
        if isinstance(search, UnneededRanges):
            self._free_ranges(list(search.found))
        elif search is not None:
            self._free_before_needed(search, now, committed_sequence)

    def _free_before_needed(self, needs: Needs, now: float, committed_sequence: int) -> None:
        by_writers = self._broker.writers.needed_sequence()
        held = int(min(committed_sequence + 1, needs.unloaded, by_writers))
        for topic in self._topics:
            if topic.keep is not None:
                stream = self._archive.recorded[stream_name(topic.filter)].stream
                needed = min(needs.of_topic[topic.filter], held)
                self._freed_before = max(self._freed_before, needed)
                wall_us = int((now + self._archive.wall_offset_s) * 1e6)
                self._free(stream, partial(free_expired, stream, topic.keep, wall_us, needed))
        retained_upto = self._retained.done_upto()
        if retained_upto:
            self._free(self._streams[RETAINED], partial(self._streams[RETAINED].free_before, retained_upto))
        self._tidy_main(min(needs.main, held), by_writers)

    def _tidy_main(self, needed: int, all_needed_from: float) -> None:
        main = self._streams[MAIN]
        passed = bisect_left(self.snapshots, needed)
        if passed and (last := self.snapshots[passed - 1]) > self._first_snapshot:
            del self.snapshots[: passed - 1]
            self._first_snapshot = last
            self._freed_before = max(self._freed_before, last)
            self._free(main, main.sync, partial(main.free_before, last))
        elif self.snapshots and self.snapshots[-1] > self._searched_snapshot:
            self._searched_snapshot = self.snapshots[-1]
            begin = {segment.first_sequence for segment in main.segments}
            self.snapshots = [one for one in self.snapshots if one in begin or one > main.last_sequence]
            ranges = snapshot_ranges(self.snapshots, all_needed_from)
            self._search = UnneededRanges(self._broker, self._ledger, self._chunk_cache.unloaded, ranges)

    def _free_ranges(self, unneeded: list[SequenceRange]) -> None:
        main = self._streams[MAIN]
        freed = joined([*self._freed_ranges, *unneeded])
        self._freed_ranges = [SequenceRange(*pair) for pair in freed if pair[1] >= self._freed_before]
        self._free(main, partial(main.free_between, {one.first for one in unneeded}, frozenset(self.snapshots)))

    def may_be_gone(self, chunk: Chunk) -> bool:
        """Tells whether the journal may have removed some of the chunk's records."""
        first, last = chunk.sequence_of(0), chunk.sequence_of(len(chunk) - 1)
        at = bisect_right(self._freed_ranges, (last, inf)) - 1
        return first < self._freed_before or (at >= 0 and self._freed_ranges[at].last >= first)

    def _free(self, stream: Stream, *steps: Callable[[], object]) -> None:
        def work() -> None:
            try:
                for step in steps:
                    step()
            except OSError as error:
                log.error("cannot remove old segments from %s: %s", stream.folder, error.strerror or error)

        self._submit(work)


def free_expired(stream: Stream, keep: Keep, now_us: int, needed: int) -> None:
    """Removes a recorded topic's segments that are past its ``keep`` and end before the sequence ``needed``."""
    if keep.seconds is not None:
        stream.free_for_age(now_us - int(keep.seconds * 1e6), needed)
    if keep.bytes is not None:
        stream.free_for_size(keep.bytes, needed)
