"""Schemas of payloads: the fields and their types, as declared or as the latest records have them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headway.core.base import ConfigError
from headway.core.message import DELETE, EVENT
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.session import error_text
from headway.pipeline.source.options import Options
from headway.server.config import SourceTable, ViewTable
from headway.store.atomic_write import atomic_write

# -- tables ------------------------------------------------------------------------------------------------------------
#
# A table: a recorded topic as SQL sees it, its payloads read as JSON.
#
# The columns are the fields of the payload by its schema, and of the record ``_offset``, ``_timestamp``, ``_topic`` and
# ``_key``, and ``_deleted``. The time is there as ``timestamp``, too, unless the payload has a field of that name.
#
# A record is a misfit when its payload is no JSON object or has a field that is not of its type. (One that is left out,
# or null, is null; one that the schema does not know is not looked at.) It ends the query, or is left out and counted.
#
# A delete is a record that the broker has marked as one: it takes its key out of the topic's state. It is never a
# misfit. It is left out and counted, or is a row whose ``_deleted`` is true; its fields are null, unless it has a
# payload that fits.


OF_RECORD = {"_offset": "offset", "_timestamp": "timestamp", "_topic": "topic", "_key": "key"}
DELETED = "_deleted"
TIME = "timestamp"
SHOWN_CHARS = 60
_BAD, _WHY, _VALUE, _GONE = "_headway_bad", "_headway_why", "_headway_value", "_headway_gone"
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "columnNameOfCorruptRecord": _BAD}
_TEXTS = "map<string,string>"


def read_table(
    spark: SparkSession, name: str, table: SourceTable, schema: StructType, admin: str, limit_bytes: int | None = None
) -> DataFrame:
    """Reads the table as a stream, with its watermark; so much of it in a batch at most.

    What is left out is counted in the metrics that are observed under its name: ``misfits``, ``last``, what was wrong
    with the last one, and ``deletes``. Raises ConfigError."""
    assert table.topic is not None
    source = spark.readStream.format("headway").option("topic", table.topic).option("admin", admin)
    if limit_bytes is not None:
        source = source.option("maxBytesPerTrigger", limit_bytes)
    # Within an object the end of the payload is looked at, too: {"a": 1} x is no JSON.
    text = F.concat(F.lit('{"value":'), F.col("payload").cast("string"), F.lit("}"))
    read = F.from_json(text, StructType().add("value", schema).add(_BAD, "string"), _STRICT)
    gone = F.coalesce(F.col("properties.user").getItem(EVENT) == DELETE, F.lit(False))
    rows = source.load().withColumn(_VALUE, read).withColumn(_GONE, gone)
    rows = rows.withColumn(_WHY, F.when(~F.col(_GONE), _why(schema)))
    # The metrics also keep Spark from moving what follows to before them, which would read each payload twice. So a
    # misfit that ends the query is raised in one: else Spark may test a condition of the query first, and leave it out.
    why = F.col(_WHY)
    counted = why if table.misfits == "skip" else F.when(why.isNotNull(), F.raise_error(why).cast("string"))
    misfits = F.count(counted).alias("misfits")
    last = F.max_by(_WHY, F.when(F.col(_WHY).isNotNull(), F.col("offset"))).alias("last")
    skipped = F.col(_GONE) & F.lit(table.deletes == "skip")
    rows = rows.observe(name, misfits, last, F.count_if(skipped).alias("deletes")).where(~skipped)
    if table.misfits == "skip":
        rows = rows.where(why.isNull())
    columns = {column.lower() for column in schema.names}
    of_record = [F.col(column).alias(called) for called, column in OF_RECORD.items()]
    of_record.append(F.col(_GONE).alias(DELETED))
    time = [] if TIME in columns else [F.col(TIME)]
    value = _of_value() if table.deletes == "skip" else F.when(~(F.col(_GONE) & _is_misfit()), _of_value())
    found = rows.select(*(value.getField(column).alias(column) for column in schema.names), *of_record, *time)
    if table.watermark_s is None:
        return found
    kinds = {name.lower(): kind for name, kind in types_of(found.schema).items()}
    kind = kinds.get(table.time.lower(), "not there")
    if not kind.startswith("TIMESTAMP"):
        raise ConfigError(
            f"tables.{name}.time: a watermark is of a column of type TIMESTAMP, and {table.time} is {kind}; "
            f'[tables.{name}] schema = "{table.time} TIMESTAMP, ..." declares it'
        )
    return found.withWatermark(table.time, f"{round(table.watermark_s * 1000)} milliseconds")


def _of_value() -> Column:
    return F.col(_VALUE).getField("value")


def _why(schema: StructType) -> Column:
    """Describes the misfit of a record; null where it fits. The expression is as short as can be for any number of
    fields, for Spark plans each batch anew."""
    payload = F.col("payload").cast("string")
    said, read = F.from_json(payload, _TEXTS), F.from_json(F.to_json(_of_value()), _TEXTS)
    types = F.from_json(F.lit(json.dumps(types_of(schema))), _TEXTS)
    unread = F.filter(F.map_keys(types), lambda name: said[name].isNotNull() & read[name].isNull())
    nested = F.filter(F.map_keys(types), lambda name: said[name].isNotNull() & types[name].contains("<"))
    field = F.coalesce(F.get(unread, 0), F.get(nested, 0))
    of_field = F.concat(F.lit("field "), field, F.lit(" is not "), types[field], F.lit(": "), _shortened(said[field]))
    of_all = F.concat(F.lit("the payload is not a JSON object: "), _shortened(payload))
    what = F.when(_of_value().isNull(), of_all).otherwise(F.coalesce(of_field, of_all))
    where = F.concat(F.lit("topic "), F.col("topic"), F.lit(", offset "), F.col("offset").cast("string"), F.lit(": "))
    return F.when(_is_misfit(), F.concat(where, what))


def _is_misfit() -> Column:
    return _of_value().isNull() | F.col(_VALUE).getField(_BAD).isNotNull()


def type_name(kind: DataType) -> str:
    """Returns a type as people write it."""
    return kind.simpleString().upper()


def types_of(schema: StructType) -> dict[str, str]:
    """Returns the types by field, likewise."""
    return {field.name: type_name(field.dataType) for field in schema.fields}


def _shortened(text: Column) -> Column:
    first = F.concat(F.substring(text, 1, SHOWN_CHARS), F.lit("..."))
    return F.when(F.length(text) > SHOWN_CHARS, first).otherwise(text)


# -- schema ------------------------------------------------------------------------------------------------------------


LATEST_RECORDS = 1_000
"""The number of records that a schema is inferred from."""
LONG_MAX = 2**63


def declared(name: str, ddl: str) -> StructType:
    """Reads a schema as written in ``[tables.NAME]``. Raises ConfigError."""
    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"tables.{name}.schema: {error_text(error)}") from None
    if not isinstance(schema, StructType):
        raise ConfigError(f"tables.{name}.schema: name the columns, as in \"price DOUBLE, size INT\"; this is {ddl!r}")
    return checked(name, schema)


def inferred(name: str, topic: str, broker: BrokerClient) -> StructType:
    """Infers the schema of the latest records. Raises ConfigError, SourceError."""
    objects = []
    for payload in latest_payloads(topic, broker):
        try:
            found = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found:
            objects.append(found)
    if not objects:
        raise ConfigError(
            f"table {name}: its columns are not known, for nothing recorded of {topic} is a JSON object yet; declare "
            f'them: [tables.{name}] schema = "carrier STRING, delay INT", or so'
        )
    kind = type_of(objects)
    assert isinstance(kind, StructType)
    return checked(name, kind)


def checked(name: str, schema: StructType) -> StructType:
    """Raises ConfigError where a column could not be told from another."""
    seen: set[str] = set()
    for column in schema.names:
        if column.lower() in (*OF_RECORD, DELETED):
            raise ConfigError(
                f"table {name}: the payload's field {column} has the name of a column that every table has; declare a "
                f"schema without it: [tables.{name}] schema"
            )
        if column.lower() in seen:
            raise ConfigError(
                f"table {name}: there are two fields {column}, and SQL does not tell capital letters from small ones; "
                f"declare a schema with one of them: [tables.{name}] schema"
            )
        seen.add(column.lower())
    return schema


def latest_payloads(topic: str, broker: BrokerClient) -> list[bytes]:
    """Reads the payloads of the latest records that have one; many offsets may lie between them. Raises
    SourceError."""
    offsets = broker.offsets(topic)
    span = LATEST_RECORDS
    while True:
        first = max(offsets.earliest, offsets.latest - span)
        found: list[bytes] = []
        for batch in broker.records(topic, first, offsets.latest):
            if not isinstance(batch, int):
                found += filter(None, batch.column("payload").to_pylist())
        if len(found) >= LATEST_RECORDS or first == offsets.earliest:
            return found[-LATEST_RECORDS:]
        span *= 8


def type_of(values: Iterable[Any]) -> DataType:
    """Finds the common type of these JSON values; text where they are of several kinds, or of none."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there}
    if kinds == {dict}:
        names = dict.fromkeys(name for value in there for name in value)
        fields = [StructField(name, type_of(value.get(name) for value in there)) for name in names]
        return StructType(fields) if fields else StringType()
    if kinds == {list}:
        return ArrayType(type_of(item for value in there for item in value))
    if kinds == {bool}:
        return BooleanType()
    if kinds == {int}:
        return LongType() if all(-LONG_MAX <= value < LONG_MAX for value in there) else StringType()
    if kinds in ({float}, {int, float}):
        return DoubleType()
    return StringType()


