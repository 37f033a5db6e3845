"""Recorded topics: ranges of offsets, reading them in order, and writing them as JSON lines."""

from headway.server.recorded.filters import NotRecorded, filters_of
from headway.server.recorded.json_lines import PROGRESS_BYTES, records_of, to_json_lines
from headway.server.recorded.offset_range import (
    OffsetGone,
    OffsetRange,
    RangeRequest,
    Timestamp,
    parse_position,
    parse_range_request,
    parse_start,
    parse_stop,
    resolve_range,
)
from headway.server.recorded.parts import (
    RecordedStream,
    RunPart,
    Trimmed,
    earliest,
    is_deleted,
    latest,
    limited_stop,
    read_parts,
)

__all__ = [
    "earliest", "filters_of", "is_deleted", "latest", "limited_stop", "NotRecorded", "OffsetGone", "OffsetRange",
    "parse_position", "parse_range_request", "parse_start", "parse_stop", "PROGRESS_BYTES", "RangeRequest",
    "read_parts", "RecordedStream", "records_of", "resolve_range", "RunPart", "Timestamp", "to_json_lines", "Trimmed",
]
