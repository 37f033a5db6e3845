"""Verifying: looks through a journal, or one of its streams, and changes nothing. A broker may be at work on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headway.store.journal.disk import REAL, Files
from headway.store.journal.recovery.recovery_scan import recovery_scan
from headway.store.journal.segments import SegmentStats, ordinal_of

TRIES_MAX = 10


@dataclass(frozen=True)
class StreamReport:
    """The report on one stream."""

    folder: Path
    segments: list[SegmentStats]
    """The oldest first. ``bytes`` is the size of the file."""
    losses: list[str]
    """Losses: data that had been on disk and cannot be read; a broker starts on these only with ``--repair``."""
    notes: list[str]
    """Remains of a power loss, and losses accepted before. The next start handles them by itself."""

    @property
    def good(self) -> bool:
        return not self.losses


def verify(folder: Path, files: Files = REAL) -> StreamReport:
    """Reads a stream's folder from end to end. Raises OSError."""
    found = recovery_scan(files, folder)
    segments = [segment.stats(size) for segment, size in zip(found.segments, found.sizes, strict=True)]
    notes = [f"{path}: was never finished and has nothing in it" for path in found.unfinished]
    if found.torn:
        notes.append(str(found.torn))
    notes += [f"{folder}: batches {first} to {last} were given up by a repair" for first, last in found.accepted]
    return StreamReport(folder, segments, [str(loss) for loss in found.losses], notes)


def streams_of(folder: Path, files: Files = REAL) -> list[Path]:
    """Returns the folders of a journal that have streams. Raises OSError."""
    found = []
    for name in sorted(files.names(folder)):
        try:
            inside = files.names(folder / name)
        except NotADirectoryError:
            continue
        if any(ordinal_of(file) is not None for file in inside):
            found.append(folder / name)
    return found


def check(folder: Path, files: Files = REAL) -> list[StreamReport]:
    """Verifies every stream. Raises OSError."""
    return [checked(stream, files) for stream in streams_of(folder, files)]


def checked(folder: Path, files: Files) -> StreamReport:
    """Verifies one stream. A batch that is being written looks damaged for a moment, so a loss is reported only if it
    is found twice. Raises OSError."""
    before: StreamReport | None = None
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            report = verify(folder, files)
        except FileNotFoundError:
            if not tries_left:
                raise
            continue
        if report.good or (before is not None and report.losses == before.losses):
            return report
        before = report
    assert before is not None
    return before