def differences(kept: StructType, now: StructType) -> list[str]:
    """Tells the differences in words, field by field."""
    before, after = types_of(kept), types_of(now)
    changed = [name for name, kind in before.items() if after.get(name, kind) != kind]
    return [
        *(f"{name} was {before[name]} and is {after[name]} now" for name in changed),
        *(f"{name} {kind} is gone" for name, kind in before.items() if name not in after),
        *(f"{name} {kind} is new" for name, kind in after.items() if name not in before),
    ]


# -- catalog -----------------------------------------------------------------------------------------------------------
#
# The tables that SQL can name, made as they are asked for.
#
# Nobody reads the SQL but Spark. It says which table it does not know, gets that, and is asked again; so only what a
# view reads is looked at, and which tables that are is known for certain.


class Catalog:
    def __init__(self, spark: SparkSession, tables: Mapping[str, SourceTable], admin: str) -> None:
        """``tables``: by name in small letters, with their topics."""
        self._spark = spark
        self._tables = tables
        self._admin = admin
        self._inferred: dict[str, StructType] = {}

    def topic(self, name: str) -> str:
        return str(self._tables[name].topic)

    @contextmanager
    def query(
        self, sql: str, kept: Mapping[str, StructType], limit_bytes: int | None = None
    ) -> Iterator[tuple[DataFrame, dict[str, StructType]]]:
        """The result, and the schemas of the tables that it is made of: those that are ``kept``, where they are. It can
        be used within the block, where these tables are defined. A batch reads so much of each at most. Raises
        ConfigError, SourceError."""
        schemas: dict[str, StructType] = {}
        columns: dict[str, list[str]] = {}

        def define(name: str) -> None:
            schemas[name] = self._schema(name, kept.get(name))
            table = read_table(self._spark, name, self._tables[name], schemas[name], self._admin, limit_bytes)
            table.createOrReplaceTempView(f"`{name}`")
            columns[name] = table.columns

        try:
            yield self._result(sql, define, schemas), schemas
        except PySparkException as error:
            raise ConfigError(sql_error(error, columns)) from None
        finally:
            for name in columns:
                self._spark.catalog.dropTempView(name)

    def _result(self, sql: str, define: Callable[[str], None], defined: Collection[str]) -> DataFrame:
        while True:
            try:
                result = self._spark.sql(sql)
                result.schema  # noqa: B018 - Spark looks at it now
            except AnalysisException as error:
                name = self._missing(error)
                if name is None or name in defined:
                    raise
                define(name)
            else:
                return result

    def _missing(self, error: AnalysisException) -> str | None:
        """Finds the table that Spark does not know. Raises ConfigError where we do not either."""
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            return None
        wanted = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "").lower()
        if wanted not in self._tables:
            near = difflib.get_close_matches(wanted, self._tables, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"there is no table {wanted}: {hint}there are {', '.join(self._tables) or 'none'}")
        return wanted

    def _schema(self, name: str, kept: StructType | None) -> StructType:
        table = self._tables[name]
        assert table.topic is not None
        if table.ddl is not None:
            return declared(name, table.ddl)
        if kept is not None:
            return kept
        if name not in self._inferred:
            self._inferred[name] = inferred(name, table.topic, BrokerClient(self._admin, Options.timeout_s))
        return self._inferred[name]


