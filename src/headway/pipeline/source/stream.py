"""A stream: new records, batch after batch, and a cursor at the broker that says how far the query is.

Theory of operation. The offset that Spark writes down at the end of a batch says all there is to know of it: where it
begins (``from``), where it ends, and the cursor's name. So a batch that is run again is the same one, also the first,
of which Spark does not write down the beginning; and a query that is started again finds its cursor.

The cursor follows what is processed and is never ahead of it: it is moved to where a batch ends once Spark asks for
what comes behind that batch, or commits it. So the broker sees a query that is slow as it sees any consumer, and its
policies judge it. What they have to say comes as the answer to a move.

Spark calls all but ``read`` in one process on the driver, one after another.
"""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import OffsetsGone, in_one_line
from headway.pipeline.source.loss import DELETED, go_back, lose
from headway.pipeline.source.offset_finder import OffsetFinder
from headway.pipeline.source.options import Options
from headway.pipeline.source.ranges import ArchiveSpan, Span
from headway.pipeline.source.reading import read

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
            self._begin = {"offset": self._finder.start(), "cursor": f"spark-{secrets.token_hex(4)}"}
            self._is_new = True
        return self._begin

    @in_one_line
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """All before ``start`` is processed."""
        latest = self._move(start["cursor"], start["offset"], IDLE_MS)
        first = max(start["offset"], self._behind)
        if latest < first and "from" in start:  # a query that has read nothing yet may well begin later
            go_back(self._options, first, latest)
            first = latest
        stop = latest if self._target is None else min(latest, self._target)
        stop = max(first, self._limited(first, stop, limit))
        if stop == start["offset"]:
            return start
        return {"offset": stop, "cursor": start["cursor"], "from": first}

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
        if self._cursor is None:
            self._move(end["cursor"], first)
        return self._finder.split(first, end["offset"]) if first < end["offset"] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span | ArchiveSpan)
        return read(self._options, self._options.topic, partition)

    # -- the cursor -------------------------------------------------------------------------------------------------

    @in_one_line
    def commit(self, end: Offset) -> None:
        self._move(end["cursor"], end["offset"])

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

    def _move(self, cursor: str, offset: int, wait_ms: int = 0) -> int:
        """All before ``offset`` is processed; the next offset to come. Raises SourceError, DataLoss."""
        if self._cursor is None:
            self._end_in_order()
        wanted, options = max(offset, self._behind), self._options
        more = {"topic": options.topic, "policy": options.policy, "patience": options.patience, "wait_ms": wait_ms}
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
