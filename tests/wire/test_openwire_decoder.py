"""OpenWire's decoder: a table of frames, whole and byte by byte; its cache; what it refuses."""

from __future__ import annotations

import zlib
from struct import pack

import pytest
from tests.wire.openwire_frames import (
    CACHED,
    NO,
    YES,
    ack,
    connection_id,
    connection_info,
    consumer_id,
    consumer_info,
    frame,
    message,
    message_id,
    producer_id,
    queue,
    topic,
    wire_format,
)

from headway.core.base import Reason
from headway.wire.common import CommonProperties
from headway.wire.openwire import commands
from headway.wire.openwire.codec import opens
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.decoder import OpenWireDecoder, Request, Sent, WireFormat
from headway.wire.openwire.marshalling import CACHE_BYTES_MAX, ConnectionId, ConsumerId, Destination, ProducerId

CONSUMER, PRODUCER = ConsumerId("ID:c", 1, 2), ProducerId("ID:c", 1, 2)
QUEUE = Destination(Type.QUEUE, "q")
TEXT = pack(">i", 2) + b"hi"
PROPERTIES = pack(">i", 1) + b"\0\1a" + b"\5" + pack(">i", 5)


def request(command: commands.Command, *, wants_response: bool = True) -> Request:
    return Request(1, wants_response, command)


TABLE = [
    (connection_info(), request(commands.ConnectionInfo(ConnectionId("ID:c"), "me", "pw", "alice", False, True))),
    (
        consumer_info(consumer_id(), queue("q"), selector="a = 1"),
        request(commands.ConsumerInfo(CONSUMER, False, QUEUE, 1000, "a = 1", None, False, False, False, 0)),
    ),
    (frame(6, producer_id(), NO, NO, NO, pack(">i", 9)), request(commands.ProducerInfo(PRODUCER, None, 9))),
    (
        ack(consumer_id(), 2, message_id(1, 5), message_id(2, 6), 2),
        request(commands.MessageAck(None, CONSUMER, 2, 5, 6, 2, ""), wants_response=False),
    ),
    (frame(12, consumer_id(), pack(">q", 3)), request(commands.RemoveInfo(CONSUMER, 3))),
    (frame(20, consumer_id(), NO, pack(">q", -1), NO, NO), request(commands.MessagePull(CONSUMER, -1))),
    (
        frame(8, connection_id(), queue("q"), b"\1", pack(">q", 0), NO),
        request(commands.DestinationInfo(QUEUE, True)),
    ),
    (frame(9, connection_id(), b"\1\0\1s", b"\1\0\1c"), request(commands.RemoveSubscriptionInfo("s", "c"))),
    (frame(10), request(commands.KeepAliveInfo())),
    (frame(11), request(commands.ShutdownInfo())),
    (frame(18, b"\0" * 9), request(commands.Notice())),
]  # fmt: skip


def open_decoder(known: dict[str, bytes] | None = None, version: int = 12) -> OpenWireDecoder:
    decoder = OpenWireDecoder(100_000)
    (item,) = decoder.feed(wire_format(version, known))
    assert isinstance(item, WireFormat)
    assert decoder.error is None
    return decoder


@pytest.mark.parametrize(("data", "item"), TABLE)
def test_every_command_is_read_whole_and_byte_by_byte(data: bytes, item: Request) -> None:
    assert open_decoder().feed(data + data) == [item, item]
    decoder = open_decoder()
    got = [found for byte in data for found in decoder.feed(bytes((byte,)))]
    assert (got, decoder.error, decoder.buffered_bytes) == ([item], None, 0)


@pytest.mark.parametrize(("data", "item"), TABLE)
def test_a_command_that_is_cut_off_is_malformed(data: bytes, item: Request) -> None:
    if item.command in (commands.KeepAliveInfo(), commands.ShutdownInfo(), commands.Notice()):
        return  # these have no fields that are read
    decoder = open_decoder()
    cut = pack(">i", 10) + data[4:14]
    assert decoder.feed(cut) == []
    assert decoder.error is not None
    assert decoder.error.reason is Reason.MALFORMED


