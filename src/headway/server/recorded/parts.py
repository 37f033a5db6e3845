"""Reads recorded records of a topic or filter between two offsets, run by run, from several streams.

Any thread may read while another one writes. Only records on disk are read; the caller knows up to which offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from math import inf
from typing import NamedTuple

from headway.core.message import KeyExtractor, Run, matcher
from headway.core.routing import part_of
from headway.server.journal import decode_runs
from headway.store.journal import ReadableStream

SCANNED_BYTES_MAX = 256 * 1024 * 1024
"""After so many bytes an answer ends, even if it has less than ``max_bytes``."""
NO_RECORDS = Run("", b"", [], [], None)


class RecordedStream(NamedTuple):
    """A stream of a recorded topic, and the extractor of its records' keys; None: they have no keys."""

    stream: ReadableStream
    key: KeyExtractor | None


class RunPart(NamedTuple):
    """Some records of a run. Without records it only says that everything up to ``last`` was looked at."""

    last: int
    """The offset of the last record."""
    first: int
    """The offset of the first record."""
    run: Run
    time_us: int
    """The time when the run was written, microseconds since 1970."""
    key: KeyExtractor | None
    scanned_bytes: int
    """Bytes that were read for this part, including unwanted records."""

    @property
    def keys(self) -> Sequence[str | None]:
        """The key of each record."""
        return [None] * len(self.run) if self.key is None else self.key.of_run(self.run)

    @property
    def payload_bytes(self) -> int:
        return sum(self.run.ends) - sum(self.run.bodies)


class Trimmed(Exception):
    """Records were deleted while they were to be read."""


def earliest(streams: Sequence[ReadableStream]) -> int:
    """Returns the first offset from which nothing is deleted in any of the streams, and before which they have
    nothing."""
    gone = _deleted_upto(streams)
    return max(gone + 1 if gone else 0, min((stream.first_sequence for stream in streams), default=1))


def is_deleted(streams: Iterable[ReadableStream], offset: int) -> bool:
    """Returns whether records from this offset on are deleted. Offsets begin at 1; 0 asks for all that ever were."""
    upto = _deleted_upto(streams)
    return 0 < upto >= offset


def _deleted_upto(streams: Iterable[ReadableStream]) -> int:
    """Returns the last offset up to which records are deleted; 0: none are."""
    return max((stream.freed_upto for stream in streams), default=0)


def latest(streams: Iterable[ReadableStream], on_disk: int | None = None) -> int:
    """Returns the offset after the last record. ``on_disk``: records behind this offset may not be on disk yet."""
    last = max((stream.last_sequence for stream in streams), default=0)
    return (last if on_disk is None else min(last, on_disk)) + 1


def read_parts(sources: Iterable[RecordedStream], filter: str, first: int, stop: int) -> Iterator[RunPart]:
    """Yields the records with ``first`` <= offset < ``stop`` in the order of their offsets. Raises Trimmed, Corrupt,
    OSError."""
    matches = matcher(filter)
    yield from merge(*(_of_one(source, matches, first, stop - 1) for source in sources), key=_order)


def _order(part: RunPart) -> int:
    return part.last


def _of_one(source: RecordedStream, matches: Callable[[str], object], first: int, upto: int) -> Iterator[RunPart]:
    stream, key, at = source.stream, source.key, first
    for time_us, batch in stream.read(first, upto):
        looked = 0
        start = batch[0].sequence
        if at <= stream.freed_upto < start:
            raise Trimmed
        for run, sequence, _ in decode_runs(batch, 0.0):
            stop = sequence + len(run)
            looked += len(run.data)
            if matches(run.topic) and sequence <= upto and stop > first:
                begin = max(sequence, first)
                part = part_of(run, begin - sequence, min(stop, upto + 1) - sequence)
                yield RunPart(begin + len(part) - 1, begin, part, time_us, key, looked)
                looked = 0
            at = stop
        yield RunPart(min(at - 1, upto), at, NO_RECORDS, time_us, key, looked)
    if at <= min(stream.freed_upto, upto):
        raise Trimmed


def limited_stop(found: Iterable[RunPart], bytes_max: float, records_max: float = inf) -> int | None:
    """Returns the offset to stop before, so that there are at most ``records_max`` records, and payloads stay within
    ``bytes_max`` but at least one record comes; None: all of them fit."""
    looked = size = records = 0
    for part in found:
        looked += part.scanned_bytes
        more, count = part.payload_bytes, len(part.run)
        if size + more > bytes_max or records + count > records_max:
            for index, (body, end) in enumerate(zip(part.run.bodies, part.run.ends, strict=True)):
                if records == records_max or (records and size + end - body > bytes_max):
                    return part.first + index
                size += end - body
                records += 1
        else:
            size += more
            records += count
        if looked > SCANNED_BYTES_MAX:
            return part.last + 1
    return None
