"""Helpers of the tests of the thin index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.store.journal.fake_files import FakeFiles

from headway.store.journal.reading import StreamReader
from headway.store.journal.segments.batch import BatchHeader, Entry
from headway.store.journal.segments.segment import file_name
from headway.store.journal.stream import Stream

FOLDER = Path("/journal/records")


def path(ordinal: int) -> Path:
    return FOLDER / file_name(ordinal)


def opened(files: FakeFiles, *, segment_bytes: int = 6000, repair: bool = False) -> Stream:
    stream = Stream(files, FOLDER, segment_bytes)
    stream.open(repair=repair)
    return stream


def filled(files: FakeFiles, sequences: range, *, segment_bytes: int = 6000) -> Stream:
    """One batch for each sequence, of 195 bytes; then a new segment."""
    stream = opened(files, segment_bytes=segment_bytes)
    for sequence in sequences:
        stream.append([Entry(1, sequence, 1, (b"x" * 114,))], sequence)
        stream.sync()
    stream.roll()
    stream.append([Entry(1, sequences.stop, 1, (b"the last",))], sequences.stop)
    stream.sync()
    return stream


def readers(files: FakeFiles, writer: Stream) -> Iterator[Stream]:
    """Of the same stream: thinned while it was written, found at a start, and beside it."""
    yield writer
    yield opened(files)
    beside = StreamReader(FOLDER, files)
    beside.open()
    yield beside


def found_at(stream: Stream, sequence: int) -> BatchHeader | None:
    found = stream._batch_with(sequence)
    return found and found.header


def entries(stream: Stream) -> list[tuple[int, int]]:
    """Of each segment but the current one: entries of its index, and its bytes."""
    return [(len(segment), segment.end) for segment in stream._segments[:-1]]
