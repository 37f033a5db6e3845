"""Publishes a view's result: each row is a record, whose payload is an object of the columns.

Theory of operation. A stream into the format "headway" would be the short way, but Spark lets such a format have only
rows that are new, never groups that have changed. So each batch is published by itself, under the name of the view's
writer and with the batch's number: a batch that Spark runs again, because it did not get to write down that it was
done, is known to the broker by these and not published twice.

Where batches are to be quick the rows come to the one process that this happens in, and go to the broker from there:
that takes a quarter of the CPU that it takes Spark to plan a write and to start what carries it out. So such a batch
has a limit. Else all tasks hand over what they have.

A row whose ``_deleted`` is true is published as a delete: without payload, and with its key as a property. Where all of
the result is published each time, so is a delete of each key that the topic has and the result has not: the state of
the topic is what was published before. Deletes come first, so that a key that is written in another way now (7 for 7.0)
is there in the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from headway.pipeline.sink import SinkOptions
from headway.pipeline.views.schema import DELETED
from headway.server.config import ViewTable

# -- publish -----------------------------------------------------------------------------------------------------------


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
    options = SinkOptions(topic=view.topic, admin=admin)
    key = view.key if view.mode == "complete" else None
    write = _quickly(options, writer) if _is_quick(view) else _by_tasks(options, writer, key)
    return _records(counted, view).writeStream.foreachBatch(write)


def _records(result: DataFrame, view: ViewTable) -> DataFrame:
    """Returns the records of a result: payloads, and keys of those that are deletes."""
    columns = [_named(name) for name in result.columns if name != DELETED]
    payload = _json(*columns).alias("payload")
    if DELETED not in result.columns:
        return result.select(payload)
    gone = F.coalesce(_named(DELETED), F.lit(False))
    if view.mode == "complete":
        return result.where(~gone).select(payload)
    key = _key_text(_json(_named(view.key)), view.key)
    return result.select(F.when(~gone, payload).alias("payload"), F.when(gone, key).alias("key"))


def _json(*columns: Column) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def _key_text(payload: Column, key: str) -> Column:
    """Returns the key, a column of the result, as it is written in a payload."""
    return F.from_json(payload, StructType().add(key, "string")).getField(key)


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _is_quick(view: ViewTable) -> bool:
    """Whether batches go through this process; a result that is published as a whole may be of any size."""
    return view.every_s < QUICK_S and view.mode != "complete"


def _quickly(options: SinkOptions, writer: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, number: int) -> None:
        from headway.pipeline.sink import hand_over, publish

        publish(options, [hand_over(iter(rows.toArrow().to_batches()), options, writer, number)], number)

    return write


def _by_tasks(options: SinkOptions, writer: str, key: str | None) -> Callable[[DataFrame, int], None]:
    """``key``: the column, if each batch has all of the result; else None."""

    def write(rows: DataFrame, number: int) -> None:
        if key is None:
            hand(rows, number)
            return
        rows = rows.persist()  # it is looked at twice
        try:
            gone = _gone(rows, options, key, f"{writer}, batch {number}")
            hand(gone.unionByName(rows, allowMissingColumns=True), number)
        finally:
            rows.unpersist()

    def hand(rows: DataFrame, number: int) -> None:
        to = rows.write.format(FORMAT).option("admin", options.admin).option("topic", options.topic)
        to.option("writer", writer).option("batch", number).mode("append").save()

    return write


def _gone(rows: DataFrame, options: SinkOptions, key: str, batch: str) -> DataFrame:
    """Returns deletes of the keys that the topic has, and these rows have not. Spark Connect keeps what was read for
    the same words: so each ``batch`` has its own."""
    state = rows.sparkSession.read.format(FORMAT).option("admin", options.admin).option("topic", options.topic)
    shown = state.option("state", "true").option("failOnDataLoss", "false").option("comment", batch).load()
    written = _key_text(F.col("payload").cast("string"), key).alias("written")
    there = rows.select(written)
    gone = shown.where("key IS NOT NULL").select("key", written).join(there, "written", "left_anti")
    return gone.select(F.lit(None).cast("string").alias("payload"), "key")


# -- status ------------------------------------------------------------------------------------------------------------
#
# The status of a view: what Spark says of its batches, added up since the command was started.


STARTING, RUNNING, ENDED = "starting", "running", "ended"


@dataclass
class Status:
    name: str
    view: ViewTable
    state: str = STARTING
    records: int = 0
    """Records read."""
    published: int = 0
    batches: int = 0
    batch_ms: int = 0
    """Duration of the last batch."""
    late: int = 0
    """Rows left out of groups that the watermark had closed."""
    behind: int = 0
    """Offsets between what was read and what there is; those of other topics count, too."""
    misfits: int = 0
    """Misfits left out."""
    last_misfit: str = ""
    deletes: int = 0
    """Deletes left out."""
    error: str = ""
    """The error that ended it."""
    _seen: int = -1

    def end(self, error: str) -> None:
        self.state, self.error = ENDED, error

    def add(self, progress: Mapping[str, Any]) -> None:
        """Adds a batch, as Spark reports it, unless it was added already. While there is nothing to do Spark reports,
        too, under the number of the next batch: nothing was observed then."""
        if progress["batchId"] <= self._seen:
            return
        if not progress["observedMetrics"]:
            self.state = RUNNING
            return
        self._seen = progress["batchId"]
        self.state = RUNNING
        self.batches += 1
        self.batch_ms = int((progress["durationMs"] or {}).get("triggerExecution", 0))
        self.records += sum(int(source["numInputRows"]) for source in progress["sources"])
        self.late += sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])
        self.behind = sum(_behind(source) for source in progress["sources"])
        for name, observed in progress["observedMetrics"].items():
            count, *more = observed["values"]
            if name == ROWS:
                self.published += count
                continue
            last, deletes = more
            self.deletes += deletes
            if count:
                self.misfits += count
                self.last_misfit = last


def _behind(source: Mapping[str, Any]) -> int:
    try:
        end, latest = (json.loads(source[name])["offset"] for name in ("endOffset", "latestOffset"))
        return max(0, int(latest) - int(end))
    except (ValueError, TypeError, KeyError):
        return 0
