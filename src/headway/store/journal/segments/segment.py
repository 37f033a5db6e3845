"""One file of a stream: a header, then batches behind each other.

The header, 128 bytes: magic, CRC-32 over the rest, version, length of the stream's name, the segment's ordinal, the
stream's token, the number of the first batch that belongs here, the last sequence of the stream before it, the name.

The numbers say what belongs to the stream: batches of an earlier segment with this first number or a later one are
superseded. A segment may be empty.
"""

from __future__ import annotations

import errno
import json
import re
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from operator import le, lt
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from headway.store.journal.disk import Files, Misplaced, opened, read_all, write_file
from headway.store.journal.segments import batch
from headway.store.journal.segments.batch import BATCH_HEADER_BYTES, BadBatch, BatchHeader

# -- segment -----------------------------------------------------------------------------------------------------------


MAGIC = b"HWJS"
LISTED_VERSION = 2
"""Since this version a manifest lists the segments (manifest.py). Otherwise it is the same as version 1."""
VERSIONS = 1, LISTED_VERSION
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

    def __init__(self, path: Path, offset: int | None, what: str) -> None:
        """``what`` is wrong, in words, at byte ``offset`` of ``path``; None: all of ``path`` is missing."""
        if offset is None:
            place, first = "is missing", "Put it back, or go on without it: "
        else:
            place, first = f"is damaged at byte {offset}", ""
        super().__init__(
            f"{path} {place}: {what}. {first}`headway journal verify` shows all of it; "
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
    version: int = 1


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
        MAGIC, 0, header.version, len(name), header.ordinal, header.token, header.first_number, header.last_sequence,
        name,
    )  # fmt: skip
    return MAGIC + zlib.crc32(blank[_CHECKED_AT:]).to_bytes(4, "little") + blank[_CHECKED_AT:]


def unpack_header(data: bytes | memoryview) -> SegmentHeader:
    """Raises BadHeader."""
    if len(data) < SEGMENT_HEADER_BYTES:
        raise BadHeader(f"the segment's header ends after {len(data)} bytes")
    magic, crc, version, length, index, token, first_number, last_sequence, name = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadHeader("no segment begins here")
    if version not in VERSIONS:
        raise BadHeader(f"a segment of version {version}; this Headway knows versions up to {VERSIONS[-1]}")
    if zlib.crc32(data[_CHECKED_AT:SEGMENT_HEADER_BYTES]) != crc:
        raise BadHeader("the checksum of the segment's header is wrong")
    return SegmentHeader(index, token, first_number, last_sequence, name[:length].decode(), version)


class SegmentReader:
    """Reads a segment from end to end, in few calls. To be closed; ``with`` does."""

    def __init__(self, files: Files, path: Path) -> None:
        """Raises Misplaced, OSError."""
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
            try:
                self._data = read_all(self._files, self._fd, wanted, offset)
            except OSError as error:
                error.filename = str(self.path)  # the call knows only a descriptor
                raise
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


# -- losses ------------------------------------------------------------------------------------------------------------
#
# Missing batches that are accepted: ranges of their numbers, in files beside the segments.
#
# ``losses`` has the batches that a repair accepted as lost. The segments stay unchanged, so that the damage can be
# examined later. ``freed`` has the batches that were removed between others (Stream.free_between).
#
# Each file is a JSON list of pairs: first and last number. An unreadable file counts as empty; then a start refuses the
# damage again, and a repair writes the file again.


LOSSES, FREED = "losses", "freed"

Numbers = tuple[int, int]
"""First and last, both inclusive."""


def read_losses(files: Files, folder: Path, name: str = LOSSES) -> list[Numbers]:
    """Returns the ranges in a file; none if there is no file. Raises OSError."""
    try:
        with opened(files, folder / name, read_only=True) as fd:
            text = read_all(files, fd, files.size(folder / name), 0)
        return [(int(first), int(last)) for first, last in json.loads(text)]
    except (Misplaced, ValueError, TypeError, OverflowError, RecursionError):
        return []
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # of the folder: its scan tells that
            raise
        return []


def write_losses(files: Files, folder: Path, losses: list[Numbers], name: str = LOSSES) -> None:
    """Replaces a file atomically. Raises OSError."""
    write_file(files, folder / name, json.dumps(joined(losses)).encode())


def is_accepted(losses: list[Numbers], numbers: Numbers) -> bool:
    return any(first <= numbers[0] and numbers[1] <= last for first, last in losses)


def joined(ranges: list[Numbers]) -> list[Numbers]:
    """Returns the ranges in order; neighbours are merged."""
    found: list[Numbers] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


