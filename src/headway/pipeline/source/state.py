"""A state: the latest record per key of a topic, as of one offset (option ``state``).

Theory of operation. The broker answers one query exactly as of one offset, and could not answer the next one as of the
same: older values are gone by then. So the driver asks once, at ``load``, and Spark keeps the answer, in compressed
pieces that become partitions. Whatever is done with the DataFrame, however often, and whichever task is run again, all
of it is as of that offset, which is the column ``as_of`` of each row.

An answer that broke off is asked for anew, from the start: nothing of it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headway.core.base import format_size
from headway.pipeline.broker.broker_client import SOME_EVICTED, BrokerClient, StateHead
from headway.pipeline.broker.errors import SourceError, in_one_line
from headway.pipeline.source.options import Options
from headway.pipeline.source.reading import miss
from headway.store.records import SCHEMA, gathered

STATE = SCHEMA.append(pa.field("as_of", pa.int64(), nullable=False))
STATE_BYTES_MAX = 128_000_000
"""The most bytes of a state, compressed: the driver holds it as long as the DataFrame is there."""
PART_BYTES = 4 * 1024 * 1024
"""The size of a partition before compression, about."""
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True)
class StatePart(InputPartition):
    """A partition: some of the records, as an Arrow stream."""

    data: bytes


class StateBatch(DataSourceReader):
    def __init__(self, parts: list[StatePart]) -> None:
        self._parts = parts

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the records out of what goes to each task: it gets its own partition beside it."""
        return {"_parts": []}

    def partitions(self) -> Sequence[InputPartition]:
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StatePart)
        with pa.ipc.open_stream(partition.data) as stream:
            yield from stream


@in_one_line
def read_state(options: Options, bytes_max: int = STATE_BYTES_MAX) -> list[StatePart]:
    """Reads the whole state; at least one partition, which may be empty. Raises SourceError, DataLoss."""
    broker = BrokerClient(options.admin, options.timeout_s)
    return broker.with_backoff(lambda: list(_parts(broker, options, bytes_max)))


def _parts(broker: BrokerClient, options: Options, bytes_max: int) -> Iterator[StatePart]:
    """Raises what ``read_state`` raises, and Away."""
    answer = broker.state(options.topic, options.state_query)
    head = next(answer)
    assert isinstance(head, StateHead)
    _check(options, head)
    total = 0
    for some in gathered(answer, PART_BYTES):
        made = _part(some, head.as_of)
        total += len(made.data)
        if total > bytes_max:
            raise SourceError(
                f"the state of {options.topic} takes up more than {format_size(bytes_max)}, even compressed: read less "
                "of it (options where, top), or a narrower topic"
            )
        yield made
    if not total:
        yield _part([], head.as_of)


def _check(options: Options, head: StateHead) -> None:
    """Raises DataLoss."""
    if head.evicted_keys:
        count = "some" if head.evicted_keys == SOME_EVICTED else f"{head.evicted_keys:,}"
        miss(
            options,
            f"{count} keys were evicted since the broker started, because its memory for states was used "
            "up ([pool] memory)",
        )
    if head.since:
        miss(options, f"the records before offset {head.since} are deleted, and keys that have not changed since")


def _part(batches: list[pa.RecordBatch], as_of: int) -> StatePart:
    table = pa.Table.from_batches(batches, SCHEMA).combine_chunks()
    table = table.append_column(STATE.field("as_of"), pa.repeat(pa.scalar(as_of, pa.int64()), len(table)))
    to = pa.BufferOutputStream()
    with pa.ipc.new_stream(to, STATE, options=_COMPRESSED) as stream:
        stream.write_table(table.cast(STATE))
    return StatePart(bytes(to.getvalue()))
