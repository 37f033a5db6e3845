"""Writes the data types of AMQP 1.0."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from headway.wire.amqp1.values import Described, Symbol, Uuid

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
LIST0 = b"\x45"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UINT = struct.Struct(">BI")
_MS = timedelta(milliseconds=1)


def uint(value: int | None) -> bytes:
    if value is None:
        return NULL
    if not value:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else _UINT.pack(0x70, value)


def ulong(value: int) -> bytes:
    if not value:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else b"\x80" + value.to_bytes(8, "big")


def ubyte(value: int) -> bytes:
    return bytes((0x50, value))


def ushort(value: int) -> bytes:
    return b"\x60" + value.to_bytes(2, "big")


def boolean(value: bool) -> bytes:
    return TRUE if value else FALSE


def _sized(code: int, raw: bytes) -> bytes:
    """Writes bytes with their size in front; ``code`` is the constructor of the short form."""
    size = len(raw)
    return bytes((code, size)) + raw if size < 256 else bytes((code + 0x10,)) + size.to_bytes(4, "big") + raw


def binary(raw: bytes) -> bytes:
    return _sized(0xA0, raw)


def string(text: str) -> bytes:
    return _sized(0xA1, text.encode())


def symbol(text: str) -> bytes:
    return _sized(0xA3, text.encode("ascii", "replace"))


def symbols(names: Iterable[str]) -> bytes:
    """Writes an array of symbols."""
    raw = [name.encode("ascii") for name in names]
    body = b"\xb3" + b"".join(len(one).to_bytes(4, "big") + one for one in raw)
    return b"\xf0" + (len(body) + 4).to_bytes(4, "big") + len(raw).to_bytes(4, "big") + body


def timestamp(when: datetime) -> bytes:
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return b"\x83" + ((when - _EPOCH) // _MS).to_bytes(8, "big", signed=True)


def compound(code: int, count: int, body: bytes) -> bytes:
    """Writes a list (0xc0) or a map (0xc1) of so many items."""
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code + 0x10,)) + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body


def list_of(parts: list[bytes]) -> bytes:
    """Writes a list without the nulls at its end."""
    parts = list(parts)
    while parts and parts[-1] == NULL:
        parts.pop()
    return compound(0xC0, len(parts), b"".join(parts)) if parts else LIST0


def described(descriptor: int, value: bytes) -> bytes:
    return b"\x00" + ulong(descriptor) + value


def map_of(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    parts = [part for pair in pairs for part in pair]
    return compound(0xC1, len(parts), b"".join(parts))


def symbol_map(values: Mapping[str, object]) -> bytes:
    """Writes a map whose keys are symbols: annotations, properties of a connection or link."""
    return map_of((symbol(name), value(one)) for name, one in values.items())


def value(one: object) -> bytes:
    """Writes any value that ``values.read`` returns, or that a typed header has; what has no type here as a text."""
    match one:
        case None:
            return NULL
        case bool():
            return boolean(one)
        case int():
            return _integer(one)
        case float():
            return b"\x82" + struct.pack(">d", one)
        case Symbol():
            return symbol(one)
        case str():
            return string(one)
        case Uuid():
            return b"\x98" + one
        case bytes() | bytearray():
            return binary(bytes(one))
        case datetime():
            return timestamp(one)
        case Described():
            return b"\x00" + value(one.descriptor) + value(one.value)
        case list() | tuple():
            return compound(0xC0, len(one), b"".join([value(item) for item in one])) if one else LIST0
        case Mapping():
            return map_of((value(key), value(item)) for key, item in one.items())
        case Decimal():
            return b"\x82" + struct.pack(">d", float(one))
    return string(str(one))


def _integer(number: int) -> bytes:
    if -(1 << 31) <= number < 1 << 31:
        return b"\x71" + number.to_bytes(4, "big", signed=True)
    if -(1 << 63) <= number < 1 << 63:
        return b"\x81" + number.to_bytes(8, "big", signed=True)
    if 0 <= number < 1 << 64:
        return b"\x80" + number.to_bytes(8, "big")
    return string(str(number))
