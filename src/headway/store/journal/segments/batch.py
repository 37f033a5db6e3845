"""The format of a batch: entries that are written together, with one checksum. Pure functions, no I/O.

::

    header   64 bytes, little-endian: magic, version, CRC-32, length of the body, entries, token, number, synced,
             first and last sequence, time
    body     a record of 17 bytes for each entry (sequence, count, size, kind), then the bytes of all entries

The records stand together, so that a reader of some kinds looks at nothing else. The CRC covers the rest of the header
and the body. The token is a random number of the stream. It keeps payloads, which clients choose, from
being taken for batches when a damaged file is searched for the next whole one.

Rules:
- Numbers are successive within a stream. ``synced`` is the highest number that was known to be on disk when this batch
  was written. So a whole batch tells which earlier ones cannot be missing because of a power loss.
- An entry with count n > 0 has the sequences from its own to sequence + n - 1; they ascend through the stream. An entry
  with count 0 is metadata, and only carries the sequence it came at. A batch of metadata has first and last sequence 0.
- A body is at most ``BODY_BYTES``, unless it is a single entry.
- What is written together counts together, also if the process is killed in the middle: a batch that is not the last
  one of its commit has an entry of kind ``CONTINUED``; and the first of those that count only if another stream has its
  part of the commit has one of kind ``AWAITS``, with the number of the last batch there. Readers do not see these.
- Pieces of ``PIECE_BYTES`` or more are never copied; smaller ones are joined, which is cheaper than writing each by
  itself. The caller must not change a piece until it is on disk.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable
from typing import NamedTuple

from headway.store.journal.disk import Buffer

MAGIC = b"HWB"
VERSION = 1
_HEADER = struct.Struct("<3sBIIIQQQQQq")
_CHECKED = struct.Struct("<IIQQQQQq")
"""The part of the header after the CRC."""
_CHECKED_AT = 8
_RECORD = struct.Struct("<QIIB")
BATCH_HEADER_BYTES = _HEADER.size
RECORD_BYTES = _RECORD.size
TOKEN_AT = 16
"""The offset of the token in a header. A search for whole batches looks for the token."""

BODY_BYTES = 256 * 1024
ENTRY_BYTES_MAX = 64 * 1024 * 1024
BODY_BYTES_MAX = ENTRY_BYTES_MAX + RECORD_BYTES
PIECE_BYTES = 4096
SEQUENCE_MAX = 2**64 - 1
CONTINUED, AWAITS, NO_KIND = 253, 254, 255
"""Kinds of the format's own, and that of an entry that is none."""
OWN = frozenset((CONTINUED, AWAITS))
_NUMBER = struct.Struct("<Q")


class Entry(NamedTuple):
    """An entry to be written, of up to ``ENTRY_BYTES_MAX``. Memoryviews must be of single bytes."""

    kind: int
    """0 to 255, but none of ``OWN``."""
    sequence: int
    count: int  # type: ignore[assignment]
    data: tuple[Buffer, ...]


class StoredEntry(NamedTuple):
    """An entry that was read."""

    kind: int
    sequence: int
    count: int  # type: ignore[assignment]
    data: memoryview | bytes


class BatchHeader(NamedTuple):
    """The header of a batch; fields are in the order of the file."""

    length: int
    """Bytes of the body."""
    entries: int
    token: int
    number: int
    synced: int
    first_sequence: int
    last_sequence: int
    time_us: int


class Packed(NamedTuple):
    """A batch ready to be written."""

    header: BatchHeader
    buffers: list[Buffer]
    count: int  # type: ignore[assignment]
    """The number of its sequences."""

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return BATCH_HEADER_BYTES + self.header.length


class BadBatch(Exception):
    """The data is not a whole batch. The text says why, without the place."""


# -- writing ----------------------------------------------------------------------------------------------------------


def pack(
    entries: Iterable[Entry], *, token: int, number: int, synced: int, time_us: int, after: int = 0, awaits: int = 0
) -> list[Packed]:
    """Packs entries into batches from ``number`` on. ``after`` is the stream's last sequence, ``awaits`` the number of
    another stream's batch without which they do not count. Raises ValueError for an entry that cannot be written, or
    whose sequence does not ascend."""
    batches: list[Packed] = []
    record = _RECORD.pack
    records: list[bytes] = [record(0, 0, _NUMBER.size, AWAITS)] if awaits else []
    pieces: list[Buffer] = [_NUMBER.pack(awaits)] if awaits else []
    body = (RECORD_BYTES + _NUMBER.size) * len(records)
    first = last = counted = 0
    for kind, sequence, count, data in entries:
        size = len(data[0]) if len(data) == 1 else sum(map(len, data))
        if size > ENTRY_BYTES_MAX:
            raise ValueError(f"an entry of {size} bytes; {ENTRY_BYTES_MAX} is the most")
        if kind in OWN:
            raise ValueError(f"an entry of kind {kind}, which is the format's own")
        if records and body + size + 2 * RECORD_BYTES > BODY_BYTES:
            records.append(record(0, 0, 0, CONTINUED))
            body += RECORD_BYTES
            header = BatchHeader(body, len(records), token, number + len(batches), synced, first, last, time_us)
            batches.append(_packed(header, records, pieces, counted))
            records, pieces, body, first, last, counted = [], [], 0, 0, 0, 0
        try:
            records.append(record(sequence, count, size, kind))
        except struct.error as error:
            raise ValueError(f"kind {kind}, sequence {sequence}, count {count} of an entry: {error}") from None
        if count:
            if sequence <= after:
                raise ValueError(f"sequence {sequence} after {after}")
            first = first or sequence
            after = last = sequence + count - 1
            counted += count
            if after > SEQUENCE_MAX:
                raise ValueError(f"sequence {after} is too large")
        pieces += data
        body += size + RECORD_BYTES
    if records:
        header = BatchHeader(body, len(records), token, number + len(batches), synced, first, last, time_us)
        batches.append(_packed(header, records, pieces, counted))
    return batches


