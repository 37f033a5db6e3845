"""Entries: their bytes, and the readers of runs: of recorded topics, and of chunks that are only in the journal."""

from headway.server.journal.entries.archive import PREFIX, Archive, RecordedTopic, first_offset_at, stream_name
from headway.server.journal.entries.chunk_cache import ChunkCache, Clock, JournalChunk
from headway.server.journal.entries.entry_codec import (
    KINDS,
    METADATA,
    METADATA_KINDS,
    POSITIONS,
    RUN,
    SNAPSHOT_MARK,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    DecodedRun,
    decode_metadata,
    decode_positions,
    decode_run,
    decode_runs,
    encode_metadata,
    encode_positions,
    encode_run,
)

__all__ = [
    "Archive", "ChunkCache", "Clock", "decode_metadata", "decode_positions", "decode_run",
    "decode_runs", "DecodedRun", "encode_metadata", "encode_positions", "encode_run", "first_offset_at",
    "JournalChunk", "KINDS", "METADATA", "METADATA_KINDS", "POSITIONS", "PREFIX", "RecordedTopic", "RUN",
    "SNAPSHOT_MARK", "SNAPSHOT_METADATA", "SNAPSHOT_POSITIONS", "stream_name",
]
