"""What test_cluster.py runs in processes of its own: jobs on a cluster, each of which halts halfway until it may go on;
and the same on this machine alone.

Usage: python -m tests.pipeline.cluster_job MASTER LAKE FOLDER

One after the other, in one session. Prints ``JOB is halfway`` once some of its tasks are done and the others wait at
FOLDER/JOB.gate, a FIFO; whoever wants them to go on opens it for writing. Where there is none, nobody waits. The result
goes to FOLDER/JOB.parquet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from headway.pipeline.lab.job import read_replay_input, read_samples, replay_samples
from headway.pipeline.lab.plans.candidates import parse_plan
from headway.pipeline.lake import each_once, read_table
from headway.pipeline.measures import slow_episodes
from headway.pipeline.session import open_session

PARTITIONS = 12
FREE = 4
"""So many partitions pass the gate at once."""


CANDIDATES = """
[[candidate]]
name = "cut"
[[candidate.policy]]
name = "cut"
topics = ["#"]
[[candidate.policy.rule]]
when = { lag_age = { one_of = ["2s", "6s"] } }
for = "1s"
then = "disconnect"
"""


def gated(rows: DataFrame, gate: str) -> DataFrame:
    """The rows as they are, in 12 partitions by subscription, of which 4 do not wait. Without a gate nobody waits."""
    if not gate:
        return rows

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.partitionId() >= FREE:
            with open(gate, "rb"):  # blocks until somebody has it open for writing
                pass
        yield from batches

    return rows.repartition(PARTITIONS, "run", "subscription").mapInArrow(wait, rows.schema)


def episodes(spark: SparkSession, lake: str, gate: str) -> DataFrame:
    """A measure: windows and aggregates in the JVM, behind a Python stage."""
    rows = gated(read_table(spark, lake, "consumer_samples").drop("date"), gate)
    return slow_episodes(each_once(rows, "consumer_samples"), read_table(spark, lake, "verdicts"))


def lab(spark: SparkSession, lake: str, gate: str) -> DataFrame:
    """The lab's replay: every sixth consumer against four candidates."""
    plan, found = parse_plan(CANDIDATES), read_replay_input(spark, Path(lake))
    samples = gated(read_samples(spark, Path(lake)).where("subscription % 6 = 0"), gate)
    return replay_samples(samples, plan.candidates, found.runs, slices=1, tasks=PARTITIONS)


JOBS: dict[str, Callable[[SparkSession, str, str], DataFrame]] = {"episodes": episodes, "lab": lab}


class Halfway:
    """Says once that so many of a job's tasks are done and the others wait."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._said = False

    def __call__(self, stages: object, inflight_tasks: int, operation_id: object, done: bool) -> None:
        for stage in stages or ():  # type: ignore[attr-defined]
            if self._said or stage.num_tasks != PARTITIONS or stage.num_completed_tasks < FREE or not inflight_tasks:
                continue
            self._said = True
            print(f"{self._job} is halfway", flush=True)


def main(master: str, lake: str, folder: str) -> None:
    settings = {
        "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "1g",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
    }  # fmt: skip
    with open_session("cluster jobs", master=master, conf=settings) as spark:
        for name, job in JOBS.items():
            gate, halfway = Path(folder, f"{name}.gate"), Halfway(name)
            rows = job(spark, lake, str(gate) if gate.exists() else "")
            spark.registerProgressHandler(halfway)  # type: ignore[arg-type]
            result = rows.toArrow()
            spark.removeProgressHandler(halfway)  # type: ignore[arg-type]
            pq.write_table(result, Path(folder, f"{name}.parquet"))


if __name__ == "__main__":
    main(*sys.argv[1:])
