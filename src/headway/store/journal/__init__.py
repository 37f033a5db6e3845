"""The journal: append-only streams of checksummed batches in segment files.

An entry is opaque bytes with three numbers (kind, sequence, count); what they mean is for those who write and read
them. One thread writes; any thread reads.

The way of an entry: ``Journal.commit`` ─▶ ``Stream`` packs entries into batches (batch.py), writes them behind each
other into the current segment (segment.py) and keeps them in memory until a sync has returned. At start
``recovery_scan`` reads everything and judges it; ``Stream.open`` acts upon that.

Rules:
- A batch is believed only when its checksum, its token and its number are right. Numbers follow without holes.
- A segment counts once its header and its name are on disk. Only then are batches written into it; and it is begun only
  when all batches before its first number are on disk. So a valid header is a promise about everything before it, and
  a power loss can hurt nothing but the tail of the last segment.
- What a sync has not confirmed is kept in memory. After an error of a write or a sync none of it is believed to be on
  disk, whatever the file seems to say: it is written anew, into a fresh segment, which supersedes the old tail.
- What the disk did confirm stays as it was when the bytes behind it are written (a sector is old or new, not lost):
  the journal needs no more of a disk than that, and that it does not lie about syncs.
"""
