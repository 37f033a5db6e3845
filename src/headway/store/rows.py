"""Rows to be published, in Arrow: checks a part, and turns its rows into runs.

Theory of operation. Neighbouring rows of one topic, with the same properties, are a run, up to ``RUN_BYTES``; where
they have neither key nor properties, only the topic of each row is looked at.

A part may have more than a million rows, each with a topic of its own. Arrow looks at whole columns, beside Python's
other threads. What Python looks at becomes its objects a piece at a time: these take much memory, and Arrow makes them
in one go, while no other thread has its turn.

What is accepted here is journaled and written in every protocol, so it has to fit all of them: texts are UTF-8 without
NUL, and no longer than an MQTT string. Each batch is checked again when it is published: its part may be from an older
release, or damaged on disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise
from struct import Struct
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headway.core.message import MAX_TOPIC_BYTES, NO_PROPERTIES, BadTopic, Properties, Run, validate_topic
from headway.core.telemetry import TABLES, VERSION, Kind
from headway.store.records import PROPERTIES

# -- rows --------------------------------------------------------------------------------------------------------------


KEY = "key"
"""The user property that the column ``key`` becomes."""
QOS = 1
"""Default for a row without one: 1, so that offline consumers get the record later."""
ROWS = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("properties", PROPERTIES),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
RUN_BYTES = 64 * 1024
PIECE_ROWS = 4096
"""Rows of which Python's objects are in memory together. They take up to a hundred times as much as a tiny row."""
INFLATED_BYTES_MAX = 64 * 1024 * 1024
"""Compressed parts may not inflate to more."""
BATCHES_MAX = 5000
"""Batches of a part. Each is checked by itself, also without rows."""
_U16, _U32, _I32, _I64, _BUFFER = (Struct(form) for form in ("<H", "<I", "<i", "<q", "<qq"))


class BadRows(ValueError):
    """The data is not a valid part, or cannot be published."""


class Checked(NamedTuple):
    rows: int
    topics: pa.StringArray
    """Each topic once."""


def check(data: bytes | bytearray, payload_bytes_max: int) -> Checked:
    """Checks a part. Raises BadRows."""
    try:
        return _check(data, payload_bytes_max)
    finally:
        pa.default_memory_pool().release_unused()  # it would keep some forty times the bytes of a compressed part


def _check(data: bytes | bytearray, payload_bytes_max: int) -> Checked:
    rows = 0
    topics: list[pa.StringArray] = []
    for batch in _batches(data):
        largest = pc.max(pc.binary_length(batch.column("payload"))).as_py() or 0
        if largest > payload_bytes_max:
            raise BadRows(f"a payload has {largest} bytes, and no more than {payload_bytes_max} are allowed")
        if batch.column("properties").nbytes > payload_bytes_max:
            for at, piece in _pieces(batch.column("properties")):
                _check_properties_sizes(piece, rows + at, payload_bytes_max)
        topics.append(batch.column("topic").unique())
        rows += len(batch)
    return Checked(rows, pc.unique(pa.chunked_array(topics, pa.string())))


