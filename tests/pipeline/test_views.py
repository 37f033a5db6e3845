"""Views against a real broker: what is published to their topics, across restarts of either, and what ends one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from demo.actors.carriers import Board
from demo.flights import in_order
from pyspark.sql import SparkSession
from tests.demo.test_demo import row
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.test_interop_state import ask as ask_state
from tests.interop.waiting import until
from tests.pipeline.proxy import Proxy

from demo import live
from headway.pipeline.views.publish import Status
from headway.pipeline.views.run import SPARK, ViewRun
from headway.pipeline.views.schema import Catalog
from headway.server.config.reading import load_settings
from headway.server.config.settings import tables_of

BATCH_S = 120.0
"""For Spark to get through a batch on a machine that has other work."""
CONFIG = """
[[topic]]
filter = "flights/#"
keep = "7d"
[[topic]]
filter = "windows"
keep = "7d"
[[topic]]
filter = "misfits/#"
keep = "7d"
[[topic]]
filter = "planes/#"
key = "/tail"
keep = "7d"

[views.delay]
sql = "SELECT carrier, avg(delay) AS delay, count(*) AS flights FROM flights GROUP BY carrier"
topic = "views/delay"
key = "carrier"
every = 0

[views.closed]
sql = "SELECT window.start, sum(n) AS n FROM windows GROUP BY window(at, '10 seconds')"
topic = "views/closed"
key = "start"
mode = "append"
every = 0
[tables.windows]
schema = "at TIMESTAMP, n INT"
watermark = "0s"
time = "at"

[views.strict]
sql = "SELECT n FROM strict WHERE n > 7"
topic = "views/strict"
key = "n"
every = 0
[tables.strict]
topic = "misfits/a"
schema = "n INT"

[views.lenient]
sql = "SELECT n, within.x, list, _topic FROM lenient"
topic = "views/lenient"
key = "n"
mode = "append"
every = 0
[tables.lenient]
topic = "misfits/#"
schema = "n INT, within STRUCT<x: INT>, list ARRAY<INT>, free STRING"
misfits = "skip"

[views.latest]
sql = "SELECT _key AS tail, carrier, _deleted FROM planes"
topic = "views/latest"
key = "tail"
every = 0
[tables.planes]
schema = "tail STRING, carrier STRING"
deletes = "rows"

