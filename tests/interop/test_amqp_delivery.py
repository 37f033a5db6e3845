"""What consumers get, and what becomes of what they acknowledge or hand back; with pika."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Basic
from pika.exceptions import ConnectionClosedByBroker
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika, PikaFactory
from tests.interop.amqp_raw import Raw
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)

THREE = (b"1", b"2", b"3")

# -- what is published arrives --------------------------------------------------------------------------------------

PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 7,
    "correlation_id": "corr-1", "reply_to": "answers", "expiration": "600000", "message_id": "m-1",
    "timestamp": 1_700_000_000, "type": "order", "user_id": "guest", "app_id": "shop", "cluster_id": "old",
}  # fmt: skip
HEADERS: dict[str, Any] = {
    "text": "ä €", "number": 5, "negative": -70_000, "long": 1 << 40, "truth": True, "nothing": None,
    "decimal": Decimal("1.25"), "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "table": {"a": {"b": 1}}, "list": [1, "x", {"y": [True]}], "bytes": b"\xff\x00", "empty": {},
}  # fmt: skip


@pytest.mark.parametrize("name", [*PROPERTIES, "headers", "all", "none"])
def test_properties_travel_unaltered(client: Pika, name: str) -> None:
    every = PROPERTIES | {"headers": HEADERS}
    said = {"all": every, "none": {}}.get(name) or {key: every[key] for key in [name] if key in every}
    queue = client.queue()
    client.put(queue, b"x", **said)
    client.consume(queue)
    [got] = client.wait(1)
    assert {key: value for key, value in vars(got.properties).items() if value is not None} == said
    assert (got.exchange, got.key, got.redelivered) == ("", queue, False)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 1_000_000])
def test_bodies_of_any_size(client: Pika, size: int) -> None:
    body = bytes(i % 251 for i in range(1000)) * (size // 1000) + b"z" * (size % 1000)
    queue = client.queue()
    client.put(queue, body, body)
    assert client.take(queue).body == body
    client.consume(queue, auto_ack=True)
    assert client.bodies(1) == [body]


def test_frames_are_as_small_as_the_client_wants(amqp_broker: AmqpBroker, client: Pika) -> None:
    """The reader's smaller frames have nothing to do with the publisher's."""
    queue = client.queue("", exclusive=False, auto_delete=True)
    with Raw(amqp_broker.port, frame_max=4096) as raw:
        assert raw.frame_max == 4096  # it fails on a larger one
        raw.call(Basic.Consume(queue=queue, no_ack=True), Basic.ConsumeOk)
        client.put(queue, b"x" * 20_000)
        raw.publish("", queue, b"y" * 20_000)
        assert raw.bodies(2) == [b"x" * 20_000, b"y" * 20_000]


# -- acknowledging --------------------------------------------------------------------------------------------------


def test_records_come_in_order_and_acked_ones_never_again(client: Pika, connect: PikaFactory, word: str) -> None:
    client.queue(word, exclusive=False)
    sent = [b"%d" % i for i in range(20)]
    client.put(word, *sent)
    client.consume(word)
    got = client.wait(20)
    assert [one.body for one in got] == sent
    assert not any(one.redelivered for one in got)
    assert len({one.tag for one in got}) == 20
    client.channel.basic_ack(got[9].tag, multiple=True)
    client.ack(got[15], got[12])
    client.channel.close()
    other = connect()
    until(lambda: other.count(word) == (8, 0), what="the rest is back")
    other.consume(word)
    again = other.wait(8)
    assert [one.body for one in again] == [sent[i] for i in (10, 11, 13, 14, 16, 17, 18, 19)]
    assert all(one.redelivered for one in again)
    other.channel.basic_ack(0, multiple=True)  # zero: all there are
    assert other.so_far() == []
    other.channel.queue_delete(word)


@pytest.mark.parametrize(
    ("how", "back"),
    [
        ("reject", "2"), ("nack", "2"), ("nack multiple", "12"), ("reject away", ""), ("nack away", ""),
        ("nack all", "1234"), ("ack", ""),
    ],
)  # fmt: skip
def test_what_is_handed_back_comes_again_at_its_old_place(client: Pika, how: str, back: str) -> None:
    queue = client.queue()
    client.put(queue, b"1", b"2", b"3", b"4", b"5", b"6")
    got = [client.get(queue) for _ in range(4)]
    tags = [one.tag for one in got if one]
    channel = client.channel
    {
        "reject": lambda: channel.basic_reject(tags[1]),
        "nack": lambda: channel.basic_nack(tags[1]),
        "nack multiple": lambda: channel.basic_nack(tags[1], multiple=True),
        "reject away": lambda: channel.basic_reject(tags[1], requeue=False),
        "nack away": lambda: channel.basic_nack(tags[1], multiple=True, requeue=False),
        "nack all": lambda: channel.basic_nack(0, multiple=True),
        "ack": lambda: channel.basic_ack(tags[1]),
    }[how]()
    client.consume(queue, auto_ack=True)
    came = client.wait(len(back) + 2)
    assert b"".join(one.body for one in came).decode() == back + "56"
    assert [one.redelivered for one in came] == [True] * len(back) + [False] * 2
    assert client.so_far() == []


def test_several_handed_back_one_by_one_are_in_order_again(client: Pika) -> None:
    queue = client.queue()
    client.put(queue, b"1", b"2", b"3", b"4")
    got = [client.get(queue) for _ in range(3)]
    for index in (1, 0, 2):
        one = got[index]
        assert one is not None
        client.channel.basic_reject(one.tag)
    assert client.drain(queue) == [b"1", b"2", b"3", b"4"]


def test_recover_brings_everything_again(client: Pika) -> None:
    queue = client.queue()
    client.put(queue, *THREE)
    client.consume(queue)
    client.ack(client.wait(3)[1])
    client.channel.basic_recover(requeue=True)
    again = client.wait(2)
    assert [(one.body, one.redelivered) for one in again] == [(b"1", True), (b"3", True)]
    client.ack(*again)
    assert client.so_far() == []


def test_recover_without_requeue_brings_it_again_to_who_has_it(client: Pika, connect: PikaFactory, word: str,
                                                               amqp_broker: AmqpBroker) -> None:
    """Though another consumer has room. RabbitMQ has never done that, and says so (540)."""
    queue = client.queue(word, exclusive=False, auto_delete=True)
    client.consume(queue)
    client.put(queue, *THREE)
    got = client.wait(3)
    other = connect()
    other.consume(queue)
    if amqp_broker.process is None:
        with pytest.raises(ConnectionClosedByBroker, match="540"):
            client.channel.basic_recover(requeue=False)
        return
    client.ack(got[1])
    client.channel.basic_recover(requeue=False)
    again = client.wait(2)
    assert [(one.body, one.redelivered) for one in again] == [(b"1", True), (b"3", True)]
    assert [one.tag for one in again] == [got[2].tag + 1, got[2].tag + 2], "under new tags"
    client.ack(*again)
    assert client.so_far() == other.so_far() == []
    assert client.count(queue) == (0, 2)


def test_no_ack_records_are_done_with_as_they_go(client: Pika, connect: PikaFactory, word: str) -> None:
    other = connect()
    client.queue(word, exclusive=False)
    client.put(word, *THREE)
    assert client.get(word, auto_ack=True) is not None
    client.consume(word, auto_ack=True, prefetch=1)  # which limits only what is to be acknowledged
    assert client.bodies(2) == [b"2", b"3"]
    client.close()
    assert other.count(word)[0] == 0
    other.channel.queue_delete(word)


def test_get(client: Pika) -> None:
    queue = client.queue()
    assert client.get(queue) is None
    client.put(queue, *THREE)
    method, *_ = client.channel.basic_get(queue)
    assert (method.message_count, method.redelivered, method.routing_key) == (2, False, queue)
    assert client.count(queue) == (2, 0)
    client.channel.basic_ack(method.delivery_tag)
    assert client.drain(queue) == [b"2", b"3"]


# -- who gets how much ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("whole_channel", "expected"), [(False, 4), (True, 2)])
def test_prefetch_counts_each_consumer_or_the_whole_channel(client: Pika, whole_channel: bool, expected: int) -> None:
    queue = client.queue()
    client.put(queue, *(b"%d" % i for i in range(10)))
    client.channel.basic_qos(prefetch_count=2, global_qos=whole_channel)
    client.consume(queue)
    client.consume(queue)
    first = client.wait(expected)
    assert client.so_far() == []
    client.ack(first[0])
    assert client.bodies(1) == [b"%d" % expected]
    assert client.so_far() == []
    client.channel.basic_ack(0, multiple=True)
    assert len(client.wait(expected)) == expected


def test_both_prefetch_limits_hold(client: Pika) -> None:
    """In this order: with RabbitMQ, asking for the consumers' limit takes the channel's away."""
    queue = client.queue()
    client.put(queue, *(b"%d" % i for i in range(10)))
    client.channel.basic_qos(prefetch_count=2)
    client.channel.basic_qos(prefetch_count=3, global_qos=True)
    client.consume(queue)
    assert client.bodies(2) == [b"0", b"1"]
    client.consume(queue)
    assert client.bodies(1) == [b"2"]
    assert client.so_far() == []
    client.channel.basic_qos(prefetch_count=0, global_qos=True)  # no limit but the consumers' own
    assert client.bodies(1) == [b"3"]
    assert client.so_far() == []


def test_consumers_share_a_queue(client: Pika, connect: PikaFactory, word: str) -> None:
    """In turns, and each record goes to one of them."""
    readers = [client, connect(), connect()]
    client.queue(word, exclusive=False, auto_delete=True)
    for one in readers:
        one.consume(word, prefetch=100)
    sent = [b"%d" % i for i in range(30)]
    client.put(word, *sent)
    got = [one.bodies(10) for one in readers]
    assert sorted(body for part in got for body in part) == sorted(sent)
    assert all(part == sorted(part, key=int) for part in got)


def test_after_cancel_nothing_comes_and_acks_still_count(client: Pika) -> None:
    queue = client.queue()
    tag = client.consume(queue, consumer_tag="mine")
    client.put(queue, *THREE)
    assert tag == "mine"
    got = client.wait(3)
    client.cancel(tag)
    client.put(queue, b"4")
    client.ack(got[0])
    client.channel.basic_reject(got[2].tag)
    until(lambda: client.count(queue) == (2, 0), what="one is back")
    assert client.so_far() == []
    assert client.drain(queue) == [b"3", b"4"]


def test_consumers_hear_that_their_queue_is_gone(client: Pika, connect: PikaFactory, word: str) -> None:
    other = connect()
    client.queue(word, exclusive=False)
    heard: list[str] = []
    client.channel.add_on_cancel_callback(lambda frame: heard.append(frame.method.consumer_tag))
    tags = {client.consume(word), client.consume(word)}
    other.channel.queue_delete(word)
    until(lambda: client.turn() is not None and set(heard) == tags, what="both are told")
    assert client.channel.is_open
    queue = client.queue()
    client.put(queue, b"x")
    client.consume(queue)
    assert client.bodies(1) == [b"x"]
