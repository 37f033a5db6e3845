"""A stream read beside whoever writes it: what is whole counts, what is not is passed over, and nothing is changed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles

from headway.store.journal.reading import TRIES_MAX, StreamReader
from headway.store.journal.recovery import checked
from headway.store.journal.segments.batch import Entry
from headway.store.journal.segments.segment import SEGMENT_HEADER_BYTES, Corrupt, file_name
from headway.store.journal.stream import Stream

FOLDER = Path("/journal/records")


def path(ordinal: int) -> Path:
    return FOLDER / file_name(ordinal)


def filled(files: FakeFiles, sequences: range, segment_bytes: int = 1000) -> Stream:
    """One batch for each sequence, a few to a segment; the sequence is its time too."""
    stream = Stream(files, FOLDER, segment_bytes)
    stream.open(repair=True)
    for sequence in sequences:
        stream.append([Entry(1, sequence, 1, (sequence.to_bytes(8, "big") * 25,))], sequence)
        stream.sync()
    return stream


def beside(files: FakeFiles) -> tuple[StreamReader, list[str]]:
    stream = StreamReader(FOLDER, files)
    before = {name: bytes(file.data) for name, file in files.seen.items()}
    said = stream.open()
    assert {name: bytes(file.data) for name, file in files.seen.items()} == before
    return stream, said


def sequences(stream: Stream, first: int = 1) -> list[int]:
    return [entry.sequence for _, entries in stream.read(first, stream.last_sequence) for entry in entries]


def test_it_sees_what_the_writer_has_written() -> None:
    files = FakeFiles()
    writer = filled(files, range(1, 21))
    assert len(writer.segments) > 3
    reader, said = beside(files)
    assert (sequences(reader), said) == (list(range(1, 21)), [])
    assert (reader.first_sequence, reader.last_sequence, reader.freed_upto) == (1, 20, 0)
    assert (reader.segments, reader.bytes) == (writer.segments, writer.bytes)
    assert [reader.sequence_at(time) for time in (0, 7, 20, 21)] == [1, 7, 20, 21]
    writer.free_before(11)
    reader, _ = beside(files)
    assert 0 < reader.freed_upto < 11
    assert sequences(reader) == list(range(reader.freed_upto + 1, 21))
    assert reader.freed_upto == writer.freed_upto


def test_it_stops_at_what_is_not_whole_at_the_end() -> None:
    files = FakeFiles()
    writer = filled(files, range(1, 4), segment_bytes=10_000)
    whole, start = writer.bytes, SEGMENT_HEADER_BYTES + 2 * (writer.bytes - SEGMENT_HEADER_BYTES) // 3
    data = bytes(files.seen[path(1)].data)
    for size in range(start, whole):
        files.seen[path(1)].data[:] = data[:size]
        reader, said = beside(files)
        assert (sequences(reader), said) == ([1, 2], [])


def test_a_segment_that_is_being_begun_is_no_damage() -> None:
    files = FakeFiles()
    filled(files, range(1, 4), segment_bytes=10_000)
    files.close(files.create(path(2)))
    for size in (0, 50, SEGMENT_HEADER_BYTES):
        files.seen[path(2)].data[:] = bytes(size)
        reader, said = beside(files)
        assert (sequences(reader), said) == ([1, 2, 3], [])


def test_a_body_that_is_damaged_is_found_when_it_is_read() -> None:
    files = FakeFiles()
    filled(files, range(1, 4), segment_bytes=10_000)
    files.flip(path(1), bytes(files.seen[path(1)].data).index((2).to_bytes(8, "big") * 25) + 3)
    reader, said = beside(files)
    assert said == []
    with pytest.raises(Corrupt, match="a batch's checksum is wrong"):
        sequences(reader)
    assert sequences(reader, 3) == [3]


def test_a_header_that_is_damaged_is_said_and_passed_over() -> None:
    files = FakeFiles()
    filled(files, range(1, 21))
    files.flip(path(2), SEGMENT_HEADER_BYTES)
    reader, said = beside(files)
    assert len(said) == 1
    assert "0000000002.journal: bytes 128 to " in said[0]
    assert len(sequences(reader)) == 19


def test_what_a_repair_has_accepted_is_passed_over_without_a_word() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 21))
    stream.close()
    files.flip(path(2), SEGMENT_HEADER_BYTES + 100)
    files.flip(path(3), SEGMENT_HEADER_BYTES)
    again = Stream(files, FOLDER, 1000)
    assert len(again.open(repair=True)) == 2
    reader, said = beside(files)
    assert said == []
    assert sequences(reader) == sequences(again)
    assert len(sequences(reader)) == 18


def test_segments_that_are_freed_meanwhile_are_looked_for_anew() -> None:
    files = FakeFiles()
    writer = filled(files, range(1, 21))
    freed = False

    def hook(operation: str, where: Path) -> None:
        nonlocal freed
        if operation == "open" and where == path(2) and not freed:
            freed = True
            files.hook = None
            writer.free_before(11)

    files.hook = hook
    reader = StreamReader(FOLDER, files)
    assert reader.open() == []
    assert freed
    assert sequences(reader) == list(range(writer.freed_upto + 1, 21))


def test_a_folder_that_is_not_there_is_an_error_and_not_an_endless_loop() -> None:
    tries = 0

    def hook(operation: str, _: Path) -> None:
        nonlocal tries
        tries += operation == "names"
        if operation == "names":
            raise FileNotFoundError(errno.ENOENT, "no such file")

    files = FakeFiles()
    filled(files, range(1, 3))
    files.hook = hook
    with pytest.raises(FileNotFoundError):
        StreamReader(FOLDER, files).open()
    assert tries == TRIES_MAX


def test_checking_says_only_what_is_so_twice() -> None:
    """What is being written while it is read looks damaged for a moment."""
    files = FakeFiles()
    filled(files, range(1, 21))
    files.flip(path(2), SEGMENT_HEADER_BYTES + 100)
    looks = 0

    def hook(operation: str, where: Path) -> None:
        nonlocal looks
        if operation == "open" and where == path(1):
            looks += 1
            if looks == 3:
                files.flip(path(2), SEGMENT_HEADER_BYTES + 100)

    assert len(checked(FOLDER, files).losses) == 1
    files.hook = hook
    assert checked(FOLDER, files).good
    assert looks >= 3
