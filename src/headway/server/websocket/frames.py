"""Frames that a WebSocket server sends (RFC 6455): headers, control frames, and the codes that say why it closes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from headway.core.base import Reason
from headway.server.transport import Buffer

# -- frames ------------------------------------------------------------------------------------------------------------


CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FINAL = 0x80
COMPRESSED = 0x40
CONTROL_BYTES_MAX = 125
REASON_BYTES_MAX = 123

NORMAL, GOING_AWAY, PROTOCOL_ERROR, UNSUPPORTED = 1000, 1001, 1002, 1003
NO_CODE = 1005
"""Stands for the code of a Close that has none."""
BAD_DATA, POLICY, TOO_BIG, INTERNAL_ERROR, TRY_AGAIN_LATER = 1007, 1008, 1009, 1011, 1013

_CODES = {
    Reason.NORMAL: NORMAL, Reason.CLIENT_GONE: NORMAL, Reason.SHUTDOWN: GOING_AWAY,
    Reason.INTERNAL_ERROR: INTERNAL_ERROR, Reason.PROTOCOL_ERROR: PROTOCOL_ERROR, Reason.MALFORMED: PROTOCOL_ERROR,
    Reason.PACKET_TOO_LARGE: TOO_BIG,
} | dict.fromkeys(
    (
        Reason.LAG_RECORDS, Reason.LAG_BYTES, Reason.LAG_AGE, Reason.DRAIN_RATE, Reason.BLOCKED,
        Reason.CREDIT_EXHAUSTED, Reason.SLOW_COUNT, Reason.ACK_AGE, Reason.SLOW_FRACTION, Reason.POOL_SHARE,
        Reason.PLUGIN, Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.CLIENT_SHARE, Reason.CLIENT_MEMORY,
        Reason.SPILL_FAILED, Reason.FLAPPING,
    ),
    TRY_AGAIN_LATER,
)  # fmt: skip
"""Other reasons are ``POLICY``."""


def code_of(reason: Reason) -> int:
    return _CODES.get(reason, POLICY)


def header(size: int, first: int = FINAL | BINARY) -> bytes:
    """Returns the header of a frame with ``size`` bytes, by default a whole binary message."""
    if size < 126:
        return bytes((first, size))
    if size < 65_536:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")


def pong(payload: bytes) -> bytes:
    return header(len(payload), FINAL | PONG) + payload


def close(code: int, text: str = "") -> bytes:
    """Returns a Close. The text is cut to what fits, between two characters."""
    reason = text.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore").encode()
    payload = b"" if code == NO_CODE else code.to_bytes(2, "big") + reason
    return header(len(payload), FINAL | CLOSE) + payload


# -- masking -----------------------------------------------------------------------------------------------------------
#
# Unmasking of what WebSocket clients send: each byte is XORed with one of four.


TABLES = [bytes(byte ^ mask for byte in range(256)) for mask in range(256)]


def unmask_slowly(mask: bytes, data: bytearray) -> None:
    """Unmasks ``data`` in place, in plain Python: some 500 MB/s."""
    for at in range(4):
        if mask[at]:
            data[at::4] = data[at::4].translate(TABLES[mask[at]])


@cache
def unmasking() -> Callable[[bytes, bytearray], None]:
    """Returns what unmasks bytes in place, with a mask of four bytes. A listener asks for it as it begins: to load
    aiohttp takes a while, for which clients would wait."""
    try:  # it has a compiled one, of which it makes no promises
        from aiohttp._websocket.helpers import websocket_mask
    except ImportError:
        return unmask_slowly
    return websocket_mask


# -- framing -----------------------------------------------------------------------------------------------------------
#
# Framing lays a stream's bytes out in frames, without a copy: each header is a small buffer in front of the bytes.


FRAMES_MAX = 64
"""Frames of one portion."""


class Portion(NamedTuple):
    """A portion is what is handed to the kernel at once.

    ``parts``: headers and bytes. ``lead``: how many of the bytes complete a frame that was announced before. ``sizes``:
    those of the frames that are announced. ``rest``: the bytes that follow; the kernel seldom has room for them."""

    parts: list[Buffer]
    lead: int
    sizes: list[int]
    rest: Sequence[Buffer]


def framed(views: Sequence[Buffer], owed: int, frame_bytes: int, room_bytes: int) -> Portion:
    """Returns the first ``room_bytes`` of the views in frames of ``frame_bytes`` at most, the ``owed`` ones first."""
    parts: list[Buffer] = []
    sizes: list[int] = []
    lead, left, full = 0, room_bytes, header(frame_bytes)
    for number, data in enumerate(views):
        whole = memoryview(data)
        view, at = whole[:left], 0
        left -= len(view)
        if owed:
            at = min(owed, len(view))
            parts.append(view[:at])
            lead += at
            owed -= at
        while len(view) - at >= frame_bytes and len(sizes) < FRAMES_MAX:
            parts += (full, view[at : at + frame_bytes])
            sizes.append(frame_bytes)
            at += frame_bytes
        if at < len(view) and len(sizes) < FRAMES_MAX:
            parts += (header(len(view) - at), view[at:])
            sizes.append(len(view) - at)
            at = len(view)
        if not left or len(sizes) == FRAMES_MAX:
            rest = (whole[at:], *views[number + 1 :])
            return Portion(parts, lead, sizes, rest if rest[0] else rest[1:])
    return Portion(parts, lead, sizes, ())
