"""The recorder collects rows of the telemetry lake as columns, until a writer takes them.

Rules:
- Adding a row is cheap and never waits. Numbers go into plain arrays; texts become indexes into the list of distinct
  texts. So a writer in another thread can use the arrays as they are, without work per row.
- ``take`` hands over all rows and starts anew; rows handed over are not touched again.
- The number of rows is bounded. If they are not taken, further rows are dropped and counted.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, TypeAlias

from headway.core.telemetry.tables import TABLES, Kind, LakeTable

ROWS_MAX = 100_000
"""About 30 MB. At most a few thousand rows come in a second, however many consumers there are."""
TRANSPOSED_ROWS = 256

_CODES: dict[Kind, str] = {"time": "q", "int": "q", "float": "d", "flag": "b", "text": "i"}


class TextColumn(NamedTuple):
    """A text column: for each row the 32-bit index of its text in ``texts``, the distinct texts."""

    indexes: array[int]
    texts: list[str]


ColumnData: TypeAlias = "array[int] | array[float] | TextColumn"


class RowBatch(NamedTuple):
    """Rows of one table, as columns in the table's order: 64-bit integers and floats, one-byte flags, text columns."""

    table: str
    rows: int
    columns: tuple[ColumnData, ...]


class Recorder:
    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._pages = {name: _TableRows(table) for name, table in TABLES.items()}
        self.rows = 0
        """Rows added since the last ``take``."""
        self.dropped_rows = 0
        """The number of rows dropped since the start, because there was no room."""

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """Adds a row, its values in the order of the table's columns."""
        if self.rows >= self._rows_max:
            self.dropped_rows += 1
            return
        self.rows += 1
        self._pages[table].add(row)

    def take(self) -> list[RowBatch]:
        """Returns all rows since the last call, one batch for each table that has any."""
        self.rows = 0
        batches = []
        for name, page in self._pages.items():
            if page.rows:
                batches.append(page.batch())
                self._pages[name] = _TableRows(page.table)
        return batches


class _TableRows:
    """The rows of one table so far."""

    def __init__(self, table: LakeTable) -> None:
        self.table = table
        self.rows = 0
        self._fresh: list[tuple[Any, ...]] = []
        """The latest rows. They become columns together, which costs a quarter as much per row."""
        self._columns: list[tuple[array[Any], _TextIndex | None]] = [
            (array(_CODES[column.kind]), _TextIndex() if column.kind == "text" else None) for column in table.columns
        ]

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows += 1
        self._fresh.append(row)
        if len(self._fresh) == TRANSPOSED_ROWS:
            self._transpose()

    def _transpose(self) -> None:
        for (values, index), fresh in zip(self._columns, zip(*self._fresh, strict=True), strict=True):
            values.extend(fresh if index is None else map(index.__getitem__, fresh))
        self._fresh.clear()

    def batch(self) -> RowBatch:
        if self._fresh:
            self._transpose()
        columns = [
            values if index is None else TextColumn(values, [str(text) for text in index])
            for values, index in self._columns
        ]
        return RowBatch(self.table.name, self.rows, tuple(columns))


class _TextIndex(dict[str, int]):
    """Maps each text to its index; new texts get the next index."""

    def __missing__(self, text: str) -> int:
        index = self[text] = len(self)
        return index
