"""Recorded topics as an archive of plain Parquet: written, compacted, and read together with the live topic."""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext, pipelines
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headway.core.base import ConfigError, parse_duration
from headway.core.message import table_name
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import SourceError
from headway.pipeline.lake import check_folder, locked
from headway.pipeline.session import MEMORY, error_text, open_session, progress, run_graph, stop_signal
from headway.store.atomic_write import atomic_write
from headway.store.journal import REAL
from headway.store.records import SCHEMA, gathered

# -- folder ------------------------------------------------------------------------------------------------------------
#
# The folder of one archived topic: plain Parquet files by date, and which of them count.
#
#     TOPIC/date=2026-11-22/00000000000000000001-00000000000000050000.parquet    the records of these offsets and this
#     day
#     TOPIC/_topic.json     the filter, so that nobody archives another topic here
#     TOPIC/_steps/         what has been done, a file each; written before it is done
#     TOPIC/_parts/         what is being written
#
# Rules:
# - A step says which part becomes which file, and which files go. It is on disk before the first of them is touched,
# and
#   is carried out again when somebody opens the folder: all of it, whatever was interrupted. So every record of the
#   batches that are in is in one file, once; somebody who reads while a step is carried out may see it before or after.
# - A batch that is in is not put in again.
# - Files are named by the offsets of their first and last record; those of one topic and day do not overlap.
# - Whatever begins with ``_`` is hidden from Spark, pyarrow and others that read folders of Parquet.


PARTS, STEPS, TOPIC = "_parts", "_steps", "_topic.json"
_FILE = re.compile(r"date=(\d{4}-\d\d-\d\d)/(\d{20})-(\d{20})\.parquet")


class File(NamedTuple):
    """A Parquet file of a topic's folder; ``first`` and ``last`` are offsets."""

    date: str
    first: int
    last: int
    bytes: int

    @property
    def name(self) -> str:
        """The file's name within the topic's folder."""
        return file_name(self.date, self.first, self.last)


def file_name(date: str, first: int, last: int) -> str:
    return f"date={date}/{first:020d}-{last:020d}.parquet"


class Folder:
    def __init__(self, path: Path, filter: str) -> None:
        self.path = path
        self.filter = filter

    def make(self) -> None:
        """Raises ConfigError."""
        try:
            for name in (PARTS, STEPS):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if not (self.path / TOPIC).exists():
                _write(self.path / TOPIC, {"filter": self.filter})
        except OSError as error:
            raise ConfigError(f"{self.path}: {(error.strerror or str(error)).lower()}") from error

    # -- what there is ----------------------------------------------------------------------------------------------

    def files(self) -> list[File]:
        """Returns the files in the order of their offsets."""
        found = []
        for path in self.path.glob("date=*/*.parquet"):
            match = _FILE.fullmatch(path.relative_to(self.path).as_posix())
            if match:
                found.append(File(match[1], int(match[2]), int(match[3]), path.stat().st_size))
        return sorted(found, key=lambda file: (file.first, file.last))

    def end(self) -> int:
        """Returns the offset before which all is archived; 0: nothing is."""
        return max((int(step.get("end") or 0) for step in self._steps()), default=0)

    # -- what is done -----------------------------------------------------------------------------------------------

    def part(self) -> Path:
        """Returns a new part to write to, which a step will put in its place."""
        return self.path / PARTS / f"{os.urandom(16).hex()}.parquet"

    def put_in(self, query: str, batch: int, parts: Mapping[str, str], end: int) -> None:
        """Puts in the records of a query's batch, up to ``end``: names of parts, and of the files that they become. Of
        a batch that is in, the parts are thrown away."""
        step = self.path / STEPS / f"batch-{query}-{batch:010d}.json"
        if not step.exists():
            _write(step, {"end": end, "new": parts, "gone": []})
        self._carry_out(_read(step))
        self.throw_away(parts)
        for other in (self.path / STEPS).glob("batch-*.json"):  # carried out, and Spark will not come to it again
            if other != step:
                other.unlink()

    def replace(self, part: str, name: str, gone: Iterable[str]) -> None:
        """Puts one file in the place of these, which have the same records."""
        step = self.path / STEPS / f"merge-{part}.json"
        _write(step, {"new": {part: name}, "gone": [one for one in gone if one != name]})
        self._carry_out(_read(step))
        step.unlink()

    def throw_away(self, parts: Iterable[str]) -> None:
        for part in parts:
            (self.path / PARTS / part).unlink(missing_ok=True)

    def mend(self) -> None:
        """Carries out interrupted steps, and removes parts that nobody will put in. Only one process may do it."""
        for step in self._steps():
            self._carry_out(step)
        for merge in (self.path / STEPS).glob("merge-*.json"):
            merge.unlink()
        self.throw_away(path.name for path in list((self.path / PARTS).iterdir()))

    def _carry_out(self, step: dict[str, Any]) -> None:
        for part, name in step["new"].items():
            there, to = self.path / PARTS / part, self.path / name
            if there.exists():
                to.parent.mkdir(exist_ok=True)
                os.replace(there, to)
        for name in step["gone"]:
            (self.path / name).unlink(missing_ok=True)
        for folder in {(self.path / name).parent for name in step["new"].values()}:
            if folder.is_dir():
                REAL.sync_folder(folder)

    def _steps(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self.path / STEPS).glob("*.json")):
            yield _read(path)


