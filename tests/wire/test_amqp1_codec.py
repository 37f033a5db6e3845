"""The codec of AMQP 1.0 beside proton's: what one writes, the other reads."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import pytest
from proton import Data, Described, Message, int32, symbol, timestamp, ubyte, ulong, ushort

from headway.core.base import ProtocolError
from headway.core.message.record import TOPICS, Gap, Properties, Record, Run
from headway.wire.amqp1 import scan, values
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.decoder import TRANSFER_WORK, Amqp1Decoder
from headway.wire.amqp1.envelope import FEW, IDS, Amqp1Dialect, Amqp1Envelope, parts_of
from headway.wire.amqp1.items import Item, Layer, Lost, Opening, Transfers
from headway.wire.amqp1.performatives import Source, build
from headway.wire.amqp1.properties import read_content
from headway.wire.amqp1.replies import HEADERS
from headway.wire.amqp1.replies import encoded as written
from headway.wire.amqp1.scan import ALIKE_MAX
from headway.wire.codecs import queue_form

VALUES = [
    None, True, False, 0, 7, 255, 256, 2**31 - 1, -1, -(2**31), 2**40, -(2**40), 1.5, "", "é" * 10, "x" * 300, b"",
    b"y" * 300, uuid.UUID(int=3), [], [1, "a", None], {"a": 1}, {"x": {"y": [1, {"z": b""}]}}, ["w" * 200] * 3,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda it: repr(it)[:30])
def test_values_both_ways(value: Any) -> None:
    data = Data()
    data.put_object(value)
    raw = bytes(data.encode())
    read, end = values.read(raw, 0, len(raw))
    assert end == len(raw) == values.skip(raw, 0, len(raw))
    assert read == (value.bytes if isinstance(value, uuid.UUID) else value)
    back = Data()
    written = writing.value(read)
    assert back.decode(written) == len(written)
    back.rewind()
    back.next()
    assert back.get_object() == value


@pytest.mark.parametrize(
    ("value", "expected"), [
        (ubyte(9), 9), (ushort(900), 900), (ulong(2**63), 2**63), (int32(-5), -5), (symbol("s"), "s"),
        (timestamp(86_400_000), "1970-01-02T00:00:00+00:00"), (Described(symbol("d"), 5), values.Described("d", 5)),
    ], ids=str,
)  # fmt: skip
def test_types_that_python_lacks(value: Any, expected: Any) -> None:
    data = Data()
    data.put_object(value)
    read, _ = values.read(bytes(data.encode()), 0, len(data.encode()))
    assert (read.isoformat() if hasattr(read, "isoformat") else read) == expected


def test_a_single_capability_is_written_as_one_word() -> None:
    raw = written(Source("q", capabilities=values.Symbol("queue")))
    assert build(values.read(raw, 0, len(raw))[0]) == Source("q", capabilities=["queue"])


def test_a_decimal_is_written_as_a_double() -> None:
    assert values.read(raw := writing.value(Decimal("1.5")), 0, len(raw))[0] == 1.5


# -- transfers in ------------------------------------------------------------------------------------------------------


def frame(performative: bytes, payload: bytes = b"", channel: int = 0) -> bytes:
    body = performative + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\2\0" + channel.to_bytes(2, "big") + body


def transfer(number: int, payload: bytes, *, more: bool = False, tag: bytes = b"t", settled: bool = False) -> bytes:
    fields = [writing.uint(0), writing.uint(number), writing.binary(tag), writing.uint(0),
              writing.boolean(settled), writing.boolean(more)]  # fmt: skip
    return frame(writing.described(0x14, writing.list_of(fields)), payload)


def decoded(*frames: bytes, most: int = 1 << 20) -> tuple[list[Item], Amqp1Decoder]:
    decoder = Amqp1Decoder(most, 1 << 20)
    items = decoder.feed(HEADERS[Layer.AMQP] + b"".join(frames))
    assert items[0] == Opening(Layer.AMQP)
    return items[1:], decoder


def encoded(body: Any, **more: Any) -> bytes:
    return bytes(Message(body, **more).encode())


@pytest.mark.parametrize("sizes", [[10] * 40, [10, 300, 10], [0, 1, 2], [300] * 20], ids=str)
def test_neighbouring_messages_are_one_run(sizes: list[int]) -> None:
    bodies = [bytes((number,)) * size for number, size in enumerate(sizes)]
    sent = [transfer(1000 + number, encoded(body, subject="s")) for number, body in enumerate(bodies)]
    (item,), decoder = decoded(*sent)
    assert isinstance(item, Transfers)
    assert decoder.error is None
    assert [item.run.payload(number) for number in range(len(item.run))] == bodies
    assert (item.first_id, item.frames) == (1000, len(sizes))
    assert read_content(item.content).subject == "s"


def test_messages_of_a_client_that_writes_large_lists_are_one_run() -> None:
    def large(number: int) -> bytes:
        fields = [writing.uint(0), writing.uint(number), writing.binary(b"t"), writing.uint(0), writing.TRUE]
        listed = (4 + len(b"".join(fields))).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + b"".join(fields)
        return frame(b"\0\x53\x14\xd0" + listed, encoded(b"%03d" % number))

    sent = [large(number) for number in range(256, 356)]  # ids of one size
    (item,), decoder = decoded(*sent)
    assert isinstance(item, Transfers)
    assert [item.run.payload(number) for number in range(100)] == [b"%03d" % number for number in range(256, 356)]
    assert decoder.error is None


@pytest.mark.parametrize("change", [1, 2])
def test_messages_that_are_read_one_by_one_are_work(change: int) -> None:
    """Each is of another size, which may be of one run, or has other properties."""
    sent = [transfer(at, encoded(b"x" * (at % change), subject="s" * (1 + at % (3 - change)))) for at in range(1000)]
    decoder = Amqp1Decoder(1 << 20, 1 << 20)
    decoder.feed(HEADERS[Layer.AMQP])
    items = decoder.feed(b"".join(sent), 512)
    frames = sum(item.frames for item in items if isinstance(item, Transfers))
    assert frames <= 512 // TRANSFER_WORK + ALIKE_MAX
    assert decoder.waits


@pytest.mark.parametrize(
    "other", [
        transfer(1, encoded(b"b", subject="other")), transfer(5, encoded(b"b")),
        transfer(1, encoded(b"b"), settled=True), transfer(1, encoded("b")),
    ], ids=["content", "id", "settled", "kind"],
)  # fmt: skip
def test_messages_that_differ_are_not(other: bytes) -> None:
    items, _ = decoded(transfer(0, encoded(b"a")), other)
    assert [len(item.run) for item in items if isinstance(item, Transfers)] == [1, 1]


def test_a_message_in_many_frames() -> None:
    raw = encoded(b"x" * 1000)
    rest = [writing.uint(0), *[writing.NULL] * 4]
    pieces = [raw[at : at + 100] for at in range(0, len(raw), 100)]
    frames = [transfer(7, pieces[0], more=True)]
    for number, piece in enumerate(pieces[1:], 2):
        more = writing.boolean(number < len(pieces))
        frames.append(frame(writing.described(0x14, writing.list_of([*rest, more])), piece))
    (item,), decoder = decoded(*frames)
    assert isinstance(item, Transfers)
    assert (item.run.payload(0), item.frames, decoder.buffered_bytes) == (b"x" * 1000, len(pieces), 0)
    (lost,), _ = decoded(*frames, most=500)
    assert isinstance(lost, Lost)
    assert "at most 500" in lost.text


def test_a_message_without_form_is_lost_and_the_connection_goes_on() -> None:
    items, decoder = decoded(transfer(0, b"\0\x53\x99\x40"), transfer(1, encoded(b"b")))
    assert [type(item) for item in items] == [Lost, Transfers]
    assert decoder.error is None


# -- transfers out -----------------------------------------------------------------------------------------------------


def run_of(bodies: list[bytes], properties: Properties) -> Run:
    data, ends, starts = b"".join(bodies), list[int](), list[int]()
    at = 0
    for body in bodies:
        starts.append(at)
        at += len(body)
        ends.append(at)
    return Run("a/b", data, ends, starts, properties=properties)


def sent_messages(frames: bytes, first_id: int, *, settled: bool) -> list[Message]:
    """Reads transfers as a client does, and checks their numbers."""
    decoder = Amqp1Decoder(1 << 24, 1 << 24)
    items = decoder.feed(HEADERS[Layer.AMQP] + frames)[1:]
    assert decoder.error is None
    assert decoder.buffered_bytes == 0
    found: list[Message] = []
    for item in items:
        assert isinstance(item, Transfers)
        assert (item.handle, item.settled) == (3, settled)
        for index in range(len(item.run)):
            assert (item.first_id + index) & 0xFFFF_FFFF == (first_id - 1 + len(found)) & 0xFFFF_FFFF
            dialect, one = Amqp1Dialect(), run_of([item.run.payload(index)], read_content(item.content).properties)
            message = Message()
            message.decode(dialect.encode(one, 0).data)
            found.append(message)
    return found


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("limit", [1 << 20, 512, 600])
@pytest.mark.parametrize("first_id", [1, 250, IDS - 3, (1 << 32) - 2])
@pytest.mark.parametrize("sizes", [[5] * 3, [5] * 40, [5, 900, 5, 2000], [900] * 12], ids=str)
def test_an_envelope_writes_what_clients_read(settled: bool, limit: int, first_id: int, sizes: list[int]) -> None:
    bodies = [bytes((number,)) * size for number, size in enumerate(sizes)]
    for decode, dialect in ((None, Amqp1Dialect()), (queue_form().dialect.decode, queue_form().dialect)):
        properties = read_content(parts_of(encoded(b"", subject="s", properties={"a": 1}))[0]).properties
        run = dialect.encode(run_of(bodies, properties), 1)
        envelope = Amqp1Envelope(0, 3, limit, settled=settled, decode=decode)
        cut = envelope.cut(run.data, list(run.ends))
        frames = envelope.write(cut, 0, len(bodies), first_id)
        assert envelope.ends(cut, 0, len(bodies))[-1] == len(frames)
        assert envelope.write(cut, 0, len(bodies), first_id) is frames
        at, count = 0, 0
        while at < len(frames):
            size = int.from_bytes(frames[at : at + 4], "big")
            assert size <= limit
            at, count = at + size, count + 1
        assert envelope.frames_of(cut, len(bodies)) == count
        got = sent_messages(frames, first_id, settled=settled)
        assert [bytes(message.body) for message in got] == bodies
        assert all(message.subject == "s" and message.properties == {"a": 1} for message in got)
        few = sent_messages(envelope.write(cut, 1, 3, first_id), first_id, settled=settled)
        assert [bytes(one.body) for one in few] == bodies[1:3]
    assert FEW > 2


def test_a_gap_and_an_offset_are_annotations() -> None:
    dialect = Amqp1Dialect(offsets=True)
    properties = read_content(parts_of(encoded(b"", annotations={symbol("x-opt-own"): 1}))[0]).properties
    record = Record("a/b", b"body", properties, sequence=77)
    raw = dialect.encode_record(record, 0, now=0.0, gap=Gap(3, 5, 9, "discarded"))
    message = Message()
    message.decode(raw)
    assert message.annotations == {
        symbol("x-opt-headway-topic"): "a/b", symbol("x-opt-headway-offset"): 77, symbol("x-opt-own"): 1,
        symbol("x-opt-headway-gap-records"): 3, symbol("x-opt-headway-gap-reason"): "discarded",
        symbol("x-opt-headway-gap-first"): 5, symbol("x-opt-headway-gap-last"): 9,
    }  # fmt: skip
    back = dialect.decode(raw)
    assert (back.topic, back.exchange, back.payload, back.properties) == ("a/b", TOPICS, b"body", properties)


def test_an_array_of_nothing_has_few_values() -> None:
    """Else 2 kB of such arrays would keep the broker busy for seven seconds."""
    array = b"\xf0" + (5).to_bytes(4, "big") + (4000).to_bytes(4, "big") + b"\x40"
    with pytest.raises(ProtocolError, match="an array of 4000 values in 0 bytes"):
        values.read(array, 0, len(array))


def test_a_message_with_too_much_before_its_body_is_lost_alone() -> None:
    properties = writing.described(0x74, writing.map_of(
        (writing.string(f"{number}"), writing.NULL) for number in range(40_000)
    ))  # fmt: skip
    with pytest.raises(ProtocolError, match=r"bytes before its body \(at most 131072\)"):
        scan.content_of(properties, 0, len(properties))
