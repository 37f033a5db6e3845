"""A batch: the records between two offsets at the time when it is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import in_one_line
from headway.pipeline.source.offset_finder import OffsetFinder
from headway.pipeline.source.options import Options
from headway.pipeline.source.ranges import ArchiveSpan, Bounds, Span
from headway.pipeline.source.reading import read


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
