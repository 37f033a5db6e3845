"""A server's journal: writes it, keeps it small, and restores the broker from it at a start."""

from headway.server.journal.compaction import (
    RETAINED,
    RetainedLog,
    Snapshot,
    UnneededRanges,
    free_expired,
    snapshot_ranges,
)
from headway.server.journal.entries import (
    PREFIX,
    RUN,
    Archive,
    ChunkCache,
    RecordedTopic,
    decode_runs,
    first_offset_at,
    stream_name,
)
from headway.server.journal.recovery import SetAside, restore, restore_retained, start, streams_in
from headway.server.journal.writing import BACKLOG_BYTES_MAX, JournalWriter

__all__ = [
    "Archive", "BACKLOG_BYTES_MAX", "ChunkCache", "decode_runs", "first_offset_at", "free_expired", "JournalWriter",
    "PREFIX", "RecordedTopic", "restore", "restore_retained", "RETAINED", "RetainedLog", "RUN",
    "SetAside", "Snapshot", "snapshot_ranges", "start", "stream_name", "streams_in", "UnneededRanges",
]
