"""No input gives anything but items and one clean protocol error, however it is cut."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.fuzz.seeded import cuts, seeded
from tests.wire.openwire_frames import CACHED, ack, consumer_id, message, message_id, queue, topic, wire_format
from tests.wire.test_openwire_decoder import PROPERTIES, TABLE, TEXT

from headway.core.base import ProtocolError
from headway.core.message import Record
from headway.wire.codecs import queue_form
from headway.wire.openwire.alike import Acks, Series
from headway.wire.openwire.commands import MessageAck
from headway.wire.openwire.decoder import OpenWireDecoder, Request, Sent
from headway.wire.openwire.maps import read_headers, write_headers

SENT = [
    message(kind, to, TEXT, PROPERTIES, wants_response=waits, timestamp_ms=time_ms, sequence=time_ms % 9)
    for kind in (24, 28) for to in (queue("q"), topic("t")) for waits in (False, True)
    for time_ms in (0, 1_700_000_000_001, 1_700_000_000_002)
]  # fmt: skip
ACKS = [ack(consumer_id(), 2, message_id(n, n), message_id(n, n), 1, queue("q")) for n in (1, 2)]
SEEDS = [*(data for data, _ in TABLE), *SENT, *ACKS]
FIRST = [wire_format(), wire_format(known=CACHED)]


def fed(data: bytes, cuts: list[int]) -> tuple[list[object], str]:
    decoder = OpenWireDecoder(100_000)
    items: list[object] = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        failed = decoder.error is not None
        got = decoder.feed(data[start:end])
        assert not (failed and got)
        items += got
    assert decoder.buffered_bytes <= len(data)
    return [one for item in items for one in each_of(item)], str(decoder.error)


def each_of(item: object) -> list[object]:
    """How many of those that are alike are one item depends on how they came."""
    if isinstance(item, Acks):
        return [(item.consumer, item.kind, one) for one in item.ids]
    if not isinstance(item, Series):
        return [item]
    number = item.number if item.wants_response else 0
    return [(number, item.destination, item.common, item.run.record(at, -at, 0.0)) for at in range(len(item.run))]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FIRST), st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=4))
@example(FIRST[0], b"\0\0\0\0\1\0", [5])
def test_any_bytes(first: bytes, data: bytes, cuts: list[int]) -> None:
    assert fed(first + data, cuts) == fed(first + data, [])
    assert fed(data, cuts) == fed(data, [])


def with_changes(rng: Random, frames: list[bytes], start: int, fewest: int = 0) -> bytes:
    raw = bytearray(b"".join(frames))
    for _ in range(rng.randint(fewest, 3 + (not fewest))):
        raw[rng.randrange(start, len(raw))] = rng.randrange(256)
    return bytes(raw)


@settings(max_examples=300, deadline=None)
@given(seeded(lambda rng: (with_changes(rng, rng.choices(SEEDS, k=rng.randint(1, 6)), 0), rng.choice(FIRST), rng)))
def test_frames_with_some_bytes_changed(drawn: tuple[bytes, bytes, Random]) -> None:
    raw, first, rng = drawn
    whole = first + raw
    assert fed(whole, cuts(rng, 4, len(whole))) == fed(whole, [])


@settings(max_examples=200, deadline=None)
@given(seeded(lambda rng: (base := rng.choice(SENT + ACKS), with_changes(rng, [base], 4, 1))))
def test_messages_that_are_alike_but_for_some_bytes(drawn: tuple[bytes, bytes]) -> None:
    """However one is changed, it becomes what it becomes alone; and what is in front of it is as it was."""
    base, changed = drawn
    items, error = fed(FIRST[0] + base * 2 + changed, [])
    alone, its_error = fed(FIRST[0] + changed, [])
    assert error == its_error
    if error == "None" and len(alone) == 2:
        assert said(items[-1]) == said(alone[-1])


def said(item: object) -> object:
    """What a message says, or an acknowledgement, however it was read."""
    if isinstance(item, Sent):
        message = item.message
        qos = int(message.common.persistent)
        common = structs.replace(message.common, message_id=None, timestamp_ms=None)
        number = item.number if item.wants_response else 0
        properties = queue_form().write_common(message.common)
        return number, message.destination, common, message.payload, properties, qos
    if isinstance(item, Request) and isinstance(item.command, MessageAck) and not item.wants_response:
        one = item.command
        if one.first == one.last and one.messages == 1 and one.transaction is None:
            return one.consumer, one.kind, one.last
    if isinstance(item, tuple) and len(item) == 4 and isinstance(item[3], Record):
        return (*item[:3], item[3].payload, item[3].properties, item[3].qos)
    return item


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=9), st.none(),
), max_size=4))  # fmt: skip
def test_properties_are_the_same_after_they_were_written_and_read(headers: dict[str, object]) -> None:
    raw = write_headers(headers)
    if raw is None:
        assert not headers
    elif "\0" not in "".join(map(str, headers.values())) and all(str(v).isprintable() for v in headers.values()):
        assert dict(read_headers(raw)) == headers


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_properties(raw: bytes) -> None:
    try:
        write_headers(read_headers(raw))
    except ProtocolError:
        return


@pytest.mark.parametrize("depth", [100, 5000])
def test_deep_nesting_is_refused(depth: int) -> None:
    nested = b"\0\0\0\1\0\1a\x0b" * depth + b"\0\0\0\0"
    with pytest.raises(ProtocolError, match="deep"):
        read_headers(nested)
    assert consumer_id()
