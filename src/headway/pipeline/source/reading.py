"""Reads a partition to its end, also where the broker is away in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from headway.core.base import ConfigError, HeadwayError
from headway.core.message import BadTopic, covers, matches, validate_topic
from headway.pipeline.archive import File, Folder, folders_of
from headway.pipeline.broker.broker_client import Backoff, BrokerClient
from headway.pipeline.broker.errors import Away, DataLoss, OffsetsGone
from headway.pipeline.source.options import EARLIEST, LATEST, OFFSET, Options
from headway.store.records import SCHEMA

# -- ranges ------------------------------------------------------------------------------------------------------------
#
# Ranges of offsets, cut into parts that are read side by side, and narrowed by filters.


SPAN_OFFSETS = 50_000
"""Offsets that are worth a partition of their own."""
CLOCK_BACK = timedelta(minutes=10)
"""The clock of a broker's machine may have been set back between two runs: records of a time then lie behind some of a
later time, and all are found that lie behind by no more than that."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Span(InputPartition):
    """A partition: the records with ``first`` <= offset < ``stop``."""

    first: int
    stop: int
    deleted: tuple[int, ...] = ()
    """Where deleted records end that the query knows of (``OffsetFinder.deleted``)."""


@dataclass(frozen=True)
class ArchiveSpan(InputPartition):
    """A partition of the archive: of these files, the records with ``first`` <= offset < ``stop``."""

    first: int
    stop: int
    files: tuple[File, ...]


