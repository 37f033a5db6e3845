"""Rows to publish (store/rows.py), made of the columns that a query writes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from headway.core.base import ConfigError
from headway.pipeline.sink.options import SinkOptions
from headway.store.records import PROPERTIES
from headway.store.rows import QOS, ROWS

IGNORED = ("offset", "timestamp")
"""Columns of records that were read; they get new values when they are published."""
_TEXTS = (StringType,)
_PAYLOADS = (StringType, BinaryType)
_LIKE_THIS = "select(to_json(struct('*')).alias('payload'))"


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises ConfigError."""
    for field in schema.fields:
        if field.name not in (*ROWS.names, *IGNORED):
            raise ConfigError(
                f"column {field.name} is none of {', '.join(ROWS.names)}; what is to be published as a whole is the "
                f"payload: {_LIKE_THIS}"
            )
    types = {field.name: field.dataType for field in schema.fields}
    if "payload" not in types:
        raise ConfigError(f"there is no column payload, which is what is published: {_LIKE_THIS}")
    if "topic" not in types and options.topic is None:
        raise ConfigError("where to? Give option topic, or a column topic")
    _expect(types, "payload", _PAYLOADS, "STRING or BINARY")
    _expect(types, "topic", _TEXTS, "STRING")
    _expect(types, "key", _TEXTS, "STRING")
    _check_properties(types.get("properties"))


def _expect(types: dict[str, DataType], name: str, wanted: tuple[type[DataType], ...], text: str) -> None:
    if name in types and not isinstance(types[name], wanted):
        raise ConfigError(f"column {name} is {types[name].simpleString()}, and has to be {text}")


def _check_properties(found: DataType | None) -> None:
    match found:
        case None | MapType(keyType=StringType(), valueType=StringType()):
            return
        case StructType():
            unknown = [name for name in found.names if PROPERTIES.get_field_index(name) < 0]
            if not unknown:
                return
            names = ", ".join(field.name for field in PROPERTIES)
            raise ConfigError(f"column properties: {unknown[0]} is none of {names}")
        case _:
            raise ConfigError(
                f"column properties is {found.simpleString()}, and has to be MAP<STRING, STRING> or the source's"
            )


def rows_of(batch: pa.RecordBatch, options: SinkOptions) -> pa.RecordBatch:
    """Shapes a batch into as many rows. A payload that is null becomes empty."""
    count, there = len(batch), batch.schema.names
    payload = pc.fill_null(batch.column("payload").cast(pa.binary()), b"")
    if options.topic is not None:
        topic = pa.repeat(pa.scalar(options.topic, pa.string()), count)
    else:
        topic = batch.column("topic").cast(pa.string())
    key = batch.column("key").cast(pa.string()) if "key" in there else pa.nulls(count, pa.string())
    said = batch.column("properties") if "properties" in there else None
    return pa.RecordBatch.from_arrays([topic, key, _properties(said, count, options), payload], schema=ROWS)


def _properties(said: pa.Array | None, count: int, options: SinkOptions) -> pa.Array:
    if said is None:
        if (options.qos, options.retain) == (QOS, False):
            return pa.nulls(count, PROPERTIES)
        return pa.repeat(pa.scalar(_row({}, options), PROPERTIES), count)
    if pa.types.is_map(said.type):
        return pa.array([_row({"user": pairs}, options) for pairs in said.to_pylist()], PROPERTIES)
    return pa.array([_row(fields or {}, options) for fields in said.to_pylist()], PROPERTIES)


def _row(fields: dict[str, Any], options: SinkOptions) -> dict[str, Any]:
    """Fills in the fields that a row leaves out; its own fields count for more than an option."""
    there = {name: value for name, value in fields.items() if value is not None}
    return {"user": [], "qos": options.qos, "retain": options.retain} | there
