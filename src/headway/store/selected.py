"""Rows of a selection as an Arrow stream. A column has the type that all its values have: bool, int64, double (numbers
that are not all whole) or string; if they have none in common, they are texts in JSON.

This is for a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

INTEGER_MAX = 2**63

_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, object]).decode


def rows_stream(names: Sequence[str], lines: Sequence[bytes], metadata: Mapping[str, str]) -> bytes:
    """Returns a whole Arrow IPC stream with these rows, each a JSON object."""
    rows = [_decode(line) for line in lines]
    columns = [_column([row[name] for row in rows]) for name in names]
    schema = pa.schema([pa.field(name, column.type) for name, column in zip(names, columns, strict=True)], metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        if rows:
            stream.write_batch(pa.record_batch(columns, schema=schema))
    return bytes(sink.getvalue())


def _column(values: list[object]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -INTEGER_MAX <= value < INTEGER_MAX for value in values):  # type: ignore[operator]
        return pa.array(values, pa.int64())
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())  # type: ignore[arg-type]
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds <= {str}:
        return pa.array(values, pa.string())
    return pa.array([None if value is None else _encode(value).decode() for value in values], pa.string())
