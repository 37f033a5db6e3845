"""No input gives anything but items and one clean protocol error, however it is cut; and what is written is what is
read."""

from __future__ import annotations

import struct
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fuzz import seeded
from tests.fuzz.seeded import mutated
from tests.wire.test_amqp_decoder import BAD, MESSAGE_MAX, TABLE, ack, message, opened, raw, told

from headway.core.base.errors import ProtocolError
from headway.core.message.record import Run
from headway.wire.amqp.codes import AMQP_0_8, AMQP_0_9, AMQP_0_9_1, OFFERED, ReplyCode, Version
from headway.wire.amqp.decoder import AmqpDecoder
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.primitives import AmqpReader, write_table
from headway.wire.amqp.properties import NAMES, Facts, read, with_headers, with_reply_to
from headway.wire.amqp.replies import FROM_CLIENT, read_login, write_arguments, write_close_connection, write_method
from headway.wire.amqp.scan import Method


def fuzz(examples: int = 100) -> Any:
    """A deadline would measure the machine."""
    return settings(max_examples=examples, deadline=None)


def feed_in_pieces(decoder: AmqpDecoder, data: bytes, cuts: list[int]) -> list[Any]:
    """All items, whatever the cuts; checks what must hold after each read."""
    items = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        failed = decoder.error is not None
        got = decoder.feed(data[start:end])
        assert not (failed and got)
        items += told(got)
        assert decoder.buffered_bytes <= len(data)
        if decoder.error is not None:
            assert decoder.buffered_bytes == 0
    return items


def check(decoder: AmqpDecoder) -> None:
    """It ended well, or with an error that can be told to the client."""
    if decoder.error is not None:
        check_error(decoder.error)
        assert str(decoder.error).startswith("the frame at byte ")


def check_error(error: ProtocolError) -> None:
    code = ReplyCode(error.code)
    for version in (AMQP_0_8, AMQP_0_9, AMQP_0_9_1):
        write_close_connection(version, code, str(error))


def same_whatever_the_cuts(begin: Any, data: bytes, cuts: list[int]) -> None:
    one, other = begin(), begin()
    assert feed_in_pieces(one, data, []) == feed_in_pieces(other, data, cuts)
    assert (str(one.error), one.packets, one.buffered_bytes) == (str(other.error), other.packets, other.buffered_bytes)
    check(one)


cuts = st.lists(st.integers(0, 400), max_size=6)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda more: OFFERED + more), cuts)
@example(b"A\x00", [1])
@example(b"AMQP\x00\x00\x09\x01", [1, 5])
@fuzz()
def test_random_bytes_first(data: bytes, cuts: list[int]) -> None:
    same_whatever_the_cuts(lambda: AmqpDecoder(MESSAGE_MAX), data, cuts)


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(0, 2), st.binary(max_size=40)), max_size=4), cuts
)
@fuzz(300)
def test_random_frames(frames: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    same_whatever_the_cuts(opened, b"".join(raw(*one) for one in frames), cuts)


METHODS = sorted({kind.index for kind in FROM_CLIENT} | {10 << 16 | 10, 60 << 16 | 60, 30 << 16 | 10, 99 << 16 | 99})


@given(st.sampled_from(METHODS), st.binary(max_size=60), st.sampled_from([OFFERED, b"AMQP\x01\x01\x08\x00"]))
@fuzz(1000)
def test_random_arguments(index: int, arguments: bytes, opening: bytes) -> None:
    decoder = AmqpDecoder(MESSAGE_MAX)
    decoder.feed(opening)
    decoder.feed(raw(1, 0 if index >> 16 == 10 else 1, index.to_bytes(4, "big") + arguments))
    check(decoder)


ROWS = [row[1] for row in (*TABLE, *BAD)]


def mutation(rng: Random) -> tuple[bytes, list[int]]:
    rows = rng.choices(ROWS, k=rng.randint(1, 3))
    data = b"".join(row[:400] if rng.random() < 0.5 else row[-400:] for row in rows)
    return bytes(mutated(rng, data, 0, (0, 1, 2, 3, 8, 0x7F, 0xCE, 0xFF))), seeded.cuts(rng)


@given(seeded.seeded(mutation))
@fuzz(1500)
def test_mutated_frames(mutation: tuple[bytes, list[int]]) -> None:
    same_whatever_the_cuts(opened, *mutation)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.booleans(), st.integers(1, 2)), max_size=60), cuts)
@fuzz()
@example([(tag, False, 1) for tag in range(200)], [])
def test_acks_survive(acks: list[tuple[int, bool, int]], cuts: list[int]) -> None:
    data = b"".join(ack(*one) for one in acks)
    assert feed_in_pieces(opened(), data, cuts) == [(channel, tag, multiple) for tag, multiple, channel in acks]


@given(
    st.lists(st.tuples(st.binary(max_size=30), st.integers(1, 3), st.sampled_from(["", "a", "a.b", "é"]),
                       st.sampled_from([None, "text/plain"]), st.integers(1, 30)), max_size=6), cuts,
)  # fmt: skip
@fuzz(200)
def test_messages_survive(messages: list[Any], cuts: list[int]) -> None:
    data, meant = b"", []
    for body, channel, key, content_type, count in messages:
        data += message(body, channel, key, "ex", content_type=content_type) * count
        written = b"\x80\x00\x0atext/plain" if content_type else b"\0\0"
        meant += [(channel, "ex", key, written, body)] * count
    assert feed_in_pieces(opened(), data, cuts) == meant


