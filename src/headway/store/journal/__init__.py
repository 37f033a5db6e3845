"""The journal: append-only streams of checksummed batches in segment files.

An entry is opaque bytes with three numbers (kind, sequence, count). Their meaning is up to the code that writes and
reads them. One thread writes; any thread reads.

An entry's way: ``Journal.commit`` ─▶ ``Stream`` packs entries into batches (batch.py), appends them to the current
segment (segment.py), and holds them in memory until a sync has returned. At a start ``recovery_scan`` reads everything
and judges it; ``Stream.open`` acts on its findings.

Rules:
- A batch is valid only if its checksum, its token and its number are right. Numbers have no holes.
- A segment is begun only when all earlier batches are on disk, and it is written to only when its header and its name
  are on disk. So a valid header promises everything before it, and a power loss damages only the tail of the last
  segment.
- The manifest lists the segments at the ends of each stream, and where the streams end after a clean stop. So files
  that are missing or cut at their ends are noticed, too (manifest.py).
- Batches stay in memory until a sync confirms them. After a failed write or sync none of them is taken to be on disk,
  even if the file shows them: all are written again into a fresh segment, which supersedes the old tail.
- The journal relies on two things of a disk: its syncs are honest, and writing does not damage what was confirmed
  before (a sector is old or new, not lost).
"""

from headway.store.journal.disk import REAL, Buffer, Files, RealFiles, opened, read_all, write_all, write_file
from headway.store.journal.journal import Journal, Locked
from headway.store.journal.manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    is_stream_name,
    manifest_of,
    missing_segments,
    write_manifest,
)
from headway.store.journal.reading import ReadableStream, StreamReader
from headway.store.journal.recovery import StreamReport, check, manifest_scan, streams_of
from headway.store.journal.segments import Corrupt, Entry, SegmentStats, StoredEntry, joined, read_losses
from headway.store.journal.stream import Stream

__all__ = [
    "Buffer", "check", "Corrupt", "Entry", "Files", "is_stream_name", "joined", "Journal", "LOCK_NAME", "Locked",
    "MANIFEST_NAME", "manifest_of", "manifest_scan", "missing_segments", "opened", "read_all", "read_losses",
    "ReadableStream", "REAL", "RealFiles", "SegmentStats", "StoredEntry", "Stream", "StreamReader", "StreamReport",
    "streams_of", "write_all", "write_file", "write_manifest",
]
