"""No bytes give anything but payload and one clean end, and handshakes anything but an answer."""

from __future__ import annotations

from itertools import pairwise

from bench.wires.websocket import BINARY, CLOSE, PING, PONG, TEXT, frame, request
from hypothesis import example, given
from hypothesis import strategies as st

from headway.server.websocket.decoder import FrameDecoder
from headway.server.websocket.handshake import Refusal, RequestReader, Rules, answer

HELD_BYTES_MAX = 139
CODES = (1000, 1001, 1002, 1003, 1007, 1009)
RULES = Rules(("/mqtt", "/"), None, {"mqtt": "mqtt"})
cuts = st.lists(st.integers(0, 2000), max_size=6)
masks = st.binary(min_size=4, max_size=4)


def fed(data: bytes, places: list[int]) -> tuple[FrameDecoder, bytes]:
    """What must hold after each read, whatever the cuts."""
    decoder, got = FrameDecoder(), b""
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    for start, end in pairwise(ends):
        over = decoder.over
        payload = decoder.feed(data[start:end])
        assert not (over and payload)
        assert decoder.more or decoder.buffered_bytes <= HELD_BYTES_MAX
        got += payload
        while decoder.more:
            got += decoder.feed(b"")
    assert len(got) <= len(data)
    return decoder, got


def frames(payload: bytes, sizes: list[int], mask: bytes) -> bytes:
    """The payload as one fragmented message, with a ping after each fragment."""
    out, at = b"", 0
    for number, size in enumerate([*sizes, len(payload)]):
        piece, at = payload[at : at + size], at + size
        last = number == len(sizes)
        out += frame(piece, 0 if number else BINARY, final=last, mask=mask) + frame(b"%d" % number, PING)
    return out


@given(st.binary(max_size=2000), cuts)
@example(b"\x82\xff" + b"\xff" * 12, [])
@example(b"\x88\x80" + bytes(4), [1])
def test_any_bytes(data: bytes, places: list[int]) -> None:
    decoder, got = fed(data, places)
    again, whole = fed(data, [])
    assert (got, decoder.over, decoder.ping) == (whole, again.over, again.ping), "the cuts make no difference"
    if decoder.over is not None and not decoder.over.by_client:
        assert decoder.over.code in CODES
        assert decoder.over.text


@given(st.binary(max_size=1500), st.lists(st.integers(0, 400), max_size=6), masks, cuts)
def test_payload_comes_out_as_it_went_in(payload: bytes, sizes: list[int], mask: bytes, places: list[int]) -> None:
    decoder, got = fed(frames(payload, sizes, mask), places)
    assert got == payload
    assert decoder.over is None


@given(
    st.lists(st.tuples(st.sampled_from([BINARY, 0, TEXT, CLOSE, PING, PONG, 3, 11]), st.binary(max_size=130),
                       st.booleans()), max_size=8),
    st.integers(0, 400), st.integers(0, 255), cuts,
)  # fmt: skip
def test_frames_with_a_fault(
    made: list[tuple[int, bytes, bool]], at: int, change: int, places: list[int]
) -> None:
    """Frames of all kinds in any order, and one byte of them changed."""
    data = bytearray(b"".join(frame(payload, opcode, final=final) for opcode, payload, final in made))
    if data:
        data[at % len(data)] ^= change
    decoder, got = fed(bytes(data), places)
    again, whole = fed(bytes(data), [])
    assert (got, decoder.over) == (whole, again.over)


def answered(parts: list[bytes]) -> bytes:
    """The first bytes of the answer; none while the request is not whole."""
    reader = RequestReader()
    for part in parts:
        try:
            whole = reader.feed(part)
            if whole is not None:
                return answer(whole[0], RULES).answer[:10]
        except Refusal as refusal:
            return refusal.answer()[:10]
    return b""


@given(st.integers(0, 400), st.binary(max_size=20), cuts)
def test_handshakes_with_a_fault(at: int, junk: bytes, places: list[int]) -> None:
    good = request("/mqtt", "localhost", "mqtt")[0]
    data = good[: at % len(good)] + junk + good[at % len(good) :]
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    assert answered([data[start:end] for start, end in pairwise(ends)]) in (b"HTTP/1.1 1", b"HTTP/1.1 4", b"")


@given(st.binary(min_size=1, max_size=9000))
def test_any_handshake(data: bytes) -> None:
    assert answered([b"GET /mqtt HTTP/1.1\r\n" + data + b"\r\n\r\n"]) in (b"HTTP/1.1 1", b"HTTP/1.1 4")
