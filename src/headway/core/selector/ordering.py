"""Orderings of records: ``/delay DESC, topic``.

A term is a field (fields.py), and then ``ASC`` (the default) or ``DESC``. Rules:

- Values of different types have an order, too: false, true, numbers, texts, and the reverse with DESC. Numbers are
  compared as numbers, texts character by character. User properties, topics and keys are texts.
- A record without the value (no such field, null, an object or array, a payload that is not JSON) comes last, with ASC
  and with DESC.
- Where all terms are equal, the record with the older change comes first. So an order never leaves two records open.

A record's *rank* is its place as bytes, so that ranks compare in one step of C, and take up little. A value is written
so that no value's bytes begin another's: a byte for its type; then 8 bytes for a number, whose bits are turned so that
they compare as numbers do, and 2 for what a whole number is more than that; for a text its UTF-8 and an end. DESC
inverts all of these bytes. A missing value is the highest byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, isfinite
from struct import Struct

from headway.core.base import HeadwayError, Reason
from headway.core.message import KeyExtractor, Record
from headway.core.selector.fields import BadField, Fields

MAX_TERMS = 8
MAX_ORDER_CHARS = 1024
EXACT = 2**53
"""Up to here each whole number is a float."""

_MISSING = b"\xff"
LAST_RANK = _MISSING * (MAX_TERMS + 9)
"""Behind the ranks of all records."""
_FALSE, _TRUE = b"\x01\x00", b"\x01\x01"
_NUMBER = Struct(">BQH")
_FLOAT, _BITS, _SEQUENCE = Struct(">d"), Struct(">Q"), Struct(">Q")
_SIGN, _ALL, _EVEN = 1 << 63, (1 << 64) - 1, 1 << 15
_INVERSE = bytes(range(255, -1, -1))


class BadOrder(HeadwayError):
    """An ordering that does not parse."""

    reason = Reason.PROTOCOL_ERROR


class Ordering:
    """A compiled ordering. ``by_offset`` is 1 or -1 if it is that of the offsets alone, which needs no comparison."""

    __slots__ = ("_down", "_fields", "by_offset", "names", "text")

    def __init__(self, text: str, names: Sequence[str], down: Sequence[bool]) -> None:
        """Raises :class:`BadField`."""
        self.text = text
        self.names = names
        self.by_offset = (-1 if down[0] else 1) if names[0] == "offset" else 0
        self._fields = Fields(names)
        self._down = down

    def rank(self, record: Record, key_of: KeyExtractor | None) -> bytes:
        """Returns the record's place: ranks compare as the records are ordered, and no two are equal."""
        return rank_of(self._fields.values(record, key_of), self._down) + _SEQUENCE.pack(record.sequence)


def rank_of(values: Sequence[object], down: Sequence[bool]) -> bytes:
    """Returns the place of a list of values; ``down`` tells of each whether it is ordered downwards."""
    return b"".join([place_of(value, down=one) for value, one in zip(values, down, strict=True)])


def place_of(value: object, *, down: bool = False) -> bytes:
    """Returns the place of a value among values of all types."""
    if isinstance(value, bool):
        place = _TRUE if value else _FALSE
    elif isinstance(value, (int, float)):
        place = _number(value)
    elif isinstance(value, str):
        place = b"\x03%b\x00\x01" % value.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff")
    else:
        return _MISSING
    return place.translate(_INVERSE) if down else place


def nearest_float(value: int) -> float:
    """Returns the float that is nearest to a whole number of any length; infinity if it is larger than all of them."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _number(value: float) -> bytes:
    more = 0
    if isinstance(value, int) and not -EXACT <= value <= EXACT:
        nearest = nearest_float(value)
        if isfinite(nearest):
            more = max(-_EVEN, min(value - int(nearest), _EVEN - 1))
        value = nearest
    bits: int = _BITS.unpack(_FLOAT.pack(value + 0.0))[0]  # there is one zero: -0.0 + 0.0 is 0.0
    return _NUMBER.pack(2, bits ^ (_ALL if bits & _SIGN else _SIGN), more + _EVEN)


@lru_cache(maxsize=256)
def compile_ordering(text: str) -> Ordering:
    """Compiles an ordering; :class:`BadOrder` says what is wrong."""
    names, down = parse_terms(text)
    try:
        return Ordering(text, names, down)
    except BadField as error:
        raise BadOrder(f"order: {error}; then ASC or DESC") from None


def parse_terms(text: str) -> tuple[list[str], list[bool]]:
    """Returns the names of an ordering's terms, and of each whether it is ordered downwards. Raises BadOrder."""
    if len(text) > MAX_ORDER_CHARS:
        raise BadOrder(f"order: {len(text)} characters, {MAX_ORDER_CHARS} are allowed")
    written = text.split(",")
    if len(written) > MAX_TERMS:
        raise BadOrder(f"order: {len(written)} terms, {MAX_TERMS} are allowed")
    names, down = [], []
    for term in written:
        name, _, direction = term.strip().rpartition(" ")
        if direction.upper() not in ("ASC", "DESC") or not name:
            name, direction = term.strip(), "ASC"
        names.append(name.strip())
        down.append(direction.upper() == "DESC")
    return names, down
