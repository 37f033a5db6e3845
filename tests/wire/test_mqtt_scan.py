"""The run scanner against the plainest way to say what it should find: frame after frame, compared byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire.dialect import COLUMNS_MAX, FEW, PIECES_MAX, pieces_work
from headway.wire.mqtt.primitives import write_frame, write_text
from headway.wire.mqtt.scan import extend_run, read_length

LEAD = write_text("a/topic")


def frame(payload: bytes, first: int = 0x30, lead: bytes = LEAD) -> bytes:
    return write_frame(first, lead, payload)


def scanned(data: bytes, lead: bytes = LEAD, frame_bytes_max: int = 1 << 20) -> tuple[int, list[int], list[int]]:
    length, body = read_length(data, 1, len(data))
    stop, ends, bodies = extend_run(data, 0, body, body + len(lead), body + length, frame_bytes_max)
    return stop, list(ends), list(bodies)


def expected(frames: list[bytes], lead: bytes = LEAD) -> tuple[int, list[int], list[int]]:
    """The leading frames that have the first byte and the lead of the first."""
    ends: list[int] = []
    bodies: list[int] = []
    at = 0
    for one in frames:
        _, body = read_length(one, 1, len(one))
        if one[0] != frames[0][0] or one[body : body + len(lead)] != lead:
            break
        ends.append(at + len(one))
        bodies.append(at + body + len(lead))
        at += len(one)
    return at, ends, bodies


@pytest.mark.parametrize("count", [1, 2, FEW, FEW + 1, FEW + 2, 200])
@pytest.mark.parametrize("payload", [b"", b"x", b"p" * 128])
@pytest.mark.parametrize("left_over", [b"", b"\x30", frame(b"p" * 128)[:-1]])
def test_records_of_one_size(count: int, payload: bytes, left_over: bytes) -> None:
    frames = [frame(payload)] * count
    assert scanned(b"".join(frames) + left_over) == expected(frames)


@pytest.mark.parametrize("count", [FEW - 1, FEW + 1, FEW + 40, FEW + 80])
@pytest.mark.parametrize("place", [0, *range(2, len(frame(b"p")) - 1)])  # all but the length
def test_any_byte_of_any_header_ends_the_run(count: int, place: int) -> None:
    """Payloads that look like headers do not hide it."""
    frames = [frame(frame(b"p"))] * 100
    other = bytearray(frames[0])
    other[place] ^= 0x01
    frames[count] = bytes(other)
    assert scanned(b"".join(frames)) == expected(frames)


def test_a_long_header() -> None:
    lead = write_text("a/" * COLUMNS_MAX)
    frames = [frame(b"p", lead=lead)] * (3 * FEW) + [frame(b"p")]
    assert scanned(b"".join(frames), lead) == expected(frames, lead)


def test_what_is_too_large_ends_the_run() -> None:
    frames = [frame(b"p" * 20)] * 5 + [frame(b"p" * 90)]
    assert scanned(b"".join(frames), frame_bytes_max=50) == expected(frames[:5])


LEADS = [LEAD, write_text("a/topid"), write_text("b/topic"), write_text("a/topic/c")]
STRETCH = st.tuples(
    st.sampled_from([0x30, 0x31]), st.sampled_from(LEADS), st.sampled_from([0, 1, 5, 120, 130]), st.integers(1, 40),
    st.binary(min_size=1, max_size=3),
)  # fmt: skip


@given(st.lists(STRETCH, min_size=1, max_size=6))
def test_stretches_of_records(stretches: list[tuple[int, bytes, int, int, bytes]]) -> None:
    frames = [
        frame((filling * size)[:size], first, lead)
        for first, lead, size, count, filling in stretches
        for _ in range(count)
    ]
    lead = stretches[0][1]
    assert scanned(b"".join(frames), lead) == expected(frames, lead)


def test_payloads_of_many_sizes_are_work_and_a_run_of_them_has_an_end() -> None:
    frames = b"".join(frame(b"x" * (at % 2)) for at in range(3 * PIECES_MAX))
    _, ends, _ = scanned(frames)
    assert len(ends) == PIECES_MAX
    assert pieces_work(ends) >= PIECES_MAX // 4
    assert pieces_work(range(3 * PIECES_MAX)) == 0
