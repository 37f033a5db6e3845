"""The AMQP decoder: a table of what clients send, read whole, byte by byte and with trailing data; and what ends it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from pamqp import body, commands, frame, header

from headway.wire.amqp.codes import AMQP_0_8, AMQP_0_9, AMQP_0_9_1, OFFERED, ReplyCode
from headway.wire.amqp.decoder import AmqpDecoder
from headway.wire.amqp.scan import Access, AckBatch, Heartbeat, Item, Method, Opening, Oversize, PublishedRun

MESSAGE_MAX = 10_000
BODY_MAX = 1000
"""Of one body frame, as these messages are written."""


def method(command: Any, channel: int = 1) -> bytes:
    return frame.marshal(command, channel)


def raw(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + end


def message(
    payload: bytes, channel: int = 1, key: str = "a.b", exchange: str = "amq.topic", **properties: Any
) -> bytes:
    parts = [
        method(commands.Basic.Publish(exchange=exchange, routing_key=key), channel),
        frame.marshal(
            header.ContentHeader(body_size=len(payload), properties=commands.Basic.Properties(**properties)), channel
        ),
    ]
    parts += [
        frame.marshal(body.ContentBody(payload[at : at + BODY_MAX]), channel)
        for at in range(0, len(payload), BODY_MAX)
    ]
    return b"".join(parts)


def told(items: list[Item]) -> list[Any]:
    """Runs and batches taken apart, so that it does not matter how much came at once."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, PublishedRun):
            run = item.run
            assert list(run.ends) == sorted(run.ends)
            assert (run.ends[-1], len(run.ends)) == (len(run.data), len(run.bodies))
            assert (run.exchange, run.topic) == (item.address.exchange, item.address.topic)
            found += [
                (item.channel, item.address.exchange, item.address.routing_key, item.properties, item.run.payload(n))
                for n in range(len(item.run))
            ]
        elif isinstance(item, AckBatch):
            found += [(item.channel, tag, item.multiple) for tag in item.tags]
        elif isinstance(item, Method):
            found.append((item.channel, item.command.name, dict(item.command)))
        else:
            found.append(item)
    return found


def sent(payload: bytes, properties: bytes = b"\x00\x00", channel: int = 1, key: str = "a.b") -> Any:
    return (channel, "amq.topic", key, properties, payload)


def ack(tag: int, multiple: bool = False, channel: int = 1) -> bytes:
    return method(commands.Basic.Ack(tag, multiple), channel)


