"""Segments: the files of a stream. A segment has batches of entries one behind the other, and an index of them."""

from headway.store.journal.segments import batch
from headway.store.journal.segments.batch import (
    BATCH_HEADER_BYTES,
    BadBatch,
    BatchHeader,
    Entry,
    Packed,
    StoredEntry,
    summary_of,
)
from headway.store.journal.segments.segment import (
    FREED,
    LISTED_VERSION,
    LOSSES,
    READ_BYTES,
    SEGMENT_HEADER_BYTES,
    BadHeader,
    Behind,
    Corrupt,
    IndexEntry,
    Numbers,
    Scan,
    SegmentBatch,
    SegmentHeader,
    SegmentIndex,
    SegmentReader,
    SegmentStats,
    file_name,
    is_accepted,
    joined,
    ordinal_of,
    pack_header,
    read_losses,
    write_losses,
)

__all__ = [
    "BadBatch", "BadHeader", "batch", "BATCH_HEADER_BYTES", "BatchHeader", "Behind", "Corrupt", "Entry",
    "file_name", "FREED", "IndexEntry", "is_accepted", "joined", "LISTED_VERSION", "LOSSES", "Numbers", "ordinal_of",
    "pack_header", "Packed", "READ_BYTES", "read_losses", "Scan", "SEGMENT_HEADER_BYTES", "SegmentBatch",
    "SegmentHeader", "SegmentIndex", "SegmentReader", "SegmentStats", "StoredEntry", "summary_of", "write_losses",
]
