"""Recorded records as Arrow: runs in, record batches out, for a stream over HTTP or a Parquet file.

Theory of operation. Columns are put together run by run, as bytes and arrays of numbers that Arrow then takes as they
are; there is no object per record but its key, and the slice its payload is where payloads are not of one size. What a
run's records share (topic, properties) is written down once and repeated by Arrow.

All of it is for a worker thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from operator import sub
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headway.core.record import Properties, Run
from headway.wire.columns import equal_pieces

_PROPERTIES = pa.struct(
    [
        pa.field("content_type", pa.string()),
        pa.field("response_topic", pa.string()),
        pa.field("correlation_data", pa.binary()),
        pa.field("user", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("qos", pa.int32(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("properties", _PROPERTIES, nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""Ends an Arrow IPC stream."""
BATCH_BYTES = 1024 * 1024
RECORD_BYTES = 64
"""What a record takes up beside its payload, about."""
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Of a Parquet file, before compression, about."""

Keys = Sequence[str | None]
_Shared = tuple[Properties, int, bool]


class Columns:
    """A record batch in the making, to be used once."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes so far, about."""
        self._offsets = array("q")
        self._times = array("q")
        self._topic_ends = array("i", (0,))
        self._topics: list[bytes] = []
        self._keys: list[str | None] = []
        self._shared: dict[_Shared, int] = {}
        self._shared_at = array("i")
        self._payload_ends = array("i", (0,))
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, run: Run, first: int, time_us: int, keys: Keys) -> None:
        """A run of which record 0 has the offset ``first``; with a key for each record."""
        count = len(run)
        self._offsets.extend(range(first, first + count))
        self._times.extend(array("q", (time_us,)) * count)
        topic = run.topic.encode()
        self._topic_ends.extend(accumulate(repeat(len(topic), count - 1), initial=self._topic_ends[-1] + len(topic)))
        self._topics.append(topic * count)
        self._keys += keys
        shared = self._shared.setdefault((run.properties, run.qos, run.retain), len(self._shared))
        self._shared_at.extend(array("i", (shared,)) * count)
        self._add_payloads(run, count)

    def _add_payloads(self, run: Run, count: int) -> None:
        data, ends, bodies, start = run.data, run.ends, run.bodies, self._payload_ends[-1]
        size = ends[0] - bodies[0]
        if size and isinstance(ends, range) and isinstance(bodies, range) and ends.step == bodies.step:
            self._payload_ends.extend(range(start + size, start + count * size + 1, size))
            self._payloads += equal_pieces(data, bodies[0], size, ends.step, count)
            self.size += count * (size + RECORD_BYTES)
            return
        found = accumulate(map(sub, ends, bodies), initial=start)
        next(found)
        self._payload_ends.extend(found)
        self._payloads += [data[body:end] for body, end in zip(bodies, ends, strict=True)]
        self.size += self._payload_ends[-1] - start + count * RECORD_BYTES

    def batch(self) -> pa.RecordBatch:
        """All that was added."""
        columns: list[pa.Array] = [
            _numbers(self._offsets, pa.int64()),
            _numbers(self._times, SCHEMA.field("timestamp").type),
            _slices(pa.string(), self._topic_ends, b"".join(self._topics)),
            _texts(self._keys),
            _shared(list(self._shared)).take(_numbers(self._shared_at, pa.int32())),
            _slices(pa.binary(), self._payload_ends, b"".join(self._payloads)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def batches(found: Iterable[tuple[Run, int, int, Keys]]) -> Iterator[pa.RecordBatch]:
    """Record batches of about ``BATCH_BYTES``, of what ``Columns.add`` takes."""
    columns = Columns()
    for run, first, time_us, keys in found:
        columns.add(run, first, time_us, keys)
        if columns.size >= BATCH_BYTES:
            yield columns.batch()
            columns = Columns()
    if len(columns):
        yield columns.batch()


# -- streams and files ------------------------------------------------------------------------------------------------


def stream_start(metadata: Mapping[str, str]) -> bytes:
    """The beginning of an Arrow IPC stream: the schema, and what there is to say beside it."""
    return bytes(SCHEMA.with_metadata(dict(metadata)).serialize())


def stream_part(batch: pa.RecordBatch) -> bytes:
    return bytes(batch.serialize())


def batches_of(stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """What an Arrow IPC stream has. Raises ValueError where it ends too early or is none."""
    try:
        with pa.ipc.open_stream(stream) as reader:
            yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(str(error)) from error


def write_parquet(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Raises OSError, and what ``batches`` raises."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(str(path), SCHEMA, compression="zstd") as writer:
        for batch in batches:
            waiting.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting, SCHEMA))
                waiting, size = [], 0
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, SCHEMA))


# -- arrays -----------------------------------------------------------------------------------------------------------
#
# Not ``pa.array``: where pandas is installed that imports all of it, in the middle of the broker's work.


def _numbers(values: array[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _flags(values: Iterable[bool]) -> pa.Array:
    return _numbers(array("b", values), pa.int8()).cast(pa.bool_())


def _slices(kind: pa.DataType, ends: array[int], data: bytes, valid: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(ends) - 1, [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def _pieces(kind: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    there = [value or b"" for value in values]
    ends = array("i", accumulate(map(len, there), initial=0))
    return _slices(kind, ends, b"".join(there), _valid(values))


def _texts(values: Sequence[str | None]) -> pa.Array:
    there = [value or "" for value in values]
    joined = "".join(there)
    if not joined.isascii():
        encoded = [None if value is None else value.encode(errors="replace") for value in values]
        return _pieces(pa.string(), encoded)
    ends = array("i", accumulate(map(len, there), initial=0))
    return _slices(pa.string(), ends, joined.encode(), _valid(values))


def _valid(values: Sequence[object]) -> pa.Buffer | None:
    return _flags(value is not None for value in values).buffers()[1] if None in values else None


def _shared(values: Sequence[_Shared]) -> pa.Array:
    said = [properties for properties, _, _ in values]
    pairs = [pair for properties in said for pair in properties.user]
    ends = array("i", accumulate((len(properties.user) for properties in said), initial=0))
    user = pa.MapArray.from_arrays(
        _numbers(ends, pa.int32()), _texts([name for name, _ in pairs]), _texts([value for _, value in pairs])
    )
    arrays = [
        _texts([properties.content_type for properties in said]),
        _texts([properties.response_topic for properties in said]),
        _pieces(pa.binary(), [properties.correlation_data for properties in said]),
        user,
        _numbers(array("i", (qos for _, qos, _ in values)), pa.int32()),
        _flags(retain for _, _, retain in values),
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(_PROPERTIES))
