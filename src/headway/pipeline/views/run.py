"""All views of a config, side by side in one Spark session, until they are told to stop or none is left.

What is in the folder: for each view ``NAME/view.json``, what it was when it began, and ``NAME/checkpoint``, Spark's
own; ``_lock``, held by a run.

Rules:
- A view that fails says so in one line and is over; the others go on.
- One run at a time per folder.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    FractionalType,
    MapType,
    StructType,
    VariantType,
)

from headway.core.base import ConfigError
from headway.core.message import matches
from headway.pipeline.admin import admin_url
from headway.pipeline.broker.errors import SourceError
from headway.pipeline.lake import locked
from headway.pipeline.session import MEMORY, error_text, open_session, progress, stop_signal
from headway.pipeline.views.publish import RUNNING, STARTING, Status, limit_bytes, published
from headway.pipeline.views.schema import (
    CHECKPOINT,
    DELETED,
    Catalog,
    TableShape,
    ViewManifest,
    check_manifest,
    read_manifest,
    type_name,
    write_manifest,
)
from headway.server.config import Settings, ViewTable, tables_of

# -- view --------------------------------------------------------------------------------------------------------------
#
# One view: makes the query that Spark runs of the view's table in the config.


_NO_KEYS = (StructType, ArrayType, MapType, BinaryType, VariantType)


def start_view(
    spark: SparkSession, name: str, view: ViewTable, catalog: Catalog, folder: Path, admin: str
) -> StreamingQuery:
    """Starts the view's query where it stopped. ``folder`` is its own. Raises ConfigError, SourceError."""
    before = read_manifest(folder)
    with catalog.query(view.sql, before.schemas() if before else {}, limit_bytes(view)) as (result, schemas):
        tables = {table: TableShape(catalog.topic(table), schema) for table, schema in schemas.items()}
        check_result(view, result, tables)
        now = ViewManifest.of(view, tables, before.writer if before else f"view-{name}-{secrets.token_hex(4)}")
        if before is not None:
            check_manifest(folder, before, now)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_manifest(folder, now)
        return _started(spark, name, view, published(result, view, admin, now.writer), folder)


def check_result(view: ViewTable, result: DataFrame, tables: dict[str, TableShape]) -> None:
    """Raises ConfigError where it cannot be published."""
    if not result.isStreaming:
        raise ConfigError("its sql reads no recorded topic, so there is nothing to keep up with")
    for name, table in tables.items():
        if matches(table.topic, view.topic):
            raise ConfigError(f"it would read what it publishes: {view.topic} is in table {name} ({table.topic})")
    names = result.columns
    if twice := next((column for column in names if names.count(column) > 1), None):
        raise ConfigError(f"two columns of its result are called {twice}: give one of them another name, with AS")
    if view.key not in names:
        raise ConfigError(f"its key {view.key} is no column of its result: {', '.join(names)}")
    kind = result.schema[view.key].dataType
    if isinstance(kind, _NO_KEYS):
        raise ConfigError(f"its key {view.key} is {type_name(kind)}; a key is a text, a number or a time")
    if DELETED in names:
        _check_deletes(view, kind, result.schema[DELETED].dataType)


def _check_deletes(view: ViewTable, kind: DataType, said: DataType) -> None:
    """Raises ConfigError where a result cannot say which rows are deletes, or of which keys."""
    if not isinstance(said, BooleanType):
        raise ConfigError(f"{DELETED} says which rows are deletes, true or false, and it is {type_name(said)}: CAST it")
    if isinstance(kind, FractionalType) and view.mode != "complete":
        raise ConfigError(
            f"its key {view.key} is {type_name(kind)}, and deletes need a key of which there is one spelling: CAST it "
            f"AS STRING, or leave {DELETED} out of the result"
        )


def _started(
    spark: SparkSession, name: str, view: ViewTable, writer: DataStreamWriter, folder: Path
) -> StreamingQuery:
    spark.conf.set("spark.sql.shuffle.partitions", str(view.partitions))
    # A batch without data is what publishes a window after its last record. Where groups are updated it only costs.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(view.mode == "append").lower())
    writer = writer.queryName(name).outputMode(view.mode).option("checkpointLocation", str(folder / CHECKPOINT))
    return writer.trigger(processingTime=f"{round(view.every_s * 1000)} milliseconds").start()


# -- run ---------------------------------------------------------------------------------------------------------------


