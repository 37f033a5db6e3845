"""The telemetry lake as Spark sees it: tables by name, with the columns that core/telemetry/stats.py says they have.

Rules:
- The broker may delete the oldest files at any time: a file that is gone when its turn comes holds no rows.
- The same rows may stand in several files: a row is known by its table's key, and counted once.
- A table the broker never wrote is an empty one.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructType

from headway.core.base import ConfigError
from headway.core.telemetry import CONSUMER_SAMPLES, TABLES, VERSION
from headway.pipeline.session import progress
from headway.store.atomic_write import atomic_write
from headway.store.rows import TABLE_KEY, VERSION_KEY, arrow_schema

# -- lake --------------------------------------------------------------------------------------------------------------


READ = {"ignoreMissingFiles": "true", "pathGlobFilter": "*.parquet"}


def spark_schema(table: str) -> StructType:
    """Returns the columns of a table's files, without ``date``, which their folder is named for."""
    return from_arrow_schema(pa.schema([field.with_nullable(True) for field in arrow_schema(table)]))


def read_table(spark: SparkSession, lake: str | Path, table: str) -> DataFrame:
    """Reads all rows of a table of the lake, each once, with their ``date`` (UTC) as the last column."""
    schema = spark_schema(table).add("date", DateType())
    folder = Path(lake, table).absolute()
    if not folder.is_dir():
        return spark.createDataFrame([], schema)
    return each_once(spark.read.schema(schema).options(**READ).parquet(str(folder)), table)


def each_once(rows: DataFrame, table: str) -> DataFrame:
    """Keeps one of the rows with the same key, and those of one consumer (one lane, ...) together in one partition."""
    key = TABLES[table].key
    return rows.repartition(*key[:2]).dropDuplicates(list(key))


# -- footers -----------------------------------------------------------------------------------------------------------
#
# Footers: a check that every file of a lake is whole, ours, and of no newer schema, before Spark is started.
#
# Only the last bytes of each file are read, many files at once: tens of thousands take seconds.


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


# -- lock --------------------------------------------------------------------------------------------------------------
#
# The lock of a folder, held by one run at a time.


LOCK = "_lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder if it is not there, and locks it for as long as the block runs. Raises ConfigError."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise ConfigError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{folder} is in use by another run; wait for its end") from None
        yield


# -- output ------------------------------------------------------------------------------------------------------------
#
# Files of results.


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Gives a place to write to; ``path`` is there whole afterwards. Raises ConfigError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            yield partial
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
