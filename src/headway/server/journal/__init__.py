"""A server's journal: the codec of its entries, its writer, its tidying, and the recovery at a start."""

from headway.server.journal.archive import PREFIX, Archive, RecordedTopic, first_offset_at, stream_name
from headway.server.journal.chunk_cache import ChunkCache
from headway.server.journal.entry_codec import RUN, decode_runs
from headway.server.journal.journal_writer import BACKLOG_BYTES_MAX, JournalWriter
from headway.server.journal.opening import start, streams_in
from headway.server.journal.recovery import RETAINED, restore, restore_retained
from headway.server.journal.retained import RetainedLog
from headway.server.journal.snapshot import Snapshot
from headway.server.journal.tidying import free_expired
from headway.server.journal.unneeded import UnneededRanges, snapshot_ranges

__all__ = [
    "Archive", "BACKLOG_BYTES_MAX", "ChunkCache", "decode_runs", "first_offset_at", "free_expired", "JournalWriter",
    "PREFIX", "RecordedTopic", "restore", "restore_retained", "RETAINED", "RetainedLog", "RUN", "Snapshot",
    "snapshot_ranges", "start", "stream_name", "streams_in", "UnneededRanges",
]
