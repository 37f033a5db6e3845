"""Bad input: the code the specification gives, on channel or connection as it says, and nobody else harmed.

Where two codes stand, the first is what the specification asks for and the others are what RabbitMQ says instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_raw import BODY, HEADER, HEARTBEAT, METHOD, Raw, content_header, frame, method

pytest_plugins = ("tests.interop.amqp_fixtures",)

NAMES = {
    311: "CONTENT_TOO_LARGE", 403: "ACCESS_REFUSED", 404: "NOT_FOUND", 405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED", 501: "FRAME_ERROR", 502: "SYNTAX_ERROR", 503: "COMMAND_INVALID", 504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME", 530: "NOT_ALLOWED", 540: "NOT_IMPLEMENTED", 541: "INTERNAL_ERROR",
}  # fmt: skip


class Stage(NamedTuple):
    """What there is: queues, of which ``own`` is somebody else's, an internal exchange; and nothing named ``free``."""

    queue: str
    own: str
    inner: str
    free: str


Said = base.Frame | bytes | tuple[base.Frame, int] | tuple[Basic.Publish, Basic.Properties]
"""A command on channel 1, any bytes, a command on another channel, a message."""
Script = Callable[[Stage], list[Said]]


def say(raw: Raw, *items: Said) -> None:
    """All of it in one write."""
    parts = []
    for item in items:
        if isinstance(item, bytes):
            parts.append(item)
        elif isinstance(item, base.Frame):
            parts.append(raw.content(item) if isinstance(item, Basic.Publish) else raw.encode(item))
        elif isinstance(item[1], int):
            parts.append(raw.encode(item[0], item[1]))
        else:
            parts.append(raw.content(item[0], b"x", properties=item[1]))
    raw.send(b"".join(parts))


@pytest.fixture(scope="module")
def good(amqp_broker: AmqpBroker) -> Iterator[Pika]:
    client = Pika(amqp_broker.port)
    yield client
    client.close()


@pytest.fixture
def stage(good: Pika, word: str) -> Stage:
    queue, own = good.queue(f"{word}-queue", exclusive=False), good.queue(f"{word}-own")
    inner = good.exchange(f"{word}-inner", internal=True, auto_delete=False)
    return Stage(queue, own, inner, f"{word}-free")


@pytest.fixture(autouse=True)
def bystander(good: Pika, stage: Stage) -> Iterator[None]:
    """Somebody who does everything right, and must not notice any of it."""
    good.consume(stage.queue)
    good.put(stage.queue, b"before")
    try:
        yield
        good.put(stage.queue, b"after")
        got = good.wait(2)
        assert [one.body for one in got] == [b"before", b"after"]
        good.ack(*got)
    finally:
        good.channel.queue_delete(stage.queue)
        good.channel.queue_delete(stage.own)
        good.channel.exchange_delete(stage.inner)
        good.turn()
        good.got.clear()
        good.queues.clear()


# -- on a channel ---------------------------------------------------------------------------------------------------

