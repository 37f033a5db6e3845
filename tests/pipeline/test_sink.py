"""``format("headway")`` as a sink: what Spark writes is what a real broker publishes, each row once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.pipeline.proxy import Proxy

from headway.core.message.record import Properties

TOPICS = '[[topic]]\nfilter = "in/#"\nkeep = "7d"\n[[topic]]\nfilter = "out/#"\nkey = "property:key"\nkeep = "7d"\n'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, recording(folder / "journal", TOPICS))
    yield process
    process.stop()


def write(rows: DataFrame, broker: BrokerProcess, **options: object) -> None:
    words = {name: str(value) for name, value in ({"admin": broker.admin} | options).items()}
    rows.write.format("headway").mode("append").options(**words).save()


def recorded(broker: BrokerProcess, topic: str) -> list[dict[str, Any]]:
    return ask(broker, topic).table.to_pylist()


def payloads(broker: BrokerProcess, topic: str) -> list[bytes]:
    return [row["payload"] for row in recorded(broker, topic)]


# -- what is published ------------------------------------------------------------------------------------------------


def test_a_batch_with_all_columns(spark: SparkSession, broker: BrokerProcess) -> None:
    rows = spark.sql(
        "SELECT concat('out/all/', id) topic, concat('k', id) key, to_json(struct(id, id * 2 AS twice)) payload,"
        " map('a', 'b') properties FROM range(3)"
    )
    with Raw(broker.ports["mqtt"], "reader").subscribed("out/all/#") as reader:
        write(rows, broker, qos=0)
        heard = reader.messages(3)
    found = sorted(recorded(broker, "out/all/#"), key=lambda row: str(row["topic"]))
    assert sorted(one.topic for one in heard) == [row["topic"] for row in found] == [f"out/all/{n}" for n in range(3)]
    assert [json.loads(row["payload"]) for row in found] == [{"id": n, "twice": 2 * n} for n in range(3)]
    assert [row["key"] for row in found] == ["k0", "k1", "k2"]
    assert found[1]["properties"]["user"] == [("a", "b"), ("key", "k1")]
    assert {row["properties"]["qos"] for row in found} == {0}


def test_what_was_read_can_be_written(spark: SparkSession, broker: BrokerProcess) -> None:
    """With the properties that it had; offset and time are its own."""
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        said = Properties(content_type="text/x", user=(("a", "b"),))
        publisher.published("in/copy", b"\xff\x00", properties=said)
    rows = spark.read.format("headway").options(topic="in/copy", admin=broker.admin).load().drop("key")
    write(rows, broker, topic="out/copy")
    (before,), (after,) = recorded(broker, "in/copy"), recorded(broker, "out/copy")
    assert after["payload"] == b"\xff\x00"
    assert after["properties"] == before["properties"]
    assert after["properties"]["user"] == [("a", "b")]


def test_a_batch_that_has_a_name_is_written_once(spark: SparkSession, broker: BrokerProcess) -> None:
    """As a job does that is run again by its scheduler, or foreachBatch."""
    for number in (5, 5, 4, 6):
        write(spark.sql(f"SELECT '{number}' payload"), broker, topic="out/named", writer="nightly", batch=number)
    assert payloads(broker, "out/named") == [b"5", b"6"]


def test_large_rows_and_many_make_several_parts(spark: SparkSession, broker: BrokerProcess) -> None:
    rows = spark.range(30, numPartitions=1).select(F.concat(F.col("id"), F.lit(":"), F.repeat(F.lit("x"), 900_000)))
    write(rows.toDF("payload"), broker, topic="out/large")
    found = payloads(broker, "out/large")
    assert [payload.partition(b":")[0] for payload in found] == [b"%d" % number for number in range(30)]
    assert {len(payload.partition(b":")[2]) for payload in found} == {900_000}


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("SELECT 1 a", {"topic": "out/x"}, "column a is none of topic, key, properties, payload"),
        ("SELECT 'k' key", {"topic": "out/x"}, "there is no column payload"),
        ("SELECT 1 payload", {"topic": "out/x"}, "column payload is int, and has to be STRING or BINARY"),
        ("SELECT 'x' payload", {}, "where to? Give option topic, or a column topic"),
        ("SELECT 'x' payload, array(1) properties", {"topic": "out/x"}, "column properties is array<int>"),
        ("SELECT 'x' payload", {"topic": "out/+"}, "option topic: topic 'out/+' contains a wildcard"),
        ("SELECT 'x' payload", {"topic": "out/x", "qos": 3}, 'option qos: "3" is no whole number from 0 to 2'),
        ("SELECT 'x' payload", {"topic": "out/x", "colour": 3}, "unknown option 'colour'"),
        ("SELECT 'x' payload", {"topic": "out/x", "batch": 3}, "one without the other means nothing"),
        ("SELECT 'x' payload, 'out/#' topic", {}, "contains a wildcard"),
        ("SELECT 'x' payload, CAST(NULL AS STRING) topic", {}, "topic is null"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(
    spark: SparkSession, broker: BrokerProcess, rows: str, options: dict[str, object], said: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(rows), broker, **options)
    assert said in str(caught.value)


def test_a_topic_is_not_overwritten(spark: SparkSession, broker: BrokerProcess) -> None:
    with pytest.raises(PySparkException, match="a topic is not overwritten"):
        spark.sql("SELECT 'x' payload").write.format("headway").mode("overwrite").option("topic", "out/x").save()


def test_what_failed_leaves_nothing_behind(spark: SparkSession, broker: BrokerProcess) -> None:
    """One task is done, the other comes to a row that cannot be."""
    staged = broker.folder / "journal" / "staged"

    @F.udf("string")
    def topic(task: int) -> str:
        """The bad row comes once the broker has the part of the other task."""
        until = time.monotonic() + 60
        while task == 1 and not list(staged.glob("spark-*/*.arrow")) and time.monotonic() < until:
            time.sleep(0.01)
        return "#" if task == 1 else "out/failed"

    rows = spark.range(2, numPartitions=2).select(F.lit("x").alias("payload"))
    with pytest.raises(PySparkException, match="wildcard"):
        write(rows.withColumn("topic", topic(F.spark_partition_id())), broker)
    assert payloads(broker, "out/failed") == []
    assert list(staged.glob("spark-*")) == []


def test_a_broker_that_is_away_is_waited_for_and_then_named(spark: SparkSession, broker: BrokerProcess) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.sql("SELECT 'x' payload"), broker, topic="out/x", admin="http://127.0.0.1:9", timeout="1s")
    assert re.search(r"no broker at http://127\.0\.0\.1:9 for 1 s: connection refused", str(caught.value))


# -- streams ----------------------------------------------------------------------------------------------------------


def test_a_stream_that_is_run_again_publishes_nothing_twice(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """The answer to a commit is lost, and the query ends; it runs the batch again when it is started again."""
    numbers = [b"%d" % number for number in range(1000)]

    def run(admin: str) -> None:
        source = spark.readStream.format("headway").options(topic="in/stream", admin=broker.admin)
        rows = source.load().select(F.concat(F.col("payload").cast("string"), F.lit("!")).alias("payload"))
        (
            rows.repartition(3).writeStream.format("headway").trigger(availableNow=True)
            .options(topic="out/stream", admin=admin, timeout="2s", checkpointLocation=str(tmp_path / "checkpoint"))
            .start().awaitTermination()
        )  # fmt: skip

    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        publisher.publish_all("in/stream", numbers[:499])
        publisher.published("in/stream", numbers[499])
        with Proxy(broker.admin) as between:
            between.lost = "PUT", "/v1/writers/"
            with pytest.raises(PySparkException, match="no broker at"):
                run(between.url)
        run(broker.admin)
        publisher.publish_all("in/stream", numbers[500:999])
        publisher.published("in/stream", numbers[999])
    run(broker.admin)
    found = payloads(broker, "out/stream")
    assert sorted(found) == sorted(number + b"!" for number in numbers)
