"""How a connection begins: versions, capabilities, who may come in; and the heartbeats that keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue, Tx
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika, PikaFactory
from tests.interop.amqp_raw import CAPABILITIES, METHOD, VERSIONS, Heartbeat, Raw, frame, method
from tests.interop.waiting import PATIENCE_S, until

pytest_plugins = ("tests.interop.amqp_fixtures",)

# -- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_from_beginning_to_end(amqp_broker: AmqpBroker, client: Pika, word: str, version: str) -> None:
    with Raw(amqp_broker.port, version) as raw:
        raw.call(Exchange.Declare(exchange=word, exchange_type="topic"), Exchange.DeclareOk)
        queue = raw.declare(auto_delete=True)
        raw.call(Queue.Bind(queue=queue, exchange=word, routing_key="a.*"), Queue.BindOk)
        raw.publish(word, "a.b", b"1", b"2" * 5000, b"3", content_type="text/plain", headers={"n": 1})
        raw.publish(word, "lost", b"lost", mandatory=True)
        back = raw.contents(1)[0]
        assert (back.method.reply_code, back.body) == (312, b"lost")
        first = raw.get(queue)
        assert first is not None
        assert (first.body, first.method.routing_key, first.method.message_count) == (b"1", "a.b", 2)
        assert (first.properties.content_type, first.properties.headers) == ("text/plain", {"n": 1})
        raw.do(Basic.Reject(first.method.delivery_tag, True))
        tag = raw.call(Basic.Consume(queue=queue), Basic.ConsumeOk).consumer_tag
        got = raw.contents(3)
        assert [one.body for one in got] == [b"1", b"2" * 5000, b"3"]
        assert [one.method.redelivered for one in got] == [True, False, False]
        assert {one.method.consumer_tag for one in got} == {tag}
        raw.do(Basic.Ack(got[1].method.delivery_tag, True))
        raw.call(Tx.Select(), Tx.SelectOk)
        raw.do(Basic.Ack(got[2].method.delivery_tag))
        raw.publish(word, "a.c", b"4")
        raw.call(Tx.Commit(), Tx.CommitOk)
        assert raw.bodies(1) == [b"4"]
        raw.call(Basic.Cancel(tag), Basic.CancelOk)
        raw.call(Exchange.Delete(exchange=word), Exchange.DeleteOk)
        raw.call(Channel.Close(200, "bye", 0, 0), Channel.CloseOk)
        raw.call(Connection.Close(200, "bye", 0, 0), Connection.CloseOk, 0)
    until(lambda: not client.exists(queue), what="the queue goes with its connection")


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_meet(amqp_broker: AmqpBroker, client: Pika, version: str) -> None:
    """Messages say nothing of the version they came by."""
    queue = client.queue("", exclusive=False, auto_delete=True)
    with Raw(amqp_broker.port, version) as raw:
        raw.publish("", queue, b"up", priority=3, headers={"a": "b"})
        client.consume(queue)
        [got] = client.wait(1)
        assert (got.body, got.properties.priority, got.headers) == (b"up", 3, {"a": "b"})
        client.channel.basic_reject(got.tag)
        client.cancel(got.consumer)
        client.put(queue, b"down", app_id="x")
    client.channel.queue_delete(queue)


@pytest.mark.parametrize("version", VERSIONS)
def test_recover_in_every_version(amqp_broker: AmqpBroker, version: str) -> None:
    """What is answered is the same method everywhere, under three pairs of numbers; what is not, 100 everywhere."""
    if version == "0-9" and amqp_broker.process is None:
        pytest.skip("RabbitMQ takes 0-9 for 0-9-1")
    with Raw(amqp_broker.port, version) as raw:
        queue = raw.declare()
        raw.publish("", queue, b"1", b"2")
        raw.call(Basic.Consume(queue=queue), Basic.ConsumeOk)
        assert raw.bodies(2) == [b"1", b"2"]
        raw.call(Basic.Recover(True), Basic.RecoverOk)
        assert [(one.body, one.method.redelivered) for one in raw.contents(2)] == [(b"1", True), (b"2", True)]
        raw.send(method((60, 100), b"\x01"))
        assert [(one.body, one.method.redelivered) for one in raw.contents(2)] == [(b"1", True), (b"2", True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_mistakes_in_every_version(amqp_broker: AmqpBroker, word: str, version: str) -> None:
    with Raw(amqp_broker.port, version) as raw:
        raw.do(Basic.Get(queue=word))
        assert raw.channel_closed().reply_code == 404
        raw.open_channel()
        raw.do(Channel.Open())
        assert raw.connection_closed().reply_code == 504


def test_the_broker_says_what_it_can(amqp_broker: AmqpBroker) -> None:
    with Raw(amqp_broker.port, connect=False) as raw:
        start = raw.greet()
        assert (start.version_major, start.version_minor) == (0, 9)
        assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())
        assert "en_US" in start.locales.split()
        able: Any = start.server_properties["capabilities"]
        assert all(able[word] for word in (*CAPABILITIES, "per_consumer_qos", "direct_reply_to"))
        assert start.server_properties["product"]


@pytest.mark.parametrize(
    "opening",
    [
        b"AMQP\x00\x02\x00\x00", b"AMQP\x00\x00\x09\x02", b"AMQP\x00\x00\x0a\x00",
        b"amqp\x00\x00\x09\x01", b"GET / HTTP/1.1\r\n\r\n", b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    ],
    ids=str,
)  # fmt: skip
def test_another_protocol_is_told_the_right_one(amqp_broker: AmqpBroker, opening: bytes) -> None:
    with Raw(amqp_broker.port, connect=False) as raw:
        raw.send(opening)
        assert raw.raw_end() == b"AMQP\x00\x00\x09\x01"


# -- who may come in ------------------------------------------------------------------------------------------------


def test_an_unknown_virtual_host(amqp_broker: AmqpBroker) -> None:
    with Raw(amqp_broker.port, connect=False) as raw:
        raw.greet()
        raw.log_in()
        raw.tune()
        raw.do(Connection.Open("elsewhere"), 0)
        assert raw.connection_closed().reply_code == 530


@pytest.mark.parametrize(("user", "password"), [("guest", "sesame"), ("nobody", "sesame"), ("guest", ""), ("", "")])
def test_who_may_not_come_in_is_told_if_it_can_hear_it(amqp_broker: AmqpBroker, user: str, password: str) -> None:
    with Raw(amqp_broker.closed_port, connect=False) as raw:
        raw.greet()
        raw.log_in(user, password)
        close = raw.connection_closed()
        assert close.reply_code == 403
        assert close.reply_text.startswith("ACCESS_REFUSED - ")
        assert password == "" or password not in close.reply_text
    with Raw(amqp_broker.closed_port) as right:
        right.sync()


Hand = Callable[[Raw], object]


def unheard(raw: Raw) -> None:
    raw.log_in("guest", "wrong", capabilities=())


def tuned(**more: int) -> Hand:
    def run(raw: Raw) -> None:
        raw.log_in()
        raw.tune(**more)

    return run


def opened_early(raw: Raw) -> None:
    raw.log_in()
    raw.expect(Connection.Tune, 0)
    raw.do(Connection.Open("/"), 0)


EARLY: dict[str, Hand] = {
    "wrong password, and deaf": unheard,
    "unknown mechanism": lambda raw: raw.do(Connection.StartOk({}, "ODD", "x"), 0),
    "PLAIN without zeros": lambda raw: raw.do(Connection.StartOk({}, "PLAIN", "guest"), 0),
    "frames smaller than 4096": tuned(frame_max=100),
    "frames larger than offered": tuned(frame_max=1 << 24),
    "channels before start-ok": lambda raw: raw.do(Channel.Open(), 1),
    "open before tune-ok": opened_early,
    "frame with another end": lambda raw: raw.send(frame(METHOD, 0, b"xx", b"\x00")),
    "large frame": lambda raw: raw.send(frame(METHOD, 0, b"", b"", size=1 << 20)),
}


def test_who_makes_mistakes_before_it_is_in_has_to_go(amqp_broker: AmqpBroker) -> None:
    """With a word or without; the specification asks for none. All at once, for RabbitMQ takes three seconds for it."""
    clients = {}
    for what, hand in EARLY.items():
        raw = clients[what] = Raw(amqp_broker.closed_port, connect=False)
        raw.greet()
        hand(raw)
    for what, raw in clients.items():
        while not raw.inbox and not raw.ended:
            assert raw.read(PATIENCE_S) or raw.ended, what
        for _, item in raw.inbox:
            assert isinstance(item, Connection.Close), what
            assert item.reply_code in (402, 403, 501, 502, 503, 504, 505, 530, 540), (what, item.reply_text)
        raw.close()


# -- heartbeats -----------------------------------------------------------------------------------------------------


def test_heartbeats(amqp_broker: AmqpBroker, connect: PikaFactory) -> None:
    """Who has agreed to them and is silent has to go, and who sends them may stay."""
    client = connect(heartbeat=1)
    with Raw(amqp_broker.port, heartbeat=1) as silent, Raw(amqp_broker.port) as without:
        while not silent.ended:
            silent.read(0.1)
            client.turn()
        assert (0, Heartbeat()) in silent.inbox
        assert client.queue()
        without.sync()
        assert not without.inbox
