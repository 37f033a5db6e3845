"""Tidying: segments that nobody needs are removed, now and then, by the writer.

Rules:
- The main stream loses what is older than every record that somebody wants, up to the last snapshot before that.
- Behind it there may be much that has come and gone while an old record waits. A *range* is what lies between two
  snapshots. Where nobody wants a record of it, it says nothing that the later snapshot does not: it goes as well.
  Whatever somebody may want is in a lane (or is known to loose ends), so lanes are looked through, once per snapshot.
- The snapshot that says again what is removed is on disk before, also where nothing else has to be.
- A recorded topic loses what is older than its ``keep``, but nothing that somebody durable still needs.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import inf
from typing import NamedTuple

from headway.core.broker import Broker
from headway.core.log import MAIN, Chunk, Ledger, LooseEnds, Place
from headway.server.config import Keep, TopicTable
from headway.server.journal.archive import Archive, stream_name
from headway.server.journal.chunk_cache import ChunkCache
from headway.server.journal.needs import SLICE_PLACES, Needs
from headway.server.journal.recovery import RETAINED
from headway.server.journal.retained import RetainedLog
from headway.store.journal.losses import joined
from headway.store.journal.stream import Stream

log = logging.getLogger("headway")


class SequenceRange(NamedTuple):
    """Sequences, both inclusive."""

    first: int
    last: int


class Tidying:
    def __init__(
        self, broker: Broker, ledger: Ledger, streams: Mapping[str, Stream], archive: Archive, chunk_cache: ChunkCache,
        retained: RetainedLog, topics: Sequence[TopicTable], submit: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """``submit``: to the writer, behind what it was given before."""
        self.snapshots: list[int] = []
        """Their sequences."""
        self._trimmed = 0
        """Records before this sequence may be gone."""
        self._holes: list[SequenceRange] = []
        """So may these."""
        self._freed = self._looked_upto = 0
        """The snapshot before which nothing is left, and the one up to which ranges were looked at."""
        self._needs: Needs | None = None
        """What is being found out; then all else follows."""
        self._broker = broker
        self._ledger = ledger
        self._streams = streams
        self._archive = archive
        self._cache = chunk_cache
        self._retained = retained
        self._topics = topics
        self._submit = submit

    # -- what is needed ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Find out what places need, unless that is under way."""
        if self._needs is None:
            recorded = [topic.filter for topic in self._topics if topic.keep is not None]
            self._needs = Needs(self._ledger, self._broker.registry.sequence, recorded)

    def told(self, places: Iterable[Place]) -> None:
        """There was another commit."""
        if self._needs is not None:
            self._needs.told(places)

    @property
    def under_way(self) -> bool:
        """There are places to look at."""
        return self._needs is not None and not self._needs.whole

    def go_on(self) -> None:
        """Another slice."""
        if self._needs is not None:
            self._needs.go_on(SLICE_PLACES)

    # -- removing ---------------------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """It is known what is needed."""
        return self._needs is not None and self._needs.whole

    def tidy(self, now: float, committed_sequence: int) -> None:
        """To be called right after a commit, when that is due."""
        needs, self._needs = self._needs, None
        assert needs is not None
        by_writers = self._broker.writers.needed_sequence()
        held = int(min(committed_sequence + 1, self._cache.needed_sequence(), by_writers))
        for topic in self._topics:
            if topic.keep is not None:
                stream = self._archive.recorded[stream_name(topic.filter)].stream
                by_place = needs.of_topic[topic.filter]
                self._trimmed = max(self._trimmed, min(by_place, held))
                wall_us = int((now + self._archive.wall_offset_s) * 1e6)
                self._free(stream, partial(_trim, stream, topic.keep, wall_us, min(by_place, held)))
        retained_upto = self._retained.done_upto()
        if retained_upto:
            self._free(self._streams[RETAINED], partial(self._streams[RETAINED].free_before, retained_upto))
        self._tidy_main(min(needs.main, held), by_writers)

    def _tidy_main(self, needed: int, needed_for_all: float) -> None:
        """``needed_for_all``: from there on all is wanted."""
        main = self._streams[MAIN]
        passed = [sequence for sequence in self.snapshots if sequence < needed]
        if passed and passed[-1] > self._freed:
            self.snapshots = self.snapshots[len(passed) - 1 :]
            self._freed = passed[-1]
            self._trimmed = max(self._trimmed, passed[-1])
            self._free(main, main.sync, partial(main.free_before, passed[-1]))
        elif self.snapshots and self.snapshots[-1] > self._looked_upto:
            self._looked_upto = self.snapshots[-1]
            begin = {segment.first_sequence for segment in main.segments}
            self.snapshots = [one for one in self.snapshots if one in begin or one > main.last_sequence]
            ranges = snapshot_ranges(self.snapshots, needed_for_all)
            idle = unneeded_ranges(self._broker, self._ledger, self._cache.unloaded, ranges)
            self._holes = [SequenceRange(*pair) for pair in joined([*self._holes, *idle]) if pair[1] >= self._trimmed]
            self._free(main, partial(main.free_between, {one.first for one in idle}, frozenset(self.snapshots)))

    def may_be_gone(self, chunk: Chunk) -> bool:
        """The journal may have let go of some of its records."""
        first, last = chunk.sequence_of(0), chunk.sequence_of(len(chunk) - 1)
        at = bisect_right(self._holes, (last, inf)) - 1
        return first < self._trimmed or (at >= 0 and self._holes[at].last >= first)

    def _free(self, stream: Stream, *steps: Callable[[], object]) -> None:
        def work() -> None:
            try:
                for step in steps:
                    step()
            except OSError as error:
                log.error("cannot remove old segments from %s: %s", stream.folder, error.strerror or error)

        self._submit(work)