def split(first: int, stop: int, most: int, deleted: tuple[int, ...] = ()) -> list[Span]:
    """Splits a range into even parts, at least one, which may be empty."""
    count = max(1, min(most, -(-(stop - first) // SPAN_OFFSETS)))
    ends = [first + (stop - first) * number // count for number in range(count + 1)]
    return [Span(*pair, deleted) for pair in pairwise(ends)]


@dataclass
class Bounds:
    """The range that pushed filters leave: all of them hold."""

    topic: str
    """A topic, or a filter."""
    first: int = 0
    stop: int | None = None
    since: list[datetime] = field(default_factory=list)
    """Times before which no record lies; those written together have one time, so the range is not exact."""
    until: list[datetime] = field(default_factory=list)
    nothing: bool = False

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Takes in the filters that it can; yields those that Spark has to apply."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return False
        if one.attribute == ("offset",) and type(one.value) is int:
            self._at_offset(one, one.value)
            return True
        if one.attribute == ("topic",) and isinstance(one, EqualTo):
            return self._of_topic(one.value)
        if one.attribute == ("timestamp",) and isinstance(one.value, datetime) and one.value.tzinfo is not None:
            self._at_time(one, one.value.astimezone(UTC))
        return False

    def _at_offset(self, one: Filter, value: int) -> None:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first = max(self.first, value + isinstance(one, GreaterThan))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            stop = value + (not isinstance(one, LessThan))
            self.stop = stop if self.stop is None else min(self.stop, stop)

    def _at_time(self, one: Filter, value: datetime) -> None:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.since.append(value)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.until.append(value + _MICROSECOND + CLOCK_BACK)

    def _of_topic(self, topic: Any) -> bool:
        if not matches(self.topic, topic):
            self.nothing = True
            return True
        try:
            self.topic = validate_topic(topic)
        except BadTopic:
            return False
        return True


# -- loss --------------------------------------------------------------------------------------------------------------
#
# Lost records: they end the query that was to have them, or are a line in the log.


DELETED = "they are older than the broker keeps them"
LOST = "the broker's records end before them; it has lost some, or is not the one it was"

log = logging.getLogger("headway")


def lose(options: Options, first: int, stop: int, why: str) -> None:
    """Reports the offsets from ``first`` to before ``stop`` as lost. Raises DataLoss, unless the query is to go on
    behind them."""
    _go_on(options, f"offsets {first} to {stop - 1} of {options.topic} are lost to this query: {why}", stop)


def go_back(options: Options, at: int, end: int) -> None:
    """Reports that the query is ``at`` an offset beyond the ``end`` of all there is. Raises DataLoss, unless it is to
    go back."""
    text = f"this query is at offset {at} of {options.topic}, and the broker's records end at {end}"
    _go_on(options, f"{text}: it has lost some, or is not the one it was", end)


def miss(options: Options, why: str) -> None:
    """Reports that keys of a state are missing. Raises DataLoss, unless the query is to go on without them."""
    text = f"the state of {options.topic} is not whole: {why}"
    if options.strict:
        raise DataLoss(f"{text}; option failOnDataLoss=false reads what there is")
    log.warning("%s; it goes on without them", text)


def _go_on(options: Options, text: str, at: int) -> None:
    if options.strict:
        raise DataLoss(f"{text}; option failOnDataLoss=false goes on at {at}")
    log.warning("%s; it goes on at %d", text, at)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(options: Options, topic: str, span: Span | ArchiveSpan) -> Iterator[pa.RecordBatch]:
    """Yields every record of the span once. Raises SourceError, DataLoss, ConfigError; each is one line."""
    try:
        if isinstance(span, ArchiveSpan):
            from headway.pipeline.source.reading import open_archived_topic

            assert options.archive is not None
            yield from open_archived_topic(options.archive, topic).read(span)
        else:
            yield from _read(options, topic, span)
    except HeadwayError as error:
        raise error.with_traceback(None) from None


def _read(options: Options, topic: str, span: Span) -> Iterator[pa.RecordBatch]:
    broker, at = BrokerClient(options.admin, options.timeout_s), span.first
    backoff = Backoff(options.timeout_s)
    while at < span.stop:
        try:
            for found in broker.records(topic, at, span.stop, span.deleted):
                if isinstance(found, int):
                    if found < span.stop:
                        lose(options, found, span.stop, LOST)
                    return
                if found.num_rows:
                    at = found.column("offset")[-1].as_py() + 1
                    yield found
                    backoff = Backoff(options.timeout_s)
        except Away as error:
            backoff.wait(error)
        except OffsetsGone as gone:
            after = min(gone.earliest, span.stop)
            lose(options, at, after, DELETED)
            at = after


# -- offset finder -----------------------------------------------------------------------------------------------------
#
# Offsets of a query's beginning and end, of times, and of the part of a range that is in the archive.


class OffsetFinder:
    """Finds offsets of one topic. Raises SourceError, DataLoss, ConfigError."""

    def __init__(self, broker: BrokerClient, options: Options, topic: str) -> None:
        self._broker = broker
        self._options = options
        self._topic = topic
        self.deleted: tuple[int, ...] = ()
        """Where records end that were deleted when the query began: of the topics of a filter, some may be trimmed
        further than where it begins. They are not lost to it; what is deleted since is."""

    @property
    def _archive(self) -> ArchivedTopic | None:
        """The topic's archive, as it is now."""
        if self._options.archive is None:
            return None
        from headway.pipeline.source.reading import open_archived_topic

        return open_archived_topic(self._options.archive, self._topic)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Finds where a query begins, as option ``from`` says."""
        text, archive = self._options.start, self._archive
        if text == LATEST:
            return self._broker.offsets(self._topic).latest
        if archive is not None:
            found = archive.earliest() if text == EARLIEST else self._in_archive(archive, text)
            if found is not None:
                return found
        try:  # a range without an offset: its end is its beginning
            begin = self._broker.offsets(self._topic, from_=text, to=0 if text == EARLIEST else text)
            self.deleted = begin.deleted
            return begin.next
        except OffsetsGone as gone:
            lose(self._options, int(text), gone.earliest, DELETED)
            return gone.earliest

    def stop(self) -> int:
        """Finds where a batch ends: as option ``to`` says, or with all there is."""
        text, archive = self._options.stop, self._archive
        found = None if archive is None or text is None else self._in_archive(archive, text)
        return self._broker.offsets(self._topic, to=text).next if found is None else found

    def at(self, moment: datetime) -> int:
        """The first offset of that time or later."""
        archive = self._archive
        found = None if archive is None else archive.since(moment)
        return self._broker.offsets(self._topic, to=moment.isoformat()).next if found is None else found

    def _in_archive(self, archive: ArchivedTopic, text: str) -> int | None:
        """None: it is not there, or before all that is."""
        if OFFSET.fullmatch(text):
            first = archive.earliest()
            return int(text) if first is not None and first <= int(text) < archive.end() else None
        from headway.server.recorded import Timestamp, parse_position

        place = parse_position(text, "from", int(time.time() * 1e6))
        return archive.since(datetime.fromtimestamp(place.us / 1e6, UTC)) if isinstance(place, Timestamp) else None

    # -- ranges -----------------------------------------------------------------------------------------------------

    def has(self, first: int, stop: int) -> bool:
        """All of this range is in the archive, whatever the broker has deleted."""
        archive = self._archive
        earliest = None if archive is None else archive.earliest()
        return archive is not None and earliest is not None and earliest <= first and stop <= archive.end()

    def split(self, first: int, stop: int) -> Sequence[InputPartition]:
        """Splits a range into partitions: the archive's part by files, the rest evenly; at least one partition."""
        archive = self._archive
        edge = first if archive is None else min(max(first, archive.end()), stop)
        earliest = None if archive is None else archive.earliest()
        most, deleted = self._options.partitions, self.deleted
        if archive is None or earliest is None or edge <= first:
            return split(first, stop, most, deleted)
        begin = max(first, min(earliest, edge))  # what is before the archive, the broker may have; or it is lost
        before = split(first, begin, most, deleted) if first < begin else []
        after = split(edge, stop, most, deleted) if edge < stop else []
        return [*before, *archive.split(begin, edge), *after] or split(first, first, 1)

    def limited(self, first: int, stop: int, records: int | None, size: int | None) -> int:
        """Returns where to stop so that no more than so many records, and ``size`` bytes, are read; in the archive
        ``size`` is that of whole files. Holes between offsets do not count."""
        archive = self._archive
        if archive is not None and self.has(first, first + 1):
            stop = min(stop, archive.end())
            stop = stop if size is None else archive.upto(first, stop, size)
            return stop if records is None else archive.behind(first, stop, records)
        with suppress(OffsetsGone):  # whoever reads it says so
            return self._broker.offsets(
                self._topic, from_=first, to=stop, deleted=self.deleted, max_records=records, max_bytes=size
            ).next
        return stop


# -- archived topic ----------------------------------------------------------------------------------------------------
#
# A topic's archive (pipeline/archive), read from files: the broker may have deleted the records long ago.
#
# Offsets mean the same in the archive and at the broker. All before the archive's ``end`` is read from the archive, all
# from there on from the broker; so archive and live topic are one stream, and it does not matter when what was
# archived.
#
# Files may be merged with others between being planned and being read; then their records are in another file of their
# day, and are read from there.


ROWS = 50_000
"""Rows that are read at a time."""
TRIES = 10


def open_archived_topic(path: str, topic: str) -> ArchivedTopic:
    """Opens the part of an archive that has this topic. Raises ConfigError."""
    there = folders_of(Path(path)) if Path(path).is_dir() else []
    found = [folder for folder in there if covers(folder.filter, topic)]
    if not found:
        names = ", ".join(folder.filter for folder in there) or "nothing (headway pipeline archive fills one)"
        raise ConfigError(f"option archive: {topic} is not in {path}; there is {names}")
    return ArchivedTopic(found[0], topic)


class ArchivedTopic:
    """The archive of one topic, as it is whenever it is asked."""

    def __init__(self, folder: Folder, topic: str) -> None:
        self._folder = folder
        self._topic = topic

    def earliest(self) -> int | None:
        """Returns the first offset there is; None: nothing is archived."""
        return min((file.first for file in self._folder.files()), default=None)

    def end(self) -> int:
        """All before it is archived, from the earliest on."""
        return self._folder.end()

    def since(self, moment: datetime) -> int | None:
        """The first offset of that time or later; None: there is none."""
        day = moment.astimezone(UTC).date().isoformat()
        for file in sorted(self._folder.files(), key=lambda file: file.first):
            if file.date >= day:
                with self._opened(file) as source:
                    for batch in source.iter_batches(ROWS, columns=["offset", "timestamp"]):
                        late = batch.filter(pc.greater_equal(batch.column("timestamp"), pa.scalar(moment)))
                        if len(late):
                            return int(late.column("offset")[0].as_py())
        return None

    def upto(self, first: int, stop: int, size: int) -> int:
        """Returns where to stop so that no more than ``size`` bytes of files are read, and one file at least."""
        for file in self._within(first, stop):
            size -= file.bytes
            if size <= 0:
                return min(stop, file.last + 1)
        return stop

    def behind(self, first: int, stop: int, records: int) -> int:
        """Returns the offset behind so many records; ``stop`` if there are no more of them."""
        for file in self._within(first, stop):
            with self._opened(file) as source:
                for batch in source.iter_batches(ROWS, columns=["offset", "topic"]):
                    offsets = self._wanted(batch, max(first, file.first), min(stop, file.last + 1)).column("offset")
                    if len(offsets) >= records:
                        return int(offsets[records - 1].as_py()) + 1
                    records -= len(offsets)
        return stop

    def split(self, first: int, stop: int) -> list[ArchiveSpan]:
        """Splits a range into partitions: neighbouring files together, until they are worth one."""
        spans: list[ArchiveSpan] = []
        waiting: list[File] = []
        for file in self._within(first, stop):
            waiting.append(file)
            if file.last - waiting[0].first >= SPAN_OFFSETS:
                spans.append(ArchiveSpan(first, stop, tuple(waiting)))
                waiting = []
        return spans + ([ArchiveSpan(first, stop, tuple(waiting))] if waiting else [])

    def read(self, span: ArchiveSpan) -> Iterator[pa.RecordBatch]:
        """Raises OSError."""
        for file in span.files:
            with self._opened(file) as source:
                for batch in source.iter_batches(ROWS):
                    wanted = self._wanted(batch, max(span.first, file.first), min(span.stop, file.last + 1))
                    if len(wanted):
                        yield pa.RecordBatch.from_arrays([wanted.column(name) for name in SCHEMA.names], schema=SCHEMA)

    def _wanted(self, batch: pa.RecordBatch, first: int, stop: int) -> pa.RecordBatch:
        offsets = batch.column("offset")
        batch = batch.filter(pc.and_(pc.greater_equal(offsets, first), pc.less(offsets, stop)))
        topics = batch.column("topic")
        there = pc.unique(topics).to_pylist()
        wanted = [topic for topic in there if matches(self._topic, topic)]
        if len(wanted) < len(there):
            batch = batch.filter(pc.is_in(topics, pa.array(wanted, topics.type)))
        return batch

    def _within(self, first: int, stop: int) -> list[File]:
        return [file for file in self._folder.files() if file.first < stop and file.last >= first]

    def _opened(self, file: File) -> pq.ParquetFile:
        """The file, or the one that has its records now. Raises FileNotFoundError."""
        for _ in range(TRIES):
            try:
                return pq.ParquetFile(self._folder.path / file.name)
            except FileNotFoundError:
                instead = [one for one in self._folder.files() if one.date == file.date and one.first <= file.first]
                file = next((one for one in instead if one.last >= file.last), file)
        return pq.ParquetFile(self._folder.path / file.name)