STOP_S = 20.0
LOOK_S = 1.0
"""The time between two looks at the queries."""
SPARK = {
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.streaming.numRecentProgressUpdates": "64",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # Each batch writes some small files. The default asks the system's chmod for each, as a process of its own.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
GONE = "Spark has ended by itself, out of memory perhaps (--memory); started again, the views go on where they were"
BUSY = "Python worker failed to connect back"
"""Spark's error where a process was not ready within ten seconds, as when many start at once."""
TRIES_MAX = 5
Show = Callable[[Sequence[Status]], None]


def run_views(
    settings: Settings,
    checkpoint: Path,
    show: Show,
    *,
    names: Collection[str] = (),
    admin: str | None = None,
    master: str = "local[*]",
    memory: str = MEMORY,
    verbose: bool = False,
) -> list[Status]:
    """Runs these views (all of them if none is named) until the process is told to stop or all have ended; how they
    stood then.

    ``admin`` is the broker's admin API, if it is not where the settings say. ``show`` is called again and again.
    Raises ConfigError for what concerns all of them; what concerns one is its status's ``error``.
    """
    wanted = [Status(name, settings.views[name]) for name in _checked(settings, names)]
    url = admin_url(settings, admin)
    checkpoint = checkpoint.absolute()
    with (
        locked(checkpoint),
        open_session("headway views", master=master, memory=memory, verbose=verbose, conf=SPARK) as spark,
        stop_signal() as stop,
    ):
        run = ViewRun(spark, Catalog(spark, tables_of(settings), url), url, checkpoint)
        with progress("Starting views") as tell:
            for one in wanted:
                if not stop.is_set():
                    tell(one.name)
                    run.start(one)
        try:
            while run.goes_on and not stop.is_set():
                show(wanted)
                if not stop.wait(LOOK_S):
                    run.look()
        except SparkConnectGrpcException:
            if not stop.is_set():  # who stops a whole group of processes stops Spark, too
                raise ConfigError(GONE) from None
        run.stop()
        show(wanted)
    return wanted


class ViewRun:
    """The running queries, and the statuses that say how they stand."""

    def __init__(self, spark: SparkSession, catalog: Catalog, admin: str, folder: Path) -> None:
        self._spark = spark
        self._catalog = catalog
        self._admin = admin
        self._folder = folder
        self._queries: list[tuple[Status, StreamingQuery]] = []
        self._tries: Counter[str] = Counter()

    @property
    def goes_on(self) -> bool:
        return bool(self._queries)

    def start(self, one: Status) -> None:
        """Starts a view. Where that fails, the view's status says why."""
        folder = self._folder / one.name
        try:
            query = start_view(self._spark, one.name, one.view, self._catalog, folder, self._admin)
        except (ConfigError, SourceError, PySparkException, OSError) as error:
            self._ended(one, str(error))
        else:
            self._queries.append((one, query))

    def look(self) -> None:
        """Brings the statuses up to date."""
        for one, query in list(self._queries):
            active = query.isActive  # asked first, so that nothing comes after the last look
            for batch in query.recentProgress:
                one.add(batch)
            if active and one.state == STARTING and query.status["message"].startswith("Waiting"):
                one.state = RUNNING
            if not active:
                self._queries.remove((one, query))
                self._ended(one, str(query.exception() or "somebody stopped it"))

    def _ended(self, one: Status, why: str) -> None:
        self._tries[one.name] += 1
        if BUSY in why and self._tries[one.name] < TRIES_MAX:
            self.start(one)
        else:
            one.end(error_text(why))

    def stop(self) -> None:
        """Breaks off batches; the next start runs them again. Stopping a whole group of processes stops
        Spark, too, and one that is gone may never answer: it is not waited for any longer than that."""
        ending = threading.Thread(target=self._stop, args=([query for _, query in self._queries],), daemon=True)
        ending.start()
        ending.join(STOP_S)
        self._queries = []

    def _stop(self, queries: Sequence[StreamingQuery]) -> None:
        with suppress(PySparkException):  # one does not end at once, or Spark is gone; all end with the session
            for query in queries:
                query.stop()


def _checked(settings: Settings, names: Collection[str]) -> list[str]:
    known = list(settings.views)
    if not known:
        raise ConfigError("there are no views in this file: [views.NAME] with sql, topic and key")
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no view {name}: there are {', '.join(known)}")
    return [name for name in known if not names or name in names]
