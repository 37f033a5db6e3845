"""What test_exactly_once.py runs in a process of its own: a stream from topic to topic on a cluster, with gates.

Usage: python -m tests.pipeline.cluster_stream MASTER ADMIN FOLDER

Every number of in/# is doubled and goes to out/doubled. The task that comes to a number of which there is a FIFO in
FOLDER waits until somebody opens that for writing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headway.pipeline.session import open_session

TASKS = 4
BATCH = 10_000
"""Offsets."""


def main(master: str, admin: str, folder: str) -> None:
    def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0)
            for gate in Path(folder).glob("gate-*"):
                if pc.index(numbers, int(gate.name.removeprefix("gate-"))).as_py() >= 0:
                    with suppress(FileNotFoundError), gate.open("rb"):
                        pass
            yield pa.record_batch([pc.multiply(numbers, 2).cast(pa.string())], names=["payload"])

    conf = {"spark.executor.memory": "512m", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": str(TASKS)}
    with open_session("cluster stream", master=master, conf=conf) as spark:
        source = spark.readStream.format("headway").option("maxOffsetsPerTrigger", BATCH)
        rows = source.options(topic="in/#", admin=admin).load()
        numbers = rows.selectExpr("CAST(CAST(payload AS STRING) AS BIGINT) AS number").repartition(TASKS, "number")
        doubled = numbers.mapInArrow(double, "payload STRING").writeStream.format("headway")
        doubled = doubled.options(topic="out/doubled", admin=admin, checkpointLocation=f"{folder}/checkpoint")
        doubled.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
