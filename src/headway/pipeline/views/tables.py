"""A table: a recorded topic as SQL sees it, its payloads read as JSON.

The columns are the fields of the payload by its schema, and of the record ``_offset``, ``_timestamp``, ``_topic`` and
``_key``, and ``_deleted``. The time is there as ``timestamp``, too, unless the payload has a field of that name.

A record is a misfit when its payload is no JSON object or has a field that is not of its type. (One that is left out,
or null, is null; one that the schema does not know is not looked at.) It ends the query, or is left out and counted.

A delete is a record that the broker has marked as one: it takes its key out of the topic's state. It is never a misfit.
It is left out and counted, or is a row whose ``_deleted`` is true; its fields are null, unless it has a payload that
fits.
"""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from headway.core.base import ConfigError
from headway.core.message import DELETE, EVENT
from headway.server.config import SourceTable

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
