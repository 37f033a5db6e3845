"""Recorded records as Arrow: runs in, record batches out, for a stream over HTTP or a Parquet file.

Theory of operation. Columns are built run by run, as bytes and arrays of numbers that Arrow takes without a copy. The
only object per record is the slice of its payload. Values that records share (topic, key, properties) are stored once
and repeated by Arrow. Values that grow from record to record (offsets, ends) are stored as differences, which are
mostly equal, and summed up by Arrow.

This is for a worker thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import attrgetter, sub
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headway.core.message import Properties, Run
from headway.wire.dialect import equal_pieces

PROPERTIES = pa.struct(
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
        pa.field("properties", PROPERTIES, nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
"""Ends an Arrow IPC stream."""
BATCH_BYTES = 1024 * 1024
RECORD_BYTES = 64
"""Overhead of a record beside its payload, about."""
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Size of a Parquet file's row group, before compression, about."""

_ONE = array("q", (1,))
Keys = Sequence[str | None]
_Shared = tuple[Properties, int, bool]


class Columns:
    """Builds one record batch."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes so far, about."""
        self._last = 0
        """The offset of the last record."""
        self._offset_steps = array("q")
        self._times = array("q")
        self._topics: dict[str, int] = {}
        self._topic_at = array("i")
        self._keys: list[str | None] = []
        self._key_at = array("i")
        self._shared: dict[_Shared, int] = {}
        self._shared_at = array("i")
        self._payload_sizes = array("i", (0,))
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._times)

    def add(self, run: Run, first: int, time_us: int, keys: Keys) -> None:
        """Adds a run whose record 0 has the offset ``first``, with a key for each record."""
        count = len(run)
        self._offset_steps.append(first - self._last)
        self._offset_steps.extend(_ONE * (count - 1))
        self._last = first + count - 1
        self._times.extend(array("q", (time_us,)) * count)
        topic = self._topics.setdefault(run.topic, len(self._topics))
        self._topic_at.extend(array("i", (topic,)) * count)
        self._add_keys(keys)
        shared = self._shared.setdefault((run.properties, run.qos, run.retain), len(self._shared))
        self._shared_at.extend(array("i", (shared,)) * count)
        self._add_payloads(run, count)

    def _add_keys(self, keys: Keys) -> None:
        """Adds keys. The records of a run mostly share one key, or have different ones."""
        at = len(self._keys)
        if keys[0] == keys[-1] and keys.count(keys[0]) == len(keys):
            self._keys.append(keys[0])
            self._key_at.extend(array("i", (at,)) * len(keys))
        else:
            self._keys += keys
            self._key_at.extend(range(at, at + len(keys)))

    def _add_payloads(self, run: Run, count: int) -> None:
        data, ends, bodies = run.data, run.ends, run.bodies
        size = ends[0] - bodies[0]
        if size and isinstance(ends, range) and isinstance(bodies, range) and ends.step == bodies.step:
            sizes = array("i", (size,)) * count
            self._payloads += equal_pieces(data, bodies[0], size, ends.step, count)
            self.size += count * (size + RECORD_BYTES)
        else:
            sizes = array("i", map(sub, ends, bodies))
            self._payloads += [data[body:end] for body, end in zip(bodies, ends, strict=True)]
            self.size += sum(sizes) + count * RECORD_BYTES
        self._payload_sizes.extend(sizes)

    def batch(self) -> pa.RecordBatch:
        """Returns the record batch with everything that was added."""
        columns: list[pa.Array] = [
            pc.cumulative_sum(_numbers(self._offset_steps, pa.int64())),
            _numbers(self._times, SCHEMA.field("timestamp").type),
            _texts(list(self._topics)).take(_numbers(self._topic_at, pa.int32())),
            _texts(self._keys).take(_numbers(self._key_at, pa.int32())),
            _shared(list(self._shared)).take(_numbers(self._shared_at, pa.int32())),
            _slices(pa.binary(), self._payload_sizes, b"".join(self._payloads)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def batches(found: Iterable[tuple[Run, int, int, Keys]]) -> Iterator[pa.RecordBatch]:
    """Yields record batches of about ``BATCH_BYTES``; the items are the arguments of ``Columns.add``."""
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
    """Returns the beginning of an Arrow IPC stream: the schema with metadata."""
    return bytes(SCHEMA.with_metadata(dict(metadata)).serialize())


def stream_part(batch: pa.RecordBatch) -> memoryview:
    return memoryview(batch.serialize())


def batches_of(stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Reads an Arrow IPC stream. Raises ValueError where it ends too early or is not valid."""
    try:
        with pa.ipc.open_stream(stream) as reader:
            yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(str(error)) from error


def write_parquet(path: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Raises OSError, and what ``batches`` raises."""
    with pq.ParquetWriter(str(path), SCHEMA, compression="zstd") as writer:
        for some in gathered(batches, ROW_GROUP_BYTES):
            writer.write_table(pa.Table.from_batches(some, SCHEMA))


def gathered(
    batches: Iterable[pa.RecordBatch], enough: int, size_of: Callable[[pa.RecordBatch], int] = attrgetter("nbytes")
) -> Iterator[list[pa.RecordBatch]]:
    """Yields batches together, as soon as their sizes add up to ``enough``; the rest at the end."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += size_of(batch)
        if size >= enough:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


# -- arrays -----------------------------------------------------------------------------------------------------------
#
# Not ``pa.array``: where pandas is installed that imports all of it, in the middle of the broker's work.


def _numbers(values: array[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _flags(values: Iterable[bool]) -> pa.Array:
    return _numbers(array("b", values), pa.int8()).cast(pa.bool_())


def _slices(kind: pa.DataType, sizes: array[int], data: bytes, valid: pa.Buffer | None = None) -> pa.Array:
    """``sizes`` begins with a 0."""
    ends = pc.cumulative_sum(_numbers(sizes, pa.int32())).buffers()[1]
    return pa.Array.from_buffers(kind, len(sizes) - 1, [valid, ends, pa.py_buffer(data)])


def _pieces(kind: pa.DataType, values: Sequence[bytes | None]) -> pa.Array:
    there = [value or b"" for value in values]
    return _slices(kind, array("i", chain((0,), map(len, there))), b"".join(there), _valid(values))


def _texts(values: Sequence[str | None]) -> pa.Array:
    there = [value or "" for value in values]
    joined = "".join(there)
    if not joined.isascii():
        encoded = [None if value is None else value.encode(errors="replace") for value in values]
        return _pieces(pa.string(), encoded)
    return _slices(pa.string(), array("i", chain((0,), map(len, there))), joined.encode(), _valid(values))


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
    return pa.StructArray.from_arrays(arrays, fields=list(PROPERTIES))
