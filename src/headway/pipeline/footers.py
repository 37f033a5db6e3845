"""Footers: a check that every file of a lake is whole, ours, and of no newer schema, before Spark is started.

Only the last bytes of each file are read, many files at once: tens of thousands take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headway.core.base import ConfigError
from headway.core.telemetry import CONSUMER_SAMPLES, TABLES, VERSION
from headway.pipeline.progress import progress
from headway.store.rows import TABLE_KEY, VERSION_KEY

THREADS = 8
NOT_FOR_SPARK = ":*?[]{}\\"


class TableInfo(NamedTuple):
    files: int
    rows: int


class LakeInfo(NamedTuple):
    """The extent of a lake."""

    tables: dict[str, TableInfo]

    @property
    def files(self) -> int:
        return sum(table.files for table in self.tables.values())

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


def check_lake(lake: str | Path) -> LakeInfo:
    """Checks all files of the lake and returns its extent. Raises ConfigError, one line."""
    folder = Path(lake)
    check_folder(folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder" if not folder.exists() else f"{folder} is not a folder")
    files = [(table, path) for table in TABLES for path in _files(folder / table)]
    if not any(table == CONSUMER_SAMPLES.name for table, _ in files):
        raise ConfigError(
            f"{folder} holds no telemetry: there is no {CONSUMER_SAMPLES.name}/date=…/*.parquet in it "
            "(a broker writes it where [telemetry] says)"
        )
    found: dict[str, list[int]] = {table: [] for table in TABLES}
    with progress("Checking the lake") as tell, ThreadPoolExecutor(THREADS) as pool:
        for number, ((table, _), rows) in enumerate(zip(files, pool.map(_rows_of, files), strict=True), 1):
            if rows is not None:
                found[table].append(rows)
            tell(f"{number} of {len(files)} files")
    return LakeInfo({table: TableInfo(len(rows), sum(rows)) for table, rows in found.items()})


def check_folder(folder: Path) -> None:
    """Raises ConfigError for a folder whose name has characters that Spark takes for patterns."""
    odd = sorted({char for char in str(folder.absolute()) if char in NOT_FOR_SPARK})
    if odd:
        raise ConfigError(f"{folder.absolute()}: Spark cannot use a folder with {' '.join(odd)} in its path")


def _files(folder: Path) -> Iterator[Path]:
    """Lists files as Spark does: names that begin with ``_`` or ``.`` are left out."""
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*.parquet")):
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts):
            yield path


def _rows_of(file: tuple[str, Path]) -> int | None:
    """Reads the number of rows in a file's footer; None if the broker has deleted the file meanwhile."""
    table, path = file
    try:
        footer = pq.read_metadata(path, memory_map=False)
    except FileNotFoundError:
        return None
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path} is not a whole Parquet file (half written, or something else): remove it") from error
    told = footer.metadata or {}
    owner, version = told.get(TABLE_KEY), told.get(VERSION_KEY)
    if owner is None or version is None or not version.isdigit():
        raise ConfigError(f"{path} was not written by Headway: it does not belong into a telemetry lake; remove it")
    if owner != table.encode():
        raise ConfigError(f"{path} holds {owner.decode(errors='replace')} and lies among {table}: move it back")
    if int(version) > VERSION:
        raise ConfigError(f"{path} is of schema {int(version)}; this Headway reads up to {VERSION}: upgrade")
    if "time" not in footer.schema.names:
        raise ConfigError(f"{path} was altered: it has no times; remove it")
    rows: int = footer.num_rows
    return rows
