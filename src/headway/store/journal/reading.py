"""Reading: finds and reads the batches of a stream by sequence or time, in any thread and any process."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headway.store.journal.disk import REAL, FileCache, Files, Misplaced, read_all
from headway.store.journal.segments import (
    BATCH_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    BadBatch,
    BadHeader,
    BatchHeader,
    Behind,
    Corrupt,
    IndexEntry,
    Numbers,
    Packed,
    Scan,
    SegmentIndex,
    SegmentReader,
    SegmentStats,
    StoredEntry,
    batch,
    is_accepted,
    ordinal_of,
    read_losses,
)

# -- walk --------------------------------------------------------------------------------------------------------------
#
# Walks through the batches that share one entry of a thinned index.


TIME_MAX = 2**63 - 1


def walk(files: Files, fd: int, segment: SegmentIndex, entry: IndexEntry) -> SegmentIndex:
    """Returns an index of each batch of the entry that has sequences; these are not counted. A damaged batch is in it
    with all sequences that are missing there, because its header may be wrong about them. So reading one of these
    reports the damage, and the other batches are found as usual. Raises OSError."""
    header = segment.header._replace(first_number=entry.number, last_sequence=max(0, entry.first_sequence - 1))
    index = SegmentIndex(segment.path, header)
    damaged: tuple[int, BatchHeader] | None = None
    for offset, found, whole in _batches(files, fd, header.token, entry):
        if not whole:
            damaged = damaged or (offset, found)
        elif found.first_sequence:
            if damaged:
                _add_damaged(index, *damaged, found.first_sequence - 1)
                damaged = None
            index.add(offset, found, 0)
    if damaged:
        _add_damaged(index, *damaged, entry.last_sequence)
    return index


def _batches(files: Files, fd: int, token: int, entry: IndexEntry) -> list[tuple[int, BatchHeader, bool]]:
    """Returns the offset of each batch, its header, and whether it is whole. An impossible header stands for the rest
    of the entry, at an unknown time."""
    data = memoryview(read_all(files, fd, entry.size, entry.offset))
    batches = []
    at = 0
    for number in range(entry.number, entry.number + entry.batches):
        if at >= entry.size:
            break  # the length of the previous batch is wrong
        view = data[at:]
        try:
            header = batch.header_of(view, token)
            if header.number != number:
                raise BadBatch(f"batch {header.number} where {number} is due")
        except BadBatch:
            rest = BatchHeader(entry.size - at - BATCH_HEADER_BYTES, 0, token, number, 0, 0, 0, TIME_MAX)
            batches.append((entry.offset + at, rest, False))
            break
        try:
            batch.body_of(view, header)
            whole = True
        except BadBatch:
            whole = False
        batches.append((entry.offset + at, header, whole))
        at += BATCH_HEADER_BYTES + header.length
    return batches


def _add_damaged(index: SegmentIndex, offset: int, header: BatchHeader, last_sequence: int) -> None:
    header = header._replace(first_sequence=index.last_sequence + 1, last_sequence=last_sequence)
    index.add(offset, header, 0)


# -- readable stream ---------------------------------------------------------------------------------------------------
#
# The reading side of a stream, for any thread, whether or not this process writes the stream.
#
# Rules:
# - The lock is held for lookups and changes, never while a file is read or written.
# - Batches that are not known to be on disk are read from memory, because the file may not have them.
# - A segment may be freed between the lookup and the read. Then the reader looks again.
# - The indexes of all segments but the last are thinned (segment.py). A reader walks once through the batches of an
# entry.


DECODED_MAX = 4
DECODED_BYTES_MAX = 1024 * 1024
"""A larger batch is not kept decoded."""
WALKED_MAX = 16
"""Thinned entries whose batches stay indexed, for so many readers at different places. 13 KB each for small batches."""


class Decoded(NamedTuple):
    header: batch.BatchHeader
    entries: list[StoredEntry]


class ReadableStream:
    def __init__(self, files: Files, folder: Path) -> None:
        self.folder = folder
        self._files = files
        self._lock = threading.Lock()
        self._segments: list[SegmentIndex] = []
        """The oldest first."""
        self._kept: deque[Packed] = deque()
        """The batches that are not known to be on disk."""
        self._kept_from = 1
        self._file_cache = FileCache(files)
        self._decoded: OrderedDict[int, Decoded] = OrderedDict()
        self._walked: OrderedDict[int, SegmentIndex] = OrderedDict()
        """The indexes of walked entries, by the number of the first batch."""
        self._kept_bytes = 0

    def close(self) -> None:
        """Closes the files that were read."""
        self._file_cache.close()

    # -- for who writes it, or has found what is written ------------------------------------------------------------

    def _add_segment(self, segment: SegmentIndex) -> None:
        """Adds a segment. All batches before it are on disk."""
        with self._lock:
            if self._segments:
                self._segments[-1].thin()
            segment.passed = self._count()
            self._segments.append(segment)

    def _add(self, packed: Packed, offset: int) -> None:
        """Adds a batch that is, or will be, at ``offset`` of the last segment. Its bytes are kept."""
        number, first = packed.header.number, packed.header.first_sequence
        with self._lock:
            if not self._kept:
                self._kept_from = number
            assert number == self._kept_from + len(self._kept), "a batch's number follows the one before"
            assert not first or first > self._segments[-1].last_sequence, "sequences only grow"
            self._segments[-1].add(offset, packed.header, packed.count)
            self._kept.append(packed)
            self._kept_bytes += packed.size

    def _all_on_disk(self) -> int:
        """Drops all kept batches: they are on disk. Returns the number of the last one."""
        with self._lock:
            number = self._kept[-1].header.number
            self._kept.clear()
            self._kept_bytes = 0
        return number

    def _supersede(self, segment: SegmentIndex) -> SegmentIndex | None:
        """Adds a segment that has all kept batches on disk. Returns the former last segment, without these batches."""
        with self._lock:
            old = self._segments[-1] if self._segments else None
            if old is not None:
                old.cut(segment.header.first_number)
                old.thin()
            segment.passed = self._count()
            self._segments.append(segment)
            self._kept.clear()
            self._kept_bytes = 0
        return old

    def _drop(self, segment: SegmentIndex) -> int:
        """Takes the segment from the index. Returns its position."""
        with self._lock:
            at = self._segments.index(segment)
            del self._segments[at]
            return at

    def _put_back(self, segment: SegmentIndex, at: int) -> None:
        """Puts back a segment that could not be removed."""
        with self._lock:
            self._segments.insert(at, segment)

    def _forget(self, segment: SegmentIndex) -> None:
        """Closes the file of a removed segment."""
        self._file_cache.forget(segment.path)

    def check(self) -> None:
        """Asserts the invariants. Goes through all entries of all segments."""
        with self._lock:
            for segment in self._segments:
                segment.check()
            for one, following in pairwise(segment.header for segment in self._segments):
                assert one.ordinal < following.ordinal, "segments are in order"
                assert one.first_number <= following.first_number
            for segment, behind in pairwise(self._segments):
                assert segment.last_sequence <= behind.header.last_sequence, "sequences only grow"
            numbers = [packed.header.number for packed in self._kept]
            assert not numbers or numbers == list(range(self._kept_from, self._kept_from + len(numbers)))
            assert self._kept_bytes == sum(packed.size for packed in self._kept)

    # -- looking up -------------------------------------------------------------------------------------------------

    @property
    def first_sequence(self) -> int:
        """The first sequence in the stream; ``last_sequence + 1`` if there is none."""
        with self._lock:
            first = next((segment.own_first for segment in self._segments if segment.own_first), 0)
            return first or self._last_sequence() + 1

    @property
    def last_sequence(self) -> int:
        """The last sequence that was appended, even if its segment is freed by now; 0 if there never was one."""
        with self._lock:
            return self._last_sequence()

    def _last_sequence(self) -> int:
        return self._segments[-1].last_sequence if self._segments else 0

    @property
    def count(self) -> int:
        """The number of sequences that were there when the stream was opened, or came since."""
        with self._lock:
            return self._count()

    def _count(self) -> int:
        return self._segments[-1].passed + self._segments[-1].count if self._segments else 0

    @property
    def freed_upto(self) -> int:
        """The last sequence that was freed; 0 if none was."""
        with self._lock:
            return self._segments[0].header.last_sequence if self._segments else 0

    @property
    def bytes(self) -> int:
        with self._lock:
            return sum(segment.end for segment in self._segments)

    @property
    def segments(self) -> list[SegmentStats]:
        """The figures of each segment, the oldest first."""
        with self._lock:
            return [segment.stats(segment.end) for segment in self._segments]

    def sequence_at(self, time_us: int) -> int:
        """Returns the first sequence of the first batch at or after that time; ``last_sequence + 1`` if there is none.
        Where the file cannot be read it is the entry's first sequence: reading from there reports the damage."""
        while True:
            with self._lock:
                each = ((segment, segment.find_time(time_us)) for segment in self._segments)
                found = next(((segment, place) for segment, place in each if place is not None), None)
                if found is None:
                    return self._last_sequence() + 1
            segment, place = found
            if place.batches == 1:
                return place.first_sequence
            try:
                with self._file_cache.reading(segment.path) as fd:
                    return (self._walk(fd, segment, place).find_time(time_us) or place).first_sequence
            except OSError:
                with self._lock:
                    if segment in self._segments:  # not freed meanwhile
                        return place.first_sequence

    def behind(self, sequence: int) -> Behind:
        """Returns what there is from this sequence on."""
        with self._lock:
            found = Behind(0, None, self._count())
            for segment in reversed(self._segments):
                if segment.last_sequence < sequence:
                    break
                more = segment.behind(sequence)
                time_us = found.time_us if more.time_us is None else more.time_us
                found = Behind(found.bytes + more.bytes, time_us, more.passed)
        return found

    def _find(self, sequence: int) -> tuple[SegmentIndex, IndexEntry] | None:
        low, high = 0, len(self._segments)
        while low < high:  # the first segment behind which the stream's last sequence is this one or a later one
            middle = (low + high) // 2
            if self._segments[middle].last_sequence < sequence:
                low = middle + 1
            else:
                high = middle
        for segment in self._segments[low:]:
            if (place := segment.find(sequence)) is not None:
                if place.batches > 1 and (walked := self._walked.get(place.number)) is not None:
                    self._walked.move_to_end(place.number)
                    place = _found(walked, sequence)
                return segment, place
        return None

    # -- reading ----------------------------------------------------------------------------------------------------

    def batch_with(self, sequence: int) -> list[StoredEntry] | None:
        """Returns the batch that covers this sequence, or the next one after it; None at the end. Raises Corrupt,
        OSError."""
        found = self._batch_with(sequence)
        return None if found is None else found.entries

    def read(self, first: int, last: int) -> Iterator[tuple[int, list[StoredEntry]]]:
        """Yields the batches that overlap these sequences, in order, each with its time. Skips batches without
        sequences, and those that are freed meanwhile. Raises Corrupt, OSError."""
        while first <= last:
            found = self._batch_with(first)
            if found is None or found.header.first_sequence > last:
                return
            yield found.header.time_us, found.entries
            first = found.header.last_sequence + 1

    def scan(self, kinds: Collection[int] | None = None) -> Iterator[tuple[int, list[StoredEntry]]]:
        """Yields every batch in order, each with its time and its entries of these kinds, which may be none. For
        start-up: nothing may be written or freed meanwhile. Raises Corrupt, OSError."""
        for found in self._scan(kinds):
            yield found.header.time_us, found.entries

    def _batch_with(self, sequence: int) -> Decoded | None:
        while True:
            with self._lock:
                found = self._find(sequence)
                if found is None:
                    return None
                segment, place = found
                decoded = self._decoded.get(place.number) if place.batches == 1 else None
                if decoded is not None:
                    self._decoded.move_to_end(place.number)
                    return decoded
                packed = self._kept_at(place.number)
            try:
                decoded = _unpacked(packed) if packed else self._read(segment, place, sequence)
            except FileNotFoundError:
                with self._lock:
                    if segment in self._segments:
                        raise
                continue  # freed meanwhile
            if decoded.header.length <= DECODED_BYTES_MAX:
                with self._lock:
                    self._decoded[decoded.header.number] = decoded
                    if len(self._decoded) > DECODED_MAX:
                        self._decoded.popitem(last=False)
            return decoded

    def _walk(self, fd: int, segment: SegmentIndex, entry: IndexEntry) -> SegmentIndex:
        """Indexes each batch of a thinned entry. Raises OSError."""
        walked = walk(self._files, fd, segment, entry)
        with self._lock:
            self._walked[entry.number] = walked
            if len(self._walked) > WALKED_MAX:
                self._walked.popitem(last=False)
        return walked

    def _kept_at(self, number: int) -> Packed | None:
        at = number - self._kept_from
        return self._kept[at] if 0 <= at < len(self._kept) else None

    def _read(self, segment: SegmentIndex, place: IndexEntry, sequence: int) -> Decoded:
        with self._file_cache.reading(segment.path) as fd:
            if place.batches > 1:
                place = _found(self._walk(fd, segment, place), sequence)
            data = memoryview(read_all(self._files, fd, place.size, place.offset))
        try:
            header = batch.header_of(data, segment.header.token)
            if header.number != place.number:
                raise BadBatch(f"batch {header.number} where {place.number} is due")
            return Decoded(header, batch.entries_of(header, batch.body_of(data, header)))
        except BadBatch as error:
            raise Corrupt(segment.path, place.offset, str(error)) from None

    def _scan(self, kinds: Collection[int] | None) -> Iterator[Decoded]:
        with self._lock:
            segments = [(segment, len(segment)) for segment in self._segments]
        for segment, count in segments:
            yield from self._scan_segment(segment, count, kinds)

    def _scan_segment(self, segment: SegmentIndex, count: int, kinds: Collection[int] | None) -> Iterator[Decoded]:
        reader: SegmentReader | None = None  # a segment without a batch on disk may have no file
        try:
            for at in range(count):
                with self._lock:
                    place = segment.entry(at)
                    packed = self._kept_at(place.number)
                if packed is not None:
                    yield _unpacked(packed, kinds)
                    continue
                reader = reader or SegmentReader(self._files, segment.path)
                scan = Scan(reader, place.offset, segment.header.token, place.number, place.number + place.batches)
                for found in scan:
                    try:
                        entries = batch.entries_of(found.header, found.body, kinds)
                    except BadBatch as error:
                        raise Corrupt(segment.path, found.offset, str(error)) from None
                    yield Decoded(found.header, entries)
                if scan.number < place.number + place.batches:
                    raise Corrupt(segment.path, scan.end, scan.why or "the file ends here")
        finally:
            if reader is not None:
                reader.close()


