"""What test_cluster.py runs in a process of its own: a batch and a stream of a topic, on executors of a cluster.

Usage: python -m tests.pipeline.cluster_source MASTER ADMIN TOPIC FOLDER

Prints how many records the batch has, and how many the stream.
"""

from __future__ import annotations

import sys

from headway.pipeline.session import open_session


def main(master: str, admin: str, topic: str, folder: str) -> None:
    conf = {"spark.executor.memory": "512m", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    options = {"topic": topic, "admin": admin}
    with open_session("cluster source", master=master, conf=conf) as spark:
        batch = spark.read.format("headway").options(**options).load()
        print(batch.selectExpr("count(DISTINCT offset)").collect()[0][0])
        rows = spark.readStream.format("headway").options(**options).load()
        writer = rows.writeStream.format("parquet").option("path", f"{folder}/rows").trigger(availableNow=True)
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        query.awaitTermination()
        print(spark.read.parquet(f"{folder}/rows").count())


if __name__ == "__main__":
    main(*sys.argv[1:])
