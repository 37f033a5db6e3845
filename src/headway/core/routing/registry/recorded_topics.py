"""Recorded topics, as the core reads them. The null object stands for them where there is no journal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from math import inf
from typing import Final, Protocol

from headway.core.consumer import ArchiveIndex, ArchiveLag
from headway.core.message import Record, Run


class RecordedTopics(ArchiveIndex, Protocol):
    """Recorded topics, as subscribers read them. Times are wall clock times."""

    @property
    def wall_offset_s(self) -> float:
        """The wall clock less the monotonic clock."""

    def earliest(self, filter: str) -> int | None:
        """Returns the first offset from which no record is deleted; None if the filter is not recorded."""

    def complete(self, filter: str) -> bool:
        """Tells whether every record that the filter matches is recorded."""

    def before(self, filter: str, time_s: float) -> int:
        """Returns the last offset before a time."""

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        """Yields the runs that have records with ``after`` < offset <= ``upto``, each with its first offset and its
        time. Runs of other topics are among them. Raises OSError."""

    def stream_of(self, topic: str) -> str:
        """Returns the stream in which a topic is recorded; empty if it is not."""

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool], gone: Callable[[int, int], None]
    ) -> Generator[Record | None, None, None]:
        """Yields the records with ``after`` < offset <= ``upto``, or None as a source of a backfill. Calls ``gone``
        with the first and last offset of what is not kept any more, when it comes to it. Raises OSError."""


class RecordedRecords:
    """Recorded records as a source of a backfill: those with ``after`` < offset <= ``upto`` (``RecordedTopics.read``).
    """

    held_bytes = 0

    def __init__(
        self, archive: RecordedTopics, filter: str, after: int, upto: int, accepts: Callable[[Record], bool],
        gone: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self._archive = archive
        self._filter = filter
        self._upto = upto
        self._at = after
        """The offset of the last record; the end, if there are no more."""
        self._counted_at, self._waiting = -1, (0, 0)
        self._records = archive.read(filter, after, upto, accepts, gone)

    def __next__(self) -> Record | None:
        record = next(self._records, self)
        if isinstance(record, RecordedRecords):
            self._at = self._upto
            raise StopIteration
        if record is not None:
            self._at = record.sequence
        return record

    def close(self) -> None:
        self._at = self._upto
        self._records.close()

    def waiting(self) -> tuple[int, int]:
        """Counts the records of the topics that the filter touches, whatever a selector says. That is looked up in the
        index of each segment, so it is done once for each place."""
        if self._at >= self._upto:
            return 0, 0
        if self._at != self._counted_at:
            here, there = (self._archive.lag(self._filter, at + 1) for at in (self._at, self._upto))
            self._counted_at = self._at
            self._waiting = max(1, here.records - there.records), max(0, here.bytes - there.bytes)
        return self._waiting


class NothingRecorded:
    """No topics are recorded."""

    wall_offset_s = 0.0

    def earliest(self, filter: str) -> int | None:
        return None

    def complete(self, filter: str) -> bool:
        return False

    def before(self, filter: str, time_s: float) -> int:
        return 0

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        return iter(())

    def stream_of(self, topic: str) -> str:
        return ""

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool], gone: Callable[[int, int], None]
    ) -> Generator[Record | None, None, None]:
        yield from ()

    def lag(self, filter: str, offset: int) -> ArchiveLag:
        return ArchiveLag(0, 0, 0, inf)


NOTHING_RECORDED: Final = NothingRecorded()
