"""Deliveries, read by ``pamqp`` frame by frame."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header
from tests.wire.test_amqp_dialect import JSON, run

from headway.core.message.record import Envelope
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.envelope import FEW, AmqpEnvelope


class Got(NamedTuple):
    """A delivery as a client sees it."""

    channel: int
    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    content_type: str | None
    body: bytes


def frames_of(data: bytes) -> list[tuple[int, Any, int]]:
    """Channel, frame and size of each."""
    found = []
    while data:
        size, channel, value = frame.unmarshal(data)
        found.append((channel, value, size))
        data = data[size:]
    return found


def content_of(frames: list[tuple[int, Any, int]]) -> tuple[header.ContentHeader, bytes]:
    """What follows a method, taken off the list."""
    _, head, _ = frames.pop(0)
    assert isinstance(head, header.ContentHeader)
    assert (head.class_id, head.weight) == (60, 0)
    whole = b""
    while len(whole) < head.body_size:
        _, part, _ = frames.pop(0)
        assert isinstance(part, body.ContentBody)
        assert part.value
        whole += part.value
    return head, whole


def deliveries(data: bytes) -> list[Got]:
    frames = frames_of(data)
    assert len({channel for channel, _, _ in frames}) <= 1
    found = []
    while frames:
        channel, method, _ = frames.pop(0)
        assert isinstance(method, commands.Basic.Deliver)
        head, whole = content_of(frames)
        found.append(Got(
            channel, method.consumer_tag, method.delivery_tag, method.redelivered, method.exchange, method.routing_key,
            head.properties.content_type, whole,
        ))  # fmt: skip
    return found


class Lane(NamedTuple):
    data: bytes
    ends: list[int] | range
    meant: list[tuple[str, str, str | None, bytes]]


def lane(*stretches: tuple[str, str, bytes, list[bytes]]) -> Lane:
    """Exchange, topic, properties and bodies of neighbours."""
    data, ends, meant = b"", [], []
    only: Any = None
    for exchange, topic, native, bodies in stretches:
        frames = AmqpDialect().encode(run(bodies, topic, exchange, native=native), 1)
        only = frames.ends if len(stretches) == 1 else None
        ends += [len(data) + end for end in frames.ends]
        data += frames.data
        key = topic.translate(str.maketrans("./", "/."))
        meant += [(exchange, key, KINDS[native], one) for one in bodies]
    return Lane(data, ends if only is None else only, meant)


def bodies_of(sizes: list[int]) -> list[bytes]:
    return [bytes([at % 251]) * size for at, size in enumerate(sizes)]


BARE = b"\x00\x00"
XSON = JSON.replace(b"json", b"xson")
KINDS = {JSON: "application/json", XSON: "application/xson", BARE: None}
LANES = {
    "one": lane(("ex", "a/b", JSON, [b"body"])),
    "one size": lane(("ex", "a/b", JSON, bodies_of([128] * 700))),
    "one size, few": lane(("ex", "a/b", JSON, bodies_of([128] * (FEW - 1)))),
    "as many as are worth it": lane(("ex", "a/b", JSON, bodies_of([128] * FEW))),
    "empty": lane(("ex", "a/b", JSON, [b""] * 20)),
    "all sizes": lane(("ex", "a/b", JSON, bodies_of(list(range(600))))),
    "empty among others": lane(("ex", "a/b", JSON, bodies_of([0, 5, 0, 0, 5, 5, 0] * 5))),
    "in two frames each": lane(("ex", "a/b", JSON, bodies_of([5000] * 12))),
    "at the limit": lane(("ex", "a/b", JSON, bodies_of([4087, 4088, 4089, 8176, 8177, 1] * 2))),
    "one size at the limit": lane(("ex", "a/b", JSON, bodies_of([4088] * 10))),
    "one size behind the limit": lane(("ex", "a/b", JSON, bodies_of([4089] * 10))),
    "other keys of one size": lane(*(("ex", f"a/{at % 10}", JSON, [b"x" * 9]) for at in range(30))),
    "other keys between": lane(*(("ex", f"a/{at % 10}", JSON, [b"x" * 9]) for at in range(21))),
    "other keys": lane(*(("e" * (at % 4), "a" * at, JSON, [b"x" * 9]) for at in range(40))),
    "other properties": lane(*(("ex", "a/b", (JSON, BARE)[at % 2], [b"x" * 9]) for at in range(40))),
    "other properties of one size": lane(*(("ex", "a/b", (JSON, XSON)[at % 2], [b"x" * (at % 3)]) for at in range(40))),
    "sizes that add up": lane(("ex", "a/b", JSON, bodies_of([10, 9, 11, 10, 12, 8, 10, 10, 10, 10, 11, 9]))),
    "one size, another lead": lane(("ex", "a/bb", JSON, [b"x" * 9] * 10), ("ex", "a/b", JSON, [b"x" * 10] * 10)),
    "a lead that begins like it": lane(("ex", "a", BARE, [b"x" * 9]), ("ex", "a", JSON, [b"x" * 9])),
    "long keys": lane(("e" * 255, "k" * 255, JSON, [b"x" * 9] * 20)),
}


@pytest.mark.parametrize("name", LANES)
@pytest.mark.parametrize("first_id", [1, 250, 65_530, 2**24 - 3, 2**40 - 1])
class TestDeliveries:
    def test_whole(self, name: str, first_id: int) -> None:
        there = LANES[name]
        envelope = AmqpEnvelope(7, "tag-é", 4096)
        cut = envelope.cut(there.data, there.ends)
        data = envelope.write(cut, 0, len(there.ends), first_id)
        assert type(data) is bytes
        assert deliveries(data) == [
            Got(7, "tag-é", first_id + at, False, *meant) for at, meant in enumerate(there.meant)
        ]
        assert max(size for _, _, size in frames_of(data)) <= 4096

    def test_in_pieces(self, name: str, first_id: int) -> None:
        """Any stretch of a cut, and where each delivery of it ends."""
        there = LANES[name]
        n = len(there.ends)
        envelope = AmqpEnvelope(7, "t", 4096)
        cut = envelope.cut(memoryview(there.data), list(there.ends), redelivered=True)
        for start, stop in {(0, n), (0, 1), (n - 1, n), (n // 2, n), (n // 3, n // 3 + FEW), (1, n), (0, n // 2)}:
            if not 0 <= start < stop <= n:
                continue
            data = envelope.write(cut, start, stop, first_id)
            ends = envelope.ends(cut, start, stop)
            assert (len(ends), ends[-1]) == (stop - start, len(data))
            each = [deliveries(data[begin:end]) for begin, end in pairwise([0, *ends])]
            assert each == [
                [Got(7, "t", first_id + at, True, *meant)] for at, meant in enumerate(there.meant[start:stop])
            ]


@pytest.mark.parametrize("boundary", [256, 512, 65_536, 2**24, 2**32])
def test_delivery_tags_wherever_they_begin(boundary: int) -> None:
    there = LANES["one size"]
    envelope = AmqpEnvelope(7, "t", 4096)
    cut = envelope.cut(there.data, there.ends)
    for count in (FEW, FEW + 1, 300):
        for first_id in range(boundary - count - 1, boundary + 2):
            if first_id > 0:
                data = envelope.write(cut, 0, count, first_id)
                size = len(data) // count
                tag_at = 7 + 4 + 2
                tags = [int.from_bytes(data[at + tag_at : at + tag_at + 8], "big") for at in range(0, len(data), size)]
                assert tags == list(range(first_id, first_id + count))


def test_without_a_limit_a_body_is_one_frame() -> None:
    there = lane(("ex", "a/b", JSON, bodies_of([300_000, 5, 300_000])))
    envelope = AmqpEnvelope(1, "t", 0)
    data = envelope.write(envelope.cut(there.data, there.ends), 0, 3, 1)
    assert [got.body for got in deliveries(data)] == bodies_of([300_000, 5, 300_000])
    assert len(frames_of(data)) == 9


def test_a_cut_is_for_all_of_its_shape() -> None:
    there = LANES["one size"]
    first = AmqpEnvelope(1, "first", 4096)
    cut = first.cut(there.data, there.ends)
    for at, tag in enumerate(["first", "second", "x" * 255, "", "second"]):
        envelope = AmqpEnvelope(1, tag, 4096)
        assert envelope.shape == first.shape
        got = deliveries(envelope.write(cut, 0, 700, 100 * at))
        assert [(one.consumer_tag, one.delivery_tag) for one in got] == [(tag, 100 * at + n) for n in range(700)]
    assert len({AmqpEnvelope(1, "t", 0).shape, AmqpEnvelope(2, "t", 0).shape, AmqpEnvelope(1, "t", 4096).shape}) == 3


def test_consumers_at_one_place_get_the_same_bytes() -> None:
    there = LANES["one size"]
    one, other = AmqpEnvelope(1, "ctag-1", 4096), AmqpEnvelope(1, "ctag-1", 4096)
    cut = one.cut(there.data, there.ends)
    data = one.write(cut, 0, 700, 1)
    assert other.write(cut, 0, 700, 1) is data
    for start, stop, first_id in ((0, 700, 2), (0, 699, 1), (1, 700, 1)):
        assert deliveries(other.write(cut, start, stop, first_id))[0].delivery_tag == first_id
        assert len(deliveries(other.write(cut, start, stop, first_id))) == stop - start
        assert one.write(cut, 0, 700, 1) == data
    assert deliveries(AmqpEnvelope(1, "ctag-2", 4096).write(cut, 0, 700, 1))[0].consumer_tag == "ctag-2"


STRETCH = st.tuples(
    st.sampled_from(["", "ex"]), st.sampled_from(["", "a", "b", "a/b"]), st.sampled_from([JSON, BARE]),
    st.lists(st.sampled_from([b"", b"x", b"y", b"zz", b"w" * 20]), min_size=1, max_size=12),
)  # fmt: skip


@given(st.lists(STRETCH, min_size=1, max_size=5), st.integers(1, 70_000), st.sampled_from([0, 9, 15, 4096]))
def test_any_stretches(stretches: list[Any], first_id: int, frame_bytes_max: int) -> None:
    there = lane(*stretches)
    envelope: Envelope = AmqpEnvelope(3, "t", frame_bytes_max)
    cut = envelope.cut(there.data, there.ends)
    data = envelope.write(cut, 0, len(there.ends), first_id)
    assert deliveries(data) == [Got(3, "t", first_id + at, False, *meant) for at, meant in enumerate(there.meant)]