def snapshot_ranges(snapshots: Sequence[int], before: float) -> list[SequenceRange]:
    """Those that end before this sequence."""
    return [SequenceRange(first, after - 1) for first, after in pairwise(snapshots) if after <= before]


def unneeded_ranges(
    broker: Broker, ledger: Ledger, unloaded: Iterable[Chunk], ranges: list[SequenceRange]
) -> list[SequenceRange]:
    """Those of which nobody wants a record. ``ranges``: in order; ``unloaded``: chunks that are in no memory."""
    left = dict.fromkeys(ranges)
    for chunk in _chunks(broker, unloaded) if ranges else ():
        if not len(chunk):
            continue
        for range_ in _among(ranges, chunk.run_sequence[0], chunk.sequence_of(len(chunk) - 1)):
            if range_ in left and _has_some(chunk, range_):
                del left[range_]
    for kept in ledger.kept.values() if left else ():
        for cursor in kept.cursors:
            if isinstance(cursor, LooseEnds):
                for first, last in cursor.wanted_sequences(0):
                    for range_ in _among(ranges, first, last):
                        left.pop(range_, None)
    return list(left)


def _chunks(broker: Broker, unloaded: Iterable[Chunk]) -> Iterator[Chunk]:
    for feed in broker.registry.router.feeds.values():
        chunk: Chunk | None = feed.lane.first
        while chunk is not None:
            yield chunk
            chunk = chunk.next
    yield from unloaded


def _among(ranges: list[SequenceRange], first: int, last: int) -> list[SequenceRange]:
    """Those that have some of these sequences."""
    start = bisect_left(ranges, first, key=lambda range_: range_.last)
    return ranges[start : bisect_right(ranges, last, key=lambda range_: range_.first)]


def _has_some(chunk: Chunk, range_: SequenceRange) -> bool:
    at = bisect_right(chunk.run_sequence, range_.last) - 1
    if at < 0:
        return False
    stop = chunk.run_first[at + 1] if at + 1 < len(chunk.run_first) else len(chunk)
    return chunk.run_sequence[at] + stop - chunk.run_first[at] > range_.first


def _trim(stream: Stream, keep: Keep, now_us: int, needed: int) -> None:
    """What is recorded for no longer, and nobody durable needs."""
    if keep.seconds is not None:
        stream.free_for_age(now_us - int(keep.seconds * 1e6), needed)
    if keep.bytes is not None:
        stream.free_for_size(keep.bytes, needed)
