"""The archive: reads recorded topics from any offset or time.

Each ``[[topic]]`` with ``keep`` has a stream of its own in the journal. An offset is the broker-wide sequence. It goes
up within a topic, is never used twice, and orders topics among each other; so one offset is enough for a wildcard.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import merge
from itertools import chain
from math import inf
from typing import NamedTuple

from headway.core.consumer import ArchiveLag
from headway.core.log import JournaledRun
from headway.core.message import SCAN_MAX, Record, Run, covers, matcher, overlaps
from headway.server.journal.entries.entry_codec import decode_runs
from headway.store.journal import Corrupt, ReadableStream, Stream

PREFIX = "topic-"
BYTES_A_LOOK = 1024
"""Reading so many bytes counts as much work as looking at one record."""
LOOKS_A_RUN = 8
"""Reading and decoding a run counts as much as looking at so many records: most runs have one record."""


def stream_name(filter: str) -> str:
    """Returns the name of a recorded topic's stream: readable and unique."""
    words = re.sub(r"[^a-z0-9]+", "-", filter.lower()).strip("-")[:40]
    return f"{PREFIX}{words}-{zlib.crc32(filter.encode()):08x}"


def first_offset_at(streams: Sequence[ReadableStream], time_us: int) -> int:
    """Returns the first offset at or after a time, to the precision of a commit; the one after all others if there is
    none."""
    last = max((stream.last_sequence for stream in streams), default=0)
    found = ((stream.sequence_at(time_us), stream.last_sequence) for stream in streams)
    return min((first for first, its_last in found if first <= its_last), default=last + 1)


class PendingRun(NamedTuple):
    run: Run
    sequence: int
    """The sequence of the run's first record."""
    before: int
    """The number of records of the topic before it, as ``RecordedTopic.count`` counts them."""


class RecordedTopic:
    __slots__ = ("count", "filter", "pending", "stream")

    def __init__(self, filter: str, stream: Stream) -> None:
        self.filter = filter
        self.stream = stream
        self.pending: deque[PendingRun] = deque()
        """Runs that are published and not in the stream yet."""
        self.count = stream.count
        """The number of records in the stream (``ReadableStream.count``), and of those that are pending."""

    def published(self, run: JournaledRun) -> None:
        self.pending.append(PendingRun(run.run, run.sequence, self.count))
        self.count += len(run.run)

    def passed(self, offset: int, in_stream: int) -> int:
        """Returns the number of records before an offset. ``in_stream``: how many of those are in the stream."""
        at = bisect_left(self.pending, offset, key=lambda one: one.sequence) - 1
        if at < 0:
            return in_stream
        last = self.pending[at]
        return last.before + min(len(last.run), offset - last.sequence)


