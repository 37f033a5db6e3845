"""All views of a config, side by side in one Spark session, until they are told to stop or none is left.

What is in the folder: for each view ``NAME/view.json``, what it was when it began, and ``NAME/checkpoint``, Spark's
own; ``_lock``, held by a run.

Rules:
- A view that fails says so in one line and is over; the others go on.
- One run at a time per folder.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headway.core.base import ConfigError
from headway.pipeline.admin import admin_url
from headway.pipeline.broker.errors import SourceError
from headway.pipeline.error_text import error_text
from headway.pipeline.lock import locked
from headway.pipeline.progress import progress
from headway.pipeline.session import MEMORY, open_session
from headway.pipeline.stop_signal import stop_signal
from headway.pipeline.views.catalog import Catalog
from headway.pipeline.views.status import RUNNING, STARTING, Status
from headway.pipeline.views.view import start_view
from headway.server.config import Settings, tables_of

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
