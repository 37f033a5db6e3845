"""Offsets of a query's beginning and end, of times, and of the part of a range that is in the archive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import OffsetsGone
from headway.pipeline.source.loss import DELETED, lose
from headway.pipeline.source.options import EARLIEST, LATEST, OFFSET, Options
from headway.pipeline.source.ranges import split

if TYPE_CHECKING:
    from headway.pipeline.source.archived_topic import ArchivedTopic



class OffsetFinder:
    """Finds offsets of one topic. Raises SourceError, DataLoss, ConfigError."""

    def __init__(self, broker: BrokerClient, options: Options, topic: str) -> None:
        self._broker = broker
        self._options = options
        self._topic = topic

    @property
    def _archive(self) -> ArchivedTopic | None:
        """The topic's archive, as it is now."""
        if self._options.archive is None:
            return None
        from headway.pipeline.source.archived_topic import open_archived_topic

        return open_archived_topic(self._options.archive, self._topic)

    # -- offsets -----------------------------------------------------------------------------------------------------

    def start(self) -> int:
        """Finds where a query begins, as option ``from`` says."""
        text, archive = self._options.start, self._archive
        if text == LATEST:
            return self._broker.offsets(self._topic).latest
        if text == EARLIEST:
            first = None if archive is None else archive.earliest()
            return self._broker.offsets(self._topic).earliest if first is None else first
        if archive is not None:
            found = self._in_archive(archive, text)
            if found is not None:
                return found
        try:
            return self._broker.offsets(self._topic, from_=text, to=text).next
        except OffsetsGone as gone:
            lose(self._options, int(text), gone.earliest, DELETED)
            return gone.earliest

    def stop(self) -> int:
        """Finds where a batch ends: as option ``to`` says, or with all there is."""
        text, archive = self._options.stop, self._archive
        found = None if archive is None or text is None else self._in_archive(archive, text)
        return self._broker.offsets(self._topic, to=text).next if found is None else found

    def at(self, moment: datetime) -> int:
        """The first offset of that time or later."""
        archive = self._archive
        found = None if archive is None else archive.since(moment)
        return self._broker.offsets(self._topic, to=moment.isoformat()).next if found is None else found

    def _in_archive(self, archive: ArchivedTopic, text: str) -> int | None:
        """None: it is not there, or before all that is."""
        if OFFSET.fullmatch(text):
            first = archive.earliest()
            return int(text) if first is not None and first <= int(text) < archive.end() else None
        from headway.server.recorded import Timestamp, parse_position

        place = parse_position(text, "from", int(time.time() * 1e6))
        return archive.since(datetime.fromtimestamp(place.us / 1e6, UTC)) if isinstance(place, Timestamp) else None

    # -- ranges -----------------------------------------------------------------------------------------------------

    def has(self, first: int, stop: int) -> bool:
        """All of this range is in the archive, whatever the broker has deleted."""
        archive = self._archive
        earliest = None if archive is None else archive.earliest()
        return archive is not None and earliest is not None and earliest <= first and stop <= archive.end()

    def split(self, first: int, stop: int) -> Sequence[InputPartition]:
        """Splits a range into partitions: the archive's part by files, the rest evenly; at least one partition."""
        archive = self._archive
        edge = first if archive is None else min(max(first, archive.end()), stop)
        earliest = None if archive is None else archive.earliest()
        if archive is None or earliest is None or edge <= first:
            return split(first, stop, self._options.partitions)
        begin = max(first, min(earliest, edge))  # what is before the archive, the broker may have; or it is lost
        before = split(first, begin, self._options.partitions) if first < begin else []
        after = split(edge, stop, self._options.partitions) if edge < stop else []
        return [*before, *archive.split(begin, edge), *after] or split(first, first, 1)

    def limited(self, first: int, stop: int, records: int | None, size: int | None) -> int:
        """Returns where to stop so that no more than so many records, and ``size`` bytes, are read; in the archive
        ``size`` is that of whole files. Holes between offsets do not count."""
        archive = self._archive
        if archive is not None and self.has(first, first + 1):
            stop = min(stop, archive.end())
            stop = stop if size is None else archive.upto(first, stop, size)
            return stop if records is None else archive.behind(first, stop, records)
        with suppress(OffsetsGone):  # whoever reads it says so
            return self._broker.offsets(self._topic, from_=first, to=stop, max_records=records, max_bytes=size).next
        return stop
