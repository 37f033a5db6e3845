"""``spark.read.format("headway")``: the way in to batches and streams.

What only one of the two needs is imported there: Spark imports this file in every session that looks for formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headway.core.base import ConfigError
from headway.pipeline.broker.errors import in_one_line
from headway.pipeline.source.options import for_batches, for_streams, read_options

if TYPE_CHECKING:
    from headway.pipeline.sink.options import SinkOptions
    from headway.pipeline.source.options import Options
    from headway.pipeline.source.state import StatePart


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
        from headway.pipeline.source.batch import FilteredTopicBatch, TopicBatch

        return FilteredTopicBatch(options) if options.push else TopicBatch(options)

    @in_one_line
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headway.pipeline.source.stream import TopicStream

        return TopicStream(for_streams(self._options(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headway.pipeline.sink.sink import Sink

        return Sink(self._sink_options(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headway.pipeline.sink.sink import StreamSink

        return StreamSink(self._sink_options(schema, overwrite))

    def _sink_options(self, schema: StructType, overwrite: bool) -> SinkOptions:
        from headway.pipeline.sink.options import read_sink_options
        from headway.pipeline.sink.rows import check_columns

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
