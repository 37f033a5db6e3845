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
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from headway.core.base import ProtocolError, Reason
from headway.wire.amqp1.codes import Condition
from headway.wire.common import VALUES_MAX

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
