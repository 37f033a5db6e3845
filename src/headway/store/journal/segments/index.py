"""The index of a segment: where its batches are. It takes 48 bytes a batch while the segment is the current one.

An index to which nothing more is added is *thinned*: neighbouring batches share an entry, up to ``THIN_BYTES`` of file.
Otherwise recorded topics that are kept for a week would fill the memory. To find one of these batches, a reader reads
the file's part that belongs to the entry, and walks through it (walk.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import le, lt
from pathlib import Path
from typing import NamedTuple

from headway.store.journal.segments.batch import BATCH_HEADER_BYTES, BatchHeader
from headway.store.journal.segments.segment import SEGMENT_HEADER_BYTES, SegmentHeader

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
