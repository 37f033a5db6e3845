"""Reads the data types of AMQP 1.0 (1.6). A value is a constructor, one byte, and its bytes.

Rules:
- A value that goes beyond its container is a :class:`ProtocolError`. So are values nested deeper than ``DEPTH_MAX``,
  and lists, maps and arrays with more than ``VALUES_MAX`` values altogether.
- How long a value is can be told from its constructor, so one that nobody asks for is passed over unread (``skip``).
- Python has fewer types than AMQP. What has to be told apart is a class of its own: symbols, described values, UUIDs.
  Widths of numbers are lost; whoever needs them keeps the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

from headway.core.base import ProtocolError, Reason
from headway.wire.common import VALUES_MAX

# -- codes -------------------------------------------------------------------------------------------------------------
#
# Error conditions (AMQP 1.0, 2.8.15 to 2.8.18, and 4.5.8), numbered, because a ``ProtocolError`` has a number.


class Condition(IntEnum):
    """The condition of an error. ``symbol`` is its name on the wire."""

    INTERNAL_ERROR = 1
    NOT_FOUND = 2
    UNAUTHORIZED_ACCESS = 3
    DECODE_ERROR = 4
    RESOURCE_LIMIT_EXCEEDED = 5
    NOT_ALLOWED = 6
    INVALID_FIELD = 7
    NOT_IMPLEMENTED = 8
    RESOURCE_LOCKED = 9
    PRECONDITION_FAILED = 10
    RESOURCE_DELETED = 11
    ILLEGAL_STATE = 12
    FRAME_SIZE_TOO_SMALL = 13
    CONNECTION_FORCED = 20
    FRAMING_ERROR = 21
    WINDOW_VIOLATION = 30
    ERRANT_LINK = 31
    HANDLE_IN_USE = 32
    UNATTACHED_HANDLE = 33
    DETACH_FORCED = 40
    TRANSFER_LIMIT_EXCEEDED = 41
    MESSAGE_SIZE_EXCEEDED = 42
    STOLEN = 43
    UNKNOWN_ID = 50
    ROLLBACK = 51

    @property
    def symbol(self) -> str:
        place = next(word for least, word in _PLACES if self >= least)
        return f"amqp:{place}{self.name.lower().replace('_', '-')}"


_PLACES = ((50, "transaction:"), (40, "link:"), (30, "session:"), (20, "connection:"), (0, ""))


# -- values ------------------------------------------------------------------------------------------------------------


DEPTH_MAX = 32
"""Nesting of lists, maps, arrays and described values."""
EMPTY_ITEMS_MAX = 8
"""Items of an array whose values take no bytes; others are limited by their bytes. A frame may have 10,000 arrays."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS_MS = 253_402_300_799_000
"""Timestamps beyond the year 9999 stay numbers."""


class Symbol(str):
    """A name from a restricted set."""

    __slots__ = ()


class Described(NamedTuple):
    """A value with a descriptor that says what it means."""

    descriptor: object
    value: object


class Uuid(bytes):
    """Sixteen bytes."""

    __slots__ = ()

    @property
    def text(self) -> str:
        return "-".join(self[start:end].hex() for start, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 16)))


class Raw(bytes):
    """A number that Python has no type for (decimals), as its bytes."""

    __slots__ = ()


def malformed(text: str) -> ProtocolError:
    """Returns the error for bytes that do not parse."""
    return ProtocolError(text, reason=Reason.MALFORMED, code=Condition.DECODE_ERROR)


def _number(form: str) -> Callable[[bytes, int], object]:
    unpack = struct.Struct(form).unpack_from
    return lambda data, pos: unpack(data, pos)[0]


def _time(data: bytes, pos: int) -> object:
    ms = int.from_bytes(data[pos : pos + 8], "big", signed=True)
    return _EPOCH + timedelta(milliseconds=ms) if 0 <= ms <= _YEARS_MS else ms


def _flag(data: bytes, pos: int) -> object:
    if data[pos] > 1:
        raise malformed(f"has 0x{data[pos]:02x} in the place of true or false")
    return bool(data[pos])


def _char(data: bytes, pos: int) -> object:
    code = int.from_bytes(data[pos : pos + 4], "big")
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise malformed(f"has a character 0x{code:x}, which there is not")
    return chr(code)


def _text(raw: bytes) -> object:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise malformed("has a string that is not UTF-8") from None


def _symbol(raw: bytes) -> object:
    try:
        return Symbol(raw.decode("ascii"))
    except UnicodeDecodeError:
        raise malformed("has a symbol that is not ASCII") from None