JSON = b"\x80\x00\x10application/json"
LOGIN = b"\x05LOGINS\0\0\0\x05guest\x08PASSWORDS\0\0\0\x03\xff\0x"
ARGUMENTS: Any = {"x-max-length": 5, "x-dead-letter-exchange": "", "x-nested": {"list": [1, "two", None, True]}}
TABLE = [
    ("channel.open", method(commands.Channel.Open()), [(1, "Channel.Open", {"out_of_band": "0"})]),
    ("queue.declare", method(commands.Queue.Declare(queue="q", durable=True, exclusive=True, arguments=ARGUMENTS)),
     [(1, "Queue.Declare", {"ticket": 0, "queue": "q", "passive": False, "durable": True, "exclusive": True,
                            "auto_delete": False, "nowait": False, "arguments": ARGUMENTS})]),
    ("a queue's name that pamqp would not take", raw(1, 1, b"\0\x32\0\x28\0\0\x05q|\xc3\xa9?\x02"),
     [(1, "Queue.Delete", {"ticket": 0, "queue": "q|é?", "if_unused": False, "if_empty": True, "nowait": False})]),
    ("start-ok with a table", raw(1, 0, b"\0\x0a\0\x0b\0\0\0\0\x08AMQPLAIN\0\0\0\x21" + LOGIN + b"\x05en_US"),
     [(0, "Connection.StartOk", {"client_properties": {}, "mechanism": "AMQPLAIN", "response": LOGIN,
                                 "locale": "en_US"})]),
    ("start-ok", method(commands.Connection.StartOk({"product": "p"}, response="\0guest\0guest"), 0),
     [(0, "Connection.StartOk", {"client_properties": {"product": "p"}, "mechanism": "PLAIN",
                                 "response": "\0guest\0guest", "locale": "en_US"})]),
    ("recover-async", raw(1, 1, b"\0\x3c\0\x64\x01"), [(1, "Basic.RecoverAsync", {"requeue": True})]),
    ("reject", method(commands.Basic.Reject(7, False)), [(1, "Basic.Reject", {"delivery_tag": 7, "requeue": False})]),
    ("nack", method(commands.Basic.Nack(2**63 - 1, True, False)),
     [(1, "Basic.Nack", {"delivery_tag": 2**63 - 1, "multiple": True, "requeue": False})]),
    ("ack", ack(1), [(1, 1, False)]),
    ("acks", b"".join(ack(tag) for tag in range(250, 600)), [(1, tag, False) for tag in range(250, 600)]),
    ("acks of all kinds", ack(2**63 - 1) + ack(5, True) + ack(6, True) + ack(7) + ack(8, channel=2) + ack(0, True),
     [(1, 2**63 - 1, False), (1, 5, True), (1, 6, True), (1, 7, False), (2, 8, False), (1, 0, True)]),
    ("an ack with something behind it", raw(1, 1, b"\0\x3c\0\x50" + b"\0" * 7 + b"\x05\0more"),
     [(1, "Basic.Ack", {"delivery_tag": 5, "multiple": False})]),
    ("heartbeat", raw(8, 0, b""), [Heartbeat()]),
    ("empty message", message(b""), [sent(b"")]),
    ("message", message(b"hello"), [sent(b"hello")]),
    ("properties", message(b"{}", content_type="application/json"), [sent(b"{}", JSON)]),
    ("in two frames", message(b"x" * 1500), [sent(b"x" * 1500)]),
    ("as large as may be", message(b"x" * MESSAGE_MAX), [sent(b"x" * MESSAGE_MAX)]),
    ("of one size", message(b"one") * 40, [sent(b"one")] * 40),
    ("of all sizes", b"".join(message(b"y" * n) for n in range(30)), [sent(b"y" * n) for n in range(30)]),
    ("empty among others", message(b"") * 20 + message(b"a") + message(b"") * 3,
     [sent(b"")] * 20 + [sent(b"a")] + [sent(b"")] * 3),
    ("with other properties", message(b"a") + message(b"a", content_type="application/json") + message(b"a"),
     [sent(b"a"), sent(b"a", JSON), sent(b"a")]),
    ("with other keys", message(b"a") + message(b"a", key="a.c"), [sent(b"a"), sent(b"a", key="a.c")]),
    ("on two channels", message(b"a") + message(b"a", channel=2), [sent(b"a"), sent(b"a", channel=2)]),
    ("a body that looks like a frame", message(message(b"inner")) * 20, [sent(message(b"inner"))] * 20),
]  # fmt: skip
TRAILING = message(b"trailing")


def opened(frame_bytes_max: int = 4096) -> AmqpDecoder:
    decoder = AmqpDecoder(MESSAGE_MAX)
    assert decoder.feed(OFFERED) == [Opening(AMQP_0_9_1)]
    decoder.frame_bytes_max = frame_bytes_max
    return decoder