def open_folder(out: Path, filter: str) -> Folder:
    """Opens the topic's folder in the archive ``out``, or makes it: named as SQL calls the topic, unless that is taken.
    Raises ConfigError."""
    name = re.sub(r"[^a-z0-9_-]", "_", table_name(filter)) or "all"
    if _filter_of(out / name) not in (None, filter):
        name += f"_{zlib.crc32(filter.encode()):08x}"
    folder = Folder(out / name, filter)
    folder.make()
    return folder


def folders_of(out: Path) -> list[Folder]:
    """Returns the archived topics of this archive."""
    found = {path.parent: _filter_of(path.parent) for path in sorted(out.glob(f"*/{TOPIC}"))}
    return [Folder(path, filter) for path, filter in found.items() if filter is not None]


def _filter_of(path: Path) -> str | None:
    return _read(path / TOPIC).get("filter") if (path / TOPIC).exists() else None


def _read(path: Path) -> dict[str, Any]:
    """Raises ConfigError, OSError."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not what an archive wrote")
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    """Writes a file that is on disk when this returns."""
    with atomic_write(path) as partial, partial.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    REAL.sync_folder(path.parent)


# -- compact -----------------------------------------------------------------------------------------------------------
#
# Compaction: neighbouring files of one topic and day become one, until it is large enough.
#
# Every run of the archive adds files, small ones if it runs often. A file that has reached ``SMALL_BYTES`` is left
# alone, so each record is copied a few times at most.


SMALL_BYTES = 64 * 1024 * 1024
"""Files of this size are not copied again."""
LARGE_BYTES = 256 * 1024 * 1024
"""No merged file becomes much larger than this."""
FEW = 8
"""Up to so many small files in a row are left for the next run."""


def compact(folder: Folder, *, few: int = FEW) -> int:
    """Returns how many files became fewer. Raises OSError."""
    gone = 0
    for group in groups(folder.files(), SMALL_BYTES, few):
        part = folder.part()
        first, last = group[0].first, max(file.last for file in group)
        with pq.ParquetWriter(str(part), pq.read_schema(folder.path / group[0].name), compression="zstd") as writer:
            for file in group:
                with pq.ParquetFile(folder.path / file.name) as source:
                    for batch in source.iter_batches(100_000):
                        writer.write_batch(batch)
        folder.replace(part.name, file_name(group[0].date, first, last), [file.name for file in group])
        gone += len(group) - 1
    return gone


def groups(files: list[File], small_bytes: int, few: int) -> Iterator[list[File]]:
    """Groups of files to merge: neighbours of one day, more than ``few`` of them, or enough to be large."""
    for _, of_day in groupby(sorted(files, key=lambda file: (file.date, file.first)), key=lambda file: file.date):
        waiting: list[File] = []
        for file in of_day:
            if file.bytes >= small_bytes:
                waiting = []  # what is before it is left: it is smaller than few files, and grows no more
                continue
            waiting.append(file)
            size = sum(one.bytes for one in waiting)
            if len(waiting) > 1 and size >= small_bytes:
                yield waiting
                waiting = []
        if len(waiting) > few:
            yield waiting


# -- sink --------------------------------------------------------------------------------------------------------------
#
# The format "headway_archive", which writes the records of a recorded topic into its folder, each batch once.
#
# A task writes a Parquet part for each day that it has records of. The driver puts all parts of a batch in their places
# when all tasks are done (pipeline.py says how, and how that outlives a crash).


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


# -- run ---------------------------------------------------------------------------------------------------------------
#
# ``headway pipeline archive``: recorded topics into an archive, as a Spark Declarative Pipeline with a flow for each.
#
# What is in the folder (OUT): a folder for each topic (pipeline.py); ``_state``, which is Spark's own and says how far
# each flow is; ``_lock``, held by a run. Nothing is told apart by when it is run: each run goes on where the last one
# ended.


DATABASE = "archive"
TIMEOUT = "60s"
"""The time for which a broker that is away is waited for."""
BATCH_BYTES = "256MB"
"""Bytes that a flow reads at a time, so that memory does not grow with the backlog."""


class Archived(NamedTuple):
    """The extent of a topic's archive after a run."""

    filter: str
    folder: Path
    files: int
    bytes: int
    end: int
    """The offset before which all is archived."""


