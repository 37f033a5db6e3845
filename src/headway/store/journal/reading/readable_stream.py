"""The reading side of a stream, for any thread, whether or not this process writes the stream."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from headway.store.journal.disk import Files
from headway.store.journal.reading.catalogue import Catalogue
from headway.store.journal.segments import SegmentStats, StoredEntry


class ReadableStream:
    def __init__(self, files: Files, folder: Path) -> None:
        self.folder = folder
        self._files = files
        self._catalogue = Catalogue(files)

    def close(self) -> None:
        """Closes the files that were read."""
        self._catalogue.close()

    @property
    def first_sequence(self) -> int:
        """The first sequence in the stream; ``last_sequence + 1`` if there is none."""
        return self._catalogue.first_sequence

    @property
    def last_sequence(self) -> int:
        """The last sequence that was appended, even if its segment is freed by now; 0 if there never was one."""
        return self._catalogue.last_sequence

    @property
    def freed_upto(self) -> int:
        """The last sequence that was freed; 0 if none was."""
        return self._catalogue.freed_upto

    @property
    def bytes(self) -> int:
        return self._catalogue.bytes

    @property
    def segments(self) -> list[SegmentStats]:
        """The figures of each segment, the oldest first."""
        return self._catalogue.stats()

    def batch_with(self, sequence: int) -> list[StoredEntry] | None:
        """Returns the batch that covers this sequence, or the next one after it; None at the end. Raises Corrupt,
        OSError."""
        found = self._catalogue.batch_with(sequence)
        return None if found is None else found.entries

    def read(self, first: int, last: int) -> Iterator[tuple[int, list[StoredEntry]]]:
        """Yields the batches that overlap these sequences, in order, each with its time. Skips batches without
        sequences, and those that are freed meanwhile. Raises Corrupt, OSError."""
        while first <= last:
            found = self._catalogue.batch_with(first)
            if found is None or found.header.first_sequence > last:
                return
            yield found.header.time_us, found.entries
            first = found.header.last_sequence + 1

    def behind(self, sequence: int) -> tuple[int, int | None]:
        """Returns how many bytes there are from this sequence on, to the precision of an entry, and when the first
        was written."""
        return self._catalogue.behind(sequence)

    def sequence_at(self, time_us: int) -> int:
        """Returns the first sequence of the first batch at or after that time; ``last_sequence + 1`` if there is
        none."""
        return self._catalogue.sequence_at(time_us)

    def scan(self, kinds: Collection[int] | None = None) -> Iterator[tuple[int, list[StoredEntry]]]:
        """Yields every batch in order, each with its time and its entries of these kinds, which may be none. For
        start-up: nothing may be written or freed meanwhile. Raises Corrupt, OSError."""
        for found in self._catalogue.scan(kinds):
            yield found.header.time_us, found.entries