SOFT: dict[str, tuple[int, Script]] = {
    "publish to no exchange": (404, lambda s: [Basic.Publish(exchange=s.free)]),
    "consume from no queue": (404, lambda s: [Basic.Consume(queue=s.free)]),
    "get from no queue": (404, lambda s: [Basic.Get(queue=s.free)]),
    "purge no queue": (404, lambda s: [Queue.Purge(queue=s.free)]),
    "bind no queue": (404, lambda s: [Queue.Bind(queue=s.free, exchange="amq.direct")]),
    "bind to no exchange": (404, lambda s: [Queue.Bind(queue=s.queue, exchange=s.free)]),
    "bind no exchange": (404, lambda s: [Exchange.Bind(destination=s.free, source="amq.direct")]),
    "bind an exchange to none": (404, lambda s: [Exchange.Bind(destination="amq.direct", source=s.free)]),
    "passive, no queue": (404, lambda s: [Queue.Declare(queue=s.free, passive=True)]),
    "passive, no exchange": (404, lambda s: [Exchange.Declare(exchange=s.free, passive=True)]),
    "the last queue, but there was none": (404, lambda s: [Basic.Get()]),
    "bind the last queue, but there was none": (404, lambda s: [Queue.Bind(exchange="amq.direct")]),
    "publish to an internal exchange": (403, lambda s: [Basic.Publish(exchange=s.inner)]),
    "a queue of a reserved name": (403, lambda s: [Queue.Declare(queue="amq.mine")]),
    "an exchange of a reserved name": (403, lambda s: [Exchange.Declare(exchange="amq.mine", exchange_type="direct")]),
    "declare the default exchange": (403, lambda s: [Exchange.Declare(exchange="", exchange_type="direct")]),
    "delete the default exchange": (403, lambda s: [Exchange.Delete(exchange="")]),
    "delete an exchange of the broker's": (403, lambda s: [Exchange.Delete(exchange="amq.fanout")]),
    "bind to the default exchange": (403, lambda s: [Queue.Bind(queue=s.queue, exchange="", routing_key="x")]),
    "unbind from the default exchange": (403, lambda s: [Queue.Unbind(queue=s.queue, exchange="")]),
    "exclusive consumer, but there is another": (403, lambda s: [Basic.Consume(queue=s.queue, exclusive=True)]),
    "declare another's exclusive queue": (405, lambda s: [Queue.Declare(queue=s.own, exclusive=True)]),
    "consume from another's exclusive queue": (405, lambda s: [Basic.Consume(queue=s.own)]),
    "declare one's own exclusive queue otherwise": (
        405, lambda s: [Queue.Declare(queue=s.free, exclusive=True), Queue.Declare(queue=s.free)],
    ),
    "declare a queue once more, as exclusive": (405, lambda s: [Queue.Declare(queue=s.queue, exclusive=True)]),
    "another type of exchange": (406, lambda s: [Exchange.Declare(exchange="amq.direct", exchange_type="topic")]),
    "a durable queue, but it is not": (406, lambda s: [Queue.Declare(queue=s.queue, durable=True)]),
    "delete a queue in use": (406, lambda s: [Queue.Delete(queue=s.queue, if_unused=True)]),
    "ack of an unknown tag": (406, lambda s: [Basic.Ack(1)]),
    "ack of tag zero": (406, lambda s: [Basic.Ack(0)]),
    "ack up to an unknown tag": (406, lambda s: [Basic.Ack(5, True)]),
    "nack of an unknown tag": (406, lambda s: [Basic.Nack(1)]),
    "reject of an unknown tag": (406, lambda s: [Basic.Reject(1)]),
    "ack of a tag that was not to be acked": (
        406, lambda s: [Queue.Declare(exclusive=True), Basic.Publish(exchange="", routing_key=""),
                        Basic.Get(no_ack=True), Basic.Ack(1)],
    ),
    "commit without tx": (406, lambda s: [Tx.Commit()]),
    "rollback without tx": (406, lambda s: [Tx.Rollback()]),
    "confirms on a channel with tx": (406, lambda s: [Tx.Select(), Confirm.Select()]),
    "tx on a channel with confirms": (406, lambda s: [Confirm.Select(), Tx.Select()]),
    "another user's name": (406, lambda s: [(Basic.Publish(routing_key=s.queue), Basic.Properties(user_id="ann"))]),
    "lifetime in words": (406, lambda s: [(Basic.Publish(routing_key=s.queue), Basic.Properties(expiration="1s"))]),
}  # fmt: skip


@pytest.mark.parametrize("what", SOFT)
def test_the_channel_is_closed_and_the_connection_goes_on(amqp_broker: AmqpBroker, stage: Stage, what: str) -> None:
    code, script = SOFT[what]
    items = script(stage)
    last = items[-1][0] if isinstance(items[-1], tuple) else items[-1]
    assert isinstance(last, base.Frame)
    with Raw(amqp_broker.port) as raw:
        raw.open_channel(2)
        say(raw, *items)
        close = raw.channel_closed()
        assert (close.reply_code, close.class_id, close.method_id) == (code, last.index >> 16, last.index & 0xFFFF)
        assert close.reply_text.startswith(NAMES[code] + " - ")
        raw.sync(2)
        raw.open_channel(1)
        raw.sync(1)


def test_after_a_mistake_the_channel_says_no_more_and_hears_no_more(
    amqp_broker: AmqpBroker, good: Pika, stage: Stage
) -> None:
    """Until the client has granted the close, all it says there is dropped: it has not read it yet."""
    with Raw(amqp_broker.port) as raw:
        good.put(stage.own, b"kept")
        extra = Basic.Publish(routing_key=stage.own)
        say(raw, Basic.Ack(9), extra, Queue.Declare(queue=stage.free), Basic.Ack(9), extra)
        raw.channel_closed()
        raw.open_channel(1)
        raw.sync()
        assert not raw.inbox
        assert not good.exists(stage.free)
        assert good.drain(stage.own) == [b"kept"]


