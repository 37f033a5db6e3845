"""Publishes a view's result: each row is a record, whose payload is an object of the columns.

Theory of operation. A stream into the format "headway" would be the short way, but Spark lets such a format have only
rows that are new, never groups that have changed. So each batch is published by itself, under the name of the view's
writer and with the batch's number: a batch that Spark runs again, because it did not get to write down that it was
done, is known to the broker by these and not published twice.

Where batches are to be quick the rows come to the one process that this happens in, and go to the broker from there:
that takes a quarter of the CPU that it takes Spark to plan a write and to start what carries it out. So such a batch
has a limit. Else all tasks hand over what they have.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headway.pipeline.sink.options import SinkOptions
from headway.server.config import ViewTable

FORMAT = "headway"
ROWS = "rows published"
"""The metric under which they are counted; no table can have this name."""
QUICK_S = 10.0
"""The pace below which a view is quick."""
QUICK_BYTES = 32_000_000
"""Bytes of payloads that such a view reads in a second."""


def limit_bytes(view: ViewTable) -> int | None:
    """Returns how much its batches read at most of each table; None: all there is."""
    return round(QUICK_BYTES * max(view.every_s, 1.0)) if _is_quick(view) else None


def published(result: DataFrame, view: ViewTable, admin: str, writer: str) -> DataStreamWriter:
    """Returns the query, not started yet."""
    counted = result.observe(ROWS, F.count(F.lit(1)))
    payload = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("payload")
    options = SinkOptions(topic=view.topic, admin=admin)
    write = _quickly(options, writer) if _is_quick(view) else _by_tasks(options, writer)
    return counted.select(payload).writeStream.foreachBatch(write)


def _is_quick(view: ViewTable) -> bool:
    """Whether batches go through this process; a result that is published as a whole may be of any size."""
    return view.every_s < QUICK_S and view.mode != "complete"


def _quickly(options: SinkOptions, writer: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, number: int) -> None:
        from headway.pipeline.sink.sink import hand_over, publish

        publish(options, [hand_over(iter(rows.toArrow().to_batches()), options, writer)], number)

    return write


def _by_tasks(options: SinkOptions, writer: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, number: int) -> None:
        to = rows.write.format(FORMAT).option("admin", options.admin).option("topic", options.topic)
        to.option("writer", writer).option("batch", number).mode("append").save()

    return write
