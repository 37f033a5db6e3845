"""A selection: columns of each record (``/symbol, /bid AS price``), or aggregates of groups of records (``/carrier,
avg(/delay) AS delay, count(*)``).

A column is a field (selector/fields.py) or an aggregate of one, and ``AS`` and its name behind it, if it is to have
another. By itself a column has the last name of its pointer, the name of its property, or its own text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from headway.core.base import Reason, Refused
from headway.core.message import KeyExtractor, Record
from headway.core.query.aggregates import AGGREGATES
from headway.core.selector import FIELDS, BadField, Fields

COLUMNS_MAX = 32
SELECT_CHARS_MAX = 2048
ALL = "*"
"""The field of ``count(*)``."""

Row = dict[str, object]

_NAMED = re.compile(r"(.*\S)\s+AS\s+(\S+)", re.IGNORECASE | re.DOTALL)
_CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)


class Column(NamedTuple):
    """``aggregate`` is empty for a field itself."""

    name: str
    field: str
    aggregate: str = ""


class Selection:
    """The columns of an answer, and the fields that its records are grouped by."""

    def __init__(self, select: str, group_by: str | None = None) -> None:
        """Raises :class:`Refused`."""
        self.columns = [_column(term) for term in _terms("select", select)]
        self.group_by = _terms("group_by", group_by) if group_by is not None else []
        self.names = [column.name for column in self.columns]
        self.aggregated = bool(self.group_by) or any(column.aggregate for column in self.columns)
        for name, count in Counter(self.names).items():
            if count > 1:
                raise _refused(f"select: two columns have the name {name[:60]!a}; say AS and another name")
        for column in self.columns if self.aggregated else ():
            if not column.aggregate and column.field not in self.group_by:
                text = f"{column.field[:60]!a} is neither in group_by nor in an aggregate: {', '.join(AGGREGATES)}"
                raise _refused(f"select: {text}")
        fields("group_by", self.group_by)
        self._fields = fields("select", [column.field for column in self.columns if column.field != ALL])

    def row(self, record: Record, key_of: KeyExtractor | None) -> Row:
        """Returns the columns of a record; null where it has no such field."""
        return dict(zip(self.names, self._fields.values(record, key_of), strict=True))


def fields(option: str, names: Sequence[str]) -> Fields:
    try:
        return Fields(names)
    except BadField as error:
        raise _refused(f"{option}: {error}") from None


def _terms(option: str, text: str) -> list[str]:
    if len(text) > SELECT_CHARS_MAX:
        raise _refused(f"{option}: {len(text)} characters, {SELECT_CHARS_MAX:,} are allowed")
    terms = [term.strip() for term in text.split(",")]
    if len(terms) > COLUMNS_MAX:
        raise _refused(f"{option}: {len(terms)} terms, {COLUMNS_MAX} are allowed")
    return terms


def _column(term: str) -> Column:
    named = _NAMED.fullmatch(term)
    text, name = named.groups() if named else (term, "")
    call = _CALL.fullmatch(text)
    if call is None:
        own = text.rpartition("/")[2].replace("~1", "/").replace("~0", "~") if text.startswith("/") else text
        return Column(name or own.removeprefix("property:"), text)
    aggregate, field = call[1].lower(), call[2].strip()
    if aggregate not in AGGREGATES:
        raise _refused(f"select: {text[:60]!a}: there is {', '.join(AGGREGATES)} of one of: {FIELDS}")
    if field == ALL and aggregate != "count":
        raise _refused(f"select: {aggregate}(*): only count takes all records; say a field")
    return Column(name or f"{aggregate}({field})", field, aggregate)


def _refused(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)
