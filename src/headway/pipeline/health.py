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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headway import __version__
from headway.core.base import ConfigError
from headway.pipeline.definitions import KEPT, RESULTS, define
from headway.pipeline.error_text import error_text
from headway.pipeline.footers import check_folder, check_lake
from headway.pipeline.graph import run_graph
from headway.pipeline.lock import locked
from headway.pipeline.progress import progress
from headway.pipeline.session import MEMORY, open_session

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
