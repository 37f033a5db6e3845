"""Frames that a WebSocket server sends (RFC 6455): headers, control frames, and the codes that say why it closes."""

from __future__ import annotations

from headway.core.base import Reason

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
