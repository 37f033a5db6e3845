"""Stuck AMQP consumers: those that read, or acknowledge, no more. Nobody else notices, memory stays bounded, and the
stuck get everything when they go on; or what their policy leaves them. And clients that vanish in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_raw import Content, content_header
from tests.interop.amqp_slow import (
    PATIENT,
    SMALL,
    Named,
    assert_told_why,
    closing,
    numbered,
    policy,
    pool,
    pools,
    row,
    start_amqp,
)
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

RULES = {
    "block": 'when = { lag_bytes = "200KB" }\nuntil = { lag_bytes = "<20KB" }\nthen = "block_publishers"',
    "offline": 'when = { lag_bytes = "300KB" }\nthen = "offline"',
    "oldest": 'when = { lag_records = 100 }\nuntil = { lag_records = "<10" }\n'
              'then = { action = "discard", which = "oldest", keep_records = 50 }',
    # longer than a busy machine takes between two of the questions of its test
    "all slow": 'when = { credit_exhausted_time = "1s" }\nthen = "block_publishers"',
    "cut": 'when = { lag_records = "> 20" }\nthen = "disconnect"',
}  # fmt: skip
CONFIG = "".join(policy(name, f"$queue/{name}/+", rule) for name, rule in RULES.items())
CONFIG += '[[topic]]\nfilter = "$queue/limited/#"\npool = { memory = "1MB", disk = 0 }\n'
SIZE = 4000


@pytest.fixture(scope="module")
def amqp_broker(start: BrokerFactory) -> Iterator[AmqpBroker]:
    broker = start_amqp(start, CONFIG)
    yield broker
    assert broker.process
    broker.process.stop()


def small_pool(start: BrokerFactory, folder: Path, disk: str) -> BrokerProcess:
    """A broker of the test's own, with 2 MB of memory."""
    folder.mkdir()
    config = f'[pool]\nmemory = "2MB"\ndisk = "{disk}"\ndisk_path = "{folder}"\n'
    process = start_amqp(start, config).process
    assert process
    return process


def bound(raw: Named, exchange: str, queue: str = "") -> str:
    """A queue of its own, that gets what is published to the exchange."""
    raw.call(Exchange.Declare(exchange=exchange, exchange_type="fanout"), Exchange.DeclareOk)
    queue = raw.declare(queue)
    raw.call(Queue.Bind(queue=queue, exchange=exchange), Queue.BindOk)
    return queue


def flood(feeder: Named, exchange: str, count: int, *readers: Named) -> tuple[list[bytes], float]:
    """Publish so many records, of which these get every one; and the longest time a hundred of them took."""
    sent, longest = numbered(count, SIZE), 0.0
    for at in range(0, count, 100):
        began = time.monotonic()
        feeder.put("", *sent[at : at + 100], exchange=exchange)
        for reader in readers:
            assert reader.bodies(100) == sent[at : at + 100]
        longest = max(longest, time.monotonic() - began)
    return sent, longest


# -- nobody else notices --------------------------------------------------------------------------------------------


def test_twenty_that_read_no_more(start: BrokerFactory, name: str, tmp_path: Path) -> None:
    """6 MB for each of 23, with 2 MB of memory: on disk once."""
    broker = small_pool(start, tmp_path / "spill", "100MB")
    with ExitStack() as stack:
        feeder, *clients = (
            stack.enter_context(Named(broker.port, f"{name}-{number}", receive_buffer=SMALL if number > 3 else None))
            for number in range(24)
        )
        healthy, stuck = clients[:3], clients[3:]
        for client in clients:
            client.consume(bound(client, name), no_ack=True)
        before = broker.get("/v1/broker")["memory_rss_bytes"]
        sent, longest = flood(feeder, name, 1500, *healthy)
        assert longest < 2
        assert pool(broker)["memory_peak_bytes"] < 3_000_000
        assert 4_000_000 < pool(broker)["disk_bytes"] + pool(broker)["memory_bytes"] < 7_000_000
        assert broker.get("/v1/broker")["memory_peak_bytes"] - before < 15_000_000
        until(lambda: all(broker.consumer(client.name)["state"] == "offline" for client in stuck))
        assert sum(broker.consumer(client.name)["held_bytes"] for client in stuck) < 7_000_000
        for client in stuck:
            client.read_fast()
        with ThreadPoolExecutor(len(stuck)) as together:  # their small buffers take seconds each
            assert all(bodies == sent for bodies in together.map(lambda client: client.bodies(1500), stuck))
        until(lambda: pool(broker)["disk_bytes"] == 0)
        flood(feeder, name, 100, *clients)
        assert not any(broker.verdicts(client.name) for client in clients)
        assert broker.get("/v1/broker")["memory_peak_bytes"] - before < 15_000_000
    broker.stop()


