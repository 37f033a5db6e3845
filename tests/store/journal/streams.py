"""Helpers of the tests of streams."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.store.journal.fake_files import FakeFiles

from headway.store.journal.segments.batch import Entry
from headway.store.journal.segments.segment import file_name
from headway.store.journal.stream import Stream

FOLDER = Path("/journal/records")


def path(ordinal: int) -> Path:
    return FOLDER / file_name(ordinal)


def opened(files: FakeFiles, *, segment_bytes: int = 10_000, repair: bool = False) -> tuple[Stream, list[str]]:
    stream = Stream(files, FOLDER, segment_bytes)
    return stream, stream.open(repair=repair)


def entry(sequence: int, size: int = 100, count: int = 1, kind: int = 1) -> Entry:
    return Entry(kind, sequence, count, (sequence.to_bytes(8, "big") * (size // 8),))


def filled(files: FakeFiles, sequences: range, *, segment_bytes: int = 10_000) -> Stream:
    """One batch for each sequence, each synced."""
    stream, _ = opened(files, segment_bytes=segment_bytes)
    for sequence in sequences:
        stream.append([entry(sequence)], sequence * 1000)
        stream.sync()
    return stream


def sequences(stream: Stream) -> list[int]:
    return [stored.sequence for _, entries in stream.scan() for stored in entries]


def fail(files: FakeFiles, *operations: str, code: int = errno.EIO) -> None:
    def hook(operation: str, _: Path) -> None:
        if operation in operations:
            raise OSError(code, f"{operation} fails")

    files.hook = hook
