"""Rows to be published, in Arrow: checks a part, and turns its rows into runs.

Theory of operation. Neighbouring rows of one topic, with the same properties, are a run, up to ``RUN_BYTES``; where
they have neither key nor properties, only the topic of each row is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from headway.core.message import NO_PROPERTIES, BadTopic, Properties, Run, validate_topic
from headway.store.records import PROPERTIES

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


class BadRows(ValueError):
    """The data is not a valid part, or cannot be published."""


class Checked(NamedTuple):
    rows: int
    bytes: int
    """Bytes of payload."""
    topics: frozenset[str]


def check(data: bytes, payload_bytes_max: int) -> Checked:
    """Checks a part. Raises BadRows."""
    rows = size = 0
    topics: set[str] = set()
    for batch in _batches(data):
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadRows(f"this is not sound Arrow: {error}") from None
        for topic in batch.column("topic").unique().to_pylist():
            check_topic(topic)
            topics.add(topic)
        for name in ("topic", "payload"):
            if batch.column(name).null_count:
                raise BadRows(f"{name} is null in some of the rows from {rows} on")
        ends = _ends(batch.column("payload"))
        largest = max((end - start for start, end in pairwise(ends)), default=0)
        if largest > payload_bytes_max:
            raise BadRows(f"a payload has {largest} bytes, and no more than {payload_bytes_max} are allowed")
        about = batch.column("properties")
        qos = about.flatten()[about.type.get_field_index("qos")]  # null where there are no properties
        wrong = set(qos.unique().to_pylist()) - {None, 0, 1, 2}
        if wrong:
            raise BadRows(f"properties: a qos is 0, 1 or 2, not {min(wrong)}")
        rows += len(batch)
        size += ends[-1] - ends[0]
    return Checked(rows, size, frozenset(topics))


def check_topic(topic: str | None) -> None:
    """Raises BadRows."""
    if topic is None:
        raise BadRows("topic is null")
    try:
        validate_topic(topic)
    except BadTopic as error:
        raise BadRows(str(error)) from None
    if topic.startswith("$"):
        raise BadRows(f"topic {topic}: topics that start with $ are the broker's own")


def runs(data: bytes) -> Iterator[tuple[int, Run]]:
    """Yields the runs of a part, each with the number of its first row. Raises BadRows where it is damaged."""
    at = 0
    for batch in _batches(data):
        for first, stop, said in _stretches(batch):
            yield from ((at + row, run) for row, run in _runs(batch, first, stop, said))
        at += len(batch)


def _batches(data: bytes) -> Iterator[pa.RecordBatch]:
    try:
        with pa.ipc.open_stream(data) as reader:
            if not reader.schema.equals(ROWS):
                raise BadRows("these are not the columns of rows that are to be published")
            yield from reader
    except (pa.ArrowInvalid, OSError) as error:
        raise BadRows(f"this is not an Arrow stream: {error}") from None


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


def _runs(batch: pa.RecordBatch, first: int, stop: int, said: _RowHead) -> Iterator[tuple[int, Run]]:
    payload = batch.column("payload")
    ends, data = _ends(payload), payload.buffers()[2]
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
