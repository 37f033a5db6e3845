"""Fields of records, by name: a JSON pointer into the payload, ``property:NAME``, ``topic``, ``key`` or ``offset``.

Orders, projections and aggregates read them. All pointers of a list are read from one decoding of the payload, which
builds only the outermost fields that are asked for (message/keys.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.core.base import HeadwayError, Reason
from headway.core.message import NOT_JSON, BadKey, KeyExtractor, Record, compile_key, field_reader, resolve

FIELDS = "a JSON pointer such as /delay, property:NAME, topic, key, offset"
"""The names of fields, as errors say them."""

Getter = Callable[[Record, KeyExtractor | None, Any], object]
"""Finds a value in a record, whose decoded payload is the last argument: None if it is no JSON object."""


class BadField(HeadwayError):
    """A name that is no field's."""

    reason = Reason.PROTOCOL_ERROR


class Fields:
    """Reads some fields of records."""

    __slots__ = ("_getters", "_read")

    def __init__(self, names: Sequence[str]) -> None:
        """Raises :class:`BadField`."""
        outer: dict[str, str] = {}
        self._getters = [_pointed(name, outer) if name.startswith("/") else _named(name) for name in names]
        self._read = field_reader(list(outer)) if outer else _read_nothing

    def values(self, record: Record, key_of: KeyExtractor | None) -> list[object]:
        """Returns the value of each field; None where the record has none."""
        try:
            decoded = self._read(record.payload)
        except NOT_JSON:
            decoded = None
        return [get(record, key_of, decoded) for get in self._getters]


def _read_nothing(payload: bytes) -> None:
    """Reads a payload of which no field is asked for."""


def _pointed(name: str, outer: dict[str, str]) -> Getter:
    """``outer`` has the reader's attribute for each outermost field; this one adds its own."""
    try:
        compile_key(name)  # the same limits
    except BadKey as error:
        raise BadField(str(error)) from None
    first, *rest = [token.replace("~1", "/").replace("~0", "~") for token in name[1:].split("/")]
    attribute = outer.setdefault(first, f"f{len(outer)}")

    def value(_: Record, __: KeyExtractor | None, decoded: Any) -> object:
        found = getattr(decoded, attribute, None)
        return resolve(found, rest) if rest else found

    return value


def _named(name: str) -> Getter:
    if name == "offset":
        return lambda record, _, __: record.sequence
    if name == "topic":
        return lambda record, _, __: record.topic
    if name == "key":
        return lambda record, key_of, _: key_of.of(record) if key_of else None
    if name.startswith("property:") and name != "property:":
        wanted = name.removeprefix("property:")
        return lambda record, _, __: record.properties.user_value(wanted)
    raise BadField(f"{name[:60]!a} is none of: {FIELDS}")
