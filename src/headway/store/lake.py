"""The lake: rows as Parquet files, ``LAKE/<table>/date=YYYY-MM-DD/part-<run>-<number>.parquet``.

Rules:
- A file is there whole or not at all: it is written under ``LAKE/_partial``, brought to disk, and then renamed.
- A file has the rows of one table and one day (UTC), and says in its footer which table and which version it is of.
- What everything in the lake takes up is bounded: the oldest files go first, whichever run wrote them. Several brokers
  may write into one lake; then each of them keeps the whole within its own limit.
- What a run that crashed left half written is removed once it is old.

All of it is for one thread of its own. Arrow is given whole columns and lets go of the interpreter while it works;
there is no work for each row here, so the loop's thread hardly ever waits for this one.
"""

from __future__ import annotations

import os
import time
from array import array
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headway.core.telemetry import TABLES, ColumnData, RowBatch, TextColumn
from headway.store.atomic_write import atomic_write
from headway.store.schema import arrow_schema

PARTIAL = "_partial"
LEFT_OVER_S = 3600.0
"""A half-written file that nobody has touched for so long is nobody's."""
SURVEY_S = 300.0
"""How often it is looked what others have written, or removed."""
DAY_US = 86_400_000_000

pa.set_cpu_count(1)
pa.set_io_thread_count(1)


class _LakeFile(NamedTuple):
    """In the order in which files are removed."""

    date: str
    modified_s: float
    path: Path
    size: int


class Lake:
    def __init__(self, folder: Path, run: str, disk_bytes: int) -> None:
        """Raises OSError at once if nothing can be written there."""
        self.folder = folder
        self.bytes = 0
        """All files of the lake, as far as is known."""
        self.run = run
        self._disk_bytes = disk_bytes
        self._number = 0
        self._partial = folder / PARTIAL
        self._partial.mkdir(parents=True, exist_ok=True)
        probe = self._partial / f"probe-{run}"
        probe.write_bytes(b"")
        probe.unlink()
        self._remove_left_overs()
        self._survey()

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batch: RowBatch) -> None:
        """Write the rows of a batch, one file for each day. Raises OSError; then those of some days may be there."""
        rows = _as_arrow(batch)
        times = rows.column("time").cast(pa.int64())
        bounds = pc.min_max(times)
        days = range(bounds["min"].as_py() // DAY_US, bounds["max"].as_py() // DAY_US + 1)
        for day in days:
            part = rows
            if len(days) > 1:
                inside = pc.and_(pc.greater_equal(times, day * DAY_US), pc.less(times, (day + 1) * DAY_US))
                part = rows.filter(inside)
            if part.num_rows:
                self._write(batch.table, date(1970, 1, 1) + timedelta(days=day), part)

    def _write(self, table: str, day: date, rows: pa.Table) -> None:
        self._number += 1
        name = f"part-{self.run}-{self._number:06d}.parquet"
        partial = self._partial / f"{table}-{name}"
        folder = self.folder / table / f"date={day.isoformat()}"
        path = folder / name
        self._partial.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, partial):
            pq.write_table(rows, str(partial), compression="zstd")  # by name: Arrow writes without asking us
            size = _sync(partial)
            self._make_room(size)
            folder.mkdir(parents=True, exist_ok=True)
        _sync(folder)
        self._files.append(_LakeFile(folder.name, time.time(), path, size))
        self.bytes += size

    # -- room -------------------------------------------------------------------------------------------------------

    def _make_room(self, size: int) -> None:
        """Remove the oldest files until so many bytes more are within the limit, or nothing is left."""
        if time.monotonic() - self._surveyed_s > SURVEY_S:
            self._survey()
        gone = 0
        for file in self._files:
            if self.bytes + size <= self._disk_bytes:
                break
            with suppress(FileNotFoundError):
                file.path.unlink()
            with suppress(OSError):  # there are others in it
                file.path.parent.rmdir()
            self.bytes -= file.size
            gone += 1
        del self._files[:gone]

    def _survey(self) -> None:
        """Which files there are, the oldest first."""
        self._surveyed_s = time.monotonic()
        self._files = sorted(file for table in TABLES for file in _files_of(self.folder / table))
        self.bytes = sum(file.size for file in self._files)

    def _remove_left_overs(self) -> None:
        for path in self._partial.iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFT_OVER_S:
                    path.unlink()


def _files_of(folder: Path) -> list[_LakeFile]:
    """The files of one table. What vanishes meanwhile is left out."""
    found = []
    with suppress(FileNotFoundError):
        for day in os.scandir(folder):
            if not day.name.startswith("date="):
                continue
            with suppress(FileNotFoundError):
                for entry in os.scandir(day.path):
                    with suppress(FileNotFoundError):
                        known = entry.stat()
                        found.append(_LakeFile(day.name, known.st_mtime, Path(entry.path), known.st_size))
    return found


def _sync(path: Path) -> int:
    """Have a file, or a folder's own entries, on disk. Returns how large it is."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def new_run(now: float, token: str) -> str:
    """A run's name: when it began (epoch seconds), and something that no other one has."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}-{token}"


# -- Arrow ------------------------------------------------------------------------------------------------------------


def _as_arrow(batch: RowBatch) -> pa.Table:
    schema = arrow_schema(batch.table)
    arrays = [_array(values, field.type) for values, field in zip(batch.columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: ColumnData, kind: pa.DataType) -> pa.Array:
    """The column's own memory, as Arrow sees it; texts and flags are written out by Arrow itself."""
    if isinstance(values, TextColumn):
        return pa.DictionaryArray.from_arrays(_plain(values.indexes, pa.int32()), _strings(values.texts)).cast(kind)
    if pa.types.is_boolean(kind):
        return _plain(values, pa.int8()).cast(kind)
    return _plain(values, kind)


def _strings(texts: list[str]) -> pa.Array:
    """Not ``pa.array``: where pandas is installed that imports all of it, in the middle of the broker's work."""
    encoded = [text.encode() for text in texts]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _plain(values: ColumnData, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
