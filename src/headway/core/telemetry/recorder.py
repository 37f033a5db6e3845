"""The recorder: rows of the telemetry lake, gathered as columns until somebody comes to write them.

Rules:
- Gathering is cheap and never waits: numbers go into plain arrays, texts become an index into the distinct ones there
  are. So a writer in another thread can take the memory as it is, without a look at every row.
- ``take`` hands over what there is and starts anew; what was handed over is not touched again.
- It is bounded. Where nobody comes to take them, further rows are dropped and counted.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, TypeAlias

from headway.core.telemetry.tables import TABLES, Kind, LakeTable

ROWS_MAX = 100_000
"""Some 30 MB. At most a few thousand rows come in a second, however many consumers there are."""
TRANSPOSED_ROWS = 256

_CODES: dict[Kind, str] = {"time": "q", "int": "q", "float": "d", "flag": "b", "text": "i"}


class TextColumn(NamedTuple):
    """A column of text: for each row the index (32 bits) of its text among the distinct ones."""

    indexes: array[int]
    texts: list[str]


ColumnData: TypeAlias = "array[int] | array[float] | TextColumn"


class RowBatch(NamedTuple):
    """Rows of one table, as columns in the table's order: 64-bit integers and floats, flags of one byte, words."""

    table: str
    rows: int
    columns: tuple[ColumnData, ...]


class Recorder:
    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._pages = {name: _TableRows(table) for name, table in TABLES.items()}
        self.rows = 0
        """Gathered since the last ``take``."""
        self.dropped_rows = 0
        """Since the start, for want of room."""

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """One row, its values in the order of the table's columns."""
        if self.rows >= self._rows_max:
            self.dropped_rows += 1
            return
        self.rows += 1
        self._pages[table].add(row)

    def take(self) -> list[RowBatch]:
        """All rows since the last time, one batch for each table that has any."""
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
        """The last few rows. Turned into columns together, a row costs a quarter of what it does alone."""
        self._columns: list[tuple[array[Any], _TextIndex | None]] = [
            (array(_CODES[column.kind]), _TextIndex() if column.kind == "text" else None) for column in table.columns
        ]

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows += 1
        self._fresh.append(row)
        if len(self._fresh) == TRANSPOSED_ROWS:
            self._turn()

    def _turn(self) -> None:
        for (values, places), fresh in zip(self._columns, zip(*self._fresh, strict=True), strict=True):
            values.extend(fresh if places is None else map(places.__getitem__, fresh))
        self._fresh.clear()

    def batch(self) -> RowBatch:
        if self._fresh:
            self._turn()
        columns = [
            values if places is None else TextColumn(values, [str(text) for text in places])
            for values, places in self._columns
        ]
        return RowBatch(self.table.name, self.rows, tuple(columns))


class _TextIndex(dict[str, int]):
    """Text -> its index, given out in the order in which texts first come."""

    def __missing__(self, text: str) -> int:
        place = self[text] = len(self)
        return place