def sql_error(error: PySparkException, columns: Mapping[str, list[str]]) -> str:
    """Words an error in the SQL of a view; ``columns``: by table, of those that it reads."""
    kind, said = error.getCondition() or "", error.getMessageParameters() or {}
    if kind.startswith("UNRESOLVED_COLUMN"):
        known = "; ".join(f"those of {table} are {', '.join(names)}" for table, names in columns.items())
        return f"there is no column {said.get('objectName', '').replace('`', '')}: {known}"
    if said.get("operation") == "streaming aggregations without watermark":
        tables = " or ".join(f"[tables.{table}]" for table in columns)
        return (
            'with mode = "append" a group is published when no more can come, and nothing says when that is: give '
            f'{tables} a watermark = "10s", or so, and group by window(timestamp, ...), or take mode = "update"'
        )
    return error_text(error)


# -- manifest ----------------------------------------------------------------------------------------------------------
#
# The manifest of a view, beside Spark's checkpoint: the checkpoint's state holds for this definition only.


FILE = "view.json"
CHECKPOINT = "checkpoint"


class TableShape(NamedTuple):
    topic: str
    schema: StructType


class ViewManifest(NamedTuple):
    sql: str
    mode: str
    topic: str
    tables: dict[str, TableShape]
    writer: str
    """The name under which its batches are published, each once."""

    @classmethod
    def of(cls, view: ViewTable, tables: Mapping[str, TableShape], writer: str) -> ViewManifest:
        """Makes a view's manifest; blanks in its SQL do not count."""
        return cls(" ".join(view.sql.split()), view.mode, view.topic, dict(tables), writer)

    def schemas(self) -> dict[str, StructType]:
        return {name: table.schema for name, table in self.tables.items()}


