"""Health's tables and measures as a Spark Declarative Pipeline.

Theory of operation. Each table of the lake that a measure needs is a streaming table here: every file of the lake is
read once, in the first run that finds it, and its rows stay, slim, also after the broker has deleted the file. The five
measures are materialized views over them, computed anew in each run.

Rules:
- A file counts when it is new, however old it says it is: late files are read like any other.
- A row counts once, in however many files it came: the views see each key once.
- A file that vanishes between its discovery and its reading holds no rows.
- A run reads so many files at a time: memory does not grow with the lake.
- Measures get their input by names that no catalog knows (temporary views). Some operations, ``withColumn`` is one,
  look a name up at once; they would find the table as the run before left it, and the pipeline would not know to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType

from headway.pipeline import lake as lakes
from headway.pipeline.measures import costs, episodes, forecast, isolation, offenders

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
