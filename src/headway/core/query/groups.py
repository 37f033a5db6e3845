"""The groups of an aggregation, by the values of the fields that it groups by.

A value of a group is false, true, a number or a text; all else (missing, null, an object, an array, a text of more than
``MAX_KEY_CHARS`` characters) is null. 7 and 7.0 are one value, true and 1 are two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headway.core.base import Reason, Refused, format_size
from headway.core.message import KeyExtractor, Record
from headway.core.query.aggregates import AGGREGATES, Aggregate, with_order
from headway.core.query.selection import ALL, Row, Selection, fields
from headway.core.selector import rank_of

GROUPS_MAX = 10_000
GROUPS_BYTES_MAX = 16 * 1024 * 1024
"""The memory that the groups may take up."""
GROUP_BYTES, AGGREGATE_BYTES = 400, 150
"""The memory of a group and of an aggregate in it, beside texts, about."""


Kinds = Mapping[str, type[Aggregate]]


class Groups:
    """The aggregates of each group, of these kinds."""

    def __init__(self, selection: Selection, kinds: Kinds = AGGREGATES) -> None:
        self._kinds = kinds
        self._by, self._columns = selection.group_by, selection.columns
        self._aggregates = [column for column in self._columns if column.aggregate]
        wanted = [column.field for column in self._aggregates if column.field != ALL]
        self._fields = fields("select", [*self._by, *wanted])
        self._down = [False] * len(self._by)
        self._groups: dict[bytes, tuple[list[object], list[Aggregate]]] = {}
        self.bytes = 0
        if not self._by:
            self._begin(b"", [])

    def add(self, record: Record, key_of: KeyExtractor | None) -> None:
        """Adds a record to its group. Raises :class:`Refused` if there are too many."""
        key, by, rest = self.values(record, key_of)
        group = self._groups.get(key)
        if group is None:
            group = self._begin(key, by)
        for aggregate, value in zip(group[1], rest, strict=True):
            self.bytes += aggregate.add(value)

    def values(self, record: Record, key_of: KeyExtractor | None) -> tuple[bytes, list[object], list[object]]:
        """Returns the key of a record's group, the values that it is of, and the value for each aggregate."""
        found = self._fields.values(record, key_of)
        count = len(self._by)
        by, rest = [with_order(value) for value in found[:count]], iter(found[count:])
        values = [True if column.field == ALL else next(rest) for column in self._aggregates]
        return rank_of(by, self._down), by, values

    def _begin(self, key: bytes, by: list[object]) -> tuple[list[object], list[Aggregate]]:
        self.bytes += self._size(key)
        if len(self._groups) >= GROUPS_MAX or self.bytes > GROUPS_BYTES_MAX:
            text = f"more than {GROUPS_MAX:,} groups, or {format_size(GROUPS_BYTES_MAX)} of them"
            raise Refused(Reason.PROTOCOL_ERROR, f"group_by: {text}; group by fewer values, or say where")
        group = self._groups[key] = by, [self._kinds[column.aggregate]() for column in self._aggregates]
        return group

    def _drop(self, key: bytes) -> None:
        del self._groups[key]
        self.bytes -= self._size(key)

    def _size(self, key: bytes) -> int:
        return GROUP_BYTES + 2 * len(key) + AGGREGATE_BYTES * len(self._aggregates)

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        """Yields a row per group, with the bytes that order the groups."""
        for key, (by, aggregates) in self._groups.items():
            yield key, self._row(by, aggregates)

    def _row(self, by: Sequence[object], aggregates: Sequence[Aggregate]) -> Row:
        values = dict(zip(self._by, by, strict=True))
        found = iter(aggregates)
        return {
            column.name: next(found).value if column.aggregate else values[column.field] for column in self._columns
        }
