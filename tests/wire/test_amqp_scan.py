"""The run scanner against the plainest way to say what it should find: message after message, compared byte by byte;
and the columns under it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header
from tests.wire.test_amqp_decoder import message, method, raw

from headway.wire.amqp.scan import ACK_FRAME_BYTES, extend_run, find_whole
from headway.wire.dialect import COLUMNS_MAX, FEW, PIECES_MAX, equal_pairs, equal_pieces, same_frames

LIMIT = 4096
PUBLISH_BYTES = len(method(commands.Basic.Publish(exchange="amq.topic", routing_key="a.b")))


def scanned(data: bytes, payload_bytes_max: int = LIMIT - 8) -> tuple[int, list[int], list[int]] | None:
    publish_end = 8 + int.from_bytes(data[3:7], "big")
    whole = find_whole(data, 0, publish_end, payload_bytes_max, LIMIT)
    if whole is None:
        return None
    stop, ends, bodies = extend_run(data, 0, whole, payload_bytes_max)
    return stop, list(ends), list(bodies)


def expected(messages: list[bytes], payloads: list[bytes], payload_bytes_max: int = LIMIT - 8) -> object:
    """The leading messages whose publish and properties are those of the first."""

    def alike(one: bytes, payload: bytes) -> tuple[bytes, bytes]:
        publish_end = 8 + int.from_bytes(one[3:7], "big")
        body = len(one) - len(payload) - 8 if payload else len(one)
        return one[:publish_end], one[publish_end + 19 : body]

    ends, bodies, at = [], [], 0
    for one, payload in zip(messages, payloads, strict=True):
        if alike(one, payload) != alike(messages[0], payloads[0]) or len(payload) > payload_bytes_max:
            break
        at += len(one)
        ends.append(at - 1 if payload else at)
        bodies.append(ends[-1] - len(payload))
    return at, ends, bodies


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, FEW + 2, 200])
@pytest.mark.parametrize("payload", [b"", b"x", b"p" * 128])
@pytest.mark.parametrize("left_over", [b"", b"\x01", message(b"p" * 128)[:-1]])
def test_messages_of_one_size(count: int, payload: bytes, left_over: bytes) -> None:
    assert scanned(message(payload) * count + left_over) == expected([message(payload)] * count, [payload] * count)


SAMPLE = message(message(b"p"))


@pytest.mark.parametrize("count", [1, FEW - 1, FEW + 1, FEW + 40, FEW + 80])
@pytest.mark.parametrize("place", range(len(SAMPLE)))
def test_any_byte_of_any_header_ends_the_run(count: int, place: int) -> None:
    """Payloads that look like messages do not hide it; what is in a payload does not matter."""
    payload = len(SAMPLE) - 1 - len(message(b"p"))
    other = bytearray(SAMPLE)
    other[place] ^= 0x01
    found = scanned(SAMPLE * count + bytes(other) + SAMPLE * 100)
    assert found is not None
    in_payload = payload <= place < len(SAMPLE) - 1
    assert len(found[1]) == (count + 101 if in_payload else count)
    assert found[0] == len(found[1]) * len(SAMPLE)


PROPERTIES = [{}, {"content_type": "application/json"}, {"content_type": "application/xml", "app_id": "x" * 30}]
STRETCH = st.tuples(
    st.sampled_from([1, 2]), st.sampled_from(["a.b", "a.c", "a.b.c"]), st.sampled_from(PROPERTIES),
    st.sampled_from([0, 1, 5, 120, 130, 600]), st.integers(1, 40),
)  # fmt: skip


@given(st.lists(STRETCH, min_size=1, max_size=6))
def test_stretches_of_messages(stretches: list[tuple[int, str, dict[str, str], int, int]]) -> None:
    messages, payloads = [], []
    for channel, key, properties, size, count in stretches:
        messages += [message(b"z" * size, channel, key, **properties)] * count
        payloads += [b"z" * size] * count
    assert scanned(b"".join(messages), 500) == (None if len(payloads[0]) > 500 else expected(messages, payloads, 500))


def test_what_is_too_large_ends_the_run() -> None:
    messages, payloads = [message(b"x" * 5)] * 3 + [message(b"x" * 501)], [b"x" * 5] * 3 + [b"x" * 501]
    found = scanned(b"".join(messages), 500)
    assert found == expected(messages, payloads, 500)
    assert found is not None
    assert len(found[1]) == 3


BEGUN = message(b"abcd")


@pytest.mark.parametrize(
    "data",
    [
        BEGUN[:PUBLISH_BYTES],
        BEGUN[: PUBLISH_BYTES + 10],
        BEGUN[:-1],
        BEGUN[:-1] + b"\xcd",
        BEGUN[:PUBLISH_BYTES] + raw(3, 1, b"abcd"),
        BEGUN[:PUBLISH_BYTES] + raw(2, 2, header.ContentHeader(body_size=0).marshal()),
        BEGUN[:PUBLISH_BYTES] + raw(2, 1, header.ContentHeader(body_size=0).marshal(), b"\xcd"),
        BEGUN[:PUBLISH_BYTES] + raw(2, 1, header.ContentHeader(body_size=0).marshal()[:-1]),
        BEGUN[:PUBLISH_BYTES] + raw(2, 1, b"\x00\x0a" + header.ContentHeader(body_size=0).marshal()[2:]),
        BEGUN[:PUBLISH_BYTES] + raw(2, 1, header.ContentHeader(body_size=0).marshal() + b"x" * LIMIT),
        BEGUN[:-12] + raw(3, 2, b"abcd"),
        BEGUN[:-12] + raw(2, 1, b"abcd"),
        BEGUN[:-12] + raw(3, 1, b"abcde"),
        BEGUN[:-12] + raw(3, 1, b"ab") + raw(3, 1, b"cd"),
    ],
)
def test_what_is_not_whole_is_left_to_the_decoder(data: bytes) -> None:
    assert scanned(data) is None


@pytest.mark.parametrize("header_bytes", [1, 11, COLUMNS_MAX, COLUMNS_MAX + 1, 150])
@pytest.mark.parametrize("trailer", [b"", b"\xce", b"\x00\xce"])
@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, FEW + 2, 3 * FEW, 3 * FEW + 1, 200])
def test_frames_that_are_alike(header_bytes: int, trailer: bytes, count: int) -> None:
    head = bytes(range(header_bytes))
    one = head + b"payload" + trailer
    size = len(one)
    no_end = one[:-1] + b"\xfe"
    for following in (b"", one[:-1], b"\xff" * 500, no_end + one * 50, b"\xff" + one[1:] + one * 50,
                      head[:-1] + b"\xff" + one[header_bytes:] + one * 50):  # fmt: skip
        data = b"before" + one * count + following
        end = 6
        while end + size <= len(data) and data[end : end + header_bytes] == head and (
            data[end + size - len(trailer) : end + size] == trailer
        ):
            end += size
        assert same_frames(data, head, 6, size, trailer) == end


def test_a_frame_that_is_all_header() -> None:
    assert same_frames(b"abcd" * 100, b"abcd", 0, 4, b"d") == 400
    assert ACK_FRAME_BYTES == 21


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 20), st.integers(0, 5))
def test_pieces(size: int, between: int, count: int, start: int) -> None:
    data = (bytes(range(256)) * 2)[: start + count * (size + between) - between + 3]
    pieces = equal_pieces(data, start, size, size + between, count)
    assert list(pieces) == [data[start + at * (size + between) :][:size] for at in range(count)]
    assert equal_pieces(data, start, size, size + between, 0) == ()


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 10))
def test_pairs(one: int, other: int, count: int) -> None:
    data = bytes(range(256))[: count * (one + other)]
    firsts, seconds = equal_pairs(data, (one, other), count)
    assert b"".join(first + second for first, second in zip(firsts, seconds, strict=True)) == data
    assert {len(first) for first in firsts} <= {one}


def test_a_run_of_bodies_of_many_sizes_has_an_end() -> None:
    found = scanned(b"".join(message(b"x" * (1 + at % 2)) for at in range(3 * PIECES_MAX)))
    assert found is not None
    assert len(found[1]) == PIECES_MAX
