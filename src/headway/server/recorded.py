"""Recorded topics: ranges of offsets, reading them in order, and writing them as JSON lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import merge
from math import inf
from typing import Any, NamedTuple

import msgspec

from headway.core.base import ConfigError, parse_duration, parse_size
from headway.core.message import KeyExtractor, Run, covers, matcher, overlaps
from headway.core.routing import part_of
from headway.server.journal import decode_runs, first_offset_at
from headway.store.journal import ReadableStream
from headway.wire.event_stream import properties_form, text_form

# -- filters -----------------------------------------------------------------------------------------------------------
#
# The recorded filters that a topic, or a filter, reads from.


class NotRecorded(Exception):
    """Some of the topics that were asked for are not recorded."""

    def __init__(self, topic: str, recorded: Collection[str]) -> None:
        names = ", ".join(recorded) or "nothing (a [[topic]] with keep is; or start the broker with --record)"
        super().__init__(f"{topic} is not recorded; recorded is {names}")


def filters_of(topic: str, recorded: Collection[str]) -> list[str]:
    """Returns the recorded filters that overlap the topic. Raises NotRecorded unless one of them covers it."""
    if not any(covers(filter, topic) for filter in recorded):
        raise NotRecorded(topic, recorded)
    return [filter for filter in recorded if overlaps(filter, topic)]


# -- parts -------------------------------------------------------------------------------------------------------------
#
# Reads recorded records of a topic or filter between two offsets, run by run, from several streams.
#
# Any thread may read while another one writes. Only records on disk are read; the caller knows up to which offset.


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
    """Returns the first offset that any of the streams still has. Others may be trimmed further."""
    held = (stream.first_sequence for stream in streams if stream.first_sequence <= stream.last_sequence)
    return min(held, default=whole_from(streams))


def whole_from(streams: Sequence[ReadableStream]) -> int:
    """Returns the first offset from which nothing is deleted in any of the streams."""
    gone = max((stream.freed_upto for stream in streams), default=0)
    return max(gone + 1 if gone else 0, min((stream.first_sequence for stream in streams), default=1))


def deleted_ends(streams: Iterable[ReadableStream], offset: int) -> frozenset[int]:
    """Returns where the deleted records of each stream end, if some are from this offset on. Offsets begin at 1; 0 asks
    for all that ever were.

    A reader that was told these ends knows what it cannot get. A stream with another end was trimmed since. One number
    for all streams would not show that, where the stream is not the one that is trimmed the furthest."""
    return frozenset(end for stream in streams if 0 < (end := stream.freed_upto) >= offset)


def latest(streams: Iterable[ReadableStream], on_disk: int | None = None) -> int:
    """Returns the offset after the last record. ``on_disk``: records behind this offset may not be on disk yet."""
    last = max((stream.last_sequence for stream in streams), default=0)
    return (last if on_disk is None else min(last, on_disk)) + 1


def read_parts(
    sources: Iterable[RecordedStream], filter: str, first: int, stop: int, deleted: Collection[int] = ()
) -> Iterator[RunPart]:
    """Yields the records with ``first`` <= offset < ``stop`` in the order of their offsets. ``deleted``: the ends of
    what the reader knows to be deleted (``deleted_ends``). Raises Trimmed, Corrupt, OSError."""
    matches = matcher(filter)
    yield from merge(*(_of_one(source, matches, first, stop - 1, deleted) for source in sources), key=_order)


def _order(part: RunPart) -> int:
    return part.last


def _of_one(
    source: RecordedStream, matches: Callable[[str], object], first: int, upto: int, deleted: Collection[int]
) -> Iterator[RunPart]:
    stream, key, freed = source.stream, source.key, source.stream.freed_upto
    at = first = max(first, freed + 1) if freed in deleted else first
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


# -- json lines --------------------------------------------------------------------------------------------------------
#
# Recorded records as JSON lines, one object each, for clients without Arrow (wire/event_stream.py).


CHUNK_BYTES = 256 * 1024
PROGRESS_BYTES = 16 * 1024 * 1024
"""Bytes of unwanted records after which an empty chunk (``b""``) is yielded, so that the reader can see progress."""
_encode_into = msgspec.json.Encoder().encode_into


def to_json_lines(parts: Iterable[RunPart]) -> Iterator[bytes]:
    """Yields chunks of whole lines."""
    chunk, looked, line = bytearray(), 0, bytearray()
    for part in parts:
        looked += part.scanned_bytes
        for record in records_of(part):
            _encode_into(record, line)
            chunk += line
            chunk += b"\n"
            if len(chunk) >= CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
                looked = 0
        if looked > PROGRESS_BYTES:
            looked = 0
            yield b""
    if chunk:
        yield bytes(chunk)


def records_of(part: RunPart) -> Iterator[dict[str, Any]]:
    """Yields the records of a part, as objects for JSON."""
    run = part.run
    time = datetime.fromtimestamp(part.time_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    properties = properties_form(run.properties, run.qos, retain=run.retain)
    for index, key in enumerate(part.keys):
        yield {
            "offset": part.first + index, "timestamp": time, "topic": run.topic, "key": key, "properties": properties,
            **text_form("payload", run.payload(index)),
        }  # fmt: skip


# -- offset range ------------------------------------------------------------------------------------------------------
#
# Ranges of offsets: parses ``from``, ``to`` and the limits of an answer, and finds the offsets that they mean.


EARLIEST = "earliest"
OFFSET_MAX = 2**63 - 1
FORMATS = ("arrow", "json")
PARAMETERS = ("from", "to", "deleted", "max_bytes", "max_records", "format")
_OFFSET = re.compile(r"\d{1,20}")


class Timestamp(NamedTuple):
    """Microseconds since 1970."""

    us: int


Position = int | Timestamp
"""An offset or a time."""


class RangeRequest(NamedTuple):
    """A requested range. None means the earliest record, the last one, and no limit."""

    start: Position | None = None
    stop: Position | None = None
    bytes_max: int | None = None
    """Limit for the sum of all payloads."""
    records_max: int | None = None
    format: str = "arrow"
    deleted: frozenset[int] = frozenset()
    """The ends of what the client knows to be deleted (``deleted_ends``)."""


class OffsetRange(NamedTuple):
    """A range of offsets that exists, and the ends of the stream."""

    first: int
    stop: int
    """The offset after the last one."""
    earliest: int
    """The first offset from which nothing is deleted. The range may begin before it."""
    latest: int
    """The offset of the next record to come."""
    deleted: frozenset[int] = frozenset()
    """Where deleted records end that would have been in the range."""


class OffsetGone(Exception):
    """The requested offsets are deleted."""

    def __init__(self, wanted: int, earliest: int) -> None:
        super().__init__(
            f"offset {wanted} is not kept any more, all are from {earliest} on; from=earliest reads all that is held"
        )
        self.earliest = earliest


def parse_position(text: str, name: str, now_us: int) -> Position:
    """Reads an offset: ``12408``, ``2026-01-31T12:00:00Z`` (without a zone: UTC), ``-5m``. Raises ConfigError."""
    text = text.strip()
    if _OFFSET.fullmatch(text):
        if int(text) > OFFSET_MAX:
            raise ConfigError(f"{name}={text}: there is no such offset")
        return int(text)
    if text.startswith("-"):
        try:
            return Timestamp(now_us - int(parse_duration(text[1:]) * 1e6))
        except (ConfigError, OverflowError):
            pass
    try:
        # An unescaped plus sign in a URL means a space.
        found = datetime.fromisoformat(re.sub(r" (\d\d:?\d\d)$", r"+\1", text) if "T" in text else text)
        return Timestamp(int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e6))
    except (ValueError, OverflowError):
        shown = text if len(text) <= 40 else text[:37] + "..."
        or_ = f', "{EARLIEST}"' if name == "from" else ""
        raise ConfigError(
            f'{name}="{shown}" is none of: an offset, a time such as 2026-01-31T12:00:00Z, '
            f"how long ago, such as -5m{or_}"
        ) from None


def parse_start(text: str, now_us: int) -> Position | None:
    return None if text.strip() in ("", EARLIEST) else parse_position(text, "from", now_us)


def parse_stop(text: str, now_us: int) -> Position | None:
    return parse_position(text, "to", now_us) if text.strip() else None


def parse_range_request(query: Mapping[str, str], now_us: int) -> RangeRequest:
    """Raises ConfigError."""
    for name in query:
        if name not in PARAMETERS:
            raise ConfigError(f"unknown parameter {name[:40]!r}: there are {', '.join(PARAMETERS)}")
    bytes_max = None
    if query.get("max_bytes"):
        try:
            bytes_max = parse_size(query["max_bytes"])
        except ConfigError as error:
            raise ConfigError(f"max_bytes: {error}") from None
        if not bytes_max:
            raise ConfigError("max_bytes=0: from 1 B on")
    records_max = None
    if query.get("max_records"):
        if not _OFFSET.fullmatch(query["max_records"]) or not int(query["max_records"]):
            raise ConfigError(f"max_records={query['max_records'][:40]!r}: a whole number from 1 on")
        records_max = int(query["max_records"])
    format = query.get("format") or FORMATS[0]
    if format not in FORMATS:
        raise ConfigError(f"format={format[:40]!r}: there are {' and '.join(FORMATS)}")
    ends = [end for end in query.get("deleted", "").split(",") if end]
    if not all(map(_OFFSET.fullmatch, ends)):
        raise ConfigError(f"deleted={query['deleted'][:40]!r}: offsets with commas between, as the broker told them")
    start, stop = parse_start(query.get("from", ""), now_us), parse_stop(query.get("to", ""), now_us)
    return RangeRequest(start, stop, bytes_max, records_max, format, frozenset(map(int, ends)))


def resolve_range(asked: RangeRequest, sources: Sequence[RecordedStream], on_disk: int | None = None) -> OffsetRange:
    """Turns a request into offsets. ``on_disk``: records behind this offset may not be on disk yet. Raises OffsetGone,
    and ConfigError where the end is before the start."""
    streams = [source.stream for source in sources]
    start, stop, end = asked.start, asked.stop, latest(streams, on_disk)
    if isinstance(start, int) and isinstance(stop, int) and stop < start:
        raise ConfigError(f"to={stop} is before from={start}")
    if isinstance(start, Timestamp) and isinstance(stop, Timestamp) and stop < start:
        raise ConfigError("to is before from")
    # A record of a stream that had none may be about to be written, before the first of another.
    first = min(earliest(streams), end)
    if start is not None:
        first = max(first, _offset(start, streams))
    last = end if stop is None else min(end, _offset(stop, streams))
    deleted = deleted_ends(streams, start if isinstance(start, int) else first)
    begin = whole_from(streams)
    if isinstance(start, int) and not deleted <= asked.deleted:
        raise OffsetGone(start, begin)
    return OffsetRange(first, max(first, last), begin, end, deleted)


def _offset(position: Position, streams: Sequence[ReadableStream]) -> int:
    return first_offset_at(streams, position.us) if isinstance(position, Timestamp) else position
