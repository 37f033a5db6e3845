"""Ranges of offsets: parses ``from``, ``to`` and the limits of an answer, and finds the offsets that they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from headway.core.base import ConfigError, parse_duration, parse_size
from headway.server.journal import first_offset_at
from headway.server.recorded.parts import RecordedStream, earliest, is_deleted, latest
from headway.store.journal import ReadableStream

EARLIEST = "earliest"
OFFSET_MAX = 2**63 - 1
FORMATS = ("arrow", "json")
PARAMETERS = ("from", "to", "max_bytes", "max_records", "format")
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


class OffsetRange(NamedTuple):
    """A range of offsets that exists, and the ends of the stream."""

    first: int
    stop: int
    """The offset after the last one."""
    earliest: int
    latest: int
    """The offset of the next record to come."""


class OffsetGone(Exception):
    """The requested offsets are deleted."""

    def __init__(self, wanted: int, earliest: int) -> None:
        super().__init__(
            f"offset {wanted} is not kept any more, the earliest is {earliest}; from=earliest begins there"
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
    start, stop = parse_start(query.get("from", ""), now_us), parse_stop(query.get("to", ""), now_us)
    return RangeRequest(start, stop, bytes_max, records_max, format)


def resolve_range(asked: RangeRequest, sources: Sequence[RecordedStream], on_disk: int | None = None) -> OffsetRange:
    """Turns a request into offsets. ``on_disk``: records behind this offset may not be on disk yet. Raises OffsetGone,
    and ConfigError where the end is before the start."""
    streams = [source.stream for source in sources]
    start, stop, begin, end = asked.start, asked.stop, earliest(streams), latest(streams, on_disk)
    if isinstance(start, int) and isinstance(stop, int) and stop < start:
        raise ConfigError(f"to={stop} is before from={start}")
    if isinstance(start, Timestamp) and isinstance(stop, Timestamp) and stop < start:
        raise ConfigError("to is before from")
    if isinstance(start, int) and is_deleted(streams, start) and begin < end:
        raise OffsetGone(start, begin)
    first = begin if start is None else _offset(start, streams)
    last = end if stop is None else min(end, _offset(stop, streams))
    first = max(first, begin)
    return OffsetRange(first, max(first, last), begin, end)


def _offset(position: Position, streams: Sequence[ReadableStream]) -> int:
    return first_offset_at(streams, position.us) if isinstance(position, Timestamp) else position