# -- methods, tables and properties ------------------------------------------------------------------------------------

shorts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
tables = seeded.seeded(seeded.table)
ARGUMENTS: Any = {
    "bit": st.booleans(), "octet": st.integers(0, 255), "short": st.integers(0, 65_535),
    "long": st.integers(0, 2**32 - 1), "longlong": st.integers(0, 2**64 - 1), "shortstr": shorts,
    "longstr": shorts, "table": tables,
}  # fmt: skip
SAID = sorted(FROM_CLIENT - {kind for kind in FROM_CLIENT if kind.name in ("Basic.Publish", "Basic.Ack")},
              key=lambda kind: kind.index)  # fmt: skip


@pytest.mark.parametrize("kind", SAID, ids=[kind.name for kind in SAID])
@given(data=st.data(), version=st.sampled_from([AMQP_0_9_1, AMQP_0_9, AMQP_0_8]))
@fuzz(15)
def test_methods_survive(kind: Any, data: st.DataObject, version: Version) -> None:
    command = kind.__new__(kind)
    for name in kind.__slots__:
        setattr(command, name, data.draw(ARGUMENTS[kind.amqp_type(name)], name))
    if kind.index in version.shorter:
        command.arguments = {}
    channel = 0 if kind.index >> 16 == 10 else 1
    decoder = opened()
    decoder.version = version
    [item] = decoder.feed(write_method(version, channel, command))
    assert isinstance(item, Method)
    assert (item.channel, type(item.command), dict(item.command)) == (channel, kind, dict(command))
    assert write_arguments(item.command, version) == write_arguments(command, version)


@given(tables)
@fuzz(300)
def test_tables_survive(table: dict[str, Any]) -> None:
    found = AmqpReader(write_table(table)).table("headers")
    assert found == table
    assert write_table(found) == write_table(table)


@given(st.binary(max_size=60).map(lambda inner: len(inner).to_bytes(4, "big") + inner) | st.binary(max_size=60))
@fuzz(500)
def test_random_tables(data: bytes) -> None:
    try:
        found = AmqpReader(data).table("headers")
    except ProtocolError as error:
        check_error(error)
    else:
        write_table(found)


def property_bytes(rng: Random) -> bytes:
    """Flags, and values that mostly are what they promise; now and then with more behind them."""
    chosen = rng.sample(range(14), rng.randint(0, 14))
    out = sum(0x8000 >> place for place in chosen).to_bytes(2, "big")
    for place in sorted(chosen):
        if NAMES[place] == "headers":
            out += write_table(seeded.table(rng))
        elif NAMES[place] == "timestamp":
            out += rng.randbytes(8)
        elif NAMES[place] in ("delivery-mode", "priority"):
            out += rng.randbytes(1)
        else:
            text = rng.choice((rng.randbytes(rng.randint(0, 5)), str(rng.getrandbits(rng.randint(0, 33))).encode()))
            out += bytes([len(text)]) + text
    return out + rng.choice((b"", rng.randbytes(rng.randint(0, 3))))


@given(seeded.seeded(property_bytes) | st.binary(max_size=40))
@fuzz(1000)
def test_any_properties(data: bytes) -> None:
    try:
        facts = read(data)
    except ProtocolError as error:
        check_error(error)
        return
    assert type(facts) is Facts
    assert repr(facts) == repr(read(bytes(bytearray(data))))
    assert facts.properties.native == data
    # What a consumer of AMQP gets is what was published, and all others can be told what they are told.
    run = Run("a/b", b"body", [4], [0], properties=facts.properties)
    frame = AmqpDialect().encode(run, 1).data
    assert AmqpDialect().decode(frame).properties == facts.properties
    if data[0] & 0x20 and "nan" not in repr(facts.headers) and not repeated(data):
        assert with_headers(data, facts.headers) == data
    other = read(with_reply_to(with_headers(data, {"a": 1}), "x"))
    assert (other.headers, other.reply_to, other.expiration_ms) == ({"a": 1}, "x", facts.expiration_ms)
    assert (other.priority, other.delivery_mode, other.user_id) == (facts.priority, facts.delivery_mode, facts.user_id)
    assert other.properties.correlation_data == facts.properties.correlation_data


def repeated(data: bytes) -> bool:
    """A name stands in the headers twice; then the last one counts."""
    at = 2
    for flag in (0x80, 0x40):
        at += 1 + data[at] if data[0] & flag else 0
    entries = AmqpReader(data, at).entries("headers")
    return len({entry.name for entry in entries}) < len(entries)


@given(st.sampled_from(["PLAIN", "AMQPLAIN", "OTHER"]), st.text(max_size=30) | st.binary(max_size=30))
@fuzz(300)
@example("AMQPLAIN", b"\x05LOGIND" + struct.pack(">Bi", 1, 2))
def test_any_login(mechanism: str, response: str | bytes) -> None:
    try:
        read_login(mechanism, response)
    except ProtocolError as error:
        check_error(error)
