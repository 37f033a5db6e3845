"""``headway pipeline archive``: recorded topics into an archive, as a Spark Declarative Pipeline with a flow for each.

What is in the folder (OUT): a folder for each topic (folder.py); ``_state``, which is Spark's own and says how far each
flow is; ``_lock``, held by a run. Nothing is told apart by when it is run: each run goes on where the last one ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

from pyspark import pipelines
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headway.core.base import ConfigError, parse_duration
from headway.pipeline.archive.compact import compact
from headway.pipeline.archive.folder import Folder, open_folder
from headway.pipeline.archive.sink import FORMAT, ArchiveFormat
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import SourceError
from headway.pipeline.error_text import error_text
from headway.pipeline.footers import check_folder
from headway.pipeline.graph import run_graph
from headway.pipeline.lock import locked
from headway.pipeline.progress import progress
from headway.pipeline.session import MEMORY, open_session
from headway.pipeline.stop_signal import stop_signal

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