# -- index -------------------------------------------------------------------------------------------------------------
#
# The index of a segment: where its batches are. It takes 48 bytes a batch while the segment is the current one.
#
# An index to which nothing more is added is *thinned*: neighbouring batches share an entry, up to ``THIN_BYTES`` of
# file. Otherwise recorded topics that are kept for a week would fill the memory. To find one of these batches, a reader
# reads the file's part that belongs to the entry, and walks through it (reading.py).


THIN_BYTES = 64 * 1024
"""Bytes of file per entry of a thinned index; a larger batch has an entry of its own."""


class IndexEntry(NamedTuple):
    """An entry of the index: one batch, or several neighbours."""

    number: int
    """The number of the first batch."""
    offset: int
    size: int
    first_sequence: int
    """0 if none of the batches has sequences."""
    last_sequence: int
    """The stream's last sequence, up to and with these batches."""
    batches: int


class Behind(NamedTuple):
    """The part of a stream from some sequence on."""

    bytes: int
    """To the precision of an entry."""
    time_us: int | None
    """When the first batch of it was written; None: there is nothing."""
    passed: int
    """How many sequences there are before it. Within an entry, at least so many."""


class SegmentStats(NamedTuple):
    """One segment, for display. Times are microseconds; None for a segment without batches."""

    name: str
    bytes: int
    batches: int
    first_sequence: int
    """0, as the last one, for a segment without sequences."""
    last_sequence: int
    first_time_us: int | None
    last_time_us: int | None