_FIXED: dict[int, Callable[[bytes, int], object]] = {
    0x40: lambda data, pos: None, 0x41: lambda data, pos: True, 0x42: lambda data, pos: False,
    0x43: lambda data, pos: 0, 0x44: lambda data, pos: 0,
    0x50: _number(">B"), 0x51: _number(">b"), 0x52: _number(">B"), 0x53: _number(">B"), 0x54: _number(">b"),
    0x55: _number(">b"), 0x56: _flag,
    0x60: _number(">H"), 0x61: _number(">h"),
    0x70: _number(">I"), 0x71: _number(">i"), 0x72: _number(">f"), 0x73: _char,
    0x74: lambda data, pos: Raw(data[pos : pos + 4]),
    0x80: _number(">Q"), 0x81: _number(">q"), 0x82: _number(">d"), 0x83: _time,
    0x84: lambda data, pos: Raw(data[pos : pos + 8]),
    0x94: lambda data, pos: Raw(data[pos : pos + 16]), 0x98: lambda data, pos: Uuid(data[pos : pos + 16]),
}  # fmt: skip
_VARIABLE: dict[int, Callable[[bytes], object]] = {0xA0: bytes, 0xA1: _text, 0xA3: _symbol}
_WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""The bytes of a value, by the first half of its constructor."""


def _checked(end: int, limit: int) -> int:
    if end > limit:
        raise malformed("ends within a value")
    return end


def skip(data: bytes, pos: int, end: int, depth: int = 0) -> int:
    """Returns the end of the value at ``pos``, which is not read."""
    if depth > DEPTH_MAX:
        raise malformed(f"has more than {DEPTH_MAX} descriptors within each other")
    _checked(pos + 1, end)
    code = data[pos]
    if not code:
        return skip(data, skip(data, pos + 1, end, depth + 1), end, depth + 1)
    return _end_of(code, data, pos + 1, end)


def _end_of(code: int, data: bytes, pos: int, end: int) -> int:
    """Returns the end of the value whose constructor is ``code`` and whose bytes begin at ``pos``."""
    width = _WIDTHS.get(code >> 4)
    if width is not None:
        return _checked(pos + width, end)
    if code < 0xA0:
        raise malformed(f"has a value of the unknown type 0x{code:02x}")
    size = 4 if code & 0x10 else 1
    _checked(pos + size, end)
    return _checked(pos + size + int.from_bytes(data[pos : pos + size], "big"), end)


def read(data: bytes, pos: int, end: int) -> tuple[object, int]:
    """Returns the value at ``pos`` and its end."""
    return _value(data, pos, end, 0, [0])


def _value(data: bytes, pos: int, end: int, depth: int, listed: list[int]) -> tuple[object, int]:
    """Returns the value at ``pos`` and its end. ``listed[0]``: the values in lists, maps and arrays so far."""
    if depth > DEPTH_MAX:
        raise malformed(f"has more than {DEPTH_MAX} values within each other")
    _checked(pos + 1, end)
    code = data[pos]
    if code:
        return _read(code, data, pos + 1, end, depth, listed)
    descriptor, pos = _value(data, pos + 1, end, depth + 1, listed)
    value, pos = _value(data, pos, end, depth + 1, listed)
    return Described(descriptor, value), pos


def _read(code: int, data: bytes, pos: int, end: int, depth: int, listed: list[int]) -> tuple[object, int]:
    fixed = _FIXED.get(code)
    stop = _end_of(code, data, pos, end)
    if fixed is not None:
        return fixed(data, pos), stop
    size = 4 if code & 0x10 else 1
    variable = _VARIABLE.get(code & 0xEF)
    if variable is not None:
        return variable(data[pos + size : stop]), stop
    match code:
        case 0x45:
            return [], stop
        case 0xC0 | 0xD0:
            return _items(data, pos + size, stop, size, depth, listed), stop
        case 0xC1 | 0xD1:
            return _map(data, pos + size, stop, size, depth, listed), stop
        case 0xE0 | 0xF0:
            return _array(data, pos + size, stop, size, depth, listed), stop
    raise malformed(f"has a value of the unknown type 0x{code:02x}")


def _count(data: bytes, pos: int, stop: int, size: int, listed: list[int]) -> int:
    """Returns the number of values, and adds it to that of those so far."""
    _checked(pos + size, stop)
    count = int.from_bytes(data[pos : pos + size], "big")
    listed[0] += count
    if listed[0] > VALUES_MAX:
        raise malformed(f"has more than {VALUES_MAX} values in its lists, maps and arrays")
    return count


def _items(data: bytes, pos: int, stop: int, size: int, depth: int, listed: list[int]) -> list[object]:
    count, found = _count(data, pos, stop, size, listed), list[object]()
    pos += size
    for _ in range(count):
        value, pos = _value(data, pos, stop, depth + 1, listed)
        found.append(value)
    if pos != stop:
        raise malformed(f"has {stop - pos} bytes behind the {count} items of a list or map")
    return found


def _map(data: bytes, pos: int, stop: int, size: int, depth: int, listed: list[int]) -> dict[object, object]:
    flat = _items(data, pos, stop, size, depth, listed)
    if len(flat) % 2:
        raise malformed("has a map with a key and no value")
    found: dict[object, object] = {}
    for key, value in zip(flat[::2], flat[1::2], strict=True):
        if isinstance(key, list | dict | Described):
            raise malformed("has a map with a key that is a list, a map or a described value")
        found[key] = value
    return found


def _array(data: bytes, pos: int, stop: int, size: int, depth: int, listed: list[int]) -> list[object]:
    count = _count(data, pos, stop, size, listed)
    pos = _checked(pos + size + 1, stop)
    code, descriptor, described = data[pos - 1], None, False
    if not code:
        described = True
        descriptor, pos = _value(data, pos, stop, depth + 1, listed)
        pos = _checked(pos + 1, stop)
        code = data[pos - 1]
    if not code:
        raise malformed("has an array of values with two descriptors")
    if count > max(EMPTY_ITEMS_MAX, stop - pos):
        raise malformed(f"has an array of {count} values in {stop - pos} bytes")
    found: list[object] = []
    for _ in range(count):
        value, pos = _read(code, data, pos, stop, depth + 1, listed)
        found.append(Described(descriptor, value) if described else value)
    if pos != stop:
        raise malformed(f"has {stop - pos} bytes behind the {count} values of an array")
    return found


# -- writing -----------------------------------------------------------------------------------------------------------
#
# Writes the data types of AMQP 1.0.


NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
LIST0 = b"\x45"
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