def test_both_sides_may_close_at_once(amqp_broker: AmqpBroker) -> None:
    with Raw(amqp_broker.port) as raw:
        say(raw, Basic.Ack(9), Channel.Close(200, "bye", 0, 0))
        raw.expect(Channel.Close)
        raw.expect(Channel.CloseOk)
        raw.do(Channel.CloseOk())
        raw.open_channel(1)
        raw.sync()


def test_what_a_channel_held_is_free_after_its_mistake(amqp_broker: AmqpBroker, good: Pika, stage: Stage) -> None:
    with Raw(amqp_broker.port) as raw:
        mine = raw.declare()
        good.put(mine, b"1", b"2")
        raw.call(Basic.Consume(queue=mine), Basic.ConsumeOk)
        assert raw.bodies(2) == [b"1", b"2"]
        raw.do(Basic.Ack(7))
        raw.channel_closed()
        raw.open_channel(1)
        got = [raw.get(mine), raw.get(mine)]
        assert [(one.body, one.method.redelivered) for one in got if one] == [(b"1", True), (b"2", True)]


# -- on the connection ----------------------------------------------------------------------------------------------

EMPTY = b"\x00\x3c\x00\x00" + bytes(8)
"""A content header up to its property flags."""
TABLE = b"\x00\x00\x01a\x00"
"""``queue.declare`` up to its arguments."""

HARD: dict[str, tuple[tuple[int, ...], Script]] = {
    "channel 7 was not opened": ((504,), lambda s: [(Basic.Get(queue=s.queue), 7)]),
    "channel 7 was not opened, closing it": ((504,), lambda s: [(Channel.Close(200, "", 0, 0), 7)]),
    "channel opened twice": ((504,), lambda s: [Channel.Open()]),
    "channel.open on channel 0": ((504, 503), lambda s: [(Channel.Open(), 0)]),
    "queue.declare on channel 0": ((503, 504), lambda s: [(Queue.Declare(exclusive=True), 0)]),
    "connection.close on channel 1": ((503,), lambda s: [Connection.Close(200, "", 0, 0)]),
    "connection.open twice": ((503, 504), lambda s: [(Connection.Open("/"), 0)]),
    "start-ok late": ((503, 504), lambda s: [(Connection.StartOk(), 0)]),
    "what only servers say": ((503,), lambda s: [Queue.DeclareOk("x", 0, 0)]),
    "consumer tag used twice": ((530,), lambda s: [Basic.Consume(queue=s.queue, consumer_tag="a")] * 2),
    "unknown type of exchange": ((503,), lambda s: [Exchange.Declare(exchange=s.free, exchange_type="odd")]),
    "prefetch in bytes": ((540,), lambda s: [Basic.Qos(prefetch_size=10)]),
    "header without method": ((505,), lambda s: [content_header(1)]),
    "body without header": ((505,), lambda s: [frame(BODY, 1, b"x")]),
    "body on a channel that is not open": ((504, 505), lambda s: [frame(BODY, 5, b"x")]),
    "header on channel 0": ((505,), lambda s: [content_header(1, 0)]),
    "method instead of header": ((505,), lambda s: [publish(s), Basic.Qos()]),
    "body instead of header": ((505,), lambda s: [publish(s), frame(BODY, 1, b"x")]),
    "header instead of body": ((505,), lambda s: [publish(s), content_header(1), content_header(1)]),
    "method instead of body": ((505,), lambda s: [publish(s), content_header(1), Basic.Qos()]),
    "header of another class": ((505,), lambda s: [publish(s), frame(HEADER, 1, b"\x00\x28" + EMPTY[2:] + b"\0\0")]),
    "header cut short": ((502, 505, 501), lambda s: [publish(s), frame(HEADER, 1, EMPTY[:6])]),
    "properties cut short": ((502, 541), lambda s: [publish(s), frame(HEADER, 1, EMPTY + b"\x80\x00\x20x")]),
    "headers cut short": ((502, 541), lambda s: [publish(s), frame(HEADER, 1, EMPTY + b"\x20\x00\0\0\0\x20\x01x")]),
    "method cut short": ((502, 501), lambda s: [method((50, 10), b"\x00\x00\x05ab")]),
    "table cut short": ((502, 501), lambda s: [method((50, 10), TABLE + b"\x00\x00\x00\xff\x01aZ")]),
    "name not in UTF-8": ((502, 501), lambda s: [method((50, 10), b"\x00\x00\x02\xff\xfe\x10" + bytes(4))]),
    "no method": ((502, 501), lambda s: [frame(METHOD, 1, b"")]),
    "unknown method": ((540, 503, 501), lambda s: [method((60, 200))]),
    "frame with another end": ((501,), lambda s: [frame(METHOD, 1, b"\x00\x3c\x00\x0a" + bytes(7), b"\x00")]),
    "frame too large": ((501,), lambda s: [frame(METHOD, 1, b"", b"", size=1 << 20)]),
    "frame of an unknown type": ((501,), lambda s: [frame(9, 1, b"abc")]),
    "heartbeat on channel 1": ((501, 505), lambda s: [frame(HEARTBEAT, 1, b"")]),
    "HTTP": ((501,), lambda s: [b"GET / HTTP/1.1\r\n\r\n"]),
}  # fmt: skip
HANGS_UP: dict[str, Script] = {
    "unknown class": lambda s: [method((61, 10))],
    "unknown method of the connection": lambda s: [method((10, 99), channel=0)],
    "value of an unknown type": lambda s: [method((50, 10), TABLE + b"\x00\x00\x00\x03\x01aZ")],
}
"""RabbitMQ ends these connections without a word, which is no example to follow."""


