"""The lake: rows as Parquet files, ``LAKE/<table>/date=YYYY-MM-DD/part-<run>-<number>.parquet``.

Rules:
- A file appears whole: it is written under ``LAKE/_partial``, synced, and then renamed.
- A file has the rows of one table and one day (UTC). Its footer names the table and the version.
- The size of the lake is limited: the oldest files are removed first, whichever run wrote them. Several brokers may
  write into one lake; each of them keeps the whole lake within its own limit.
- Half-written files of a crashed run are removed once they are old.

The lake has a thread of its own. Arrow works on whole columns and releases the interpreter meanwhile. Nothing here runs
once per row, so the loop's thread hardly ever waits for this one.
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
from headway.store.rows import arrow_schema

PARTIAL = "_partial"
LEFT_OVER_S = 3600.0
"""A half-written file of this age belongs to a crashed run."""
SURVEY_S = 300.0
"""The interval at which files of other brokers are counted again."""
DAY_US = 86_400_000_000

pa.set_cpu_count(1)
pa.set_io_thread_count(1)


class _LakeFile(NamedTuple):
    """A file of the lake. Files are removed in the order of these fields."""

    date: str
    modified_s: float
    path: Path
    size: int


class Lake:
    def __init__(self, folder: Path, run: str, disk_bytes: int) -> None:
        """Raises OSError if the folder cannot be written."""
        self.folder = folder
        self.bytes = 0
        """The size of the lake at the last count."""
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
        """Writes the rows of a batch, one file for each day. Raises OSError; then some days may be written."""
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
            pq.write_table(rows, str(partial), compression="zstd")  # by name: Arrow writes without Python
            size = _sync(partial)
            self._make_room(size)
            folder.mkdir(parents=True, exist_ok=True)
        _sync(folder)
        self._files.append(_LakeFile(folder.name, time.time(), path, size))
        self.bytes += size

    # -- room -------------------------------------------------------------------------------------------------------

    def _make_room(self, size: int) -> None:
        """Removes the oldest files until ``size`` more bytes are within the limit, or no file is left."""
        if time.monotonic() - self._surveyed_s > SURVEY_S:
            self._survey()
        gone = 0
        for file in self._files:
            if self.bytes + size <= self._disk_bytes:
                break
            with suppress(FileNotFoundError):
                file.path.unlink()
            with suppress(OSError):  # the folder is not empty
                file.path.parent.rmdir()
            self.bytes -= file.size
            gone += 1
        del self._files[:gone]

    def _survey(self) -> None:
        """Lists the files, the oldest first."""
        self._surveyed_s = time.monotonic()
        self._files = sorted(file for table in TABLES for file in _files_of(self.folder / table))
        self.bytes = sum(file.size for file in self._files)

    def _remove_left_overs(self) -> None:
        for path in self._partial.iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFT_OVER_S:
                    path.unlink()


def _files_of(folder: Path) -> list[_LakeFile]:
    """Returns the files of one table. Files that vanish meanwhile are left out."""
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
    """Syncs a file, or the entries of a folder, to disk. Returns its size in bytes."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def new_run(now: float, token: str) -> str:
    """Returns a run's name, from its start (epoch seconds) and a unique token."""
    return f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}-{token}"


# -- Arrow ------------------------------------------------------------------------------------------------------------


def _as_arrow(batch: RowBatch) -> pa.Table:
    schema = arrow_schema(batch.table)
    arrays = [_array(values, field.type) for values, field in zip(batch.columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: ColumnData, kind: pa.DataType) -> pa.Array:
    """Returns a column as Arrow sees it, without a copy; texts and flags are converted by Arrow."""
    if isinstance(values, TextColumn):
        return pa.DictionaryArray.from_arrays(_plain(values.indexes, pa.int32()), _strings(values.texts)).cast(kind)
    if pa.types.is_boolean(kind):
        return _plain(values, pa.int8()).cast(kind)
    return _plain(values, kind)


def _strings(texts: list[str]) -> pa.Array:
    """Avoids ``pa.array``, which imports pandas, where it is installed, in the middle of the broker's work."""
    encoded = [text.encode() for text in texts]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _plain(values: ColumnData, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
