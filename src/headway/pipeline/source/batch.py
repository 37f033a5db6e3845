"""A batch: what there is between two offsets when it is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headway.pipeline.source.broker import Broker
from headway.pipeline.source.errors import in_one_line
from headway.pipeline.source.options import Options
from headway.pipeline.source.places import Places
from headway.pipeline.source.ranges import Bounds, Span, Stored
from headway.pipeline.source.reading import read


class Batch(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._bounds = Bounds(options.topic)

    @in_one_line
    def partitions(self) -> Sequence[InputPartition]:
        """All of one range: what comes while it is read is not in it."""
        options, bounds = self._options, self._bounds
        if bounds.nothing:
            return [Span(0, 0)]
        broker = Broker(options.admin, options.timeout_s)
        places = Places(broker, options, bounds.topic)
        first, stop = max(places.start(), bounds.first), places.stop()
        if bounds.stop is not None:
            stop = min(stop, bounds.stop)
        for moment in bounds.since:
            first = max(first, places.at(moment))
        for moment in bounds.until:
            stop = min(stop, places.at(moment))
        return places.split(first, max(first, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Span | Stored)
        return read(self._options, self._bounds.topic, partition)


class Pushed(Batch):
    """One whose filters narrow what is asked for. Spark has it only where somebody wants it: see docs/SPARK.md."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._bounds.push(filters)