def test_beyond_the_disk_only_the_stuck_go_and_find_the_reason(
    start: BrokerFactory, name: str, tmp_path: Path
) -> None:
    broker = small_pool(start, tmp_path / "spill", "3MB")
    with ExitStack() as stack:
        feeder, healthy, *stuck = (
            stack.enter_context(Named(broker.port, f"{name}-{number}", receive_buffer=SMALL if number > 1 else None))
            for number in range(5)
        )
        for client in (healthy, *stuck):
            client.consume(bound(client, name), no_ack=True)
        sent, longest = flood(feeder, name, 2500, healthy)
        assert longest < 2
        for client in stuck:
            verdict = until(partial(broker.verdicts, client.name))[0]
            assert verdict["reason"] in ("disk_limit", "client_share")
            assert_told_why(client.connection_closed(), verdict)
            got = [item.body for _, item in client.inbox if isinstance(item, Content)]
            assert 0 < len(got) < 2500
            assert got == sent[: len(got)]
        until(lambda: pool(broker)["disk_bytes"] == 0)
        flood(feeder, name, 300, healthy)
        assert broker.verdicts(healthy.name) == []
    broker.stop()


def test_a_thousand_idle_consumers_cost_the_others_nothing(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    """100 queues with a consumer each on each of 10 connections."""

    def cpu_s() -> float:
        """Of the broker, for work that others have done for them."""
        fields = Path(f"/proc/{headway.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def work() -> float:
        before = cpu_s()
        for _ in range(500):
            feeder.put(queue, b"work")
            assert feeder.bodies(1) == [b"work"]
        return cpu_s() - before

    queue = feeder.declare()
    feeder.consume(queue, no_ack=True)
    alone = work()
    lanes = headway.get("/v1/broker")["lanes"]
    with ExitStack() as stack:
        idle = [stack.enter_context(Named(headway.port, f"{name}-{number}")) for number in range(10)]
        for client in idle:
            bound(client, name)
            for number in range(100):
                own = f"{client.name}-{number}"
                client.do(Queue.Declare(queue=own, exclusive=True, nowait=True))
                client.do(Queue.Bind(queue=own, exchange=name, nowait=True))
                client.do(Basic.Consume(queue=own, no_ack=True, nowait=True))
            client.sync()
        found = headway.get("/v1/broker")
        assert (found["subscriptions"], found["lanes"], found["watched"]) == (1001, lanes + 1, 0)
        assert work() < 2 * alone + 0.1
        feeder.put("", b"for all", exchange=name)
        for client in idle:
            assert client.bodies(100) == [b"for all"] * 100
    until(lambda: headway.get("/v1/broker")["subscriptions"] == 1)


# -- in the middle of something -------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_ack", [True, False], ids=["no-ack", "acks"])
def test_a_reader_that_vanishes_in_the_middle_of_a_record(
    headway: BrokerProcess, feeder: Named, name: str, no_ack: bool
) -> None:
    """What it had not acknowledged others get, in order; what it never was to acknowledge is gone with it."""
    queue, sent = feeder.declare(name, exclusive=False), numbered(20, 100_000)
    with Named(headway.port, name, receive_buffer=SMALL) as reader, Named(headway.port, f"{name}-heir") as heir:
        reader.consume(queue, no_ack=no_ack)
        feeder.put(queue, *sent)
        assert reader.bodies(1) == sent[:1]
        torn = 0
        while torn < 1000:
            torn += len(reader.sock.recv(1000 - torn))
        handed = until(lambda: (one := row(headway, name, queue))["blocked_ms"] > 100 and one["delivered_records"])
        reader.close()
        until(lambda: not row(headway, name, queue))
        heir.consume(queue, no_ack=True)
        got: list[Content] = []
        while not got or got[-1].body != sent[-1]:
            got.append(heir.expect(Content))
        again = sum(one.method.redelivered for one in got)
        assert [one.body for one in got] == sent[-len(got) :]
        assert [one.method.redelivered for one in got[:again]] == [True] * again
        taken = len(sent) - len(got) if no_ack else again
        assert (again, len(got)) == ((0, len(sent) - taken) if no_ack else (taken, len(sent)))
        assert handed <= taken <= handed + 1  # its socket may have had room for one more
        until(lambda: pool(headway)["memory_bytes"] == 0)
    feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)


@pytest.mark.parametrize("where", ["method", "header", "frame", "body", "transaction"])
def test_a_publisher_that_vanishes_in_the_middle_of_a_message(
    headway: BrokerProcess, feeder: Named, name: str, where: str
) -> None:
    queue = feeder.declare()
    feeder.consume(queue, no_ack=True)
    with Named(headway.port, name) as publisher:
        publisher.publish("", queue, b"before")
        message = publisher.content(Basic.Publish(routing_key=queue), b"." * 300_000)
        method = len(publisher.encode(Basic.Publish(routing_key=queue)))
        header = method + len(content_header(300_000))
        if where == "transaction":
            publisher.call(Tx.Select(), Tx.SelectOk)
            publisher.send(message)
            publisher.sync()
        ends = {"method": method, "header": header, "frame": header + 1000, "body": header + publisher.frame_max}
        publisher.send(message[: ends.get(where, method)])
        feeder.put(queue, b"meanwhile")
        assert feeder.bodies(2) == [b"before", b"meanwhile"]
    until(lambda: not headway.publisher(name)["connected"])
    feeder.put(queue, b"after")
    assert feeder.bodies(1) == [b"after"]
    assert headway.publisher(name)["published_records"] == 1
    assert pool(headway)["memory_bytes"] == 0


def test_a_channel_that_is_cut_in_the_middle_of_what_it_publishes(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    """The rest of the message comes when the channel is closed already: it is nobody's fault, and nobody's message."""
    queue, target = feeder.shared(f"cut/{name}"), feeder.declare(f"target/{name}", exclusive=False)
    with Named(headway.port, name) as slow:
        slow.consume(slow.declare())
        slow.open_channel(2)
        slow.consume(queue, 2, prefetch=1)
        message = slow.content(Basic.Publish(routing_key=target), b"." * 300_000, 2)
        slow.send(message[:200_000])
        feeder.put(queue, *numbered(30, 10))
        close = slow.expect(Channel.Close, 2)
        assert_told_why(close, headway.verdicts(name)[0])
        slow.send(message[200_000:])
        slow.publish("", target, b"nor this", channel=2)
        slow.do(Channel.CloseOk(), 2)
        slow.open_channel(2)
        slow.publish("", target, b"this", channel=2)
        slow.sync(2)
        assert feeder.drain(target) == [b"this"]
    feeder.call(Queue.Delete(queue=target), Queue.DeleteOk)


# -- what can be done about one: publishers wait, disk, discarding ---------------------------------------------------


@pytest.mark.parametrize("able", [True, False], ids=["told", "not told"])
def test_a1_the_publisher_is_not_read_until_the_consumer_has_caught_up(
    headway: BrokerProcess, feeder: Named, name: str, able: bool
) -> None:
    queue = feeder.shared(f"block/{name}")
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


def test_a_full_pool_of_a_queue_blocks_its_publishers_and_nobody_else(
    headway: BrokerProcess, feeder: Named, named: Pika, name: str
) -> None:
    """As ActiveMQ's ``memoryLimit`` of a destination does."""
    queue, other, sent = f"limited.{name}", named.queue(), list[bytes]()
    feeder.declare(queue, exclusive=False, durable=True)
    with Named(headway.port, f"{name}-pub") as publisher:
        publisher.call(Confirm.Select(), Confirm.SelectOk)

        def publish() -> bool:
            sent.extend(numbered(50, SIZE, len(sent)))
            publisher.publish("", queue, *sent[-50:], delivery_mode=2)
            return bool(headway.publisher(publisher.name).get("paused"))

        until(publish, what="the publisher is not read")
        assert publisher.expect(Connection.Blocked, 0).reason == "the memory for '$queue/limited/#' is used up"
        for number in range(500):
            named.out.basic_publish("", other, numbered(1, SIZE, number)[0])
        assert named.count(other) == (500, 0)
        limited, whole = (pools(headway)[pool] for pool in ("topic $queue/limited/#", "global"))
        assert limited["memory_limit_bytes"] == 1_000_000
        assert 900_000 < limited["memory_bytes"] < 2_000_000 < whole["memory_bytes"]
        tag = feeder.consume(queue, no_ack=True, policy=PATIENT)
        assert feeder.bodies(len(sent)) == sent
        publisher.expect(Connection.Unblocked, 0)
        feeder.cancel(tag)
    feeder.call(Queue.Delete(queue=queue), Queue.DeleteOk)


def test_a2_what_is_offlined_comes_from_disk_in_full(headway: BrokerProcess, feeder: Named, name: str) -> None:
    queue, sent = feeder.shared(f"offline/{name}"), numbered(1500)
    with Named(headway.port, name, receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        for at in range(0, 1500, 100):
            feeder.put(queue, *sent[at : at + 100])
        until(lambda: pool(headway)["disk_bytes"] > 1_000_000 and pool(headway)["memory_bytes"] < 500_000)
        # ... though there is memory for it
        until(lambda: row(headway, name, queue)["state"] == "offline")
        assert slow.bodies(1500) == sent
        until(lambda: pool(headway)["disk_bytes"] == 0)
        assert row(headway, name, queue)["gap_records"] == {}


def test_a3_the_oldest_are_discarded_until_it_is_slow_no_more(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    queue, sent = feeder.shared(f"oldest/{name}"), numbered(500)
    with Named(headway.port, name, receive_buffer=SMALL) as slow:
        slow.consume(queue, no_ack=True)
        feeder.put(queue, *sent)
        until(lambda: row(headway, name, queue)["lag_records"] <= 50)
        discarded = row(headway, name, queue)["gap_records"]["discarded"]
        assert discarded > 100
        got = slow.bodies(500 - discarded)
        assert got == sorted(got)
        assert (got[0], got[-50:]) == (sent[0], sent[-50:])
        assert headway.publisher(feeder.name)["lost_records"] == {"discarded": discarded}
        until(lambda: not row(headway, name, queue)["slow"])
        feeder.put(queue, *sent[:99])
        assert slow.bodies(99) == sent[:99]  # and gets everything again


def test_a7_one_slow_consumer_of_a_queue_is_no_problem_but_all_of_them_are(
    headway: BrokerProcess, feeder: Named, name: str
) -> None:
    queue = feeder.shared(f"all slow/{name}")
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
