"""The job: replays a lake's samples against many candidates, on Spark.

1. Who ever lagged, and when each run began and ended: one pass over four columns.
2. The samples of those who lagged, by client, each against every candidate (tasks.py). Few candidates: all in one task
   with the samples; many: in slices, so that one busy client does not keep a single core busy for ever.
3. What they held, by candidate and in order of time, through the pools.

A task keeps one client's samples, or one bucket's consumers, in memory, whatever the size of the lake. What comes back
to the driver grows with candidates x consumers hit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from headway.core.base import ConfigError
from headway.core.governance import SWEEP_S
from headway.pipeline.lab.plans.candidates import Candidate, as_recorded
from headway.pipeline.lab.replays.candidate_replay import HITS
from headway.pipeline.lab.replays.trace import COLUMNS, HELD_MS, late_stretches
from headway.pipeline.lab.tasks import BUCKET, HOLDINGS, PASSAGES, POOLED, RecordedRun, pools, replays
from headway.pipeline.lake import READ, read_table, spark_schema

BUCKETS = 600
"""The number of stretches that a recording is cut in, of a second at least."""
SLICE_CANDIDATES = 50
CLIENTS_PER_TASK = 25
TASKS_MIN, TASKS_MAX = 8, 4000
LATE_MAX = 50_000
"""The most late sweeps that are replayed: those that were the latest."""
LEVELS_MAX = 300_000
"""The most points of curves that come back to the driver."""
CONSUMER = ("run", "client", "filter")


class Replayed(NamedTuple):
    """The results: rows of ``tasks.PASSAGES`` without ``buckets``, and of ``tasks.POOLED``."""

    passages: pa.Table
    pooled: pa.Table


class ReplayInput(NamedTuple):
    """The runs and clients to replay."""

    runs: dict[str, RecordedRun]
    clients: int
    """Clients that lagged at some time."""
    notes: list[str]

    @property
    def last(self) -> RecordedRun:
        """The run that began last."""
        return max(self.runs.values(), key=lambda run: run.origin_us)


def read_samples(spark: SparkSession, lake: Path) -> DataFrame:
    """Reads ``trace.COLUMNS`` of all samples. A row may be there twice; readers know it by its key. A column that an
    older lake does not have is null."""
    folder = lake / "consumer_samples"
    rows = spark.read.schema(spark_schema("consumer_samples")).options(**READ).parquet(str(folder.absolute()))
    return rows.select(*COLUMNS).withColumn("time", F.unix_micros("time"))


def lagging_clients(samples: DataFrame) -> DataFrame:
    """Returns (run, client) of those for which records waited at some time, or were left out by a policy, or who were
    late to acknowledge."""
    waited = (F.col("lag_records") > 0) | (F.col("skipped_records") > 0) | (F.col("most_lag_bytes") > 0)
    lagged = waited | (F.greatest("ack_age_ms", "unacked_ms") >= HELD_MS)
    return samples.where(lagged).select("run", "client").distinct()


def read_replay_input(spark: SparkSession, lake: Path) -> ReplayInput:
    """Reads the runs in a lake, their limits and policies. Raises ConfigError where there is nothing to replay."""
    samples = read_samples(spark, lake)
    spans = samples.groupBy("run").agg(
        F.min("time").alias("first"), F.max("time").alias("last"),
        F.count_distinct("client", "filter").alias("consumers"),
        F.array_sort(F.collect_set("listener")).alias("listeners"),
    )  # fmt: skip
    configs: dict[str, dict[str, Any]] = {}
    for row in read_table(spark, lake, "configs").orderBy("run", "seq").toArrow().to_pylist():
        configs[row["run"]] = row  # the last of a run
    notes: list[str] = []
    runs = {}
    late = _late(spark, lake)
    for span in spans.orderBy("run").toArrow().to_pylist():
        runs[span["run"]] = _run(span, configs.get(span["run"]), late.get(span["run"], []), notes)
    if not runs:
        raise ConfigError(f"{lake}: has no samples of consumers, so there is nothing to replay")
    return ReplayInput(runs, lagging_clients(samples).count(), list(dict.fromkeys(notes)))


def _late(spark: SparkSession, lake: Path) -> dict[str, list[dict[str, Any]]]:
    """Reads by run the rows of the broker in which its lateness grew: ``before`` and ``time`` (microseconds) and
    ``late_ms``."""
    in_order = Window.partitionBy("run").orderBy("seq")
    rows = read_table(spark, lake, "broker_samples").select(
        "run", F.unix_micros("time").alias("time"),
        F.lag(F.unix_micros("time")).over(in_order).alias("before"),
        (F.col("loop_late_ms") - F.lag("loop_late_ms", 1, 0.0).over(in_order)).alias("late_ms"),
    )  # fmt: skip
    grown = rows.where("late_ms > 0").orderBy(F.desc("late_ms")).limit(LATE_MAX)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in grown.toArrow().to_pylist():
        found.setdefault(row["run"], []).append(row)
    return found


def _run(
    span: dict[str, Any], config: dict[str, Any] | None, late: list[dict[str, Any]], notes: list[str]
) -> RecordedRun:
    seconds = (span["last"] - span["first"]) / 1e6
    if config is None:
        raise ConfigError(
            f"run {span['run']!r}: the lake does not say how the broker was configured (no row in configs), "
            "so neither what ran nor its pool is known"
        )
    tables = json.loads(config["config"])
    policies, not_replayed = as_recorded(tables.get("policy", []))
    notes += not_replayed
    return RecordedRun(
        run=span["run"], origin_us=span["first"], seconds=seconds, consumers=span["consumers"],
        memory_limit=config["memory_limit_bytes"], disk_limit=config["disk_limit_bytes"],
        client_share=config["client_share"], sweep_s=config["sweep_ms"] / 1000 or SWEEP_S,
        bucket_s=max(1.0, seconds / BUCKETS), policies=policies, policy_tables=tuple(tables.get("policy", [])),
        topic_tables=tuple(tables.get("topic", [])), listeners=tuple(span["listeners"]),
        late=late_stretches(
            (
                ((row["before"] or row["time"]) - span["first"]) / 1e6, (row["time"] - span["first"]) / 1e6,
                row["late_ms"] / 1000,
            ) for row in late
        ),
    )  # fmt: skip


def replay_lake(spark: SparkSession, lake: Path, candidates: Sequence[Candidate], found: ReplayInput) -> Replayed:
    """Replays every consumer that lagged against every candidate."""
    slices = -(-len(candidates) // SLICE_CANDIDATES)
    tasks = min(TASKS_MAX, max(TASKS_MIN, found.clients * slices // CLIENTS_PER_TASK))
    passages = replay_samples(read_samples(spark, lake), candidates, found.runs, slices, tasks)
    passages = passages.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        scalars = passages.drop("buckets").toArrow()
        pooled = pool_passages(passages, candidates, found.runs).toArrow()
    finally:
        passages.unpersist()
    return Replayed(scalars, pooled)


def replay_samples(
    samples: DataFrame, candidates: Sequence[Candidate], runs: dict[str, RecordedRun], slices: int, tasks: int
) -> DataFrame:
    """Makes rows of ``tasks.PASSAGES``, of every consumer to which anything happened."""
    wanted = samples.join(lagging_clients(samples), ["run", "client"], "left_semi")
    sliced = wanted.withColumn("slice", F.explode(F.array([F.lit(number) for number in range(slices)])))
    together = sliced.repartition(tasks, "run", "client", "slice").groupBy("run", "client", "slice")
    return together.applyInArrow(replays(candidates, runs, slices), from_arrow_schema(PASSAGES))


def pool_passages(passages: DataFrame, candidates: Sequence[Candidate], runs: dict[str, RecordedRun]) -> DataFrame:
    """Makes rows of ``tasks.POOLED``."""
    thin = max(1, -(-len(candidates) * len(runs) * BUCKETS // LEVELS_MAX))
    holdings = passages.select("*", F.inline("buckets").alias(*BUCKET.names))
    tasks = min(TASKS_MAX, max(TASKS_MIN, len(candidates) * len(runs)))
    together = (
        holdings.select(*HOLDINGS)
        .repartition(tasks, "candidate", "run")
        .sortWithinPartitions("candidate", "run", "number", "client", "filter", "subscription")
    )
    return together.mapInArrow(pools(candidates, runs, thin), from_arrow_schema(POOLED))


def recorded_hits(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    """Reads the first enforced hit that a rule dealt each consumer: run, client, filter, time (microseconds),
    window_ms."""
    verdicts = read_table(spark, lake, "verdicts")
    hits = verdicts.where(
        (F.col("kind") == "fire") & F.col("enforced") & (F.col("policy") != "")
        & F.col("action").isin([str(kind) for kind in HITS])
    )  # fmt: skip
    first = hits.groupBy(*CONSUMER).agg(
        F.min(F.struct(F.unix_micros("time").alias("time"), "window_ms", "action")).alias("first")
    )
    rows: list[dict[str, Any]] = first.select(*CONSUMER, "first.*").toArrow().to_pylist()
    return rows