def _packed(header: BatchHeader, records: list[bytes], pieces: list[Buffer], count: int) -> Packed:
    body = _grouped(records, pieces)
    if sum(map(len, body)) != header.length or any(isinstance(b, memoryview) and b.nbytes != len(b) for b in body):
        raise ValueError("a memoryview of an entry is not of single bytes")
    crc = zlib.crc32(_CHECKED.pack(*header))
    for buffer in body:
        crc = zlib.crc32(buffer, crc)
    return Packed(header, [_HEADER.pack(MAGIC, VERSION, crc, *header), *body], count)


def _grouped(records: list[bytes], pieces: list[Buffer]) -> list[Buffer]:
    """Groups records and pieces into few buffers: large pieces as they are, small neighbours joined."""
    grouped: list[Buffer] = []
    small: list[Buffer] = [*records]
    for piece in pieces:
        if len(piece) < PIECE_BYTES:
            small.append(piece)
            continue
        if small:
            grouped.append(b"".join(small))
            small = []
        grouped.append(piece)
    if small:
        grouped.append(b"".join(small))
    return grouped


# -- reading ----------------------------------------------------------------------------------------------------------


def header_of(data: Buffer, token: int | None) -> BatchHeader:
    """Returns the header at the beginning of ``data``. Checks only what can be checked without the body. ``token`` None
    accepts any. Raises BadBatch."""
    if len(data) < BATCH_HEADER_BYTES:
        raise BadBatch(f"the file ends after {len(data)} bytes of a batch's header")
    magic, version, _, *fields = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadBatch("no batch begins here")
    if version != VERSION:
        raise BadBatch(f"a batch of version {version}; this Headway knows version {VERSION}")
    header = BatchHeader(*fields)
    if header.length > BODY_BYTES_MAX or header.entries * RECORD_BYTES > header.length:
        raise BadBatch("the sizes in a batch's header are impossible")
    if token is not None and header.token != token:
        raise BadBatch("a batch of another stream")
    return header


def body_of(data: Buffer, header: BatchHeader) -> memoryview:
    """Returns the body of the batch at the beginning of ``data``. Raises BadBatch unless it is whole."""
    view = memoryview(data)[: BATCH_HEADER_BYTES + header.length]
    if len(view) < BATCH_HEADER_BYTES + header.length:
        raise BadBatch(f"the file ends after {len(view)} of {BATCH_HEADER_BYTES + header.length} bytes of a batch")
    if zlib.crc32(view[_CHECKED_AT:]) != int.from_bytes(view[4:8], "little"):
        raise BadBatch("a batch's checksum is wrong")
    return view[BATCH_HEADER_BYTES:]


class Summary(NamedTuple):
    """Facts about a batch, from its entries."""

    count: int  # type: ignore[assignment]
    """The number of its sequences. There are holes between them."""
    continued: bool
    """Set if it is not the last batch of its commit."""
    awaits: int
    """The number of a batch of another stream without which it does not count; 0: it counts by itself."""


def summary_of(header: BatchHeader, body: memoryview) -> Summary:
    """Returns the summary of a whole batch."""
    total, continued, awaits = 0, False, 0
    for _, count, size, kind in _RECORD.iter_unpack(body[: header.entries * RECORD_BYTES]):
        total += count
        continued |= kind == CONTINUED
        if kind == AWAITS and size == _NUMBER.size:  # it is the first entry
            awaits = int.from_bytes(body[header.entries * RECORD_BYTES :][:size], "little")
    return Summary(total, continued, awaits)


def entries_of(header: BatchHeader, body: memoryview, kinds: Collection[int] | None = None) -> list[StoredEntry]:
    """Returns the entries of a whole batch, or those of the given kinds, as views of the body. Where their sizes do not
    add up, which only a bug can write, the whole body is one entry of kind ``NO_KIND``."""
    position = header.entries * RECORD_BYTES
    found = []
    for sequence, count, size, kind in _RECORD.iter_unpack(body[:position]):
        end = position + size
        if kind not in OWN and (kinds is None or kind in kinds):
            found.append(StoredEntry(kind, sequence, count, body[position:end]))
        position = end
    if position != header.length:
        return [StoredEntry(NO_KIND, header.first_sequence, 0, body)]
    return found
