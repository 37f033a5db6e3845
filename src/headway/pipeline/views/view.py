"""One view: makes the query that Spark runs of the view's table in the config."""

from __future__ import annotations

import secrets
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    FractionalType,
    MapType,
    StructType,
    VariantType,
)

from headway.core.base import ConfigError
from headway.core.message import matches
from headway.pipeline.views.catalog import Catalog
from headway.pipeline.views.manifest import (
    CHECKPOINT,
    TableShape,
    ViewManifest,
    check_manifest,
    read_manifest,
    write_manifest,
)
from headway.pipeline.views.publish import limit_bytes, published
from headway.pipeline.views.tables import DELETED, type_name
from headway.server.config import ViewTable

_NO_KEYS = (StructType, ArrayType, MapType, BinaryType, VariantType)


def start_view(
    spark: SparkSession, name: str, view: ViewTable, catalog: Catalog, folder: Path, admin: str
) -> StreamingQuery:
    """Starts the view's query where it stopped. ``folder`` is its own. Raises ConfigError, SourceError."""
    before = read_manifest(folder)
    with catalog.query(view.sql, before.schemas() if before else {}, limit_bytes(view)) as (result, schemas):
        tables = {table: TableShape(catalog.topic(table), schema) for table, schema in schemas.items()}
        check_result(view, result, tables)
        now = ViewManifest.of(view, tables, before.writer if before else f"view-{name}-{secrets.token_hex(4)}")
        if before is not None:
            check_manifest(folder, before, now)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            write_manifest(folder, now)
        return _started(spark, name, view, published(result, view, admin, now.writer), folder)


def check_result(view: ViewTable, result: DataFrame, tables: dict[str, TableShape]) -> None:
    """Raises ConfigError where it cannot be published."""
    if not result.isStreaming:
        raise ConfigError("its sql reads no recorded topic, so there is nothing to keep up with")
    for name, table in tables.items():
        if matches(table.topic, view.topic):
            raise ConfigError(f"it would read what it publishes: {view.topic} is in table {name} ({table.topic})")
    names = result.columns
    if twice := next((column for column in names if names.count(column) > 1), None):
        raise ConfigError(f"two columns of its result are called {twice}: give one of them another name, with AS")
    if view.key not in names:
        raise ConfigError(f"its key {view.key} is no column of its result: {', '.join(names)}")
    kind = result.schema[view.key].dataType
    if isinstance(kind, _NO_KEYS):
        raise ConfigError(f"its key {view.key} is {type_name(kind)}; a key is a text, a number or a time")
    if DELETED in names:
        _check_deletes(view, kind, result.schema[DELETED].dataType)


def _check_deletes(view: ViewTable, kind: DataType, said: DataType) -> None:
    """Raises ConfigError where a result cannot say which rows are deletes, or of which keys."""
    if not isinstance(said, BooleanType):
        raise ConfigError(f"{DELETED} says which rows are deletes, true or false, and it is {type_name(said)}: CAST it")
    if isinstance(kind, FractionalType) and view.mode != "complete":
        raise ConfigError(
            f"its key {view.key} is {type_name(kind)}, and deletes need a key of which there is one spelling: CAST it "
            f"AS STRING, or leave {DELETED} out of the result"
        )


def _started(
    spark: SparkSession, name: str, view: ViewTable, writer: DataStreamWriter, folder: Path
) -> StreamingQuery:
    spark.conf.set("spark.sql.shuffle.partitions", str(view.partitions))
    # A batch without data is what publishes a window after its last record. Where groups are updated it only costs.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", str(view.mode == "append").lower())
    writer = writer.queryName(name).outputMode(view.mode).option("checkpointLocation", str(folder / CHECKPOINT))
    return writer.trigger(processingTime=f"{round(view.every_s * 1000)} milliseconds").start()