[views.top]
sql = "SELECT carrier, count(*) AS n FROM planes WHERE NOT _deleted GROUP BY carrier ORDER BY n DESC, carrier LIMIT 2"
topic = "views/top"
key = "carrier"
mode = "complete"
every = 0
"""
UNKNOWN = """
[[topic]]
filter = "boats"
keep = "7d"
[views.boats]
sql = "SELECT name FROM boats"
topic = "views/boats"
key = "name"
[tables.boats]
schema = "name STRING"
"""
"""What the running broker has not read yet."""
FITS = [{"n": 1}, {"n": 2, "other": [{}], "within": {"x": 5}}, {"n": 3, "list": [1, 2], "free": {"a": 1}}, {"n": None}]
MISFITS = [
    b"", b"null", b"5", b"[]", b'{"n":', b'{"n": 1} x', b'{"n": 1}{"n": 2}', b"{'n': 1}", b"\xff\xfe", b'{"n": "1"}',
    b'{"n": 1.5}', b'{"n": 3000000000}', b'{"n": 1, "within": 3}', b'{"n": 1, "within": {"x": "q"}}',
    b'{"n": 1, "list": [1, "' + b"long" * 40 + b'"]}',
]  # fmt: skip


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., tuple[ViewRun, dict[str, Status]]]]:
    """Starts views of the config; they are stopped at the end."""
    before = {name: spark.conf.get(name, None) for name in ("spark.sql.shuffle.partitions", *SPARK)}
    for name, value in SPARK.items():
        spark.conf.set(name, value)
    started = []

    def start(broker: BrokerProcess, *names: str, admin: str = "") -> tuple[ViewRun, dict[str, Status]]:
        settings, url = load_settings(broker.config), admin or broker.admin
        one = ViewRun(spark, Catalog(spark, tables_of(settings), url), url, tmp_path / "views")
        started.append(one)
        statuses = {name: Status(name, settings.views[name]) for name in names}
        for status in statuses.values():
            one.start(status)
            assert not status.error
        return one, statuses

    yield start
    for one in started:
        one.stop()
    for name, was in before.items():
        if was is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, was)


def publish(broker: BrokerProcess, topic: str, *payloads: Any) -> None:
    bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in payloads]
    with Raw(broker.ports["mqtt"]) as writer:
        writer.publish_all(topic, bodies[:-1])
        writer.published(topic, bodies[-1])


def heard(reader: Raw, count: int) -> list[Any]:
    return [json.loads(payload) for payload in reader.payloads(count, BATCH_S)]


def by_carrier(rows: list[Any]) -> dict[str, tuple[float, int]]:
    return {row["carrier"]: (row["delay"], row["flights"]) for row in rows}


def flights(**delays: int) -> list[dict[str, Any]]:
    return [{"carrier": carrier, "delay": delay} for carrier, delay in delays.items()]


def test_what_changes_is_published_once_and_later_subscribers_have_it_all(
    run: Callable[..., tuple[ViewRun, dict[str, Status]]], start: BrokerFactory, tmp_path: Path
) -> None:
    """The broker is killed while the view waits for more, and the view stopped while there is more."""
    config = recording(tmp_path / "journal", CONFIG)
    broker = start(config)
    publish(broker, "flights/1", *flights(UA=10, AA=3), {"carrier": "UA", "delay": 20})
    with Proxy(broker.admin) as proxy:
        with Raw(broker.ports["mqtt"], "reader").subscribed("views/delay") as reader:
            views, statuses = run(broker, "delay", admin=proxy.url)
            assert by_carrier(heard(reader, 2)) == {"UA": (15.0, 2), "AA": (3.0, 1)}
            publish(broker, "flights/2", *flights(AA=5))
            assert by_carrier(heard(reader, 1)) == {"AA": (4.0, 2)}
            until(lambda: views.look() or statuses["delay"].published == 3, BATCH_S, "the broker has it on disk")
        broker.kill()
        broker = start(config)
        proxy.target = broker.admin
        with Raw(broker.ports["mqtt"], "later") as later:
            later.subscribed("views/delay", user=(("snapshot", "true"),))
            assert by_carrier(heard(later, 2)) == {"UA": (15.0, 2), "AA": (4.0, 2)}
            publish(broker, "flights/1", *flights(DL=1))
            assert by_carrier(heard(later, 1)) == {"DL": (1.0, 1)}
            until(lambda: views.look() or statuses["delay"].published == 4, BATCH_S, "Spark has counted it")
            assert (statuses["delay"].records, statuses["delay"].state) == (5, "running")
            views.stop()
            publish(broker, "flights/1", *flights(UA=30))
            views, statuses = run(broker, "delay", admin=proxy.url)
            assert by_carrier(heard(later, 1)) == {"UA": (20.0, 3)}
            until(lambda: views.look() or statuses["delay"].published == 1, BATCH_S, "the broker has it on disk")
            assert later.so_far() == []
    assert len(ask(broker, "views/delay").rows) == 5
    broker.stop()


def test_side_by_side_one_ends_and_the_others_go_on(
    run: Callable[..., tuple[ViewRun, dict[str, Status]]], start: BrokerFactory, tmp_path: Path
) -> None:
    config = recording(tmp_path / "journal", CONFIG)
    broker = start(config)
    broker.write(config + UNKNOWN)
    publish(broker, "misfits/a", *FITS, MISFITS[9])
    offset = ask(broker, "misfits/a").rows[-1]["offset"]
    publish(broker, "misfits/b", *MISFITS)
    publish(broker, "windows", *({"at": f"2026-01-31T12:00:{second:02}Z", "n": 1} for second in (1, 9, 5, 12)))
    with Raw(broker.ports["mqtt"], "reader").subscribed("views/#") as reader:
        views, all = run(broker, "strict", "boats", "lenient", "closed")
        found = {json.dumps(row): row for row in heard(reader, len(FITS) + 1)}.values()
        assert sorted((row for row in found if "_topic" in row), key=lambda row: row["n"] or 9) == [
            {"n": 1, "x": None, "list": None, "_topic": "misfits/a"},
            {"n": 2, "x": 5, "list": None, "_topic": "misfits/a"},
            {"n": 3, "x": None, "list": [1, 2], "_topic": "misfits/a"},
            {"n": None, "x": None, "list": None, "_topic": "misfits/a"},
        ]
        assert [row for row in found if "start" in row] == [{"start": "2026-01-31T12:00:00.000Z", "n": 3}]
        until(lambda: views.look() or all["strict"].error, BATCH_S, "the view ends")
        assert all["strict"].error == f"topic misfits/a, offset {offset}: field n is not INT: 1"
        assert all["strict"].published == 0
        until(lambda: views.look() or all["boats"].error, BATCH_S, "the view ends")
        assert all["boats"].error.startswith("boats is not recorded; recorded is views/delay, ")
        until(lambda: views.look() or all["lenient"].misfits, BATCH_S, "Spark has counted them")
        # No payload, and a key: that deletes the key.
        assert (all["lenient"].misfits, all["lenient"].deletes) == (len(MISFITS), 1)
        assert all["lenient"].last_misfit.endswith(f': field list is not ARRAY<INT>: [1,"{"long" * 14}...')
        publish(broker, "windows", {"at": "2026-01-31T12:00:02Z", "n": 7}, {"at": "2026-01-31T12:00:20Z", "n": 1})
        assert heard(reader, 1) == [{"start": "2026-01-31T12:00:10.000Z", "n": 1}]
        until(lambda: views.look() or all["closed"].late, BATCH_S, "Spark has counted it")
        assert (all["closed"].late, views.goes_on) == (1, True)
    broker.stop()


def planes(broker: BrokerProcess, *rows: tuple[str, str | None]) -> None:
    """Publishes planes and their carriers; None deletes the plane."""
    with paho(broker.ports["mqtt"], "planes") as client:
        for tail, carrier in rows:
            said = properties("PUBLISH", UserProperty=[("key", tail)])
            payload = b"" if carrier is None else json.dumps({"tail": tail, "carrier": carrier}).encode()
            client.publish("planes/1", payload, 1, properties=said)


def state(broker: BrokerProcess, topic: str) -> dict[str, Any]:
    return {one["key"]: json.loads(one["payload"]) for one in ask_state(broker, topic, {}).json["records"]}


def test_what_leaves_a_result_is_published_as_a_delete(
    run: Callable[..., tuple[ViewRun, dict[str, Status]]], start: BrokerFactory, tmp_path: Path
) -> None:
    """A plane that was deleted, and a carrier that is no longer among the two with the most planes."""
    broker = start(recording(tmp_path / "journal", CONFIG))
    planes(broker, ("N1", "UA"), ("N2", "UA"), ("N3", "DL"), ("N1", None))
    views, all = run(broker, "latest", "top")
    top = {"UA": {"carrier": "UA", "n": 2}, "DL": {"carrier": "DL", "n": 1}}
    until(lambda: views.look() or state(broker, "views/top") == top, BATCH_S, "the first result")
    latest = {"N2": {"tail": "N2", "carrier": "UA"}, "N3": {"tail": "N3", "carrier": "DL"}}
    until(lambda: state(broker, "views/latest") == latest, BATCH_S, "the first planes")
    planes(broker, ("N3", None), ("N3", "AA"), ("N2", None), ("N4", "AA"), ("N5", "AA"))
    top = {"AA": {"carrier": "AA", "n": 3}, "UA": {"carrier": "UA", "n": 2}}
    until(lambda: views.look() or state(broker, "views/top") == top, BATCH_S, "DL leaves")
    latest = {tail: {"tail": tail, "carrier": "AA"} for tail in ("N3", "N4", "N5")}
    until(lambda: state(broker, "views/latest") == latest, BATCH_S, "N2 leaves")
    deletes = [
        (dict(row["properties"]["user"])["headway-key"], row["key"])
        for topic in ("views/latest", "views/top")
        for row in ask(broker, topic).rows
        if dict(row["properties"]["user"]).get("headway-event") == "delete" and not row["payload"]
    ]
    assert deletes == [(name, name) for name in ("N1", "N3", "N2", "DL")]
    until(lambda: views.look() or all["latest"].published == 9, BATCH_S, "Spark has counted them")
    assert not any(one.error for one in all.values())
    broker.stop()


def test_the_demo_s_view(run: Any, start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(recording(tmp_path / "journal", live.VIEW))
    run(broker, live.NAME)
    board = Board("127.0.0.1", broker.ports["mqtt"])
    table = [row(), row(dep_delay="6"), row(carrier="AA", dep_delay="-3"), row(carrier="AA", dep_delay="")]
    for flight in in_order(table):
        publish(broker, flight.topic, flight.payload(time.monotonic()))
    until(lambda: board.flights == len(table), BATCH_S, "all flights are on the board")
    board.close()
    assert [(one.carrier, one.flights, one.delay_min) for one in board.latest()] == [("UA", 2, 4.0), ("AA", 2, -3.0)]
    assert 0 < board.age_s(0.0) <= board.age_s(1.0) < BATCH_S
    broker.stop()
