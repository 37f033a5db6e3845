"""Recorded topics: from where to where, read in order, written as JSON lines."""

from headway.server.recorded.json_lines import LOOKED_BYTES, lines
from headway.server.recorded.range import (
    Asked,
    Gone,
    Moment,
    Range,
    range_of,
    read_asked,
    read_place,
    read_start,
    read_stop,
)
from headway.server.recorded.reading import Piece, Source, Trimmed, cut, deleted, earliest, latest, pieces

__all__ = [
    "Asked", "cut", "deleted", "earliest", "Gone", "latest", "lines", "LOOKED_BYTES", "Moment", "Piece", "pieces",
    "Range", "range_of", "read_asked", "read_place", "read_start", "read_stop", "Source", "Trimmed",
]
