"""One file of a stream: a header, then batches behind each other.

The header, 128 bytes: magic, CRC-32 over the rest, version, length of the stream's name, the segment's ordinal, the
stream's token, the number of the first batch that belongs here, the last sequence of the stream before it, the name.

The numbers say what belongs to the stream: batches of an earlier segment with this first number or a later one are
superseded. A segment may be empty.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from headway.store.journal.disk import Files, read_all
from headway.store.journal.segments import batch
from headway.store.journal.segments.batch import BadBatch

MAGIC = b"HWJS"
VERSION = 1
_HEADER = struct.Struct("<4sIHHQQQQ84s")
_CHECKED_AT = 8
SEGMENT_HEADER_BYTES = _HEADER.size
NAME_BYTES_MAX = 84
READ_BYTES = 4 * 1024 * 1024
"""Bytes read at once where a segment is read from end to end."""
_NAME = re.compile(r"(\d{10})\.journal")


class BadHeader(Exception):
    """The header of a segment is not valid; the text says why."""


class Corrupt(Exception):
    """Data that had been on disk is missing or damaged."""

    def __init__(self, path: Path, offset: int, what: str) -> None:
        """``what`` is wrong, in words, at byte ``offset`` of ``path``."""
        super().__init__(
            f"{path} is damaged at byte {offset}: {what}. `headway journal verify` shows all of it; "
            "with `--repair` Headway goes on with what can be read, and says what is lost."
        )
        self.path = path
        self.offset = offset
        self.what = what


class SegmentHeader(NamedTuple):
    ordinal: int
    """The number in the file's name."""
    token: int
    first_number: int
    last_sequence: int
    """The stream's last sequence before this segment; 0 if there was none."""
    name: str


class SegmentBatch(NamedTuple):
    """A whole batch, and where it stands."""

    offset: int
    header: batch.BatchHeader
    body: memoryview

    @property
    def end(self) -> int:
        return self.offset + batch.BATCH_HEADER_BYTES + self.header.length


def file_name(ordinal: int) -> str:
    return f"{ordinal:010}.journal"


def ordinal_of(name: str) -> int | None:
    """Returns the ordinal of the segment in a file of this name; None if it is no segment's name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def pack_header(header: SegmentHeader) -> bytes:
    name = header.name.encode()
    if len(name) > NAME_BYTES_MAX:
        raise ValueError(f"a stream's name has {len(name)} bytes; {NAME_BYTES_MAX} is the most")
    blank = _HEADER.pack(
        MAGIC, 0, VERSION, len(name), header.ordinal, header.token, header.first_number, header.last_sequence, name
    )
    return MAGIC + zlib.crc32(blank[_CHECKED_AT:]).to_bytes(4, "little") + blank[_CHECKED_AT:]


def unpack_header(data: bytes | memoryview) -> SegmentHeader:
    """Raises BadHeader."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise BadHeader(f"the segment's header ends after {len(data)} bytes")
    magic, crc, version, length, index, token, first_number, last_sequence, name = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadHeader("no segment begins here")
    if version != VERSION:
        raise BadHeader(f"a segment of version {version}; this Headway knows version {VERSION}")
    if zlib.crc32(data[_CHECKED_AT:SEGMENT_HEADER_BYTES]) != crc:
        raise BadHeader("the checksum of the segment's header is wrong")
    return SegmentHeader(index, token, first_number, last_sequence, name[:length].decode())


class SegmentReader:
    """Reads a segment from end to end, in few calls. To be closed; ``with`` does."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self._fd = files.open(path, read_only=True)
        self.size = files.size(path)
        self._start = 0
        self._data = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._files.close(self._fd)

    def view(self, offset: int, size: int) -> memoryview:
        """Returns the bytes at an offset, fewer at the end of the file. Raises OSError."""
        if offset < self._start or offset + size > self._start + len(self._data):
            wanted = max(0, min(max(size, READ_BYTES), self.size - offset))
            self._data = read_all(self._files, self._fd, wanted, offset)
            self._start = offset
        at = offset - self._start
        return memoryview(self._data)[at : at + size]

    def header(self) -> SegmentHeader:
        """Raises BadHeader, OSError."""
        return unpack_header(self.view(0, SEGMENT_HEADER_BYTES))

    def batch_at(self, offset: int, token: int | None) -> SegmentBatch:
        """Returns the batch that begins at an offset. Raises BadBatch, OSError."""
        header = batch.header_of(self.view(offset, batch.BATCH_HEADER_BYTES), token)
        size = batch.BATCH_HEADER_BYTES + header.length
        if offset + size > self.size:
            raise BadBatch(f"the file ends after {self.size - offset} of {size} bytes of a batch")
        return SegmentBatch(offset, header, batch.body_of(self.view(offset, size), header))

    def next_whole(self, offset: int, token: int, number_min: int) -> SegmentBatch | None:
        """Returns the first whole batch from ``offset`` on with this number or a later one, to go on with after damage.
        Raises OSError."""
        pattern = token.to_bytes(8, "little")
        while True:
            found = self._find(pattern, offset + batch.TOKEN_AT)
            if found is None:
                return None
            try:
                candidate = self.batch_at(found - batch.TOKEN_AT, token)
                if candidate.header.number >= number_min:
                    return candidate
            except BadBatch:
                pass
            offset = found - batch.TOKEN_AT + 1

    def _find(self, pattern: bytes, offset: int) -> int | None:
        """Returns the next position of the pattern, from ``offset`` on."""
        while len(self.view(offset, len(pattern))) == len(pattern):
            at = self._data.find(pattern, offset - self._start)
            if at >= 0:
                return self._start + at
            offset = self._start + len(self._data) - len(pattern) + 1
        return None


class Scan:
    """Iterates over the batches from ``offset`` on with successive numbers, from ``number`` and below ``limit``. Then
    ``end`` is the offset after the last one, and ``why`` says what is wrong there: None at the clean end of a file, or
    where ``limit`` was reached. Raises OSError."""

    def __init__(self, reader: SegmentReader, offset: int, token: int, number: int, limit: int | None) -> None:
        self._reader = reader
        self._token = token
        self._limit = limit
        self.end = offset
        self.number = number
        """The one that comes next."""
        self.why: str | None = None

    def __iter__(self) -> Iterator[SegmentBatch]:
        while self.end < self._reader.size and (self._limit is None or self.number < self._limit):
            try:
                found = self._reader.batch_at(self.end, self._token)
                if found.header.number != self.number:
                    raise BadBatch(f"batch {found.header.number} where {self.number} is due")
            except BadBatch as error:
                self.why = str(error)
                return
            yield found
            self.end = found.end
            self.number += 1
