"""``spark.read.format("headway")``: what was published over real sockets is what Spark reads from a real broker.

Nothing in here registers the format (but for the test that does): Spark finds it by itself where Headway is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as amqp_properties
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import TOPICS, ask, recording
from tests.interop.waiting import PATIENCE_S
from tests.pipeline.proxy import Proxy

import headway.spark
from headway.pipeline.source.reading import SPAN_OFFSETS

MANY = 3 * SPAN_OFFSETS
"""So many records are worth four partitions: the broker uses some offsets for itself."""
Load = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, recording(folder / "journal", TOPICS + '[[topic]]\nfilter = "none"\nkeep = "7d"\n'))
    yield process
    process.stop()


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[Proxy]:
    with Proxy(broker.admin) as between:
        yield between


@pytest.fixture
def load(spark: SparkSession, proxy: Proxy) -> Load:
    def loaded(topic: str, **options: object) -> DataFrame:
        said = {"topic": topic, "admin": proxy.url, "timeout": PATIENCE_S} | options
        words = {name.rstrip("_"): str(value) for name, value in said.items()}
        return spark.read.format("headway").options(**words).load()

    return loaded


@pytest.fixture(scope="module")
def many(broker: BrokerProcess) -> list[int]:
    """The offsets of so many records of two topics in turns, big/a and big/b, each with its number as payload."""
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for at in range(0, MANY, 1000):
            topic = "big/a" if at % 2000 else "big/b"
            publisher.publish_all(topic, [b"%d" % number for number in range(at, at + 1000)])
        publisher.published("big/a", b"%d" % MANY)
    return [int(offset) for offset in ask(broker, "big/#").table.column("offset").to_pylist()]


def refusal(of: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        of()
    return str(caught.value)


# -- what is read -----------------------------------------------------------------------------------------------------


def test_every_column_is_what_was_published(broker: BrokerProcess, load: Load) -> None:
    """By MQTT 5 and by AMQP, with properties and without, over two recordings; and just as HTTP has it."""
    before = datetime.now()
    said = properties("PUBLISH", ContentType="application/json", ResponseTopic="re/ply", CorrelationData=b"\xff",
                      UserProperty=[("a", "ä"), ("b", "2")])  # fmt: skip
    with paho(broker.ports["mqtt"], "columns") as client:
        client.publish("flights/jfk/columns", b'{"tailnum": "N1"}', 1, properties=said)
        client.publish("flights/ewr/columns", b"\xff\x00no text", 2, retain=True)
    pika = Pika(broker.ports["amqp"])
    amqp_said = amqp_properties(headers={"h": "x"}, delivery_mode=2)
    pika.out.basic_publish("amq.topic", "flights.lga.columns", b"", amqp_said)
    pika.close()
    rows = load("flights/+/columns").orderBy("offset").collect()
    assert [row.topic for row in rows] == [f"flights/{place}/columns" for place in ("jfk", "ewr", "lga")]
    assert [row.key for row in rows] == ["N1", "flights/ewr/columns", "flights/lga/columns"]
    assert [bytes(row.payload) for row in rows] == [b'{"tailnum": "N1"}', b"\xff\x00no text", b""]
    assert all(before - timedelta(seconds=1) < row.timestamp < datetime.now() + timedelta(seconds=1) for row in rows)
    full, bare, amqp = (row.properties.asDict() for row in rows)
    assert full == {
        "content_type": "application/json", "response_topic": "re/ply", "correlation_data": b"\xff",
        "user": {"a": "ä", "b": "2"}, "qos": 1, "retain": False,
    }  # fmt: skip
    nothing = dict.fromkeys(("content_type", "response_topic", "correlation_data")) | {"user": {}}
    assert bare == nothing | {"qos": 2, "retain": True}
    told = {"h": "x", "headway-event": "delete", "headway-key": "flights/lga/columns"}  # it has no payload
    assert (amqp["user"], amqp["qos"], amqp["retain"]) == (told, 1, False)
    assert load("flights/+/columns").toArrow().to_pylist() == ask(broker, "flights/+/columns").rows


def test_the_parts_are_the_whole_of_what_was_there_at_the_beginning(
    broker: BrokerProcess, proxy: Proxy, load: Load, many: list[int]
) -> None:
    """What comes while it is read is not in it, in whatever partition that would be."""

    def publish() -> None:
        with Raw(broker.ports["mqtt"]) as publisher:
            publisher.published("big/late", b"1000000")

    proxy.when_asked = publish
    rows = load("big/#").selectExpr("count(*)", "count(DISTINCT offset)", "sum(CAST(CAST(payload AS STRING) AS LONG))")
    assert rows.collect() == [(MANY + 1, MANY + 1, MANY * (MANY + 1) / 2)]
    assert ask(broker, "big/late").rows
    spans = proxy.spans()
    assert len(spans) == 4
    assert [stop for _, stop in spans[:-1]] == [first for first, _ in spans[1:]]
    assert (spans[0][0], spans[-1][1]) == (ask(broker, "big/#", "HEAD").offset("Earliest"), many[-1] + 1)


def test_from_and_to_and_how_many_parts(proxy: Proxy, load: Load, many: list[int]) -> None:
    rows = load("big/a", from_=many[10_000], to=many[10_000] + 120_000, partitions=2)
    assert rows.selectExpr("min(offset) >= 10000", "count(*) > 50000").collect() == [(True, True)]
    assert proxy.spans() == [(many[10_000] + at, many[10_000] + at + 60_000) for at in (0, 60_000)]
    assert load("big/a", from_="-1h", to="-30m").count() == 0
    assert load("big/a", from_="2999-01-01").count() == 0
    assert load("big/a", from_="-1h").count() == load("big/a").count() > 0


def test_a_topic_of_which_nothing_is_recorded_is_empty(load: Load) -> None:
    rows = load("none")
    assert rows.collect() == []
    assert [name for name, _ in rows.dtypes] == ["offset", "timestamp", "topic", "key", "properties", "payload"]


# -- push-down --------------------------------------------------------------------------------------------------------


def test_filters_are_spark_s_unless_somebody_wants_it_otherwise(proxy: Proxy, load: Load, many: list[int]) -> None:
    """Where filters are not pushed down, one DataFrame may be used again and again."""
    rows = load("big/#", to=many[1000])
    assert rows.where(f"offset < {many[5]}").count() == 5
    assert rows.count() == 1000
    assert {stop for _, stop in proxy.spans()} == {many[1000]}


@pytest.mark.parametrize(
    ("condition", "count", "topics", "span"),
    [
        ("offset >= {low} AND offset < {high}", 30, {"big/#"}, (0, 0)),
        ("offset > {low} AND offset <= {high}", 30, {"big/#"}, (1, 1)),
        ("offset = {low}", 1, {"big/#"}, (0, None)),
        ("topic = 'big/a' AND offset >= {low} AND offset < {high}", 30, {"big/a"}, (0, 0)),
        ("topic = 'plain'", 0, set(), None),
        ("timestamp < timestamp'2001-01-01' AND offset < {high}", 0, set(), None),
        ("timestamp >= timestamp'2999-01-01'", 0, set(), None),
        ("timestamp > timestamp'2001-01-01' AND offset >= {low} AND offset < {high}", 30, {"big/#"}, (0, 0)),
    ],
)  # fmt: skip
def test_what_filters_leave_is_all_that_is_asked_for(
    proxy: Proxy, load: Load, many: list[int], condition: str, count: int, topics: set[str],
    span: tuple[int, int | None] | None,
) -> None:  # fmt: skip
    low, high = many[1010], many[1040]
    assert load("big/#", pushFilters="true").where(condition.format(low=low, high=high)).count() == count
    assert proxy.topics() == topics
    if span is not None:
        first, stop = span
        assert proxy.spans() == [(low + first, low + 1 if stop is None else high + stop)]


def test_times_are_found_to_the_record_though_the_broker_knows_them_by_the_batch(
    broker: BrokerProcess, load: Load
) -> None:
    with Raw(broker.ports["mqtt"]) as publisher:
        for number in range(9):
            publisher.published("flights/times", b"%d" % number)
    times = ask(broker, "flights/times").table.column("timestamp").to_pylist()
    text = f"timestamp'{times[4].astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
    for condition, wanted in {
        f"timestamp >= {text}": times[4:], f"timestamp > {text}": [one for one in times if one > times[4]],
        f"timestamp < {text}": times[:4], f"timestamp = {text}": [one for one in times if one == times[4]],
    }.items():  # fmt: skip
        assert load("flights/times", pushFilters="true").where(condition).count() == len(wanted), condition


def test_spark_mixes_up_the_filters_of_one_dataframe(load: Load, many: list[int]) -> None:
    """Why pushFilters is not the default: Spark keeps what the last filter left. When this fails, it may become so."""
    rows = load("big/#", pushFilters="true")
    assert rows.where(f"offset < {many[5]}").count() == 5
    assert rows.count() == 5, "Spark has learned it: see docs/SPARK.md"


def test_a_session_without_filter_push_down_reads_as_well(spark: SparkSession, load: Load, many: list[int]) -> None:
    """As plain sessions are. Who wants filters pushed there is told by Spark which of its settings that needs."""
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        assert load("big/#").where(f"offset < {many[5]}").count() == 5
        assert setting in refusal(load("big/#", pushFilters="true").where("offset < 5").count)
    finally:
        spark.conf.set(setting, "true")


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_mistakes_are_said_where_they_are_made(spark: SparkSession, load: Load) -> None:
    """Those that only the broker can see, when it is asked."""
    assert "unknown option 'topics': there are admin, archive, at, fail" in refusal(load("a", topics="b").collect)
    assert "boats/# is not recorded; recorded is flights/jfk/#, flights/#" in refusal(load("boats/#").collect)
    narrow = spark.read.format("headway").option("topic", "plain").schema("payload BINARY").load()
    columns = "offset, timestamp, topic, key, properties, payload"
    assert f"the columns are {columns}: leave schema() away, and select" in refusal(narrow.collect)


def test_what_is_wrong_is_a_line_without_our_insides(
    load: Load, proxy: Proxy, trimmed: BrokerProcess, many: list[int]
) -> None:
    """Whether Spark plans, or reads by then."""
    hint = "start it, or name its address (option admin), or wait for longer (option timeout)"

    def break_off() -> None:
        proxy.target = "http://127.0.0.1:1"

    proxy.when_asked = break_off
    earliest = ask(trimmed, "t/#", "HEAD").offset("Earliest")
    for rows, line in (
        (load("none", admin="127.0.0.1:1", timeout="100ms"),
         f"no broker at http://127.0.0.1:1 for 0.1 s: connection refused; {hint}"),
        (load("big/a", to=many[10], timeout="100ms"),
         f"no broker at {proxy.url} for 0.1 s: remote end closed connection without response; {hint}"),
        (load("t/#", admin=trimmed.admin, from_=1),
         f"offsets 1 to {earliest - 1} of t/# are lost to this query: they are older than the broker keeps them; "
         f"option failOnDataLoss=false goes on at {earliest}"),
    ):  # fmt: skip
        said = refusal(rows.collect)
        assert re.findall(r"^headway\.pipeline\.broker\.errors\.\w+: (.*)$", said, re.MULTILINE)[:1] == [line], said
        assert len(set(re.findall(r'File "[^"]*headway/(\S+)"', said))) == 1, said
    assert load("t/#", admin=trimmed.admin, from_=1, failOnDataLoss="false").count() < 10


def test_what_spark_adds_to_the_options_is_nobodys_mistake(spark: SparkSession, broker: BrokerProcess) -> None:
    """A path, and what a view is made of."""
    spark.sql(f"CREATE TEMPORARY VIEW nothing USING headway OPTIONS (topic 'none', admin '{broker.admin}')")
    assert spark.table("nothing").count() == 0
    spark.catalog.dropTempView("nothing")
    read = spark.read.format("headway").option("topic", "none").option("admin", broker.admin)
    assert read.load("some/path").count() == 0


def test_it_can_be_registered_by_hand(spark: SparkSession, load: Load) -> None:
    """Once more does no harm."""
    headway.spark.register(spark)
    assert load("none").columns[0] == "offset"