def _found(walked: SegmentIndex, sequence: int) -> IndexEntry:
    place = walked.find(sequence)
    assert place is not None, "the batches have what their entry says"
    return place


def _unpacked(packed: Packed, kinds: Collection[int] | None = None) -> Decoded:
    """Decodes a batch that is in memory."""
    body = memoryview(b"".join(packed.buffers[1:]))
    return Decoded(packed.header, batch.entries_of(packed.header, body, kinds))


# -- stream reader -----------------------------------------------------------------------------------------------------
#
# A stream reader for a process that does not write the stream, whether or not another process does.
#
# ``open`` reads only the headers of batches, to index them; a batch is checked when it is read. Sequences are not
# counted. Nothing is changed. Batches that are written after ``open`` are not seen.
#
# Rules:
# - The last segment ends before its first batch that is not whole, because a writer may be at work there.
# - After damage in an earlier segment the reader goes on with the next whole batch, and ``open`` reports it. Losses
# that
#   a repair accepted are skipped silently.


TRIES_MAX = 10
"""``open`` starts again when a segment is freed meanwhile, so many times."""


class StreamReader(ReadableStream):
    def __init__(self, folder: Path, files: Files = REAL) -> None:
        super().__init__(files, folder)

    def open(self) -> list[str]:
        """Finds the batches. Returns a sentence for each place that cannot be read. Raises OSError."""
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                segments, said = indexed(self._files, self.folder)
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
        for segment in segments:
            self._add_segment(segment)
        return said


