"""``spark.readStream.format("headway")``: batches without loss, one behind the other, and a consumer like any other."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import recording
from tests.interop.test_interop_cursors import POLICIES
from tests.interop.waiting import until
from tests.pipeline.page import is_in_the_page
from tests.pipeline.proxy import Proxy

from headway.pipeline.views.run import BUSY, TRIES_MAX

BATCH_S = 90.0
"""For Spark to get through a batch on a machine that has other work."""
TOPICS = '[[topic]]\nfilter = "t/#"\nkeep = "7d"\n'


def publish(broker: BrokerProcess, topic: str, *numbers: int) -> None:
    with Raw(broker.ports["mqtt"]) as writer:
        writer.publish_all(topic, [b"%d" % number for number in numbers[:-1]])
        writer.published(topic, b"%d" % numbers[-1])


class Sink:
    """A folder for each batch, which a batch that is run again overwrites. While the file ``broken`` is there, batches
    fail once they are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken = folder / "broken"
        self.checkpoint = folder / "checkpoint"

    def write(self) -> Callable[[DataFrame, int], None]:
        out, broken = str(self.folder / "batch"), str(self.broken)

        def written(rows: DataFrame, number: int) -> None:
            import os

            rows.write.mode("overwrite").parquet(f"{out}={number}")
            if os.path.exists(broken):
                raise RuntimeError("the sink is broken")

        return written

    def batches(self) -> list[list[int]]:
        """The numbers in each batch that is written, in order."""
        written = [one.parent for one in self.folder.glob("batch=*/_SUCCESS")]
        folders = sorted(written, key=lambda one: int(one.name.partition("=")[2]))
        tables = [pq.read_table(folder, columns=["offset", "payload"], partitioning=None) for folder in folders]
        return [[int(body) for body in table.sort_by("offset").column("payload").to_pylist()] for table in tables]

    def all(self) -> list[int]:
        return [number for batch in self.batches() for number in batch]

    def last_offset(self) -> dict[str, Any]:
        """As the checkpoint has it."""
        files = [one for one in (self.checkpoint / "offsets").glob("*") if one.name.isdecimal()]
        return dict(json.loads(max(files, key=lambda one: int(one.name)).read_text().splitlines()[-1]))


@pytest.fixture
def run(spark: SparkSession) -> Iterator[Callable[..., StreamingQuery]]:
    """Starts a query into a sink."""
    started: list[StreamingQuery] = []

    def start(sink: Sink, topic: str, write: Any = None, **options: object) -> StreamingQuery:
        words = {name.rstrip("_"): str(value) for name, value in options.items()}
        rows = spark.readStream.format("headway").option("topic", topic).options(**words).load()
        writer = rows.writeStream.foreachBatch(write or sink.write()).option("checkpointLocation", str(sink.checkpoint))
        for _ in range(TRIES_MAX):
            try:
                query = writer.start()
                until(lambda query=query: not query.isActive or _is_at_work(query), BATCH_S, "the query is under way")
                why = str(query.exception() or "")
            except PySparkException as error:
                query, why = None, str(error)
            if BUSY not in why:
                break
        assert query is not None, why
        started.append(query)
        return query

    yield start
    for one in started:
        one.stop()


def _is_at_work(query: StreamingQuery) -> bool:
    """Spark has started the processes that it needs for it."""
    return str(query.status["message"]).startswith(("Waiting", "Processing"))


def end(query: StreamingQuery) -> str:
    """Wait for it; what ended it, nothing if all is well."""
    until(lambda: not query.isActive, BATCH_S, "the query ends")
    return str(query.exception() or "")


def complaint(query: StreamingQuery) -> str:
    """What the source says at the end of the query: a line below what Spark says, and nothing of its insides."""
    said = end(query).partition("JVM stacktrace")[0]
    assert len(set(re.findall(r'File "[^"]*headway/(\S+)"', said))) <= 1, said
    (line,) = set(re.findall(r"^headway\.pipeline\.broker\.errors\.\w+: (.*)$", said, re.MULTILINE))
    return str(line)


Run = Callable[..., StreamingQuery]


