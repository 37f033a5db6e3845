"""A state as a table (option ``state``): what a real broker has per key, all of it as of one offset."""

from __future__ import annotations

import json
import logging
import socket
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.permitted import SECRET, config, permission
from tests.interop.permitted import paho as login
from tests.interop.process import BrokerProcess
from tests.interop.records import recording
from tests.interop.test_interop_state import ask as ask_state
from tests.interop.waiting import PATIENCE_S
from tests.pipeline.page import is_in_the_page
from tests.pipeline.proxy import Proxy

from headway.pipeline.broker.errors import DataLoss, SourceError
from headway.pipeline.source.options import read_options
from headway.pipeline.source.state import PART_BYTES, StateBatch, read_state
from headway.server.streams.state import QUERIES_PER_CLIENT

KEYED = '[[topic]]\nfilter = "flights/#"\nkey = "/tailnum"\nkeep = "7d"\n'
KEYS = 200
PADDING = "x" * (3 * PART_BYTES // KEYS)
"""So the state is worth several partitions."""
Load = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A state of N0 to N199 but N13, which is deleted; N7 was changed once."""
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, recording(folder / "journal", KEYED))
    publish(process, *range(KEYS))
    publish(process, 7, delay=1000)
    with paho(process.ports["mqtt"], "deleter") as client:
        said = properties("PUBLISH", UserProperty=[("key", "N13")])
        client.publish("flights/ua", b"", 1, properties=said)
    yield process
    process.stop()


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[Proxy]:
    with Proxy(broker.admin) as between:
        yield between


@pytest.fixture
def load(spark: SparkSession, proxy: Proxy) -> Load:
    def loaded(topic: str, **options: object) -> DataFrame:
        said = {"topic": topic, "admin": proxy.url, "state": "true"} | options
        rows = spark.read.format("headway").options(**{name: str(value) for name, value in said.items()}).load()
        assert rows.columns  # Spark Connect loads what is looked at
        return rows

    return loaded


def publish(broker: BrokerProcess, *numbers: int, delay: int | None = None) -> None:
    with paho(broker.ports["mqtt"], "publisher") as client:
        for number in numbers:
            said = {"tailnum": f"N{number}", "delay": number if delay is None else delay, "padding": PADDING}
            client.publish("flights/ua", json.dumps(said).encode(), 1)


def delays(rows: DataFrame) -> dict[str, int]:
    found = rows.selectExpr("key", "CAST(get_json_object(string(payload), '$.delay') AS INT)").collect()
    assert len({key for key, _ in found}) == len(found), "a key is there once"
    return dict(found)


def test_a_dataframe_is_the_state_as_of_one_offset_whatever_is_done_with_it(
    broker: BrokerProcess, proxy: Proxy, load: Load
) -> None:
    """Its answer is cut in the middle, and begins anew; then the state changes between two uses."""
    before = ask_state(broker, "flights/#", {"format": "jsonl"})
    now = [json.loads(line) for line in before.body.splitlines()]
    proxy.cut_at = PART_BYTES // 2
    state = load("flights/#")
    publish(broker, 7, 500, delay=2000)
    assert state.selectExpr("offset", "topic", "key", "string(payload)").orderBy("offset").collect() == [
        (one["offset"], one["topic"], one["key"], one["payload"]) for one in now
    ]
    publish(broker, 8, delay=3000)
    filtered = state.where("key IN ('N7', 'N8', 'N13', 'N500')")
    assert delays(filtered) == {"N7": 1000, "N8": 8}
    other = state.alias("a").join(state.alias("b"), "key").where("a.payload <> b.payload OR a.as_of <> b.as_of")
    assert other.count() == 0
    parts = state.selectExpr("as_of", "spark_partition_id() AS part")
    summed = parts.selectExpr("count(*)", "min(as_of)", "max(as_of)", "count(DISTINCT part) > 1")
    as_of = int(before.headers["Headway-Offset"])
    assert summed.collect() == [(KEYS - 1, as_of, as_of, True)]
    assert len(proxy.asked) == 2, "it is asked for once, and once more where it was cut"
    assert delays(load("flights/#", where="delay >= 1000")) == {"N7": 2000, "N500": 2000, "N8": 3000}
    assert delays(load("flights/#", where="delay < 100", order_by="/delay DESC", top=3, skip=1)) == {
        "N98": 98, "N97": 97, "N96": 96
    }  # fmt: skip
    past = load("flights/ua", at=as_of - 1, selector="tailnum = 'N13' OR tailnum = 'N7'")
    assert delays(past) == {"N13": 13, "N7": 1000}
    assert past.select("as_of").distinct().collect() == [(as_of - 1,)]
    nothing = load("flights/ua", where="delay < 0")
    assert (nothing.collect(), nothing.columns[-2:]) == ([], ["payload", "as_of"])


def test_what_cannot_be_is_said_when_it_is_loaded(spark: SparkSession, broker: BrokerProcess, load: Load) -> None:
    for topic, options, line in (
        ("boats/#", {}, "boats/# has no state: no keyed [[topic]] covers it; keyed is flights/#"),
        ("flights/#", {"order_by": "/delay"}, "in the order '/delay' has a page of at most 10,000 records: say top"),
        ("flights/#", {"where": "delay >"}, "selector, character 8: a name or value should"),
        ("flights/#", {"from": "-5m"}, "option from is for records, not for a state (option state)"),
    ):
        with pytest.raises(PySparkException) as caught:
            load(topic, **options)
        assert line in str(caught.value)
    stream = spark.readStream.format("headway").options(topic="flights/ua", admin=broker.admin, state="true", top="1")
    with pytest.raises(PySparkException, match=r"option state is for batches: spark\.read"):
        stream.load().writeStream.format("noop").start().processAllAvailable()


def read(broker: BrokerProcess, topic: str, login: str, **options: str) -> list[Any]:
    said = {"topic": topic, "admin": broker.admin.replace("//", f"//{login}@"), "state": "true"} | options
    batch = StateBatch(read_state(read_options(said)))
    return [row for part in batch.partitions() for some in batch.read(part) for row in some.to_pylist()]


def test_evicted_keys_and_denied_topics_end_it(
    start: BrokerFactory, caplog: pytest.LogCaptureFixture, broker: BrokerProcess
) -> None:
    """A state is never smaller in silence, and nobody reads what is not his."""
    pool = '[pool]\nmemory = "8MB"\ndisk = 0\n'
    allowed = permission("alice", subscribe=["flights/ua"])
    small = start(config(allowed, more=pool + '[[topic]]\nfilter = "flights/#"\nkey = "/n"\n'))
    with closing(login(small, "root")) as client:
        for number in range(100):
            client.publish("flights/ua", b'{"n": %d, "padding": "%s"}' % (number, b"x" * 100_000), 1)
    alice = f"alice:{SECRET}"
    with pytest.raises(DataLoss) as lost:
        read(small, "flights/ua", alice)
    assert is_in_the_page(str(lost.value).replace(": some keys", ": 81 keys")), lost.value
    with caplog.at_level(logging.WARNING, "headway"):
        rows = read(small, "flights/ua", alice, failOnDataLoss="false")
    assert 0 < len(rows) < 100
    assert rows[-1]["key"] == "99"
    assert "some keys were evicted" in caplog.text, "how many is for those who may read all of the state"
    with caplog.at_level(logging.WARNING, "headway"):
        read(small, "flights/ua", f"root:{SECRET}", failOnDataLoss="false")
    assert f"{100 - len(rows)} keys were evicted" in caplog.text
    with pytest.raises(SourceError, match="alice may not subscribe"):
        read(small, "flights/#", alice)
    with pytest.raises(SourceError, match="does not let this query in"):
        read(small, "flights/ua", "alice:wrong")
    options = read_options({"topic": "flights/#", "admin": broker.admin, "state": "true"})
    with pytest.raises(SourceError, match="the state of flights/# takes up more than 1 kB, even compressed: read less"):
        read_state(options, bytes_max=1_000)


def test_it_waits_until_other_queries_of_its_client_are_answered(broker: BrokerProcess) -> None:
    place = urllib.parse.urlsplit(broker.admin)
    asked = f"GET /v1/state/flights%2F%23?format=jsonl HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode()
    said = {"topic": "flights/#", "admin": broker.admin, "state": "true"}
    with ExitStack() as stack:
        for _ in range(QUERIES_PER_CLIENT):
            other = stack.enter_context(socket.create_connection((place.hostname, place.port), PATIENCE_S))
            other.sendall(asked)
            assert other.recv(1)  # it reads no more of it
        with pytest.raises(SourceError, match=r"is too busy: 4 queries of address .* are being answered already"):
            read_state(read_options(said | {"timeout": "200ms"}))
    assert len(read_state(read_options(said))) > 1
