"""``df.write`` and ``df.writeStream`` with ``format("headway")``: rows published, each exactly once.

Theory of operation. A task hands its rows to the broker, which has them on disk as *parts* and publishes nothing yet.
When all tasks are done the driver says which parts the batch is made of; those of attempts that failed, or came second,
are in no batch, and are removed when it is published. From then on the broker publishes it, whatever becomes of Spark.
A batch that Spark runs again, because it did not get to write down that it was done, is known to the broker by the
query's id and the batch's number, and is not published again.

A query keeps its id as long as its checkpoint. What is written once (``df.write``) has an id of its own, unless it is
given one (options ``writer`` and ``batch``).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headway.pipeline.broker.errors import in_one_line
from headway.pipeline.sink.options import SinkOptions
from headway.pipeline.sink.rows import rows_of
from headway.pipeline.sink.writer_client import WriterClient
from headway.store.records import gathered
from headway.store.rows import ROWS

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