class Archive:
    def __init__(self, wall_offset: Callable[[], float]) -> None:
        """``wall_offset``: the wall clock less the monotonic one, in seconds, as it is now."""
        self._wall_offset = wall_offset
        self.untaken: Callable[[], Sequence[JournaledRun]] = tuple
        """Returns the runs of this turn, which are published and not pending yet."""
        self.recorded: dict[str, RecordedTopic] = {}
        """The recorded topics by the name of their stream, in the order of the configuration."""
        self._tests: list[tuple[Callable[[str], object], str]] = []

    @property
    def wall_offset_s(self) -> float:
        return self._wall_offset()

    def add(self, filter: str, stream: Stream) -> None:
        name = stream_name(filter)
        self.recorded[name] = RecordedTopic(filter, stream)
        self._tests.append((matcher(filter), name))

    def stream_of(self, topic: str) -> str:
        """Returns the name of the stream with a topic's records; empty: the topic is not recorded."""
        return next((name for matches, name in self._tests if matches(topic)), "")

    def _of(self, filter: str) -> list[RecordedTopic]:
        return [recorded for recorded in self.recorded.values() if overlaps(recorded.filter, filter)]

    # -- offsets ----------------------------------------------------------------------------------------------------

    def earliest(self, filter: str) -> int | None:
        """Returns the first offset from which no recorded record is deleted; None: the filter's topics are not
        recorded."""
        found = self._of(filter)
        return max(recorded.stream.freed_upto for recorded in found) + 1 if found else None

    def complete(self, filter: str) -> bool:
        """Returns whether every topic that the filter matches is recorded."""
        return any(covers(recorded.filter, filter) for recorded in self._of(filter))

    def lag(self, filter: str, offset: int) -> ArchiveLag:
        """Returns the lag of a reader at an offset, over all recorded topics that overlap the filter."""
        last, records, size, oldest_us = 0, 0, 0, None
        for recorded in self._of(filter):
            pending = recorded.pending[-1] if recorded.pending else None
            pending_last = pending.sequence + len(pending.run) - 1 if pending is not None else 0
            last = max(last, recorded.stream.last_sequence, pending_last)
            behind = recorded.stream.behind(offset)
            records += recorded.count - recorded.passed(offset, behind.passed)
            size += behind.bytes
            if behind.time_us is not None:
                oldest_us = behind.time_us if oldest_us is None else min(oldest_us, behind.time_us)
        return ArchiveLag(last, records, size, inf if oldest_us is None else oldest_us / 1e6 - self.wall_offset_s)

    def before(self, filter: str, time_s: float) -> int:
        """Returns the last offset before a time (wall clock), with the precision of a commit."""
        return first_offset_at([one.stream for one in self._of(filter)], int(time_s * 1e6)) - 1

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool], gone: Callable[[int, int], None]
    ) -> Generator[Record | None, None, None]:
        """Yields the accepted records with ``after`` < offset <= ``upto``, one at a time, read from disk on demand; the
        source of a backfill. Yields None whenever it has looked at many. Calls ``gone`` with the first and last offset
        of what was freed, also while it reads. Raises OSError."""
        matches, looks = matcher(filter), 0
        for run, first, time_s in self.runs(filter, after, upto, gone):
            looks += LOOKS_A_RUN + len(run.data) // BYTES_A_LOOK
            if matches(run.topic):
                for index in range(max(0, after + 1 - first), min(len(run), upto + 1 - first)):
                    record = run.record(index, first, time_s)
                    looks += 1
                    if accepts(record):
                        yield record
                    elif looks >= SCAN_MAX:
                        looks = 0
                        yield None
            if looks >= SCAN_MAX:
                looks = 0
                yield None

    def runs(
        self, filter: str, after: int, upto: int, gone: Callable[[int, int], None] = lambda first, last: None
    ) -> Iterator[tuple[Run, int, float]]:
        """Yields the runs of recorded topics that overlap the filter, with their first offset and their time. The first
        and the last run may have records outside of the range. ``gone`` is told of each offset once, whatever number
        of streams it is freed in."""
        told = after

        def tell(first: int, last: int) -> None:
            nonlocal told
            if last > told:
                gone(max(first, told + 1), last)
                told = last

        return merge(*(self._runs(one, after, upto, tell) for one in self._of(filter)), key=lambda found: found[1])

    def _runs(
        self, recorded: RecordedTopic, after: int, upto: int, gone: Callable[[int, int], None]
    ) -> Iterator[tuple[Run, int, float]]:
        def passed(first: int, last: int) -> None:
            """Offsets without a record belong to other topics, or their records are freed."""
            if first <= (freed := min(last, recorded.stream.freed_upto)):
                gone(first, freed)

        at, looked_from = after + 1, [0, 0]
        while at <= upto and looked_from[-2:] != [at, at]:  # twice: a commit may come between
            looked_from.append(at)
            try:
                for time_us, batch in recorded.stream.read(at, upto):
                    for run, first, _ in decode_runs(batch, self.wall_offset_s):
                        if first + len(run) > at:
                            passed(at, first - 1)
                            at = first + len(run)
                            yield run, first, time_us / 1e6 - self.wall_offset_s
            except Corrupt as error:
                raise OSError(str(error)) from error
            # Runs that are not in the stream yet are pending, or of this turn: who comes in it reads before the commit.
            # Offsets that are in none of them belong to other topics.
            fresh = (one for one in self.untaken() if one.stream == stream_name(recorded.filter))
            waiting = chain[PendingRun | JournaledRun](recorded.pending, fresh)
            pending = next((one for one in waiting if one.sequence + len(one.run) > at), None)
            if pending is None or pending.sequence > upto:
                break
            if recorded.stream.last_sequence < pending.sequence:
                passed(at, pending.sequence - 1)
                yield pending.run, pending.sequence, 0.0
                at = pending.sequence + len(pending.run)
        passed(at, upto)