def test_a_message_becomes_a_payload_and_common_properties() -> None:
    data = message(28, topic("a.b"), TEXT, PROPERTIES, producer=producer_id(), expires_ms=1500, timestamp_ms=1000)
    (sent,) = open_decoder().feed(data)
    assert isinstance(sent, Sent)
    assert (sent.message.payload, sent.message.destination) == (b"hi", Destination(Type.TOPIC, "a.b"))
    assert (sent.message.producer, sent.message.expires_ms) == (PRODUCER, 1500)
    assert sent.message.common == CommonProperties(
        content_type="text/plain", correlation_id="c", message_id="ID:c:1:2:7", timestamp_ms=1000, expiration_ms=500,
        persistent=True, headers={"a": 5},
    )  # fmt: skip


def test_compressed_bodies_are_inflated_up_to_a_limit() -> None:
    (sent,) = open_decoder().feed(message(28, queue("q"), zlib.compress(TEXT), compressed=True))
    assert isinstance(sent, Sent)
    assert sent.message.payload == b"hi"
    decoder = open_decoder()
    bomb = zlib.compress(pack(">i", 1_000_000) + b"x" * 1_000_000)
    assert decoder.feed(message(28, queue("q"), bomb, compressed=True)) == []
    assert "inflated" in str(decoder.error)


def test_objects_that_a_client_numbers_are_known_by_their_numbers() -> None:
    decoder = open_decoder(CACHED)
    first = consumer_info(YES + b"\0\7" + consumer_id(), YES + b"\0\x08" + queue("q"))
    again = consumer_info(NO + b"\0\7", NO + b"\0\x08")
    one, other = decoder.feed(first + again)
    assert one == other == TABLE[1][1]._replace(command=TABLE[1][1].command._replace(selector=None))  # type: ignore[union-attr]
    assert decoder.cache_bytes > 0
    assert decoder.feed(consumer_info(NO + b"\0\x09", NO + b"\0\x08")) == []
    assert "names object 9, which was never sent" in str(decoder.error)


def test_a_client_cannot_have_more_remembered_than_there_is_room_for() -> None:
    decoder, size = open_decoder(CACHED), 60_000
    for number in range(CACHE_BYTES_MAX // size + 2):
        decoder.feed(consumer_info(YES + pack(">H", number) + consumer_id("x" * size), YES + b"\xff\xff" + queue("q")))
    assert decoder.error is not None
    assert decoder.cache_bytes <= CACHE_BYTES_MAX + size + 1000


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (frame(10), "has to be WireFormatInfo"),
        (wire_format(8), "the oldest that is spoken here is 9"),
        (wire_format() + pack(">i", 0) + b"\0", "length of 0"),
        (wire_format() + pack(">i", 70_000) + b"\x0a", "at most 65536 before the login"),
        (wire_format() + connection_info() + pack(">i", 200_000) + b"\x0a", "at most 100000"),
        (wire_format(known={"x" * 9000: b"\0"}), "(at most 8192)"),
        (wire_format(known={f"{at}": b"\0" for at in range(500)}) + b"\0\0\0\1\x0c", "ends before its fields"),
        (wire_format() + frame(99), "unknown type 99"),
        (wire_format() + frame(21, NO, NO, NO, pack(">i", 0)), "MessageDispatch (21) is nothing for a client"),
        (wire_format() + message(29, queue("q"), None), "BlobMessage (29)"),
        (wire_format() + message(28, queue("q"), b"\0\0\0\x09hi"), "length is not that of its body"),
        (wire_format() + message(28, NO, TEXT), "has no destination"),
    ],
)
def test_errors_say_what_is_wrong(data: bytes, text: str) -> None:
    decoder = OpenWireDecoder(100_000)
    decoder.feed(data)
    assert text in str(decoder.error)


def test_the_client_and_the_broker_agree_on_a_form() -> None:
    for version, known, form in [
        (9, {}, Form(9, False)), (12, CACHED, Form(12, True)), (13, CACHED, Form(12, True)),
    ]:  # fmt: skip
        assert open_decoder(known, version).form == form


def test_first_bytes() -> None:
    data = wire_format()
    assert opens(data) is True
    assert [opens(data[:size]) for size in (0, 1, 2, 4, 5, 12)] == [None] * 6
    assert [opens(other) for other in (b"\x10\x20", b"AMQP\0", b"CONNECT\n", b"\0\0\0\x10\x02")] == [False] * 4
