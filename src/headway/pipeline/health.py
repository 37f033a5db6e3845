"""Health: what a lake says of slow consumers, kept up to date in a folder, and a report of it.

What is in the folder (OUT):

- ``health.db/TABLE/``: the results (``definitions.RESULTS``), each a folder of plain Parquet files; and the rows kept,
  among which a run that failed may have left some twice.
- ``report.html``; ``health.json``: which lake it was made from.
- ``_state``, ``_catalog``: what has been read, and Spark's catalog. They are Spark's own. ``_lock``: held by a run.

Rules:
- A second run reads only the files that are new, and comes to the same results as if it had read them all.
- One run at a time, one lake per folder; a folder that holds anything else is not touched.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark import pipelines
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType

from headway import __version__
from headway.core.base import ConfigError
from headway.pipeline import lake as lakes
from headway.pipeline import measures as costs
from headway.pipeline import measures as episodes
from headway.pipeline import measures as forecast
from headway.pipeline import measures as isolation
from headway.pipeline import measures as offenders
from headway.pipeline.lake import check_folder, check_lake, locked
from headway.pipeline.session import MEMORY, error_text, open_session, progress, run_graph

# -- definitions -------------------------------------------------------------------------------------------------------
#
# Health's tables and measures as a Spark Declarative Pipeline.
#
# Theory of operation. Each table of the lake that a measure needs is a streaming table here: every file of the lake is
# read once, in the first run that finds it, and its rows stay, slim, also after the broker has deleted the file. The
# five measures are materialized views over them, computed anew in each run.
#
# Rules:
# - A file counts when it is new, however old it says it is: late files are read like any other.
# - A row counts once, in however many files it came: the views see each key once.
# - A file that vanishes between its discovery and its reading holds no rows.
# - A run reads so many files at a time: memory does not grow with the lake.
# - Measures get their input by names that no catalog knows (temporary views). Some operations, ``withColumn`` is one,
#   look a name up at once; they would find the table as the run before left it, and the pipeline would not know to
#   wait.


RESULTS = ("slow_episodes", "offenders", "costs", "isolation", "forecast")
KEPT: Mapping[str, tuple[str, ...]] = {
    "consumer_samples": (
        "run", "broker", "time", "subscription", "seq", "client", "filter", "lane", "ended", "slow", "skipped_records",
        "lag_records", "lag_bytes", "lag_age_ms", "drain_rate", "offered_rate", "offered_burst", "blocked_ms",
        "credit_exhausted_ms", "ack_age_ms", "in_flight", "held_bytes", "producer_stall_ms", "usual_pause_ms",
    ),
    "verdicts": (
        "run", "time", "number", "subscription", "client", "filter", "kind", "action", "reason", "cause", "enforced",
    ),
    "broker_samples": (
        "run", "time", "seq", "slow", "turns", "delivery_p50_ms", "delivery_p99_ms", "delivery_max_ms", "memory_bytes",
        "memory_limit_bytes", "disk_bytes", "disk_limit_bytes",
    ),
    "configs": ("run", "time", "seq", "memory_limit_bytes", "disk_limit_bytes", "client_share"),
}  # fmt: skip
"""The streaming tables: each is named as its table of the lake, and keeps these columns."""
FILES_AT_A_TIME = 1000
_VIEW = "{}_now"
_READ = {
    **lakes.READ,
    "maxFilesPerTrigger": str(FILES_AT_A_TIME),
    "maxFileAge": "36500d",  # Spark would overlook what is a week older than the newest
}


def define(spark: SparkSession, lake: Path, nothing: Path) -> None:
    """Defines tables and measures in the pipeline that is being registered. ``nothing`` is an empty folder."""
    for table in KEPT:
        _keep(spark, table, lake / table if (lake / table).is_dir() else nothing)

        _view(spark, table, partial(lakes.each_once, table=table))

    def rows(name: str) -> DataFrame:
        return spark.read.table(_VIEW.format(name))

    def measure(name: str, query: Callable[[], DataFrame]) -> None:
        pipelines.materialized_view(name=name)(query)
        _view(spark, name, lambda rows: rows)

    measure("slow_episodes", lambda: episodes.slow_episodes(rows("consumer_samples"), rows("verdicts")))
    measure("costs", lambda: costs.costs(rows("consumer_samples")))
    measure("offenders", lambda: offenders.offenders(rows("slow_episodes"), rows("costs"), rows("verdicts")))
    measure("isolation", lambda: isolation.isolation(rows("broker_samples"), rows("consumer_samples")))
    measure("forecast", lambda: forecast.forecast(rows("broker_samples"), rows("consumer_samples"), rows("configs")))


def _view(spark: SparkSession, name: str, query: Callable[[DataFrame], DataFrame]) -> None:
    pipelines.temporary_view(name=_VIEW.format(name))(lambda: query(spark.read.table(name)))


def _keep(spark: SparkSession, table: str, folder: Path) -> None:
    schema = lakes.spark_schema(table).add("date", DateType())

    @pipelines.table(name=table)
    def rows() -> DataFrame:
        return spark.readStream.schema(schema).options(**_READ).parquet(str(folder)).select(*KEPT[table])


# -- health ------------------------------------------------------------------------------------------------------------


DATABASE = "health"
IDENTITY = "health.json"


class Health(NamedTuple):
    """The result of a run. ``tables``: the results by name; ``about``: what was recorded, and how long this took."""

    report: Path
    tables: dict[str, pa.Table]
    about: dict[str, Any]


def run_health(
    lake: Path,
    out: Path,
    *,
    master: str = "local[*]",
    memory: str = MEMORY,
    full_refresh: bool = False,
    verbose: bool = False,
) -> Health:
    """Brings ``out`` up to date with the lake and writes its report.

    ``full_refresh`` forgets what was read before and begins anew, also from another lake. Raises ConfigError for a lake
    that is not in order, a folder that cannot be used, and whatever stops Spark.
    """
    from headway.pipeline.report.health import health_report

    started = time.monotonic()
    lake, out = lake.absolute(), out.absolute()
    found = check_lake(lake)
    check_folder(out)
    with (
        _claimed(out, lake, full_refresh),
        open_session("headway health", master=master, memory=memory, verbose=verbose, home=out) as spark,
    ):
        _update(spark, lake, out, full_refresh)
        recorded = _recorded(spark)
    tables = {name: pq.read_table(result_folder(out, name)) for name in RESULTS}
    about = {
        "lake": str(lake), "out": str(out), **recorded, "files": found.files, "rows": found.rows,
        "seconds": time.monotonic() - started,
        "versions": f"Headway {__version__}, Spark {pyspark.__version__}, Python {platform.python_version()}",
    }  # fmt: skip
    return Health(health_report(tables, about, out / "report.html"), tables, about)


def result_folder(out: Path, table: str) -> Path:
    """Returns the folder with the Parquet files of a result."""
    return out / f"{DATABASE}.db" / table


@contextmanager
def _claimed(out: Path, lake: Path, full_refresh: bool) -> Iterator[None]:
    """Locks the folder while the block runs, once it is sure that it was made from this lake."""
    identity = out / IDENTITY
    if out.is_dir() and not identity.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} holds other things; give a folder that is new or empty")
    with locked(out):
        made_from = _made_from(identity)
        if made_from not in (None, str(lake)) and not full_refresh:
            raise ConfigError(f"{out} was made from {made_from}; give another folder, or --full-refresh to begin anew")
        identity.write_text(json.dumps({"lake": str(lake), "headway": __version__}, indent=2) + "\n")
        yield


def _made_from(identity: Path) -> str | None:
    if not identity.exists():
        return None
    try:
        return str(json.loads(identity.read_text())["lake"])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{identity} is not what a run wrote; give a folder that is new or empty") from None


def _update(spark: SparkSession, lake: Path, out: Path, full_refresh: bool) -> None:
    """Runs the pipeline."""
    with tempfile.TemporaryDirectory(prefix="headway-health-") as nothing, progress("Measuring health") as tell:
        tell("starting")
        tables = partial(define, spark, lake, Path(nothing))
        done = 0
        try:
            for answer in run_graph(spark, DATABASE, out, tables, full_refresh=full_refresh):
                event = answer.get("pipeline_event_result")
                completed = re.search(r"\.(\w+) has COMPLETED", event.event.message) if event is not None else None
                if completed is not None:
                    done += 1
                    tell(f"{done} of {len(KEPT) + len(RESULTS)} tables, {completed[1].replace('_', ' ')}")
        except PySparkException as error:
            raise ConfigError(f"health could not be measured: {error_text(error)} (--verbose shows more)") from error


def _recorded(spark: SparkSession) -> Mapping[str, Any]:
    """The time that the kept rows cover; they may reach further back than the lake."""
    rows = spark.read.table(f"{DATABASE}.consumer_samples")
    (row,) = rows.agg(
        F.unix_micros(F.min("time")).alias("first"),
        F.unix_micros(F.max("time")).alias("last"),
        F.count_distinct("run").alias("runs"),
        F.count_distinct("broker").alias("brokers"),
        F.count_distinct("client").alias("consumers"),
        F.count_distinct("filter").alias("topics"),
    ).collect()
    told = {name: value for name, value in row.asDict().items() if value is not None}
    times = {name: dt.datetime.fromtimestamp(told[name] / 1e6, dt.UTC) for name in ("first", "last") if name in told}
    return told | times
