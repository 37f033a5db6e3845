"""Reads and writes the data types of AMQP, above all field tables.

Rules:
- A value that goes beyond its container is a :class:`ProtocolError` with SYNTAX_ERROR: a string beyond its frame, an
  entry beyond its table. So are tables nested deeper than ``DEPTH_MAX``, and tables of more than ``VALUES_MAX`` values.
- The types of table values are those that brokers and clients use, which differ from the specification
  (rabbitmq.com/docs/amqp-0-9-1-errata).
- A table that was read can be written again: long strings that are not UTF-8 become ``bytes``, byte arrays
  ``bytearray``. Integers are written with 64 bits and floats as doubles, so only their width is lost.

``pamqp`` is not used for this: it reads strings beyond the end of their container, copies the rest of a table for each
entry, fails on deep nesting, and narrows doubles to floats. Its commands are used (replies.py).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

from headway.core.base import ProtocolError, Reason, Refused
from headway.wire.amqp.codes import ReplyCode
from headway.wire.common import VALUES_MAX, BytesReader

SHORT_BYTES_MAX = 255
DEPTH_MAX = 32
"""Nesting of tables and arrays."""

_FIXED = {
    tag: struct.Struct(f">{form}")
    for tag, form in zip(b"tbBsuIilLfd", "?bBhHiIqqfd", strict=True)
}  # fmt: skip
_VOID = b"V\0"
_TIMESTAMP_MAX = 253_402_300_799
"""The end of the year 9999."""


def malformed(text: str) -> ProtocolError:
    """Returns the error for bytes that do not parse."""
    return ProtocolError(text, reason=Reason.MALFORMED, code=ReplyCode.SYNTAX_ERROR)


class TooManyValues(ProtocolError):
    """A table that has more values than the broker reads at once."""

    def __init__(self, what: str, most: int) -> None:
        text = f"has more than {most} values in its {what}"
        super().__init__(text, reason=Reason.PACKET_TOO_LARGE, code=ReplyCode.RESOURCE_ERROR)


class TableField(NamedTuple):
    """A field of a table. Its value, with the type in front, is at ``start:end``."""

    name: str
    value: object
    start: int
    end: int


class AmqpReader(BytesReader):
    """Reads arguments or properties in order, with ``values_max`` values in tables and arrays."""

    __slots__ = ("_values", "_values_max")
    malformed = staticmethod(malformed)

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None, values_max: int = VALUES_MAX) -> None:
        super().__init__(data, pos, end)
        self._values, self._values_max = 0, values_max

    def integer(self, size: int, what: str) -> int:
        at = self.take(size, what)
        return int.from_bytes(self.data[at : at + size], "big")

    def short(self, what: str) -> str:
        size = self.data[self.take(1, what)]
        at = self.take(size, what)
        try:
            return self.data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise malformed(f"has bytes in its {what} that are not UTF-8 (at {error.start})") from None

    def long_bytes(self, what: str) -> bytes:
        size = self.integer(4, what)
        at = self.take(size, what)
        return self.data[at : at + size]

    def long(self, what: str) -> str | bytes:
        """Reads a long string: text, or bytes if it is not UTF-8."""
        raw = self.long_bytes(what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def table(self, what: str, depth: int = 0) -> dict[str, object]:
        return {entry.name: entry.value for entry in self.entries(what, depth)}

    def entries(self, what: str, depth: int = 0) -> list[TableField]:
        outer_end = self._enter(what, depth)
        found: list[TableField] = []
        while self.pos < self.end:
            name = self.short(what)
            start = self.pos
            value = self.value(what, depth)
            found.append(TableField(name, value, start, self.pos))
        self.end = outer_end
        return found

    def _enter(self, what: str, depth: int) -> int:
        """Goes to the first value of a table or array, and lets reads end with the last one. Returns the old end."""
        if depth > DEPTH_MAX:
            raise malformed(f"has more than {DEPTH_MAX} tables within each other in its {what}")
        size = self.integer(4, what)
        at = self.take(size, what)
        outer_end, self.pos, self.end = self.end, at, at + size
        return outer_end

    def value(self, what: str, depth: int) -> object:
        self._values += 1
        if self._values > self._values_max:
            raise TooManyValues(what, self._values_max)
        tag = self.data[self.take(1, what)]
        if tag == 0x53:  # S, the most frequent
            return self.long(what)
        fixed = _FIXED.get(tag)
        if fixed is not None:
            value: object = fixed.unpack_from(self.data, self.take(fixed.size, what))[0]
            return value
        match tag:
            case 0x46:  # F
                return self.table(what, depth + 1)
            case 0x41:  # A
                outer_end, values = self._enter(what, depth + 1), []
                while self.pos < self.end:
                    values.append(self.value(what, depth + 1))
                self.end = outer_end
                return values
            case 0x54:  # T
                return _time(self.integer(8, what))
            case 0x44:  # D
                places = self.integer(1, what)
                at = self.take(4, what)
                return Decimal(int.from_bytes(self.data[at : at + 4], "big", signed=True)).scaleb(-places)
            case 0x78:  # x
                return bytearray(self.long_bytes(what))
        if tag in _VOID:
            return None
        raise malformed(f"has a value of the unknown type 0x{tag:02x} in its {what}")


def read_bare_table(raw: bytes, what: str) -> dict[str, object]:
    """Reads a table that fills ``raw``, without a length in front, as in AMQPLAIN."""
    return AmqpReader(len(raw).to_bytes(4, "big") + raw, values_max=len(raw)).table(what)


def _time(value: int) -> datetime | int:
    """Reads a timestamp in seconds. A value beyond year 9999 stays an integer: some clients write milliseconds."""
    return datetime.fromtimestamp(value, UTC) if value <= _TIMESTAMP_MAX else value


# -- writing -----------------------------------------------------------------------------------------------------------


def write_short(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > SHORT_BYTES_MAX:
        raise Refused(Reason.PACKET_TOO_LARGE, f"a short string of {len(raw)} bytes (at most {SHORT_BYTES_MAX})")
    return len(raw).to_bytes(1, "big") + raw


def write_long(text: str | bytes | bytearray) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(4, "big") + raw


def write_table(table: Mapping[str, object]) -> bytes:
    return write_entries({name: write_value(value) for name, value in table.items()})


def write_entries(entries: Mapping[str, bytes]) -> bytes:
    """Writes a table from values that are encoded already."""
    return write_long(b"".join([write_short(name) + value for name, value in entries.items()]))


def write_value(value: object) -> bytes:
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return b"l" + value.to_bytes(8, "big", signed=True)
        case float():
            return b"d" + struct.pack(">d", value)
        case Decimal():
            return b"D" + _decimal(value)
        case str() | bytes():
            return b"S" + write_long(value)
        case bytearray():
            return b"x" + write_long(value)
        case datetime():
            return b"T" + int(value.timestamp()).to_bytes(8, "big")
        case Mapping():
            return b"F" + write_table(value)
        case list() | tuple():
            return b"A" + write_long(b"".join([write_value(item) for item in value]))
    raise TypeError(f"a table has no type for {value!r}")


def _decimal(value: Decimal) -> bytes:
    _, _, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"{value} is not a number")
    places = max(0, -exponent)
    return struct.pack(">Bi", places, int(value.scaleb(places)))
