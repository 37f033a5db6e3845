"""No input gives anything but items and one clean protocol error, however it is cut."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fuzz import seeded
from tests.fuzz.seeded import mutated
from tests.wire.test_amqp1_codec import encoded, frame, transfer

from headway.core.base.errors import ProtocolError
from headway.wire.amqp1 import values
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.decoder import Amqp1Decoder
from headway.wire.amqp1.items import Layer, Transfers
from headway.wire.amqp1.properties import lead_of, read_content
from headway.wire.amqp1.replies import HEADERS
from headway.wire.amqp1.values import Condition, malformed
from headway.wire.common import read_plain

MESSAGE_MAX = 200


def fuzz(examples: int = 100) -> Any:
    """A deadline would measure the machine."""
    return settings(max_examples=examples, deadline=None)


def told(items: list[Any]) -> list[Any]:
    """Items as what they mean, whatever the runs are."""
    found: list[Any] = []
    for item in items:
        if not isinstance(item, Transfers):
            found.append(repr(item))
            continue
        try:
            facts = repr(read_content(item.content))
            lead_of(read_content(item.content).properties, 1)
        except ProtocolError as error:
            facts = str(error)
        for index in range(len(item.run)):
            found.append((item.channel, item.handle, item.first_id + index, item.run.payload(index), facts))
    return found


def feed(decoder: Amqp1Decoder, data: bytes, cuts: list[int]) -> list[Any]:
    items = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        failed = decoder.error is not None
        got = decoder.feed(data[start:end])
        assert not (failed and got)
        items += told(got)
        assert decoder.buffered_bytes <= len(data)
    return items


def same_whatever_the_cuts(data: bytes, cuts: list[int], opening: bytes = HEADERS[Layer.AMQP]) -> None:
    one, other = Amqp1Decoder(MESSAGE_MAX, 4096), Amqp1Decoder(MESSAGE_MAX, 4096)
    assert feed(one, opening + data, []) == feed(other, opening + data, cuts)
    assert (str(one.error), one.packets, one.buffered_bytes) == (str(other.error), other.packets, other.buffered_bytes)
    if one.error is not None:
        assert str(one.error).startswith("the frame at byte ")
        assert Condition(one.error.code).symbol.startswith("amqp:")
        assert one.buffered_bytes == 0


cuts = st.lists(st.integers(0, 400), max_size=6)


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda more: HEADERS[Layer.SASL] + more), cuts)
@example(b"A\x00", [1])
@fuzz()
def test_random_bytes_first(data: bytes, cuts: list[int]) -> None:
    same_whatever_the_cuts(data, cuts, b"")


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2)), max_size=4), cuts)
@fuzz(300)
def test_random_frames(frames: list[tuple[bytes, int]], cuts: list[int]) -> None:
    same_whatever_the_cuts(b"".join(frame(body, b"", channel) for body, channel in frames), cuts)


@given(st.sampled_from([*range(0x10, 0x19), 0x41, 0x43, 0x99]), st.binary(max_size=60), st.booleans())
@fuzz(400)
def test_random_performatives(descriptor: int, fields: bytes, listed: bool) -> None:
    count = min(len(fields), 12)
    value = bytes((0xC0, len(fields) + 1, count)) + fields if listed else fields
    same_whatever_the_cuts(frame(b"\0\x53" + bytes((descriptor,)) + value), [])


GOOD = [
    transfer(0, encoded(b"body", subject="s", properties={"a": 1}, annotations={})),
    transfer(1, encoded("text", durable=True, ttl=5.0, priority=3)), transfer(1, encoded({"a": [1]})),
    transfer(2, encoded(b"x" * 90), more=True), transfer(2, b"y" * 50), transfer(0, encoded(None)),
    frame(writing.described(0x12, writing.list_of([
        writing.string("l"), writing.uint(0), writing.TRUE, writing.ubyte(1), writing.ubyte(0),
        writing.described(0x28, writing.list_of([writing.string("q")])), writing.NULL,
    ]))),
    frame(writing.described(0x13, writing.list_of([writing.uint(n) for n in range(7)]))),
    frame(writing.described(0x15, writing.list_of([
        writing.TRUE, writing.uint(0), writing.uint(9), writing.TRUE, writing.described(0x24, writing.LIST0),
    ]))),
]  # fmt: skip


def mutation(rng: Random) -> tuple[bytes, list[int]]:
    special = (0, 0x40, 0x45, 0x53, 0x70, 0x80, 0xA3, 0xC0, 0xD0, 0xF0, 0xFF)
    data = b"".join(rng.choices(GOOD, k=rng.randint(1, 4)))
    return bytes(mutated(rng, data, 0, special)), seeded.cuts(rng)


@given(seeded.seeded(mutation))
@fuzz(600)
def test_mutated_frames(mutation: tuple[bytes, list[int]]) -> None:
    same_whatever_the_cuts(*mutation)


@given(st.binary(max_size=80))
@fuzz(400)
def test_random_values(raw: bytes) -> None:
    try:
        value, end = values.read(raw, 0, len(raw))
    except ProtocolError:
        return
    assert end == values.skip(raw, 0, len(raw))
    written = writing.value(value)
    assert values.skip(written, 0, len(written)) == len(written)


@given(st.binary(max_size=40))
@fuzz()
def test_random_logins(raw: bytes) -> None:
    with suppress(ProtocolError):
        assert read_plain(raw, malformed).password in raw