def indexed(files: Files, folder: Path) -> tuple[list[SegmentIndex], list[str]]:
    """Returns where the batches of a stream's folder stand, by their headers, and what is wrong. Raises OSError."""
    accepted = read_losses(files, folder)
    said: list[str] = []
    with ExitStack() as stack:
        found: list[tuple[SegmentReader, SegmentIndex]] = []
        for name in sorted(name for name in files.names(folder) if ordinal_of(name) is not None):
            try:
                reader = stack.enter_context(SegmentReader(files, folder / name))
            except Misplaced as error:
                said.append(f"{folder / name}: {error.strerror}; it is passed over")
                continue
            try:
                found.append((reader, SegmentIndex(reader.path, reader.header())))
            except BadHeader as error:
                if reader.size > SEGMENT_HEADER_BYTES:  # otherwise it is just being created
                    said.append(f"{reader.path}: {error}; it is passed over")
        firsts = [index.header.first_number for _, index in found]
        for at, (reader, index) in enumerate(found):
            limit = min(firsts[at + 1 :], default=None)
            _collect(reader, index, limit, accepted, said)
            if limit is not None:
                index.thin()
    return [index for _, index in found], said


def _collect(
    reader: SegmentReader, index: SegmentIndex, limit: int | None, accepted: list[Numbers], said: list[str]
) -> None:
    """Adds the batches below ``limit``: the least first number of the segments behind; None for the last one."""
    offset, number, token = SEGMENT_HEADER_BYTES, index.header.first_number, index.header.token
    while offset < reader.size and (limit is None or number < limit):
        try:
            header = batch.header_of(reader.view(offset, BATCH_HEADER_BYTES), token)
            end = offset + BATCH_HEADER_BYTES + header.length
            if end > reader.size or header.number != number:
                raise BadBatch("the file ends within a batch")
        except BadBatch:
            later = None if limit is None else reader.next_whole(offset, token, number)
            if later is None or (limit is not None and later.header.number >= limit):
                if limit is not None and not is_accepted(accepted, (number, limit - 1)):
                    said.append(f"{reader.path}: cannot be read from byte {offset} on")
                return
            if not is_accepted(accepted, (number, max(number, later.header.number - 1))):
                said.append(f"{reader.path}: bytes {offset} to {later.offset - 1} cannot be read")
            offset, number = later.offset, later.header.number
            continue
        if not is_accepted(accepted, (number, number)):
            index.add(offset, header, 0)  # only a body tells how many sequences there are
        offset, number = end, number + 1
