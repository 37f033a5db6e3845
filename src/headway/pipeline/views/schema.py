"""Schemas of payloads: the fields and their types, as declared or as the latest records have them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.errors import PySparkException
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
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.error_text import error_text
from headway.pipeline.views.tables import DELETED, OF_RECORD, types_of

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
