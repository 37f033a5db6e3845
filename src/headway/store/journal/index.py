"""Where the batches of a segment stand: 40 bytes for each, nothing for its entries."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from headway.store.journal.batch import HEADER_BYTES, Header
from headway.store.journal.segment import HEADER_BYTES as SEGMENT_HEADER_BYTES
from headway.store.journal.segment import Header as SegmentHeader


class Place(NamedTuple):
    """What the index knows of one batch."""

    number: int
    offset: int
    size: int
    first_sequence: int
    """0 for a batch of facts."""
    last_sequence: int
    """Of the stream up to and with this batch."""


class SegmentIndex:
    """The batches of one segment, in order. Not for two threads at once: the catalogue has the lock.

    ``_last`` has the stream's last sequence behind each batch, so that it can be searched where facts stand between.
    """

    def __init__(self, path: Path, header: SegmentHeader) -> None:
        self.path = path
        self.header = header
        self.end = SEGMENT_HEADER_BYTES
        """Where the next batch goes."""
        self.last_sequence = header.last_sequence
        """Of the stream, behind this segment."""
        self.own_first = 0
        """The first sequence in this segment; 0 if there is none."""
        self.own_last = 0
        self.time_max_us: int | None = None
        self._number = array("I")  # less the segment's first
        self._offset = array("Q")
        self._size = array("I")
        self._first = array("Q")
        self._last = array("Q")
        self._time = array("q")

    def __len__(self) -> int:
        return len(self._offset)

    @property
    def first_time_us(self) -> int | None:
        """Of the first batch; None if there is none."""
        return self._time[0] if self._time else None

    @property
    def last_time_us(self) -> int | None:
        return self._time[-1] if self._time else None

    def add(self, offset: int, header: Header) -> None:
        """The next batch, at ``offset``."""
        size = HEADER_BYTES + header.length
        if header.last_sequence:
            self.last_sequence = self.own_last = header.last_sequence
            self.own_first = self.own_first or header.first_sequence
        self.time_max_us = header.time_us if self.time_max_us is None else max(self.time_max_us, header.time_us)
        self._number.append(header.number - self.header.first_number)
        self._offset.append(offset)
        self._size.append(size)
        self._first.append(header.first_sequence)
        self._last.append(self.last_sequence)
        self._time.append(header.time_us)
        self.end = offset + size

    def cut(self, number: int) -> None:
        """Forget the batches from this number on."""
        at = self.position_of(number)
        if at == len(self):
            return
        self.end = self._offset[at]
        for column in (self._number, self._offset, self._size, self._first, self._last, self._time):
            del column[at:]
        self.last_sequence = self._last[-1] if at else self.header.last_sequence
        self.own_first = next((first for first in self._first if first), 0)
        self.own_last = self.last_sequence if self.own_first else 0
        self.time_max_us = max(self._time, default=None)

    def last_sequence_before(self, number: int) -> int:
        """Of the stream, before the batch with this number."""
        at = self.position_of(number)
        return self._last[at - 1] if at else self.header.last_sequence

    def position_of(self, number: int) -> int:
        """Of the first batch with this number or a later one; the length if there is none."""
        return bisect_left(self._number, max(0, number - self.header.first_number))

    def place(self, at: int) -> Place:
        return Place(
            self._number[at] + self.header.first_number,
            self._offset[at],
            self._size[at],
            self._first[at],
            self._last[at],
        )

    def find(self, sequence: int) -> Place | None:
        """The batch that covers this sequence, or the next one after it; facts are passed over."""
        at = bisect_left(self._last, sequence)
        while at < len(self) and not self._first[at]:
            at += 1
        return self.place(at) if at < len(self) else None

    def sequence_at(self, time_us: int) -> int | None:
        """The first sequence of the first batch at or after that time. Clocks are set back, so this looks at all."""
        if self.time_max_us is None or self.time_max_us < time_us:
            return None
        for time, first in zip(self._time, self._first, strict=True):
            if time >= time_us and first:
                return first
        return None
