"""Recorded topics: from where to where, read in order, written as JSON lines."""

from headway.server.recorded.json_lines import LOOKED_BYTES, lines
from headway.server.recorded.offset_range import (
    Moment,
    OffsetGone,
    OffsetRange,
    RangeRequest,
    range_of,
    read_place,
    read_range_request,
    read_start,
    read_stop,
)
from headway.server.recorded.reading import Piece, RecordedStream, Trimmed, cut, deleted, earliest, latest, pieces

__all__ = [
    "cut", "deleted", "earliest", "latest", "lines", "LOOKED_BYTES", "Moment", "OffsetGone", "OffsetRange", "Piece",
    "pieces", "range_of", "RangeRequest", "read_place", "read_range_request", "read_start", "read_stop",
    "RecordedStream", "Trimmed",
]
