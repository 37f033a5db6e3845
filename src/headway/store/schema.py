"""The lake's tables as Arrow schemas, with the metadata of a file's footer."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from headway.core.telemetry import TABLES, VERSION, Kind

TABLE_KEY, VERSION_KEY = b"headway.table", b"headway.schema"
"""In the schema's metadata, and so in each file's footer: the table's name and ``VERSION``."""

_TYPES: dict[Kind, pa.DataType] = {
    "time": pa.timestamp("us", tz="UTC"),
    "text": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "flag": pa.bool_(),
}


@cache
def arrow_schema(table: str) -> pa.Schema:
    """Returns the schema of one table's files. No column is nullable."""
    fields = [pa.field(column.name, _TYPES[column.kind], nullable=False) for column in TABLES[table].columns]
    return pa.schema(fields, {TABLE_KEY: table.encode(), VERSION_KEY: str(VERSION).encode()})
