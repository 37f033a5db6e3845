"""Primitive maps: the properties of a message, and of WireFormatInfo. Values have types, which JMS consumers see.

Headers of the other protocols know texts, truths, whole numbers and fractions. A property of another of JMS's types is
noted in one header more, ``TYPES``: a letter and the property's name for each, separated by blanks. Consumers of
JMS get the type back and do not see that header. Without a note a whole number is an int if it fits into one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from headway.core.base import ProtocolError
from headway.wire.common import KEPT, VALUES_MAX
from headway.wire.openwire.marshalling import OpenWireReader, i32, i64, malformed, read_utf, short_utf, utf

TYPES = f"{KEPT}types"
NULL, BOOL, BYTE, CHAR, SHORT, INT, LONG, DOUBLE, FLOAT, STRING, BYTES, MAP, LIST, BIG_STRING = range(14)
_NUMBERS = {
    BYTE: struct.Struct(">b"), SHORT: struct.Struct(">h"), INT: struct.Struct(">i"), LONG: struct.Struct(">q"),
    DOUBLE: struct.Struct(">d"), FLOAT: struct.Struct(">f"),
}  # fmt: skip
_LETTERS = {BYTE: "b", CHAR: "c", SHORT: "s", LONG: "l", FLOAT: "f"}
_OF_LETTER = {letter: kind for kind, letter in _LETTERS.items()}
_BITS = {BYTE: 7, SHORT: 15, INT: 31, LONG: 63}
DEPTH_MAX = 8
TEXT_BYTES_MAX = 65_535 // 3
REMEMBERED_BYTES_MAX = 512


def _entries(r: OpenWireReader, what: str, depth: int, listed: list[int]) -> dict[str, tuple[int, object]]:
    """Reads a map. ``listed[0]``: the values in maps and lists so far."""
    found: dict[str, tuple[int, object]] = {}
    for _ in range(_count(r, what, depth, listed)):
        name = r.utf(what)
        kind = r.u8(what)
        found[name] = kind, _value(r, kind, what, depth, listed)
    return found


def _count(r: OpenWireReader, what: str, depth: int, listed: list[int]) -> int:
    """Reads the number of values in a map or list."""
    if depth > DEPTH_MAX:
        raise malformed(f"nests its {what} more than {DEPTH_MAX} deep")
    count = max(0, r.i32(what))
    listed[0] += count
    if listed[0] > VALUES_MAX:
        raise malformed(f"has more than {VALUES_MAX} values in its {what}")
    return count


def _value(r: OpenWireReader, kind: int, what: str, depth: int, listed: list[int]) -> object:
    number = _NUMBERS.get(kind)
    if number is not None:
        value: object = number.unpack_from(r.data, r.take(number.size, what))[0]
        return value
    match kind:
        case 9:
            return r.utf(what)
        case 1:
            return r.flag(what)
        case 3:
            return chr(r.u16(what)).encode("utf-8", "replace").decode()
        case 10 | 13:
            size = max(0, r.i32(what))
            at = r.take(size, what)
            raw = r.data[at : at + size]
            return bytearray(raw) if kind == BYTES else read_utf(raw, what)
        case 11:
            return {name: value for name, (_, value) in _entries(r, what, depth + 1, listed).items()}
        case 12:
            count = _count(r, what, depth, listed)
            return [_value(r, r.u8(what), what, depth + 1, listed) for _ in range(count)]
        case 0:
            return None
    raise malformed(f"has a value of the unknown type {kind} in its {what}")


def _read_headers(raw: bytes) -> Mapping[str, object]:
    """Reads a message's properties as headers. Equal ones share the result, which is not to be changed."""
    notes, headers = [], {}
    for name, (kind, value) in _entries(OpenWireReader(raw), "properties", 0, [0]).items():
        headers[name] = value
        letter = _LETTERS.get(kind)
        if letter is not None and " " not in name and not (kind == LONG and _kind_of(value) == LONG):
            notes.append(letter + name)
    if notes:
        headers[TYPES] = " ".join(notes)
    return headers


_read_lately = lru_cache(256)(_read_headers)


def read_headers(raw: bytes) -> Mapping[str, object]:
    return _read_lately(raw) if len(raw) <= REMEMBERED_BYTES_MAX else _read_headers(raw)


def write_headers(headers: Mapping[str, object]) -> bytes | None:
    """Writes headers as a message's properties; None: there are none."""
    noted = headers.get(TYPES)
    kinds = {note[1:]: _OF_LETTER.get(note[:1]) for note in noted.split(" ")} if isinstance(noted, str) else {}
    entries = [
        short_utf(name) + _write(kinds.get(name), value) for name, value in headers.items() if name != TYPES
    ]  # fmt: skip
    return i32(len(entries)) + b"".join(entries) if entries else None


def write_map(values: Mapping[str, object]) -> bytes:
    return i32(len(values)) + b"".join(short_utf(name) + _write(None, value) for name, value in values.items())


def _kind_of(value: object) -> int:
    match value:
        case bool():
            return BOOL
        case int():
            return INT if -(2**31) <= value < 2**31 else LONG
        case float():
            return DOUBLE
        case None:
            return NULL
        case bytearray():
            return BYTES
        case Mapping():
            return MAP
        case list() | tuple():
            return LIST
    return STRING


def _write(noted: int | None, value: object) -> bytes:
    """Writes a value, as the noted type if it is one of that."""
    kind = _kind_of(value)
    if noted is not None and _fits(noted, value):
        kind = noted
    number = _NUMBERS.get(kind)
    if number is not None:
        try:
            return bytes((kind,)) + number.pack(value)
        except (struct.error, OverflowError):  # an integer beyond 64 bits
            kind = STRING
    match value:
        case bool():
            return b"\1\1" if value else b"\1\0"
        case None:
            return b"\0"
        case bytearray():
            return bytes((BYTES,)) + i32(len(value)) + bytes(value)
        case Mapping():
            return bytes((MAP,)) + write_map({str(name): one for name, one in value.items()})
        case list() | tuple():
            return bytes((LIST,)) + i32(len(value)) + b"".join(_write(None, one) for one in value)
        case datetime():
            return bytes((LONG,)) + i64(int(value.timestamp() * 1000))
    if kind == CHAR:
        return bytes((CHAR,)) + ord(str(value)).to_bytes(2, "big")
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if len(text) <= TEXT_BYTES_MAX:
        return bytes((STRING,)) + short_utf(text)
    raw = utf(text)
    return bytes((BIG_STRING,)) + i32(len(raw)) + raw


def _fits(kind: int, value: object) -> bool:
    if kind == FLOAT:
        return isinstance(value, float)
    if kind == CHAR:
        return isinstance(value, str) and len(value) == 1 and value <= "\uffff"
    return type(value) is int and -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]


def read_properties(raw: bytes | None) -> dict[str, object]:
    """Reads the properties of WireFormatInfo."""
    try:
        known = _entries(OpenWireReader(raw or b"\0\0\0\0"), "properties", 0, [0])
    except ProtocolError as error:
        raise malformed(f"in its properties: {error}") from None
    return {name: value for name, (_, value) in known.items()}
