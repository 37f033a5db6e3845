"""The codec of OpenWire for code that knows no protocol."""

from __future__ import annotations

from headway.wire.codec import Codec
from headway.wire.openwire.codes import MAGIC, Type

OPENING = bytes((Type.WIRE_FORMAT_INFO,)) + MAGIC


def opens(data: bytes) -> bool | None:
    """Tells whether the bytes begin with WireFormatInfo: a length, and then always the same."""
    if data[4:13] == OPENING:
        return True
    return None if data[:2] == b"\0\0"[: len(data)] and OPENING.startswith(data[4:13]) else False


CODEC = Codec(port=61616, tls_port=61617, packet_bytes_max=16_000_000, in_flight_max=65_535, opens=opens)
