"""Orderings of records: ``/delay DESC, topic``.

A term is a JSON pointer into the payload, ``property:NAME``, ``topic``, ``key`` or ``offset``, and then ``ASC`` (the
default) or ``DESC``. Rules:

- Values of different types have an order, too: false, true, numbers, texts, and the reverse with DESC. Numbers are
  compared as numbers, texts character by character. User properties, topics and keys are texts.
- A record without the value (no such field, null, an object or array, a payload that is not JSON) comes last, with ASC
  and with DESC.
- Where all terms are equal, the record with the older change comes first. So an order never leaves two records open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from headway.core.base import HeadwayError, Reason
from headway.core.message import NOT_JSON, BadKey, KeyExtractor, Record, compile_key, field_reader, resolve

MAX_TERMS = 8
MAX_ORDER_CHARS = 1024
_LAST: tuple[Any, ...] = (1,)

Value = Callable[[Record, KeyExtractor | None], object]


class BadOrder(HeadwayError):
    """An ordering that does not parse."""

    reason = Reason.PROTOCOL_ERROR


class _Reversed(str):
    """A text that comes first when it would come last."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)


class Ordering:
    """A compiled ordering. ``by_offset`` is 1 or -1 if it is that of the offsets alone, which needs no comparison."""

    __slots__ = ("_terms", "by_offset", "text")

    def __init__(self, text: str, terms: list[tuple[Value, bool]], by_offset: int) -> None:
        self.text = text
        self.by_offset = by_offset
        self._terms = terms

    def rank(self, record: Record, key_of: KeyExtractor | None) -> tuple[Any, ...]:
        """Returns the record's place: ranks compare as the records are ordered, and no two are equal."""
        places = [_place(value(record, key_of), down=down) for value, down in self._terms]
        return *places, record.sequence


def _place(value: object, *, down: bool) -> tuple[Any, ...]:
    """Returns the place of a value among values of all types."""
    place: int | float
    if isinstance(value, bool):
        kind, place = 0, -value if down else int(value)
    elif isinstance(value, (int, float)):
        kind, place = 1, -value if down else value
    elif isinstance(value, str):
        return (0, -2, _Reversed(value)) if down else (0, 2, value)
    else:
        return _LAST
    return 0, -kind if down else kind, place


@lru_cache(maxsize=256)
def compile_ordering(text: str) -> Ordering:
    """Compiles an ordering; :class:`BadOrder` says what is wrong."""
    if len(text) > MAX_ORDER_CHARS:
        raise BadOrder(f"order: {len(text)} characters, {MAX_ORDER_CHARS} are allowed")
    written = text.split(",")
    if len(written) > MAX_TERMS:
        raise BadOrder(f"order: {len(written)} terms, {MAX_TERMS} are allowed")
    terms, names = [], []
    for term in written:
        name, _, direction = term.strip().rpartition(" ")
        if direction.upper() not in ("ASC", "DESC") or not name:
            name, direction = term.strip(), "ASC"
        name = name.strip()
        down = direction.upper() == "DESC"
        terms.append((_value(name), down))
        names.append(name)
    by_offset = (-1 if terms[0][1] else 1) if names[0] == "offset" else 0
    return Ordering(text, terms, by_offset)


def _value(name: str) -> Value:
    """Returns the function that finds a term's value in a record."""
    if name == "offset":
        return lambda record, _: record.sequence
    if name == "topic":
        return lambda record, _: record.topic
    if name == "key":
        return lambda record, key_of: key_of.of(record) if key_of else None
    if name.startswith("/"):
        return _pointer(name)
    if name.startswith("property:") and name != "property:":
        wanted = name.removeprefix("property:")
        return lambda record, _: record.properties.user_value(wanted)
    raise BadOrder(
        f"order: {name[:60]!a} is none of: a JSON pointer such as /delay, property:NAME, topic, key, offset; then ASC "
        "or DESC"
    )


def _pointer(text: str) -> Value:
    try:
        compile_key(text)  # the same limits
    except BadKey as error:
        raise BadOrder(f"order: {error}") from None
    way = [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]
    read, rest = field_reader(way[:1]), way[1:]

    def value(record: Record, _: KeyExtractor | None) -> object:
        try:
            found = read(record.payload).f0
        except NOT_JSON:
            return None
        return resolve(found, rest) if rest else found

    return value
