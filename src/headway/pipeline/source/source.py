"""``spark.read.format("headway")``: the way in to batches and streams.

What only one of the two needs is imported there: Spark imports this file in every session that looks for formats.
"""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headway.core.base import ConfigError
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import OffsetsGone, in_one_line
from headway.pipeline.source.options import Options, for_batches, for_streams, read_options
from headway.pipeline.source.reading import DELETED, ArchiveSpan, Bounds, OffsetFinder, Span, go_back, lose, read

if TYPE_CHECKING:
    from headway.pipeline.sink import SinkOptions
    from headway.pipeline.source.state import StatePart


# -- source ------------------------------------------------------------------------------------------------------------


class HeadwayDataSource(DataSource):
    _state: list[StatePart] | None = None
    """The state that was read at ``load``. Spark keeps it with the DataFrame."""

    @classmethod
    def name(cls) -> str:
        return "headway"

    @in_one_line
    def schema(self) -> StructType:
        """The columns of the records, as the broker has them. Options that cannot be are refused here, at ``load``; a
        state is read here, so that all that is done with a DataFrame sees the same one."""
        options = read_options(self.options)
        if options.state:
            self._state = _read_state(options)
        return columns(options)

    @in_one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        options = for_batches(self._options(schema))
        if options.state:
            from headway.pipeline.source.state import StateBatch

            return StateBatch(_read_state(options) if self._state is None else self._state)
        from headway.pipeline.source.source import FilteredTopicBatch, TopicBatch

        return FilteredTopicBatch(options) if options.push else TopicBatch(options)

    @in_one_line
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headway.pipeline.source.source import TopicStream

        return TopicStream(for_streams(self._options(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headway.pipeline.sink import Sink

        return Sink(self._sink_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headway.pipeline.sink import StreamSink

        return StreamSink(self._sink_options(schema, overwrite))

    def _sink_options(self, schema: StructType, overwrite: bool) -> SinkOptions:
        from headway.pipeline.sink import check_columns, read_sink_options

        if overwrite:
            raise ConfigError('a topic is not overwritten: mode("append")')
        options = read_sink_options(self.options)
        check_columns(schema, options)
        return options

    def _options(self, schema: StructType) -> Options:
        options = read_options(self.options)
        if schema != columns(options):
            names = ", ".join(columns(options).names)
            raise ConfigError(f"the columns are {names}: leave schema() away, and select from them")
        return options


def columns(options: Options | None = None) -> StructType:
    """Returns the columns of records, or of a state."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from headway.store.records import SCHEMA

    if options is not None and options.state:
        from headway.pipeline.source.state import STATE

        return from_arrow_schema(STATE)
    return from_arrow_schema(SCHEMA)


def _read_state(options: Options) -> list[StatePart]:
    from headway.pipeline.source.state import read_state

    return read_state(options)


# -- batch -------------------------------------------------------------------------------------------------------------
#
# A batch: the records between two offsets at the time when it is planned.


class TopicBatch(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._bounds = Bounds(options.topic)

    @in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        """Splits one range: records that come while it is read are not in it."""
        options, bounds = self._options, self._bounds
        if bounds.nothing:
            return [Span(0, 0)]
        broker = BrokerClient(options.admin, options.timeout_s)
        finder = OffsetFinder(broker, options, bounds.topic)
        first, stop = max(finder.start(), bounds.first), finder.stop()
        if bounds.stop is not None:
            stop = min(stop, bounds.stop)
        for moment in bounds.since:
            first = max(first, finder.at(moment))
        for moment in bounds.until:
            stop = min(stop, finder.at(moment))
        return finder.split(first, max(first, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span | ArchiveSpan)
        return read(self._options, self._bounds.topic, partition)


class FilteredTopicBatch(TopicBatch):
    """A batch whose filters narrow the range that is asked for; on request only: see docs/SPARK.md."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._bounds.push(filters)


# -- stream ------------------------------------------------------------------------------------------------------------
#
# A stream: new records, batch after batch, and a cursor at the broker that says how far the query is.
#
# Theory of operation. The offset that Spark writes down at the end of a batch says all there is to know of it: where it
# begins (``from``), where it ends, and the cursor's name. So a batch that is run again is the same one, also the first,
# of which Spark does not write down the beginning; and a query that is started again finds its cursor.
#
# The cursor follows what is processed and is never ahead of it: it is moved to where a batch ends once Spark asks for
# what comes behind that batch, or commits it. So the broker sees a query that is slow as it sees any consumer, and its
# policies judge it. What they have to say comes as the answer to a move.
#
# Spark calls all but ``read`` in one process on the driver, one after another.


IDLE_MS = 100
"""The time for which the broker waits for something new before it answers that there is nothing."""

Offset = dict[str, Any]


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._broker = BrokerClient(options.admin, options.timeout_s)
        self._finder = OffsetFinder(self._broker, options, options.topic)
        self._begin: Offset | None = None
        self._cursor: str | None = None
        """The cursor's name, once the query is attached to it."""
        self._is_new = False
        """Whether Spark has written down no batch yet; then nobody will ask for the cursor again."""
        self._behind = 0
        """The offset before which all is lost, and was reported so."""
        self._ending = False
        self._latest: int | None = None
        self._target: int | None = None

    # -- from where to where ----------------------------------------------------------------------------------------

    @in_one_line
    def initialOffset(self) -> Offset:
        """Returns where the query begins; Spark asks for it twice."""
        if self._begin is None:
            first, cursor = self._finder.start(), f"spark-{secrets.token_hex(4)}"
            self._begin = {"offset": first, "cursor": cursor, **self._known(first)}
            self._is_new = True
        return self._begin

    @in_one_line
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """All before ``start`` is processed."""
        latest = self._move(start, start["offset"], IDLE_MS)
        first = max(start["offset"], self._behind)
        if latest < first and "from" in start:  # a query that has read nothing yet may well begin later
            go_back(self._options, first, latest)
            first = latest
        stop = latest if self._target is None else min(latest, self._target)
        stop = max(first, self._limited(first, stop, limit))
        if stop == start["offset"]:
            return start
        return {"offset": stop, "cursor": start["cursor"], "from": first, **self._known(first)}

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        return ReadAllAvailable() if options.offsets_max is None else ReadMaxRows(options.offsets_max)

    def _limited(self, first: int, stop: int, limit: ReadLimit) -> int:
        records, size = self._options.offsets_max, self._options.bytes_max
        if stop <= first or isinstance(limit, ReadAllAvailable):
            return stop
        if records is not None and stop - first <= records:
            records = None
        return stop if records is size is None else self._finder.limited(first, stop, records, size)

    @in_one_line
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._broker.offsets(self._options.topic).latest

    def reportLatestOffset(self) -> Offset | None:
        return None if self._latest is None else {"offset": self._latest}

    # -- one batch --------------------------------------------------------------------------------------------------

    @in_one_line
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Splits a batch that Spark has written down, perhaps in an earlier process."""
        self._is_new = False
        if start == end:
            return []
        first: int = end["from"] if "from" in end else end["offset"]  # the first batch may have been of nothing
        self._finder.deleted = tuple(end.get("deleted", ()))
        if self._cursor is None:
            self._move(end, first)
        return self._finder.split(first, end["offset"]) if first < end["offset"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span | ArchiveSpan)
        return read(self._options, self._options.topic, partition)

    # -- the cursor -------------------------------------------------------------------------------------------------

    @in_one_line
    def commit(self, end: Offset) -> None:
        self._move(end, end["offset"])

    def stop(self) -> None:
        self._ending = True
        if self._cursor is not None:
            self._broker.leave(self._cursor, forget=self._is_new)
            self._cursor = None
        self._ending = False

    def _end_in_order(self) -> None:
        """Has SIGTERM call ``stop``: Spark ends this process with it when the query stops. A second one comes
        while ``stop`` is at work, and must not break it off."""

        def end(number: int, frame: object) -> None:
            if not self._ending:
                self.stop()
                sys.exit(128 + number)

        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, end)

    def _known(self, first: int) -> dict[str, list[int]]:
        """Returns what is known to be deleted from ``first`` on, if something is, as a part of an offset."""
        deleted = [end for end in self._finder.deleted if end >= first]
        return {"deleted": deleted} if deleted else {}

    def _move(self, place: Offset, offset: int, wait_ms: int = 0) -> int:
        """All before ``offset`` is processed; the next offset to come. ``place``: an offset that has the cursor. Raises
        SourceError, DataLoss."""
        cursor: str = place["cursor"]
        self._finder.deleted = tuple(place.get("deleted", ()))
        if self._cursor is None:
            self._end_in_order()
        wanted, options = max(offset, self._behind), self._options
        more = {"topic": options.topic, "policy": options.policy, "patience": options.patience, "wait_ms": wait_ms,
                **self._known(wanted)}  # fmt: skip
        try:
            told = self._broker.move(cursor, wanted, more)
        except OffsetsGone as gone:
            if not self._finder.has(wanted, gone.earliest):
                self._lose(wanted, gone.earliest, DELETED)
            wanted = gone.earliest
            told = self._broker.move(cursor, wanted, more)
        self._cursor = cursor
        # A policy may have left out what this query had by then.
        if (gap := told["gap"]) and told["offset"] > wanted:
            self._lose(wanted, told["offset"], f"its policy left them out ({gap['reason']}): headway why {cursor}")
        self._latest = int(told["latest"])
        return self._latest

    def _lose(self, first: int, stop: int, why: str) -> None:
        lose(self._options, first, stop, why)
        self._behind = stop


# -- register ----------------------------------------------------------------------------------------------------------
#
# The format "headway" for a session that has not found it by itself (a server elsewhere, Headway sent along).


def register(spark: SparkSession | None = None) -> None:
    """Registers the format for this session; without one for the active session, if there is any."""
    session = spark or _active()
    if session is not None:
        session.dataSource.register(HeadwayDataSource)


def _active() -> SparkSession | None:
    return SparkSession.getActiveSession()