def _pieces(column: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    """Yields a column in pieces, each with the number of its first row."""
    return ((at, column.slice(at, PIECE_ROWS)) for at in range(0, len(column), PIECE_ROWS))


def values_of(column: pa.Array) -> Iterator[Any]:
    """Returns an iterator over the values of a column. They are in memory a piece at a time."""
    return (value for _, piece in _pieces(column) for value in piece.to_pylist())


def check_topic(topic: str | None) -> None:
    """Raises BadRows."""
    if topic is None:
        raise BadRows("topic is null")
    try:
        validate_topic(topic)
    except BadTopic as error:
        raise BadRows(str(error)) from None
    if topic.startswith("$"):
        raise BadRows(f"topic {topic[:60]}: topics that start with $ are the broker's own")


def runs(data: bytes) -> Iterator[tuple[int, Run]]:
    """Returns an iterator over the runs of a part, each with the number of its first row. Raises BadRows at once if any
    of the part is damaged, so that none of it is published."""
    for _ in _batches(data):
        pass
    return _all_runs(data)


def _all_runs(data: bytes) -> Iterator[tuple[int, Run]]:
    at = 0
    for batch in _batches(data):
        for start in range(0, len(batch), PIECE_ROWS):
            piece = batch.slice(start, PIECE_ROWS)
            payload = piece.column("payload")
            ends, payloads = _ends(payload), payload.buffers()[2]
            for first, stop, said in _stretches(piece):
                yield from ((at + row, run) for row, run in _runs(ends, payloads, first, stop, said))
            at += len(piece)


def _batches(data: bytes | bytearray) -> Iterator[pa.RecordBatch]:
    """Yields the checked batches of a part. Raises BadRows."""
    rows = 0
    try:
        _check_inflation(data)
        with pa.ipc.open_stream(data) as reader:
            if not reader.schema.equals(ROWS):
                raise BadRows("these are not the columns of rows that are to be published")
            for number, batch in enumerate(reader):
                if number >= BATCHES_MAX:
                    raise BadRows(f"there are more than {BATCHES_MAX} batches: put more rows into each")
                _validate(batch)
                _check_batch(batch, rows)
                yield batch
                rows += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise BadRows(f"this is not an Arrow stream: {error}") from None


# -- checks of a batch ------------------------------------------------------------------------------------------------


def _validate(batch: pa.RecordBatch) -> None:
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise BadRows(f"this is not sound Arrow: {error}") from None


def _check_batch(batch: pa.RecordBatch, first: int) -> None:
    """Checks every column of a sound batch, whose first row has this number in the part. Raises BadRows."""
    for name in ("topic", "payload"):
        if batch.column(name).null_count:
            raise BadRows(f"{name} is null in some of the rows from {first} on")
    for topic in values_of(batch.column("topic").unique()):
        check_topic(topic)
    _check_size("key", batch.column("key"), first)
    _check_nul("key", batch.column("key"), first)
    about = batch.column("properties")
    fields = dict(zip((field.name for field in about.type), about.flatten(), strict=True))  # null where the row is
    for name in ("content_type", "response_topic", "correlation_data"):
        _check_size(name, fields[name], first)
    _check_nul("content_type", fields["content_type"], first)
    for topic in values_of(fields["response_topic"].unique()):
        try:
            validate_topic("none" if topic is None else topic)
        except BadTopic as error:
            raise BadRows(f"properties: response_topic: {error}") from None
    for at, piece in _pieces(fields["user"]):
        _check_user(piece, first + at)
    wrong = set(fields["qos"].unique().to_pylist()) - {None, 0, 1, 2}
    if wrong:
        raise BadRows(f"properties: a qos is 0, 1 or 2, not {min(wrong)}")


def _check_user(user: pa.MapArray, first: int) -> None:
    """Checks the maps of user properties. A value that is NULL has no form in any protocol."""
    ends = user.offsets.to_pylist()
    names, values = (pairs.slice(ends[0], ends[-1] - ends[0]) for pairs in (user.keys, user.items))
    for what, texts in (("the name of a user property", names), ("the value of a user property", values)):
        at = _first(pc.is_null(texts)) if texts.null_count else None
        if at is not None:
            row = first + bisect_right(ends, ends[0] + at) - 1
            name = "" if names[at].as_py() is None else f" ({names[at].as_py()[:60]!r})"
            raise BadRows(f"properties: in row {row} {what}{name} is null; give it a text, or leave the pair out")
        _check_size(what, texts, first, ends)
        _check_nul(what, texts, first, ends)


def _check_size(what: str, column: pa.Array, first: int, ends: list[int] | None = None) -> None:
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > MAX_TOPIC_BYTES:
        row = _row(pc.greater(pc.binary_length(column), MAX_TOPIC_BYTES), first, ends)
        raise BadRows(f"in row {row} {what} has {longest} bytes, and no more than {MAX_TOPIC_BYTES} are allowed")


def _check_nul(what: str, column: pa.Array, first: int, ends: list[int] | None = None) -> None:
    found = pc.match_substring(column, "\0")
    if pc.any(found).as_py():
        raise BadRows(f"in row {_row(found, first, ends)} {what} has a NUL character (U+0000)")


def _row(found: pa.Array, first: int, ends: list[int] | None) -> int:
    """Returns the number of the first row with a true value. ``ends``: the values are pairs of maps with these ends."""
    at = _first(found) or 0
    return first + (at if ends is None else bisect_right(ends, ends[0] + at) - 1)


def _first(found: pa.Array) -> int | None:
    at: int = pc.index(found, True).as_py()
    return None if at < 0 else at


def _check_properties_sizes(about: pa.StructArray, first: int, bytes_max: int) -> None:
    """Raises BadRows if the properties of a row have more bytes than a payload may have."""
    fields = about.flatten()
    user = fields[about.type.get_field_index("user")]
    ends = user.offsets.to_pylist()
    pairs = [texts.slice(ends[0], ends[-1] - ends[0]) for texts in (user.keys, user.items)]
    sizes = [pc.binary_length(texts).to_pylist() for texts in pairs]
    for row, (start, stop) in enumerate(pairwise(ends)):
        size = sum(sum(some[start - ends[0] : stop - ends[0]]) for some in sizes)
        if size > bytes_max:
            raise BadRows(f"the properties of row {first + row} have {size} bytes, and no more than {bytes_max} are "
                          "allowed")  # fmt: skip


_BATCH = 3
"""The type of a message with a record batch, in Arrow's Message.fbs; the numbers of fields below are from there."""


def _check_inflation(data: bytes | bytearray) -> None:
    """Raises BadRows if the compressed buffers of a stream say that they inflate to more than ``INFLATED_BYTES_MAX``.
    pyarrow would allocate what they say, without a limit."""
    total = 0
    for message in pa.ipc.MessageReader.open_stream(data):
        told, body = memoryview(message.metadata), memoryview(message.body or b"")
        about = _table(told, 0)
        kind, batch = _field(told, about, 1), _field(told, about, 2)
        if not kind or told[kind] != _BATCH or not batch:
            continue
        fields = _table(told, batch)
        buffers = _field(told, fields, 2)
        if not _field(told, fields, 3) or not buffers:
            continue  # not compressed
        at = buffers + _U32.unpack_from(told, buffers)[0]
        for number in range(_U32.unpack_from(told, at)[0]):
            start, size = _BUFFER.unpack_from(told, at + 4 + _BUFFER.size * number)
            if size >= 8 and 0 <= start <= len(body) - 8:
                total += max(size, _I64.unpack_from(body, start)[0])  # -1: this one is not compressed
    if total > INFLATED_BYTES_MAX:
        raise BadRows(f"the rows inflate to {total} bytes, and no more than {INFLATED_BYTES_MAX} are allowed: write "
                      "smaller parts")  # fmt: skip


def _table(told: memoryview, at: int) -> int:
    """Returns the position of the flatbuffers table that is referred to at a position."""
    return at + int(_U32.unpack_from(told, at)[0])


def _field(told: memoryview, table: int, number: int) -> int:
    """Returns the position of a field of a flatbuffers table; 0: it is not there."""
    entries = table - _I32.unpack_from(told, table)[0]
    at = 4 + 2 * number
    offset = _U16.unpack_from(told, entries + at)[0] if at < _U16.unpack_from(told, entries)[0] else 0
    return table + offset if offset else 0


# -- rows to runs -----------------------------------------------------------------------------------------------------


class _RowHead(NamedTuple):
    topic: str
    key: str | None
    properties: dict[str, Any] | None


def _stretches(batch: pa.RecordBatch) -> Iterator[tuple[int, int, _RowHead]]:
    """Groups neighbouring rows that differ only in their payload."""
    topics = batch.column("topic").to_pylist()
    keys, properties = batch.column("key"), batch.column("properties")
    first = 0
    if keys.null_count == properties.null_count == len(batch):
        for topic, rows in groupby(topics):
            stop = first + sum(1 for _ in rows)
            yield first, stop, _RowHead(topic, None, None)
            first = stop
        return
    for said, rows in groupby(map(_RowHead, topics, keys.to_pylist(), properties.to_pylist())):
        stop = first + sum(1 for _ in rows)
        yield first, stop, said
        first = stop


def _runs(
    ends: list[int], data: pa.Buffer | None, first: int, stop: int, said: _RowHead
) -> Iterator[tuple[int, Run]]:
    properties, qos, retain = _properties(said)
    while first < stop:
        begin, upto = ends[first], first + 1
        while upto < stop and ends[upto + 1] - begin <= RUN_BYTES:
            upto += 1
        own = [end - begin for end in ends[first + 1 : upto + 1]]
        piece = bytes(data[begin : ends[upto]]) if data is not None else b""
        yield first, Run(said.topic, piece, own, [0, *own[:-1]], None, qos, retain, properties)
        first = upto


def _ends(payload: pa.Array) -> list[int]:
    """Returns the offsets at which payloads begin, and the end of the last one."""
    size = 4 * len(payload) + 4
    return memoryview(payload.buffers()[1])[4 * payload.offset :][:size].cast("i").tolist()


def _properties(said: _RowHead) -> tuple[Properties, int, bool]:
    told = said.properties
    user = tuple((told or {}).get("user") or ())
    if said.key is not None and all(name != KEY for name, _ in user):
        user = (*user, (KEY, said.key))
    if told is None:
        return (Properties(user=user) if user else NO_PROPERTIES), QOS, False
    made = Properties(None, told["content_type"], told["response_topic"], told["correlation_data"], user)
    return made, QOS if told["qos"] is None else told["qos"], bool(told["retain"])


# -- schema ------------------------------------------------------------------------------------------------------------
#
# The lake's tables as Arrow schemas, with the metadata of a file's footer.


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


# -- selected ----------------------------------------------------------------------------------------------------------
#
# Rows of a selection as an Arrow stream. A column has the type that all its values have: bool, int64, double (numbers
# that are not all whole) or string; if they have none in common, they are texts in JSON.
#
# This is for a worker thread.


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
