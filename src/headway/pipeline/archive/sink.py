"""The format "headway_archive", which writes the records of a recorded topic into its folder, each batch once.

A task writes a Parquet part for each day that it has records of. The driver puts all parts of a batch in their places
when all tasks are done (folder.py says how, and how that outlives a crash).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headway.pipeline.archive.folder import Folder, file_name
from headway.store.records import SCHEMA, gathered

FORMAT = "headway_archive"
ROW_GROUP_ROWS = 100_000


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """Parts that a task has written, and the file that each is to become."""

    query: str
    parts: dict[str, str]
    end: int
    """The offset after the last one of the parts."""


class ArchiveFormat(DataSource):
    """The format. Its options: ``path``, the topic's folder, and ``topic``, the filter."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return ArchiveWriter(self.options["path"], self.options["topic"])


class ArchiveWriter(DataSourceStreamArrowWriter):
    def __init__(self, path: str, topic: str) -> None:
        self._path = path
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        query = task.getLocalProperty("sql.streaming.queryId")
        return write_parts(Folder(Path(self._path), self._topic), str(query), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, Written) and message.parts]
        if written:
            parts = {part: name for message in written for part, name in message.parts.items()}
            end = max(message.end for message in written)
            Folder(Path(self._path), self._topic).put_in(written[0].query, batchId, parts, end)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        folder = Folder(Path(self._path), self._topic)
        for message in messages:
            if isinstance(message, Written):
                folder.throw_away(message.parts)


class _Day:
    """The part of one day."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = pq.ParquetWriter(str(path), SCHEMA, compression="zstd")
        self.first = self.last = 0

    def add(self, rows: pa.RecordBatch) -> None:
        offsets = rows.column("offset")
        self.first = self.first or offsets[0].as_py()
        self.last = offsets[-1].as_py()
        self.writer.write_table(pa.Table.from_batches([rows]))


def write_parts(folder: Folder, query: str, batches: Iterator[pa.RecordBatch]) -> Written:
    """Writes rows in the order of their offsets. Raises OSError; then no part is left."""
    days: dict[str, _Day] = {}
    with ExitStack() as failing:
        failing.callback(lambda: folder.throw_away(day.path.name for day in days.values()))
        try:
            recorded = (_as_recorded(batch) for batch in batches if len(batch))
            for some in gathered(recorded, ROW_GROUP_ROWS, len):
                for date, rows in _by_day(pa.Table.from_batches(some).combine_chunks().to_batches()[0]):
                    if date not in days:
                        days[date] = _Day(folder.part())
                    days[date].add(rows)
        finally:
            for day in days.values():
                day.writer.close()
        failing.pop_all()
    parts = {day.path.name: file_name(date, day.first, day.last) for date, day in days.items()}
    return Written(query, parts, max((day.last for day in days.values()), default=0) + 1)


def _as_recorded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Casts a batch to the schema; Spark's types differ in what may be null, and in names within maps."""
    columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    days = pc.strftime(rows.column("timestamp"), "%Y-%m-%d")
    for day in pc.unique(days).to_pylist():
        yield day, rows.filter(pc.equal(days, day))