def publish(stage: Stage) -> bytes:
    """Only the method frame."""
    arguments = b"\x00\x00\x00" + bytes([len(stage.queue)]) + stage.queue.encode() + b"\x00"
    return method((60, 40), arguments)


@pytest.mark.parametrize("what", HARD)
def test_the_connection_is_closed(amqp_broker: AmqpBroker, stage: Stage, what: str) -> None:
    codes, script = HARD[what]
    with Raw(amqp_broker.port) as raw:
        say(raw, *script(stage))
        close = raw.connection_closed()
        assert close.reply_code in codes, (close.reply_code, close.reply_text)
        assert close.reply_text.startswith(NAMES[close.reply_code])
        assert len(close.reply_text.encode()) <= 255


@pytest.mark.parametrize("what", HANGS_UP)
def test_unknown_things_are_said_to_be(amqp_broker: AmqpBroker, stage: Stage, what: str) -> None:
    with Raw(amqp_broker.port) as raw:
        say(raw, *HANGS_UP[what](stage))
        if amqp_broker.process is None:
            raw.wait_end()
        else:
            assert raw.connection_closed().reply_code in (502, 503, 540)


def test_a_method_on_a_channel_that_was_closed(amqp_broker: AmqpBroker) -> None:
    with Raw(amqp_broker.port) as raw:
        raw.call(Channel.Close(200, "bye", 0, 0), Channel.CloseOk)
        raw.do(Basic.Qos())
        assert raw.connection_closed().reply_code == 504


def test_more_channels_than_agreed(amqp_broker: AmqpBroker) -> None:
    """504, says the specification; RabbitMQ counts channels, and finds too many not allowed."""
    with Raw(amqp_broker.port, channel_max=2) as raw:
        raw.open_channel(2)
        raw.do(Channel.Open(), 3)
        assert raw.connection_closed().reply_code in (504, 530)


def test_a_frame_larger_than_agreed(amqp_broker: AmqpBroker, stage: Stage) -> None:
    with Raw(amqp_broker.port, frame_max=4096) as raw:
        say(raw, publish(stage), content_header(5000), frame(BODY, 1, bytes(5000)))
        assert raw.connection_closed().reply_code == 501


@pytest.mark.usefixtures("headway")
def test_a_body_larger_than_was_said(amqp_broker: AmqpBroker, stage: Stage) -> None:
    """RabbitMQ takes it."""
    with Raw(amqp_broker.port) as raw:
        say(raw, publish(stage), content_header(1), frame(BODY, 1, b"xx"))
        assert raw.connection_closed().reply_code in (501, 505)


@pytest.mark.usefixtures("headway")
def test_a_message_larger_than_there_may_be(amqp_broker: AmqpBroker, stage: Stage) -> None:
    """Said as soon as its size is known. RabbitMQ waits for all of it, and then says 406."""
    with Raw(amqp_broker.port) as raw:
        say(raw, publish(stage), content_header(1 << 40), frame(BODY, 1, bytes(1000)))
        close = raw.channel_closed()
        assert close.reply_code == 311
        assert close.reply_text.startswith(NAMES[311] + " - ")
        raw.open_channel()
        raw.sync()


def test_the_last_word(amqp_broker: AmqpBroker, good: Pika, stage: Stage) -> None:
    """Behind a mistake nothing is carried out, also if the client never answers."""
    with Raw(amqp_broker.port) as raw:
        extra = Basic.Publish(routing_key=stage.queue)
        say(raw, frame(HEARTBEAT, 1, b""), extra, Queue.Declare(queue=stage.free))
        raw.expect(Connection.Close, 0)
        say(raw, extra)
    assert not good.exists(stage.free)