@pytest.mark.parametrize(("data", "meaning"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
class TestWhatClientsSend:
    def test_whole(self, data: bytes, meaning: list[Any]) -> None:
        decoder = opened()
        assert told(decoder.feed(data)) == meaning
        assert decoder.error is None
        assert decoder.buffered_bytes == 0

    def test_byte_by_byte(self, data: bytes, meaning: list[Any]) -> None:
        decoder = opened()
        assert [item for at in range(len(data)) for item in told(decoder.feed(data[at : at + 1]))] == meaning
        assert decoder.buffered_bytes == 0

    def test_with_trailing_data(self, data: bytes, meaning: list[Any]) -> None:
        decoder = opened()
        assert told(decoder.feed(data + TRAILING[:-1])) == meaning
        assert told(decoder.feed(TRAILING[-1:])) == [sent(b"trailing")]


def test_messages_of_two_channels_may_be_sent_in_turns() -> None:
    one, two = message(b"1" * 1500), message(b"2" * 1500, channel=2)
    cut = len(method(commands.Basic.Publish(exchange="amq.topic", routing_key="a.b")))
    data = one[:cut] + two[:cut] + one[cut:] + two[cut:]
    assert told(opened().feed(data)) == [sent(b"1" * 1500), sent(b"2" * 1500, channel=2)]


def test_frames_are_counted_and_named_alike_however_they_come() -> None:
    data = message(b"x" * 1500) + message(b"y") * 3 + message(b"") + ack(1) * 3 + raw(8, 0, b"")
    for step in (1, 7, 10**6):
        decoder = opened()
        for at in range(0, len(data), step):
            decoder.feed(data[at : at + step])
        assert decoder.packets == 9
        decoder.feed(raw(4, 1, b""))
        assert str(decoder.error).startswith(f"the frame at byte {len(OFFERED) + len(data)} is of the unknown type 4")


def test_neighbouring_acks_are_one_item() -> None:
    data = b"".join(ack(tag) for tag in range(1, 101)) + ack(101, True) + ack(102)
    batches = [AckBatch(1, tuple(range(1, 101)), False), AckBatch(1, (101,), True), AckBatch(1, (102,), False)]
    assert opened().feed(data) == batches


def test_the_topic_of_a_routing_key() -> None:
    [item] = opened().feed(message(b"x", key="a.b/c", exchange="e"))
    assert isinstance(item, PublishedRun)
    assert (item.run.topic, item.run.exchange) == ("a/b.c", "e")


def test_messages_of_one_size_have_ranges() -> None:
    [item] = opened().feed(message(b"x" * 50) * 100)
    assert isinstance(item, PublishedRun)
    assert isinstance(item.run.ends, range)
    assert isinstance(item.run.bodies, range)


def test_a_channel_that_was_closed_may_give_up_a_message() -> None:
    close_ok = method(commands.Channel.CloseOk())
    begun = message(b"x" * 2500)
    for end in frame_ends(begun)[:-1]:
        decoder = opened()
        found = told(decoder.feed(begun[:end] + close_ok + message(b"z")))
        assert found == [(1, "Channel.CloseOk", {}), sent(b"z")]
        assert decoder.buffered_bytes == 0


def test_bodies_of_many_small_frames_take_no_more_than_their_bytes() -> None:
    decoder = opened()
    data = message(b"x" * 1000)
    start = frame_ends(data)[1]
    decoder.feed(data[:start])
    for _ in range(999):
        decoder.feed(raw(3, 1, b"x") + raw(3, 1, b""))
    assert decoder.buffered_bytes == 999
    assert told(decoder.feed(raw(3, 1, b"x"))) == [sent(b"x" * 1000)]
    assert decoder.buffered_bytes == 0


def frame_ends(data: bytes) -> list[int]:
    """Of all frames that are there whole."""
    ends, at = [], 0
    while at + 7 <= len(data) and at + 8 + int.from_bytes(data[at + 3 : at + 7], "big") <= len(data):
        at += 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        ends.append(at)
    return ends


def test_after_an_error_nothing_is_kept() -> None:
    decoder = opened()
    begun = message(b"x" * 2500)
    decoder.feed(begun[: frame_ends(begun)[-2]])
    assert decoder.buffered_bytes == 2000
    decoder.feed(raw(4, 1, b""))
    assert decoder.error is not None
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("size", [2500, MESSAGE_MAX + 2500])
def test_a_channel_that_we_close_in_the_middle_of_a_message(size: int) -> None:
    """The client may say the rest of it before it knows, or give it up."""
    begun, close_ok = message(b"x" * size), method(commands.Channel.CloseOk())
    for end in frame_ends(begun)[:4]:  # publish, header, and some of the body
        for rest in (begun[end:] + message(b"ignored"), b""):
            decoder = opened()
            assert all(isinstance(item, Oversize) for item in decoder.feed(begun[:end]))
            decoder.forget(1)
            assert decoder.buffered_bytes == 0
            ignored = [sent(b"ignored")] if rest else []
            found = told(decoder.feed(rest + close_ok + message(b"z")))
            assert found == [*ignored, (1, "Channel.CloseOk", {}), sent(b"z")]
            assert decoder.error is None


def test_what_is_too_large_is_not_kept() -> None:
    decoder = opened()
    data = message(b"x" * (MESSAGE_MAX + 1)) + message(b"fine")
    [over, fine] = decoder.feed(data)
    assert isinstance(over, Oversize)
    assert over.size == MESSAGE_MAX + 1
    assert told([fine]) == [sent(b"fine")]
    half = opened()
    half.feed(data[:5000])
    assert half.buffered_bytes < BODY_MAX + 8


BAD = [
    ("unknown type", raw(4, 1, b""), ReplyCode.FRAME_ERROR, "unknown type 4"),
    ("end", raw(1, 1, b"\0\x14\0\x0a\0", b"\xcd"), ReplyCode.FRAME_ERROR, "ends with 0xcd"),
    ("too large", raw(3, 1, b"x" * 4089), ReplyCode.FRAME_ERROR, "4097 bytes (at most 4096)"),
    ("heartbeat on a channel", raw(8, 1, b""), ReplyCode.FRAME_ERROR, "heartbeat on channel 1"),
    ("no ids", raw(1, 1, b"\0\x14"), ReplyCode.SYNTAX_ERROR, "without class and method ids"),
    ("unknown method", raw(1, 1, b"\0\x14\0\x63"), ReplyCode.NOT_IMPLEMENTED, "unknown method 99 of class 20"),
    ("method of the connection on a channel", method(commands.Connection.Open()), ReplyCode.COMMAND_INVALID,
     "for the connection, and on channel 1"),
    ("what a server says", method(commands.Basic.CancelOk("c")).replace(b"\0\x3c\0\x1f", b"\0\x3c\0\x15"),
     ReplyCode.COMMAND_INVALID, "(Basic.ConsumeOk) is what only servers say"),
    ("ack that is cut short", raw(1, 1, b"\0\x3c\0\x50" + b"\0" * 7), ReplyCode.SYNTAX_ERROR,
     "(Basic.Ack) ends within its delivery_tag"),
    ("ack without an end", ack(1)[:-1] + b"\xcd", ReplyCode.FRAME_ERROR, "ends with 0xcd"),
    ("name that is no text", raw(1, 1, b"\0\x32\0\x28\0\0\x01\xff\0"), ReplyCode.SYNTAX_ERROR, "not UTF-8"),
    ("string behind the end of its frame", raw(1, 1, b"\0\x3c\0\x1e\x05abcd"), ReplyCode.SYNTAX_ERROR,
     "(Basic.Cancel) ends within its consumer_tag"),
    ("entry behind the end of its table", raw(1, 1, b"\0\x32\0\x0a\0\0\x01q\0\0\0\0\x07\x01aS\0\0\0\x05hello"),
     ReplyCode.SYNTAX_ERROR, "(Queue.Declare) ends within its arguments"),
    ("publish that is cut short", raw(1, 1, b"\0\x3c\0\x28\0\0\x05abcd"), ReplyCode.SYNTAX_ERROR,
     "(Basic.Publish) ends within its exchange"),
    ("body in a frame that is too large", message(b"")[:-5] + b"\x0f\xf9\0\0\xce" + raw(3, 1, b"x" * 4089),
     ReplyCode.FRAME_ERROR, "has 4097 bytes (at most 4096)"),
    ("cut short", raw(1, 1, b"\0\x32\0\x0a\0\0\x09ab"), ReplyCode.SYNTAX_ERROR,
     "(Queue.Declare) ends within its queue"),
    ("body out of nowhere", raw(3, 1, b"x"), ReplyCode.UNEXPECTED_FRAME, "body on channel 1 that nothing asks for"),
    ("header out of nowhere", raw(2, 1, b"\0\x3c" + b"\0" * 12), ReplyCode.UNEXPECTED_FRAME, "header on channel 1"),
    ("method within a message", message(b"ab")[:-10] + method(commands.Channel.Open()), ReplyCode.UNEXPECTED_FRAME,
     "in the middle of a message"),
    ("body that is too long", message(b"ab")[:-10] + raw(3, 1, b"abc"), ReplyCode.FRAME_ERROR, "brings 3 bytes"),
    ("publish on channel 0", message(b"ab", channel=0), ReplyCode.COMMAND_INVALID, "for a channel, and on channel 0"),
    ("header of another class", method(commands.Basic.Publish()) + raw(2, 1, b"\0\x0a" + b"\0" * 12),
     ReplyCode.UNEXPECTED_FRAME, "class basic"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
@pytest.mark.parametrize("step", [1, 10**6])
def test_what_ends_the_connection(data: bytes, code: ReplyCode, words: str, step: int) -> None:
    decoder = opened()
    before = told(decoder.feed(message(b"before")))
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
    assert before == [sent(b"before")]
    assert decoder.error is not None
    assert decoder.error.code == code
    assert words in str(decoder.error)
    assert decoder.feed(message(b"after")) == []


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b"AMQP\x00\x00\x09\x01", AMQP_0_9_1), (b"AMQP\x01\x01\x00\x09", AMQP_0_9),
        (b"AMQP\x01\x01\x08\x00", AMQP_0_8), (b"AMQP\x01\x01\x09\x01", AMQP_0_8),
        (b"AMQP\x01\x01\x00\x0a", None),
        (b"AMQP\x00\x01\x00\x00", None), (b"GET / HTTP/1.1\r\n", None), (b"\x10\x0e\x00\x04MQTT", None),
    ],
)  # fmt: skip
def test_the_version_asked_for(data: bytes, version: Any) -> None:
    assert AmqpDecoder(MESSAGE_MAX).feed(data) == [Opening(version)]


def test_nothing_follows_a_version_there_is_not() -> None:
    decoder = AmqpDecoder(MESSAGE_MAX)
    assert decoder.feed(b"AMQP\x00\x01\x00\x00" + OFFERED) == [Opening(None)]
    assert decoder.feed(OFFERED) == []
    assert decoder.buffered_bytes == 0


def test_no_method_has_bits_that_are_not_neighbours_in_one_byte() -> None:
    for kind in commands.INDEX_MAPPING.values():
        bits = [at for at, name in enumerate(kind.__slots__) if kind.amqp_type(name) == "bit"]
        assert len(bits) <= 8
        assert bits == list(range(min(bits, default=0), max(bits, default=-1) + 1))


def test_no_method_is_warned_of() -> None:
    """As ``pamqp`` does of basic.recover-async, wherever that is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [item] = opened().feed(raw(1, 1, b"\0\x3c\0\x64\0"))
    assert isinstance(item, Method)


def test_half_a_header_says_nothing_yet() -> None:
    decoder = AmqpDecoder(MESSAGE_MAX)
    assert decoder.feed(b"AMQ") == []
    assert decoder.feed(b"P\x00\x00\x09\x01") == [Opening(AMQP_0_9_1)]


def test_older_versions_have_methods_of_their_own() -> None:
    close = commands.Connection.Close(reply_code=200, reply_text="", class_id=0, method_id=0)
    old = AmqpDecoder(MESSAGE_MAX)
    old.feed(b"AMQP\x01\x01\x08\x00")
    body_of_close = frame.marshal(close, 0)[11:-1]
    assert told(old.feed(raw(1, 0, b"\0\x0a\0\x3c" + body_of_close)))[0][1] == "Connection.Close"
    assert old.feed(raw(1, 1, b"\0\x1e\0\x0a\x05/data\x00")) == [Access(1)]
    consume = b"\0\x3c\0\x14\0\x01\x01q\x01c\x02"
    wanted = {"ticket": 1, "queue": "q", "consumer_tag": "c", "no_local": False, "no_ack": True, "exclusive": False,
              "nowait": False, "arguments": {}}  # fmt: skip
    assert told(old.feed(raw(1, 1, consume))) == [(1, "Basic.Consume", wanted)]
    more = {"arguments": {"a": True}}
    assert told(old.feed(raw(1, 1, consume + b"\0\0\0\x04\x01at\x01"))) == [(1, "Basic.Consume", wanted | more)]
    old.feed(raw(1, 0, b"\0\x0a\0\x32" + body_of_close))
    assert old.error is not None
    assert old.error.code == ReplyCode.NOT_IMPLEMENTED
    new = opened()
    new.feed(raw(1, 1, b"\0\x1e\0\x0a\x05/data\x00"))
    assert new.error is not None
