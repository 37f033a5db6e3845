"""The format of a batch: entries that were written together, with one checksum. Pure functions, no I/O.

::

    header   64 bytes, little-endian: magic, version, CRC-32, length of the body, entries, token, number, synced,
             first and last sequence, time
    body     a record of 17 bytes for each entry (sequence, count, size, kind), then the bytes of all entries

The records stand together so that a reader who wants only some kinds looks at nothing else. The CRC is over the header
behind it and the body. The token is the stream's own, drawn at random: no payload, whatever a client puts into it, is
taken for a batch when a damaged file is searched for the next whole one.

Rules:
- Numbers follow one another within a stream. ``synced`` is the highest number that was known to be on disk when this
  batch was written: so a whole batch says which ones before it cannot be missing because of a power loss.
- An entry with count n > 0 has the sequences from its own to sequence + n - 1; these go up through the stream. One with
  count 0 is a fact, and only carries the sequence it came at. A batch of facts has first and last sequence 0.
- A body is at most ``BODY_BYTES``, unless it is a single entry.
- Pieces of ``PIECE_BYTES`` or more are never copied; smaller ones are joined, which is cheaper than to write them one
  by one. Whoever gave a piece must not change it until it is on disk.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterable
from typing import NamedTuple

from headway.store.journal.files import Buffer

MAGIC = b"HWB"
VERSION = 1
_HEADER = struct.Struct("<3sBIIIQQQQQq")
_CHECKED = struct.Struct("<IIQQQQQq")
"""The header behind the CRC."""
_CHECKED_AT = 8
_RECORD = struct.Struct("<QIIB")
HEADER_BYTES = _HEADER.size
RECORD_BYTES = _RECORD.size
TOKEN_AT = 16
"""Where in a header its token stands: what a search for whole batches looks for."""

BODY_BYTES = 256 * 1024
ENTRY_BYTES_MAX = 64 * 1024 * 1024
BODY_BYTES_MAX = ENTRY_BYTES_MAX + RECORD_BYTES
PIECE_BYTES = 4096
SEQUENCE_MAX = 2**64 - 1


class Entry(NamedTuple):
    """To be written. Memoryviews must be of single bytes. Sizes up to ``ENTRY_BYTES_MAX`` in all."""

    kind: int
    """0 to 255."""
    sequence: int
    count: int  # type: ignore[assignment]
    data: tuple[Buffer, ...]


class StoredEntry(NamedTuple):
    """Read back."""

    kind: int
    sequence: int
    count: int  # type: ignore[assignment]
    data: memoryview | bytes


class BatchHeader(NamedTuple):
    """The header of a batch, in the order of the file."""

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

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return HEADER_BYTES + self.header.length


class BadBatch(Exception):
    """There is no whole batch here. The text says why not, without saying where."""


# -- writing ----------------------------------------------------------------------------------------------------------


def pack(
    entries: Iterable[Entry], *, token: int, number: int, synced: int, time_us: int, after: int = 0
) -> list[Packed]:
    """The entries as batches from ``number`` on. ``after`` is the last sequence the stream has. Raises ValueError for
    an entry that cannot be written, or whose sequence does not go up."""
    batches: list[Packed] = []
    records: list[bytes] = []
    pieces: list[Buffer] = []
    body = first = last = 0
    record = _RECORD.pack
    for kind, sequence, count, data in entries:
        size = len(data[0]) if len(data) == 1 else sum(map(len, data))
        if size > ENTRY_BYTES_MAX:
            raise ValueError(f"an entry of {size} bytes; {ENTRY_BYTES_MAX} is the most")
        if records and body + size + RECORD_BYTES > BODY_BYTES:
            header = BatchHeader(body, len(records), token, number + len(batches), synced, first, last, time_us)
            batches.append(_packed(header, records, pieces))
            records, pieces, body, first, last = [], [], 0, 0, 0
        try:
            records.append(record(sequence, count, size, kind))
        except struct.error as error:
            raise ValueError(f"kind {kind}, sequence {sequence}, count {count} of an entry: {error}") from None
        if count:
            if sequence <= after:
                raise ValueError(f"sequence {sequence} after {after}")
            first = first or sequence
            after = last = sequence + count - 1
            if after > SEQUENCE_MAX:
                raise ValueError(f"sequence {after} is too large")
        pieces += data
        body += size + RECORD_BYTES
    if records:
        header = BatchHeader(body, len(records), token, number + len(batches), synced, first, last, time_us)
        batches.append(_packed(header, records, pieces))
    return batches


def _packed(header: BatchHeader, records: list[bytes], pieces: list[Buffer]) -> Packed:
    body = _grouped(records, pieces)
    if sum(map(len, body)) != header.length or any(isinstance(b, memoryview) and b.nbytes != len(b) for b in body):
        raise ValueError("a memoryview of an entry is not of single bytes")
    crc = zlib.crc32(_CHECKED.pack(*header))
    for buffer in body:
        crc = zlib.crc32(buffer, crc)
    return Packed(header, [_HEADER.pack(MAGIC, VERSION, crc, *header), *body])


def _grouped(records: list[bytes], pieces: list[Buffer]) -> list[Buffer]:
    """The records and pieces in few buffers: large ones as they are, small neighbours joined."""
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
    """The header at the beginning of ``data``, as far as it can be judged without the body: its sizes are within their
    limits. ``token`` None takes any. Raises BadBatch."""
    if len(data) < HEADER_BYTES:
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
    """The body of the batch at the beginning of ``data``. Raises BadBatch unless it is whole."""
    view = memoryview(data)[: HEADER_BYTES + header.length]
    if len(view) < HEADER_BYTES + header.length:
        raise BadBatch(f"the file ends after {len(view)} of {HEADER_BYTES + header.length} bytes of a batch")
    if zlib.crc32(view[_CHECKED_AT:]) != int.from_bytes(view[4:8], "little"):
        raise BadBatch("a batch's checksum is wrong")
    return view[HEADER_BYTES:]


def entries_of(header: BatchHeader, body: memoryview, kinds: Collection[int] | None = None) -> list[StoredEntry]:
    """The entries of a whole batch, or those of these kinds. They stay in the body's memory. Raises BadBatch."""
    position = header.entries * RECORD_BYTES
    found = []
    for sequence, count, size, kind in _RECORD.iter_unpack(body[:position]):
        end = position + size
        if kinds is None or kind in kinds:
            found.append(StoredEntry(kind, sequence, count, body[position:end]))
        position = end
    if position != header.length:
        raise BadBatch("the sizes of a batch's entries do not add up")
    return found