Tell = Callable[[list[Archived]], None]


def run_archive(
    filters: Sequence[str], admin: str, out: Path, tell: Tell, *, every_s: float | None = None,
    master: str = "local[*]", memory: str = MEMORY, verbose: bool = False,
) -> None:  # fmt: skip
    """Brings OUT up to date with what is recorded of these topics; with ``every_s`` again and again, until the process
    is told to stop. ``tell`` is called after each time. Raises ConfigError."""
    out = out.absolute()
    check_folder(out)
    with ExitStack() as stack:
        stack.enter_context(locked(out))
        _check(filters, admin)
        folders = [open_folder(out, filter) for filter in filters]
        for folder in folders:
            folder.mend()
        spark = stack.enter_context(open_session("headway archive", master=master, memory=memory, verbose=verbose))
        spark.dataSource.register(ArchiveFormat)
        stop = stack.enter_context(stop_signal() if every_s is not None else nullcontext(threading.Event()))
        while True:
            update(spark, folders, admin, out)
            for folder in folders:
                compact(folder)
            tell([_archived(folder) for folder in folders])
            if every_s is None or stop.wait(every_s):
                return


def _check(filters: Sequence[str], admin: str) -> None:
    """Checks that the topics are recorded, before a JVM is started for nothing. Raises ConfigError."""
    try:
        for filter in filters:
            BrokerClient(admin, parse_duration(TIMEOUT)).offsets(filter)
    except SourceError as error:
        raise ConfigError(str(error)) from None


def _archived(folder: Folder) -> Archived:
    files = folder.files()
    return Archived(folder.filter, folder.path, len(files), sum(file.bytes for file in files), folder.end())


def update(spark: SparkSession, folders: Sequence[Folder], admin: str, out: Path) -> None:
    """Adds the records that are not archived yet. Raises ConfigError."""

    def flows() -> None:
        for folder in folders:
            define(spark, folder, admin)

    try:
        with progress("Archiving", spark):
            list(run_graph(spark, DATABASE, out, flows, runner=cast(SparkSession, _WaitingSession(spark))))
    except PySparkException as error:
        raise ConfigError(f"not archived: {error_text(error)} (--verbose shows more)") from error


def define(spark: SparkSession, folder: Folder, admin: str) -> None:
    """Defines a topic's flow in the pipeline that is being registered."""
    name = folder.path.name
    pipelines.create_sink(name, FORMAT, {"path": str(folder.path), "topic": folder.filter})

    @pipelines.append_flow(target=name, name=f"{name}_flow")
    def rows() -> DataFrame:
        source = spark.readStream.format("headway").option("topic", folder.filter).option("admin", admin)
        source = source.option("maxBytesPerTrigger", BATCH_BYTES).option("timeout", TIMEOUT)
        return source.option("from", folder.end() or "earliest").load()


class _WaitingSession:
    """A session that waits for a pipeline's end, and reports nothing: Spark 4.3 reports its progress in a way that
    PySpark takes for an error where a Python sink is at work."""

    def __init__(self, spark: SparkSession) -> None:
        self.client = self
        self._spark = spark

    def execute_command_as_iterator(self, command: Any) -> Iterator[dict[str, Any]]:
        self._spark.client.execute_command(command)
        return iter(())
