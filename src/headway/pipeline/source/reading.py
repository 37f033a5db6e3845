"""Reads a partition to its end, also where the broker is away in between."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headway.core.base import HeadwayError
from headway.pipeline.broker.backoff import Backoff
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import Away, OffsetsGone
from headway.pipeline.source.loss import DELETED, LOST, lose
from headway.pipeline.source.options import Options
from headway.pipeline.source.ranges import ArchiveSpan, Span


def read(options: Options, topic: str, span: Span | ArchiveSpan) -> Iterator[pa.RecordBatch]:
    """Yields every record of the span once. Raises SourceError, DataLoss, ConfigError; each is one line."""
    try:
        if isinstance(span, ArchiveSpan):
            from headway.pipeline.source.archived_topic import open_archived_topic

            assert options.archive is not None
            yield from open_archived_topic(options.archive, topic).read(span)
        else:
            yield from _read(options, topic, span)
    except HeadwayError as error:
        raise error.with_traceback(None) from None


def _read(options: Options, topic: str, span: Span) -> Iterator[pa.RecordBatch]:
    broker, at = BrokerClient(options.admin, options.timeout_s), span.first
    backoff = Backoff(options.timeout_s)
    while at < span.stop:
        try:
            for found in broker.records(topic, at, span.stop):
                if isinstance(found, int):
                    if found < span.stop:
                        lose(options, found, span.stop, LOST)
                    return
                if found.num_rows:
                    at = found.column("offset")[-1].as_py() + 1
                    yield found
                    backoff = Backoff(options.timeout_s)
        except Away as error:
            backoff.wait(error)
        except OffsetsGone as gone:
            after = min(gone.earliest, span.stop)
            lose(options, at, after, DELETED)
            at = after
