"""Writing from Spark: ``format("headway")`` as a sink; each row is published exactly once."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from headway.client.address import default_admin_url, read_admin_url
from headway.core.base import ConfigError
from headway.core.message import validate_topic
from headway.pipeline.broker.broker_client import BrokerClient, Readers, read_flag, read_seconds, read_values
from headway.pipeline.broker.errors import SourceError, in_one_line
from headway.store.records import PROPERTIES, gathered
from headway.store.rows import QOS, ROWS

# -- options -----------------------------------------------------------------------------------------------------------
#
# Options of a write, ``.option(...)``, read and checked.


_WRITER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class SinkOptions:
    topic: str | None = None
    """Topic of all rows; None: each row has its own."""
    admin: str = field(default_factory=default_admin_url)
    qos: int = QOS
    retain: bool = False
    timeout_s: float = 60.0
    writer: str | None = None
    """The writer of a batch, and the batch's number; a number that was written once is not written again."""
    batch: int | None = None


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigError."""
    options = SinkOptions(**read_values(given, _READ))
    if (options.writer is None) != (options.batch is None):
        raise ConfigError("options writer and batch: one without the other means nothing")
    return options


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise ConfigError(f'"{text}" is no whole number from {least} to {most}')
        return int(text)

    return read


def _writer(text: str) -> str:
    if not _WRITER.fullmatch(text):
        raise ConfigError(f'"{text}" cannot be a writer\'s name: letters, digits and . _ -, at most 128')
    return text


_READ: Readers = {
    "topic": ("topic", validate_topic),
    "admin": ("admin", read_admin_url),
    "qos": ("qos", _number(0, 2)),
    "retain": ("retain", read_flag),
    "timeout": ("timeout_s", read_seconds),
    "writer": ("writer", _writer),
    "batch": ("batch", _number(0, 10**18 - 1)),
}


# -- writer client -----------------------------------------------------------------------------------------------------
#
# The broker's admin API as a write uses it: parts, and batches of them (server/streams/writers.py).


WAIT_MS = 5_000
"""The time after which the broker answers that it is not done yet."""


class BatchResult(NamedTuple):
    rows: int
    refused: str
    """The reason why a queue refused some of them; empty: none was refused."""


class WriterClient(BrokerClient):
    """A client that writes. Raises SourceError where the broker refuses, or is away for too long."""

    def stage(self, writer: str, batch: int, data: bytes) -> str:
        """Puts rows on the broker's disk as a part for this batch, and returns its name. One that is asked for twice,
        because the answer got lost, is removed by the broker when the batch is published."""
        answer = self.with_backoff(lambda: self.ask("POST", f"/v1/writers/{writer}/parts?batch={batch}", data))
        return str(self.object(answer.body)["part"])

    def take_back(self, writer: str, part: str) -> None:
        """Removes a part that no batch will have."""
        with suppress(SourceError):
            self.ask("DELETE", f"/v1/writers/{writer}/parts/{part}")

    def publish(self, writer: str, batch: int, parts: list[str]) -> BatchResult:
        """Returns when all of it is published, and on the broker's disk as far as it is kept; for as long as consumers
        hold publishers up, this one waits."""
        path = f"/v1/writers/{writer}/batches/{batch}"
        wish = json.dumps({"parts": parts, "wait_ms": min(WAIT_MS, int(self.timeout_s * 500))}).encode()
        while True:
            answer = self.with_backoff(lambda: self.ask("PUT", path, wish))
            said = self.object(answer.body)
            if said["done"]:
                return BatchResult(said["rows"], said["refused"])

    def forget(self, writer: str) -> None:
        """Says that the writer is done."""
        with suppress(SourceError):
            self.ask("DELETE", f"/v1/writers/{writer}")


# -- rows --------------------------------------------------------------------------------------------------------------
#
# Rows to publish (store/rows.py), made of the columns that a query writes.


IGNORED = ("offset", "timestamp")
"""Columns of records that were read; they get new values when they are published."""
_TEXTS = (StringType,)
_PAYLOADS = (StringType, BinaryType)
_LIKE_THIS = "select(to_json(struct('*')).alias('payload'))"


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raises ConfigError."""
    for column in schema.fields:
        if column.name not in (*ROWS.names, *IGNORED):
            raise ConfigError(
                f"column {column.name} is none of {', '.join(ROWS.names)}; what is to be published as a whole is the "
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


# -- sink --------------------------------------------------------------------------------------------------------------
#
# ``df.write`` and ``df.writeStream`` with ``format("headway")``: rows published, each exactly once.
#
# Theory of operation. A task hands its rows to the broker, which has them on disk as *parts* and publishes nothing yet.
# When all tasks are done the driver says which parts the batch is made of; those of attempts that failed, or came
# second, are in no batch, and are removed when it is published. From then on the broker publishes it, whatever becomes
# of Spark. A batch that Spark runs again, because it did not get to write down that it was done, is known to the broker
# by the query's id and the batch's number, and is not published again.
#
# A query keeps its id as long as its checkpoint. What is written once (``df.write``) has an id of its own, unless it is
# given one (options ``writer`` and ``batch``).


PART_BYTES = 4 * 1024 * 1024

log = logging.getLogger("headway")


@dataclass(frozen=True)
class HandedParts(WriterCommitMessage):
    """The parts that a task has handed over."""

    writer: str
    parts: tuple[str, ...]


class Sink(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._writer = options.writer or f"spark-{uuid.uuid4()}"
        self._batch = 0 if options.batch is None else options.batch

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return hand_over(iterator, self._options, self._writer, self._batch)

    @in_one_line
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        options = self._options
        publish(options, messages, self._batch)
        if options.writer is None:
            WriterClient(options.admin, options.timeout_s).forget(self._writer)

    @in_one_line
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        take_back(self._options, messages)


class StreamSink(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @in_one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        query, batch = map(task.getLocalProperty, ("sql.streaming.queryId", "streaming.sql.batchId"))
        assert batch is not None
        return hand_over(iterator, self._options, f"spark-{query}", int(batch))

    @in_one_line
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        publish(self._options, messages, batchId)

    @in_one_line
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        take_back(self._options, messages)


def hand_over(batches: Iterator[pa.RecordBatch], options: SinkOptions, writer: str, batch: int) -> HandedParts:
    """Hands all batches over, as parts. Raises SourceError; then the broker has none of them."""
    broker = WriterClient(options.admin, options.timeout_s)
    parts: list[str] = []
    pieces = (piece for some in batches for piece in _pieces(rows_of(some, options)))
    try:
        for some in gathered(pieces, PART_BYTES):
            parts.append(broker.stage(writer, batch, _stream(some)))
    except BaseException:
        for part in parts:
            broker.take_back(writer, part)
        raise
    return HandedParts(writer, tuple(parts))


def publish(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    """Publishes the batch that these tasks have handed over. Raises SourceError."""
    handed = [message for message in messages if isinstance(message, HandedParts)]
    parts = [part for message in handed for part in message.parts]
    if parts:
        published = WriterClient(options.admin, options.timeout_s).publish(handed[0].writer, batch, parts)
        if published.refused:
            log.warning("of batch %d: %s", batch, published.refused)


def take_back(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    broker = WriterClient(options.admin, options.timeout_s)
    for message in messages:
        if isinstance(message, HandedParts):
            for part in message.parts:
                broker.take_back(message.writer, part)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into pieces, none much larger than a part, unless a single row is."""
    if batch.nbytes <= 2 * PART_BYTES or len(batch) < 2:
        if len(batch):
            yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    to = pa.BufferOutputStream()
    with pa.ipc.new_stream(to, ROWS) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(to.getvalue())
