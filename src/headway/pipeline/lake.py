"""The telemetry lake as Spark sees it: tables by name, with the columns that core/telemetry/stats.py says they have.

Rules:
- The broker may delete the oldest files at any time: a file that is gone when its turn comes holds no rows.
- The same rows may stand in several files: a row is known by its table's key, and counted once.
- A table the broker never wrote is an empty one.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, StructType

from headway.core.telemetry import TABLES
from headway.store.rows import arrow_schema

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