def test_a_query_has_every_record_once_whatever_happens(run: Run, tmp_path: Path, start: BrokerFactory) -> None:
    """It fails in its first batch, is started again, takes the rest in batches of a limited size, has its broker
    killed, and is stopped. All the time it is one consumer, whose cursor follows what is written."""
    config, sink = recording(tmp_path / "journal", TOPICS), Sink(tmp_path)
    broker = start(config)
    publish(broker, "t/a", *range(1000))

    def consumer() -> dict[str, Any]:
        rows = broker.get("/v1/consumers")["consumers"]
        return next((row for row in rows if row["protocol"] == "http"), {})

    def all_are_written(upto: int) -> None:
        until(lambda: consumer()["lag_records"] == 0, BATCH_S, "all is read, and the cursor follows")
        assert sink.all() == list(range(upto)), "it is not ahead of what is written"
        assert (consumer()["connected"], consumer()["filter"]) == (True, "t/a")

    with Proxy(broker.admin) as proxy:
        sink.broken.touch()
        query = run(sink, "t/a", from_="earliest", admin=proxy.url)
        assert "the sink is broken" in end(query)
        (first,) = sink.batches()
        assert first == list(range(1000))
        until(lambda: not consumer()["connected"], what="the broker is told")
        cursor = consumer()["client"]
        publish(broker, "t/a", *range(1000, 1500))
        sink.broken.unlink()

        query = run(sink, "t/a", from_="earliest", admin=proxy.url, maxBytesPerTrigger=1000)
        all_are_written(1500)
        assert sink.batches()[0] == first, "run again as it was, though there was more by then"
        assert all(len(batch) <= 250 for batch in sink.batches()[1:]), "of four bytes each"
        broker.kill()
        broker = start(config)
        proxy.target = broker.admin
        publish(broker, "t/a", *range(1500, 1510))
        all_are_written(1510)
        query.stop()
        until(lambda: not consumer()["connected"], what="the broker is told")
        assert (consumer()["client"], sink.last_offset()["cursor"]) == (cursor, cursor)
        assert cursor.startswith("spark-")
    broker.stop()


def test_a_first_batch_of_nothing_is_run_again(run: Run, tmp_path: Path, start: BrokerFactory) -> None:
    """Of it Spark writes down where it ends, and that is where the query begins, whatever has come since."""
    broker, sink = start(recording(tmp_path / "journal", TOPICS)), Sink(tmp_path)
    publish(broker, "t/a", 0)
    sink.broken.touch()
    assert "the sink is broken" in end(run(sink, "t/a", from_="latest", admin=broker.admin))
    assert sink.batches() == [[]]
    publish(broker, "t/a", *range(1, 10))
    sink.broken.unlink()
    run(sink, "t/a", from_="latest", admin=broker.admin)
    until((tmp_path / "batch=1" / "_SUCCESS").exists, BATCH_S, "what came since is written")
    assert sink.batches() == [[], list(range(1, 10))]
    broker.stop()


def test_what_stalls_is_judged_and_others_notice_nothing(run: Run, tmp_path: Path, start: BrokerFactory) -> None:
    """Queries whose sinks take nothing: one's policy has it disconnected, the other's moves its cursor on. An MQTT
    subscriber of the same topic and an AMQP one have everything meanwhile. What became of them they learn when they ask
    for more."""
    broker = start(recording(tmp_path / "journal", TOPICS + POLICIES))
    publish(broker, "t/a", 0)
    first, last = 10, 20_000

    def stalled(policy: str) -> tuple[str, Path, StreamingQuery]:
        """A query that has written its first batch, and is not let go of before somebody opens the gate."""
        folder, gate = tmp_path / policy, tmp_path / policy / "gate"
        folder.mkdir()
        os.mkfifo(gate)
        sink, path = Sink(folder), str(gate)
        write = sink.write()

        def stall(rows: DataFrame, number: int) -> None:
            write(rows, number)
            with open(path, "rb"):
                pass

        query = run(sink, "t/a", stall, admin=broker.admin, policy=policy)
        until(lambda: sink.all() == list(range(first)), BATCH_S, "the first batch is written")
        return sink.last_offset()["cursor"], gate, query

    with Raw(broker.ports["mqtt"], "healthy") as healthy, closing(Pika(broker.ports["amqp"])) as desk:
        healthy.subscribed("t/a")
        desk.consume(desk.bound("amq.topic", "t.a"), auto_ack=True)
        publish(broker, "t/a", *range(1, first))
        queries = {policy: stalled(policy) for policy in ("stalled", "newest")}
        cursors = {policy: cursor for policy, (cursor, *_) in queries.items()}
        publish(broker, "t/a", *range(first, last))
        until(lambda: not broker.consumer(cursors["stalled"])["connected"], what="its policy disconnects it")
        until(lambda: broker.consumer(cursors["newest"])["gap_records"], what="its policy discards")
        assert [int(body) for body in healthy.payloads(last - 1)] == list(range(1, last))
        assert [int(body) for body in desk.bodies(last - 1)] == list(range(1, last))
    for _, gate, _ in queries.values():
        with gate.open("wb"):
            pass
    (verdict,) = broker.verdicts(cursors["stalled"])
    assert (verdict["reason"], verdict["policy"]) == ("blocked", "stalled")
    assert complaint(queries["stalled"][2]) == verdict["text"]
    line = complaint(queries["newest"][2])
    assert is_in_the_page(line), line
    assert f"its policy left them out (discarded): headway why {cursors['newest']};" in line
    broker.stop()
