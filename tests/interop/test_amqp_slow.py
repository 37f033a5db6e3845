"""Slow AMQP consumers, row by row (docs/POLICIES.md): judged by their policies, told so, and nobody else notices.

tests/core/test_queue_rows.py has the rows themselves; here they go over sockets, to clients that show what they are told.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Connection, Queue
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Delivery, Pika, PikaFactory
from tests.interop.amqp_raw import Content
from tests.interop.amqp_slow import SMALL, Named, closing, policy, row, start_amqp
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

STARVED = 'when = { credit_exhausted_time = "200ms" }\nthen = '
CUT_AT_50 = 'when = { lag_records = "> 50" }\nthen = "disconnect"'
RULES: dict[str, tuple[str, ...]] = {
    "rate": ('when = { drain_rate = "<20kB/s" }\nfor = "300ms"\nretries = 3\nthen = "disconnect"',),
    "suspect": ('when = { drain_rate = "<20kB/s" }\nthen = "notify"',),
    "block": ('when = { lag_bytes = "200KB" }\nuntil = { lag_bytes = "<20KB" }\nthen = "block_publishers"',),
    "offline": ('when = { lag_bytes = "300KB" }\nthen = "offline"',),
    "oldest": ('when = { lag_records = 100 }\nuntil = { lag_records = "<10" }\n'
               'then = { action = "discard", which = "oldest", keep_records = 50 }',),
    "all slow": (STARVED + '"block_publishers"',),
    "constant": ('when = { lag_records = "> 50" }\n'
                 'then = { action = "discard", which = "oldest", keep_records = 50 }',),
    "multiple": ('when = { lag_records = "> 2 x prefetch" }\n'
                 'then = { action = "discard", which = "oldest", keep_records = "2 x prefetch" }',),
    "often": ('when = { credit_exhausted_time = "50ms" }\nthen = "notify"',
              'when = { credit_exhausted_time = "50ms" }\ntimes = 3\nthen = "disconnect"'),
    "notify": (STARVED + '"notify"',),
    "close": (STARVED + '"close_consumer"',),
    "cut": (STARVED + '"disconnect"',),
    "return": ('when = { ack_age = "300ms" }\nthen = "return"',),
}  # fmt: skip
PLACES = {"key": "$exchange/rows-stocks/us/+", "queue": "$queue/rows-orders", "topics": "rows/us/#"}
CONFIG = "[flap]\nbase = '300ms'\n" + "".join(
    [policy(name, f"$queue/{name}/+", *rules) for name, rules in RULES.items()]
    + [policy(name, topics, CUT_AT_50) for name, topics in PLACES.items()]
)
_names = count(1)


@pytest.fixture(scope="module")
def amqp_broker(start: BrokerFactory) -> Iterator[AmqpBroker]:
    broker = start_amqp(start, CONFIG)
    yield broker
    assert broker.process
    broker.process.stop()


@pytest.fixture
def feeder(headway: BrokerProcess, name: str) -> Iterator[Named]:
    """Publishes."""
    with Named(headway.port, f"{name}-feeder") as raw:
        yield raw


@pytest.fixture
def named(connect: PikaFactory, name: str) -> Pika:
    """A pika client that says what it is called."""
    return connect(client_properties={"connection_name": name})


def numbered(count: int, size: int = 1000, first: int = 0) -> list[bytes]:
    return [b"%06d" % number + b"." * (size - 6) for number in range(first, first + count)]


def declared(feeder: Named, queue: str) -> str:
    """A queue for others to consume."""
    return feeder.declare(queue, exclusive=False, auto_delete=True)


def pool(headway: BrokerProcess) -> dict[str, Any]:
    found: dict[str, Any] = headway.get("/v1/broker")["pools"][0]
    return found


# -- rates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["does not read", "does not acknowledge"])
def test_x2_below_the_rate_in_every_test_while_records_wait(
    headway: BrokerProcess, feeder: Named, name: str, how: str
) -> None:
    queues = [declared(feeder, f"rate/{name}"), declared(feeder, f"rate/{name}-fast")]
    no_ack = how == "does not read"
    slow = Named(headway.port, name, receive_buffer=SMALL)
    fast = Named(headway.port, f"{name}-fast")
    with closing(slow, fast):
        slow.consume(queues[0], no_ack=no_ack, prefetch=10)
        fast.consume(queues[1], no_ack=no_ack)
        got: list[Content] = []

        def verdict() -> list[dict[str, Any]]:
            for queue in queues:
                feeder.put(queue, *numbered(20))
            got.extend(fast.contents(20))
            if not no_ack:
                fast.ack(0, multiple=True)
            return headway.verdicts(name)

        text = until(verdict)[0]["text"]
        assert "each of 3 tests" in text
        close = slow.connection_closed()
        assert (close.reply_code, close.reply_text) == (506, f"RESOURCE_ERROR - {text}")
        assert headway.verdicts(f"{name}-fast") == []
        assert row(headway, f"{name}-fast", queues[1])["delivered_records"] == len(got)


def test_x1_a_suspect_that_reads_again_is_none(headway: BrokerProcess, feeder: Named, name: str) -> None:
    queue, sent = declared(feeder, f"suspect/{name}"), numbered(300)
    with Named(headway.port, name, receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        feeder.put(queue, *sent)
        found = until(lambda: (one := row(headway, name, queue))["slow"] and one)
        assert found["last_verdict"]["reason"] == "drain_rate"
        assert found["blocked_ms"] > 0
        assert found["credit_exhausted_ms"] == 0
        assert slow.bodies(300) == sent
        until(lambda: not row(headway, name, queue)["slow"], what="it is no suspect any more")


# -- publishers, disk, discarding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("able", [True, False], ids=["told", "not told"])
def test_a1_the_publisher_is_not_read_until_the_consumer_has_caught_up(
    headway: BrokerProcess, feeder: Named, name: str, able: bool
) -> None:
    queue = declared(feeder, f"block/{name}")
    sent: list[bytes] = []
    publisher, slow = Named(headway.port, f"{name}-pub", able=able), Named(headway.port, name, receive_buffer=SMALL)

    def publish() -> bool:
        sent.extend(numbered(50, first=len(sent)))
        publisher.publish("", queue, *sent[-50:])
        return bool(headway.publisher(publisher.name).get("paused"))

    with closing(publisher, slow):
        slow.consume(queue, no_ack=True)
        until(publish, what="the publisher is not read")
        before = headway.publisher(publisher.name)["published_records"]
        if able:
            assert publisher.expect(Connection.Blocked, 0).reason == "consumers cannot keep up"
        publish()
        elsewhere = feeder.declare()
        feeder.put(elsewhere, b"x")  # others are read
        assert feeder.drain(elsewhere) == [b"x"]
        assert headway.publisher(publisher.name)["published_records"] == before < len(sent)
        assert slow.bodies(len(sent)) == sent
        if able:
            publisher.expect(Connection.Unblocked, 0)
        publisher.sync()
        assert not publisher.inbox
        after = headway.publisher(publisher.name)
        assert (after["paused"], after["published_records"], after["lost_records"]) == (False, len(sent), {})
        assert row(headway, name, queue)["producer_stall_ms"] > 0


def test_a1_pika_is_told_when_it_is_blocked_and_when_no_more(headway: BrokerProcess, named: Pika, name: str) -> None:
    told: list[str] = []
    named.connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    named.connection.add_on_connection_unblocked_callback(lambda *_: told.append("no more"))
    queue = named.queue(f"block/{name}", exclusive=False, auto_delete=True)
    sent = 0
    with Named(headway.port, f"{name}-slow", receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        while not told:
            named.channel.basic_publish("", queue, numbered(1, first=sent)[0])
            sent += 1
            named.turn()
        assert slow.bodies(sent) == numbered(sent)
        until(lambda: named.turn() or told[1:])
        assert told == ["consumers cannot keep up", "no more"]
        assert named.count(queue) == (0, 1)


def test_a2_what_is_offlined_comes_from_disk_in_full(headway: BrokerProcess, feeder: Named, name: str) -> None:
    queue, sent = declared(feeder, f"offline/{name}"), numbered(1500)
    with Named(headway.port, name, receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        for at in range(0, 1500, 100):
            feeder.put(queue, *sent[at : at + 100])
        until(lambda: pool(headway)["disk_bytes"] > 1_000_000)  # though there is memory for it
        assert pool(headway)["memory_bytes"] < 500_000
        until(lambda: row(headway, name, queue)["state"] == "offline")
        assert slow.bodies(1500) == sent
        until(lambda: pool(headway)["disk_bytes"] == 0)
        assert row(headway, name, queue)["gap_records"] == {}


def test_a3_the_oldest_are_discarded_until_it_is_slow_no_more(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    queue, sent = declared(feeder, f"oldest/{name}"), numbered(500)
    with Named(headway.port, name, receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        feeder.put(queue, *sent)
        until(lambda: row(headway, name, queue)["lag_records"] == 50)
        discarded = row(headway, name, queue)["gap_records"]["discarded"]
        got = slow.bodies(500 - discarded)
        first = len(got) - 50
        assert got == sent[:first] + sent[-50:]
        assert headway.publisher(feeder.name)["lost_records"] == {"discarded": discarded}
        until(lambda: not row(headway, name, queue)["slow"])
        feeder.put(queue, *sent[:99])
        assert slow.bodies(99) == sent[:99]  # and gets everything again


def test_a7_one_slow_consumer_of_a_queue_is_no_problem_but_all_of_them_are(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    queue = declared(feeder, f"all slow/{name}")
    publisher, stuck, other = (Named(headway.port, f"{name}-{who}") for who in ("pub", "stuck", "other"))
    got: list[Content] = []

    def work() -> None:
        got.append(other.expect(Content))
        other.ack(got[-1].method.delivery_tag)

    def one_slow() -> bool:
        publisher.put(queue, *numbered(2))
        work()
        return bool(row(headway, stuck.name, queue)["slow"])

    with closing(publisher, stuck, other):
        stuck.consume(queue, prefetch=5)
        other.consume(queue, prefetch=1)
        publisher.put(queue, *numbered(20))
        until(one_slow)
        assert not row(headway, other.name, queue)["slow"]
        publisher.put(queue, b"still read")
        assert not headway.publisher(publisher.name)["paused"]
        until(lambda: row(headway, other.name, queue)["slow"])
        publisher.publish("", queue, b"read")
        publisher.expect(Connection.Blocked, 0)
        assert headway.publisher(publisher.name)["paused"]
        publisher.publish("", queue, b"not read")
        work()
        publisher.expect(Connection.Unblocked, 0)
        publisher.sync()
        published = headway.publisher(publisher.name)["published_records"]
        while len(got) < published - 5:
            work()
        assert got[-1].body == b"not read"
        other.sync()
        assert len([item for _, item in stuck.sync().inbox if isinstance(item, Content)]) == 5
        assert headway.publisher(publisher.name)["lost_records"] == {}


# -- how many may wait, how long, how often -------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "prefetch", "kept"), [("constant", 10, 50), ("multiple", 3, 6), ("multiple", 20, 40)])
def test_j1_j2_so_many_may_wait_on_top_of_the_prefetch(
    headway: BrokerProcess, named: Pika, name: str, limit: str, prefetch: int, kept: int
) -> None:
    queue = named.queue(f"{limit}/{name}")
    named.consume(queue, prefetch=prefetch)
    sent = numbered(200, 10)
    named.put(queue, *sent[: prefetch + kept])
    got = named.wait(prefetch)
    assert row(headway, name, queue)["lag_records"] == kept
    named.put(queue, *sent[prefetch + kept :])
    until(lambda: row(headway, name, queue)["lag_records"] == kept)
    assert row(headway, name, queue)["in_flight"] == prefetch
    while len(got) < prefetch + kept:
        named.ack(*got[-prefetch:])
        got += named.wait(min(prefetch, prefetch + kept - len(got)))
    assert [one.body for one in got] == sent[:prefetch] + sent[-kept:]
    assert row(headway, name, queue)["gap_records"] == {"discarded": 200 - prefetch - kept}


def test_j3_slow_too_often(headway: BrokerProcess, named: Pika, name: str) -> None:
    queue = named.queue(f"often/{name}")
    named.consume(queue, prefetch=2)
    for times in (1, 2):
        named.put(queue, *numbered(6, 10))
        got = named.wait(2)
        until(lambda: row(headway, name, queue)["slow"])
        while len(got) < 6:
            named.ack(*got[-2:])
            got += named.wait(2)
        named.ack(*got[-2:])
        until(lambda: not row(headway, name, queue)["slow"])
        assert row(headway, name, queue)["slow_count"] == times
    named.put(queue, *numbered(6, 10))
    with pytest.raises(ConnectionClosedByBroker) as caught:
        until(lambda: named.connection.process_data_events(0))
    assert caught.value.reply_code == 506
    assert "for the 3rd time" in caught.value.reply_text


# -- closing, cutting -----------------------------------------------------------------------------------------------


def starve(client: Pika, queue: str, prefetch: int = 2) -> list[Delivery]:
    """More than the window takes waits in a queue that the client consumes; what it has of it."""
    client.consume(queue, prefetch=prefetch)
    client.put(queue, *numbered(prefetch + 3, 10))
    return client.wait(prefetch)


def test_j4_the_client_is_asked_to_close_its_consumer(headway: BrokerProcess, named: Pika, name: str) -> None:
    cancelled: list[str] = []
    queue, other = named.queue(f"close/{name}"), named.queue()
    named.channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    named.consume(other, auto_ack=True)
    got = starve(named, queue)
    until(lambda: named.turn() or cancelled)
    assert cancelled == [got[0].consumer]
    assert named.count(queue) == (3, 0)
    assert headway.verdicts(name)[0]["reason"] == "credit_exhausted"
    named.put(other, b"goes on")
    assert named.bodies(1) == [b"goes on"]
    named.ack(*got)  # it may finish its work
    assert named.drain(queue) == numbered(5, 10)[2:]


@pytest.mark.parametrize("version", ["0-9-1", "0-9", "0-8"])
def test_j4_who_cannot_be_asked_has_its_channel_closed(
    headway: BrokerProcess, feeder: Named, name: str, version: str
) -> None:
    queue = declared(feeder, f"close/{name}")
    feeder.consume(queue, prefetch=1)
    with Named(headway.port, name, version, able=False) as slow:
        slow.consume(queue, prefetch=2)
        feeder.put(queue, *numbered(10, 10))
        close = slow.channel_closed()
        text = headway.verdicts(name)[0]["text"]
        assert (close.reply_code, close.reply_text) == (506, f"RESOURCE_ERROR - {text}")
        slow.open_channel(2)
        slow.declare(channel=2)