def read_manifest(folder: Path) -> ViewManifest | None:
    """None where nothing was worked out yet. Raises ConfigError."""
    if not any((folder / CHECKPOINT / "offsets").glob("[0-9]*")):
        return None
    try:
        found = json.loads((folder / FILE).read_text())
        tables = {
            name: TableShape(table["topic"], StructType.fromJson(table["schema"]))
            for name, table in found["tables"].items()
        }
        return ViewManifest(found["sql"], found["mode"], found["topic"], tables, found["writer"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{folder / FILE} is not what a run wrote; {anew(folder)}") from None


def write_manifest(folder: Path, manifest: ViewManifest) -> None:
    tables = {name: {"topic": one.topic, "schema": one.schema.jsonValue()} for name, one in manifest.tables.items()}
    with atomic_write(folder / FILE) as partial:
        partial.write_text(json.dumps(manifest._asdict() | {"tables": tables}, indent=2) + "\n")


def check_manifest(folder: Path, before: ViewManifest, now: ViewManifest) -> None:
    """Raises ConfigError where what was worked out does not hold for what is wanted now."""
    words = ("sql", "mode", "topic")
    changes = [f"its {word} was changed" for word in words if getattr(before, word) != getattr(now, word)]
    for name, table in now.tables.items():
        old = before.tables.get(name, table)
        if old.topic != table.topic:
            changes.append(f"table {name} was {old.topic} and is {table.topic} now")
        changes += [f"table {name}: {text}" for text in differences(old.schema, table.schema)]
    if changes:
        raise ConfigError(f"{', '.join(changes)}; put that back, or {anew(folder)}")


def anew(folder: Path) -> str:
    return f"begin anew: remove {folder}"
