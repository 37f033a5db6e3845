"""A topic's archive (pipeline/archive), read from files: the broker may have deleted the records long ago.

Offsets mean the same in the archive and at the broker. All before the archive's ``end`` is read from the archive, all
from there on from the broker; so archive and live topic are one stream, and it does not matter when what was archived.

Files may be merged with others between being planned and being read; then their records are in another file of their
day, and are read from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headway.core.base import ConfigError
from headway.core.message import covers, matches
from headway.pipeline.archive.folder import File, Folder, folders_of
from headway.pipeline.source.ranges import SPAN_OFFSETS, ArchiveSpan
from headway.store.records import SCHEMA

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