class SegmentIndex:
    """The batches of one segment, in order. Not thread-safe: the stream has the lock.

    ``_last`` has the stream's last sequence behind each entry, so that it can be searched, although batches of metadata
    have no sequences.
    ``_time`` has the latest time of the batches that have sequences, or that of a batch of metadata.
    ``_count`` has the number of the segment's sequences up to the end of each entry.
    """

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.end = SEGMENT_HEADER_BYTES
        """The offset of the next batch."""
        self.last_sequence = header.last_sequence
        """The stream's last sequence after this segment."""
        self.own_first = 0
        """The first sequence in this segment; 0 if there is none."""
        self.own_last = 0
        self.batches = 0
        self.passed = 0
        """The number of sequences in the segments before it that were there when the stream was opened, or came since.
        """
        self.first_time_us: int | None = None
        """The time of the first batch; None if there is none."""
        self.last_time_us: int | None = None
        self.time_max_us: int | None = None
        self._number = array("I")  # less the segment's first
        self._offset = array("Q")
        self._size = array("I")
        self._first = array("Q")
        self._last = array("Q")
        self._time = array("q")
        self._count = array("Q")
        self._batches = array("I")
        """Batches per entry; empty until the index is thinned: each entry is one batch."""

    def __len__(self) -> int:
        """Returns the number of entries; as many as batches, until the index is thinned."""
        return len(self._offset)

    @property
    def count(self) -> int:
        """The number of its sequences."""
        return self._count[-1] if self._count else 0

    def add(self, offset: int, header: BatchHeader, count: int) -> None:
        """Adds the next batch, at ``offset``, with so many sequences."""
        size = BATCH_HEADER_BYTES + header.length
        if header.last_sequence:
            self.last_sequence = self.own_last = header.last_sequence
            self.own_first = self.own_first or header.first_sequence
        self.batches += 1
        self.first_time_us = header.time_us if self.first_time_us is None else self.first_time_us
        self.last_time_us = header.time_us
        self.time_max_us = header.time_us if self.time_max_us is None else max(self.time_max_us, header.time_us)
        self._number.append(header.number - self.header.first_number)
        self._offset.append(offset)
        self._size.append(size)
        self._first.append(header.first_sequence)
        self._last.append(self.last_sequence)
        self._time.append(header.time_us)
        self._count.append(self.count + count)
        self.end = offset + size

    def stats(self, size: int) -> SegmentStats:
        """Returns the figures of the segment; ``size``: its bytes."""
        return SegmentStats(
            self.path.name, size, self.batches, self.own_first, self.own_last, self.first_time_us, self.last_time_us
        )

    def check(self) -> None:
        """Asserts the invariants. Goes through all entries."""
        columns = (self._number, self._size, self._first, self._last, self._time, self._count)
        assert all(len(column) == len(self) for column in columns)
        assert not self._batches or len(self._batches) == len(self)
        assert self.batches == (sum(self._batches) if self._batches else len(self))
        ends = [offset + size for offset, size in zip(self._offset, self._size, strict=True)]
        assert all(map(le, [SEGMENT_HEADER_BYTES, *ends], [*self._offset, self.end])), "batches do not overlap"
        assert all(map(lt, self._number, self._number[1:])), "numbers only grow"
        lasts = [self.header.last_sequence, *self._last]
        assert all(map(le, lasts, lasts[1:])), "sequences only grow"
        assert self.last_sequence == lasts[-1]
        assert all(first > before for first, before in zip(self._first, lasts, strict=False) if first)
        counts = [after - before for before, after in pairwise([0, *self._count])]
        spans = [(last - first + 1 if first else 0) for first, last in zip(self._first, self._last, strict=True)]
        assert all(map(le, counts, spans)), "an entry has no more sequences than lie between its first and last"
        assert self.own_first == next(filter(None, self._first), 0)
        assert self.own_last == (self.last_sequence if self.own_first else 0)

    def cut(self, number: int) -> None:
        """Removes the batches from this number on. Not for a thinned index."""
        assert not self._batches
        at = self.position_of(number)
        if at == len(self):
            return
        self.end = self._offset[at]
        for column in (self._number, self._offset, self._size, self._first, self._last, self._time, self._count):
            del column[at:]
        self.last_sequence = self._last[-1] if at else self.header.last_sequence
        self.own_first = next((first for first in self._first if first), 0)
        self.own_last = self.last_sequence if self.own_first else 0
        self.batches = at
        self.first_time_us = self._time[0] if at else None
        self.last_time_us = self._time[-1] if at else None
        self.time_max_us = max(self._time, default=None)

    def thin(self) -> None:
        """Thins the index: from now on nothing is added or cut, and all batches are on disk."""
        if self._batches:
            return
        groups: list[slice] = []
        stop = 0
        while stop < len(self):
            start, stop = stop, self._group_end(stop)
            groups.append(slice(start, stop))
        self._time = array("q", [self._time_of(each) for each in groups])
        self._first = array("Q", [next(filter(None, self._first[each]), 0) for each in groups])
        self._last = array("Q", [self._last[each.stop - 1] for each in groups])
        self._count = array("Q", [self._count[each.stop - 1] for each in groups])
        self._size = array("I", [sum(self._size[each]) for each in groups])
        self._offset = array("Q", [self._offset[each.start] for each in groups])
        self._number = array("I", [self._number[each.start] for each in groups])
        self._batches = array("I", [each.stop - each.start for each in groups])

    def _group_end(self, start: int) -> int:
        """Returns the position after the last batch that can share an entry with this one. Batches at a hole, which
        damage left, have entries of their own."""
        limit = self._offset[start] + THIN_BYTES
        stop = bisect_right(self._offset, limit)
        if stop < len(self) or self.end > limit:
            stop -= 1  # it ends beyond the limit
        last = max(start, stop - 1)
        whole = self._offset[last] + self._size[last] == self._offset[start] + sum(self._size[start : last + 1])
        return last + 1 if whole and self._number[last] - self._number[start] == last - start else start + 1

    def _time_of(self, group: slice) -> int:
        both = zip(self._time[group], self._first[group], strict=True)
        return max((time for time, first in both if first), default=self._time[group.start])

    def last_sequence_before(self, number: int) -> int:
        """Returns the stream's last sequence before the batch with this number. Not for a thinned index."""
        at = self.position_of(number)
        return self._last[at - 1] if at else self.header.last_sequence

    def position_of(self, number: int) -> int:
        """Returns the position of the first batch with this number or a later one; the length if there is none. Not for
        a thinned index."""
        return bisect_left(self._number, max(0, number - self.header.first_number))

    def entry(self, at: int) -> IndexEntry:
        return IndexEntry(
            self._number[at] + self.header.first_number,
            self._offset[at],
            self._size[at],
            self._first[at],
            self._last[at],
            self._batches[at] if self._batches else 1,
        )

    def _position_with(self, sequence: int) -> int:
        """Returns the position of the entry with this sequence, or of the next one with sequences."""
        at = bisect_left(self._last, sequence)
        while at < len(self) and not self._first[at]:
            at += 1
        return at

    def find(self, sequence: int) -> IndexEntry | None:
        """Returns the entry with this sequence, or the next one with sequences."""
        at = self._position_with(sequence)
        return self.entry(at) if at < len(self) else None

    def behind(self, sequence: int) -> Behind:
        """Returns what the segment has from the entry with this sequence on."""
        at = self._position_with(sequence)
        if at == len(self):
            return Behind(0, None, self.passed + self.count)
        before = self._count[at - 1] if at else 0
        left = min(self._count[at] - before, self._last[at] - sequence + 1)
        return Behind(self.end - self._offset[at], self._time[at], self.passed + self._count[at] - left)

    def find_time(self, time_us: int) -> IndexEntry | None:
        """Returns the first entry with sequences at or after a time. Searches all entries, because clocks may be set
        back."""
        if self.time_max_us is None or self.time_max_us < time_us:
            return None
        for at, (time, first) in enumerate(zip(self._time, self._first, strict=True)):
            if time >= time_us and first:
                return self.entry(at)
        return None
