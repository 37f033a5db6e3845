"""What a WebSocket client may send and may not, by the numbers of the Autobahn test suite's cases where it has one."""

from __future__ import annotations

import os
import random

import pytest
from bench.wires.websocket import BINARY, CLOSE, PING, PONG, TEXT, frame

from headway.server.websocket.decoder import FrameDecoder, Over
from headway.server.websocket.frames import unmask_slowly, unmasking

CONTINUATION = 0


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(code.to_bytes(2, "big") + reason, CLOSE)


def bits(data: bytes, first: int = 0, second: int = 0) -> bytes:
    """The frame with these bits of its first two bytes flipped."""
    return bytes((data[0] ^ first, data[1] ^ second)) + data[2:]


TAKEN = [
    ("1.2.1 nothing", frame(b""), b""),
    ("1.2.2 125 bytes", frame(b"*" * 125), b"*" * 125),
    ("1.2.3 126 bytes", frame(b"*" * 126), b"*" * 126),
    ("1.2.4 127 bytes", frame(b"*" * 127), b"*" * 127),
    ("1.2.5 128 bytes", frame(b"*" * 128), b"*" * 128),
    ("1.2.6 65535 bytes", frame(b"*" * 65_535), b"*" * 65_535),
    ("1.2.7 65536 bytes", frame(b"*" * 65_536), b"*" * 65_536),
    ("2.1 ping", frame(b"", PING) + frame(b"x"), b"x"),
    ("2.7 pong that nobody asked for", frame(b"", PONG) + frame(b"x"), b"x"),
    ("2.8 pong with a payload", frame(b"unsolicited", PONG) + frame(b"x"), b"x"),
    ("5.3 fragmented", frame(b"frag", final=False) + frame(b"ment", CONTINUATION), b"fragment"),
    (
        "5.6 ping between fragments",
        frame(b"frag", final=False) + frame(b"ping", PING) + frame(b"ment", CONTINUATION),
        b"fragment",
    ),
    (
        "5.19 many fragments, and pings between them",
        b"".join(frame(b"%d" % i, CONTINUATION if i else BINARY, final=False) + frame(b"", PING) for i in range(5))
        + frame(b"!", CONTINUATION),
        b"01234!",
    ),
    (
        "6.x fragments without payload",
        frame(b"", final=False) + frame(b"", CONTINUATION, final=False) + frame(b"x", CONTINUATION),
        b"x",
    ),
    ("masked with zeros", frame(b"plain", mask=bytes(4)), b"plain"),
]
REFUSED = [
    ("1.1.1 text", frame(b"", TEXT), 1003),
    ("1.1.6 long text", frame(b"*" * 65_535, TEXT), 1003),
    ("2.5 ping of 126 bytes", frame(b"*" * 126, PING), 1002),
    ("3.1 RSV1", bits(frame(b"x"), 0x40), 1002),
    ("3.2 RSV2", bits(frame(b"x"), 0x20), 1002),
    ("3.3 RSV1 and RSV2", bits(frame(b"x"), 0x60), 1002),
    ("3.4 RSV3", bits(frame(b"x"), 0x10), 1002),
    ("3.6 RSV3 of a ping", bits(frame(b"x", PING), 0x50), 1002),
    ("3.7 RSV of a close", bits(closing(1000), 0x70), 1002),
    *[(f"4.1 opcode {code}", frame(b"x", code), 1002) for code in (3, 4, 5, 6, 7)],
    *[(f"4.2 opcode {code}", frame(b"x", code), 1002) for code in (11, 12, 13, 14, 15)],
    ("5.1 fragmented ping", frame(b"x", PING, final=False), 1002),
    ("5.2 fragmented pong", frame(b"x", PONG, final=False), 1002),
    ("5.9 continuation of nothing", frame(b"x", CONTINUATION), 1002),
    ("5.11 continuation of nothing, not the last", frame(b"x", CONTINUATION, final=False), 1002),
    ("5.15 continuation after the last", frame(b"x") + frame(b"y", CONTINUATION), 1002),
    ("5.18 two messages at once", frame(b"x", final=False) + frame(b"y"), 1002),
    ("7.3.2 close with half a code", frame(b"\x03", CLOSE), 1002),
    ("7.3.6 close of 126 bytes", frame(b"\x03\xe8" + b"*" * 124, CLOSE), 1002),
    ("7.5.1 close with a reason that is no UTF-8", closing(1000, b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80"), 1007),
    *[(f"7.9 close with code {code}", closing(code), 1002) for code in (0, 999, 1004, 1005, 1006, 1016, 1100, 2999)],
    *[(f"7.13 close with code {code}", closing(code), 1002) for code in (5000, 65_535)],
    ("not masked", b"\x82\x01x", 1002),
    ("a length of 125 in two bytes", b"\x82\xfe\x00\x7d" + bytes(129), 1002),
    ("a length of 65535 in eight bytes", b"\x82\xff" + (65_535).to_bytes(8, "big") + bytes(4), 1002),
    ("a length of 2**63", b"\x82\xff" + (1 << 63).to_bytes(8, "big") + bytes(4), 1002),
]  # fmt: skip
CLOSED = [
    ("7.3.1 without a code", frame(b"", CLOSE), Over(1005, "", True)),
    ("7.3.3 with a code", closing(1000), Over(1000, "", True)),
    ("7.3.4 with a reason", closing(1000, b"Hello W\xc3\xb6rld"), Over(1000, "Hello W\xf6rld", True)),
    ("7.3.5 with the longest reason", closing(1000, b"*" * 123), Over(1000, "*" * 123, True)),
    *[
        (f"7.7 with code {code}", closing(code), Over(code, "", True))
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    ],
]


def cuts(data: bytes) -> list[list[bytes]]:
    """The bytes at once, one by one, and in a few other ways (9.x: fragmented on the wire)."""
    ways = [[data]]
    if len(data) < 5000:
        ways.append([data[i : i + 1] for i in range(len(data))])
    chance = random.Random(7)
    for _ in range(3):
        places = sorted(chance.randrange(len(data) + 1) for _ in range(4))
        ways.append([data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)])
    return ways


def fed(parts: list[bytes]) -> tuple[FrameDecoder, bytes]:
    decoder, got = FrameDecoder(), b""
    for part in parts:
        got += decoder.feed(part)
        assert decoder.buffered_bytes <= 139
    return decoder, got


@pytest.mark.parametrize(("data", "payload"), [case[1:] for case in TAKEN], ids=[case[0] for case in TAKEN])
def test_what_is_taken(data: bytes, payload: bytes) -> None:
    for parts in cuts(data):
        decoder, got = fed(parts)
        assert got == payload
        assert decoder.over is None
        assert decoder.buffered_bytes == 0


@pytest.mark.parametrize(("data", "code"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_refused(data: bytes, code: int) -> None:
    for parts in cuts(frame(b"before") + data + frame(b"behind")):
        decoder, got = fed(parts)
        assert got in (b"before", b"beforex"), "what came before counts, and nothing behind it"
        assert decoder.over is not None
        assert (decoder.over.code, decoder.over.by_client) == (code, False)
        assert decoder.over.text


@pytest.mark.parametrize(("data", "over"), [case[1:] for case in CLOSED], ids=[case[0] for case in CLOSED])
def test_how_a_client_closes(data: bytes, over: Over) -> None:
    for parts in cuts(frame(b"before") + data + frame(b"behind")):
        decoder, got = fed(parts)
        assert (got, decoder.over) == (b"before", over)


def test_the_last_ping_is_kept() -> None:
    """2.10: of many pings, the last may stand for all."""
    decoder = FrameDecoder()
    decoder.feed(b"".join(frame(b"payload-%d" % i, PING) for i in range(10)))
    assert decoder.ping == b"payload-9"


def test_a_frame_without_end_is_passed_on_as_it_comes() -> None:
    """9.x, and beyond: 4 GB are announced, and nothing of them is kept."""
    decoder = FrameDecoder()
    mask = os.urandom(4)
    assert decoder.feed(b"\x82\xff" + (1 << 32).to_bytes(8, "big") + mask) == b""
    whole, piece = b"", b"0123456789" * 101
    for _ in range(7):
        raw = bytearray(piece)
        key = (mask * 400)[len(whole) % 4 :]
        whole += decoder.feed(bytes(byte ^ key[i] for i, byte in enumerate(raw)))
        assert decoder.buffered_bytes == 0
    assert whole == piece * 7


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 100, 1001])
@pytest.mark.parametrize("mask", [b"\0\0\0\0", b"\1\2\3\4", b"\xff\0\xff\x80"])
def test_both_ways_to_unmask_agree(size: int, mask: bytes) -> None:
    data = os.urandom(size)
    fast, slow = bytearray(data), bytearray(data)
    unmasking()(mask, fast)
    unmask_slowly(mask, slow)
    assert fast == slow == bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
