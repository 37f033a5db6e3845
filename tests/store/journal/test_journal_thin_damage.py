"""The thin index of a segment that is damaged."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles
from tests.store.journal.thin import entries, filled, found_at, opened, path, readers

from headway.store.journal.segments.batch import BATCH_HEADER_BYTES, Entry
from headway.store.journal.segments.segment import SEGMENT_HEADER_BYTES, Corrupt

# -- damage -----------------------------------------------------------------------------------------------------------

SIZE = BATCH_HEADER_BYTES + 17 + 114


@pytest.mark.parametrize("at", range(0, SIZE, 3))
def test_a_damaged_batch_is_never_passed_over(at: int) -> None:
    """Whatever its header says: who wants what it had is told so. Nobody who wants one before it is."""
    files = FakeFiles()
    stream = opened(files)
    for sequence in range(10, 110, 10):
        stream.append([Entry(1, sequence, 5, (b"x" * 114,))], sequence)
        stream.append([Entry(1, sequence + 5, 0, (b"x" * 114,))], sequence)
    stream.roll()
    stream.append([Entry(1, 200, 1, (b"x",))], 200)
    stream.sync()
    assert len(entries(stream)) == 1
    for bits in (0x01, 0x80, 0xFF):
        bad = SEGMENT_HEADER_BYTES + 8 * SIZE  # 50 to 54
        files.flip(path(1), bad + at, bits)
        stream._walked.clear()
        stream._decoded.clear()
        for sequence in range(116):
            wanted = next((first for first in range(10, 110, 10) if first + 4 >= sequence), 200)
            try:
                found: object = (found_at(stream, sequence) or (0,) * 8)[5]
            except Corrupt as error:
                found = error.offset
            if 45 <= sequence < 60 or (found == bad and 50 < sequence <= 200 and at < BATCH_HEADER_BYTES):
                wanted = bad  # what is missing may have been its own; behind no header nothing can be found
            assert found == wanted, (sequence, bits)
        assert stream.sequence_at(0) == 10
        assert stream.sequence_at(40) == 40
        assert stream.sequence_at(200) == 200
        files.flip(path(1), bad + at, bits)


def test_a_damaged_body_spoils_no_other_batch() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 21))
    files.flip(path(1), SEGMENT_HEADER_BYTES + 9 * SIZE + 100)
    for sequence in range(1, 21):
        if sequence == 10:
            offset = SEGMENT_HEADER_BYTES + 9 * SIZE
            with pytest.raises(Corrupt, match=f"at byte {offset}: a batch's checksum is wrong"):
                stream.batch_with(sequence)
        else:
            assert found_at(stream, sequence) is not None
    with pytest.raises(Corrupt, match="a batch's checksum is wrong"):
        list(stream.scan())


def test_a_file_that_ends_too_early() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 21))
    del files.seen[path(1)].data[SEGMENT_HEADER_BYTES + 9 * SIZE :]
    for sequence in range(1, 21):
        if sequence < 10:
            assert found_at(stream, sequence) is not None
        else:
            with pytest.raises(Corrupt, match=f"at byte {SEGMENT_HEADER_BYTES + 9 * SIZE}: the file ends"):
                stream.batch_with(sequence)
    with pytest.raises(Corrupt, match="the file ends"):
        list(stream.scan())


@pytest.mark.parametrize("at", [20, 100])
def test_around_a_hole_that_a_repair_has_accepted(at: int, thin_bytes: int) -> None:
    files = FakeFiles()
    filled(files, range(1, 21))
    for lost in (1, 7, 8, 15, 20):
        files.flip(path(1), SEGMENT_HEADER_BYTES + (lost - 1) * SIZE + at)
    writer = opened(files, repair=True)
    left = [n for n in range(1, 22) if n not in (1, 7, 8, 15, 20)]
    for stream in readers(files, writer):
        for sequence in range(23):
            found = found_at(stream, sequence)
            assert (found and found.first_sequence) == next((n for n in left if n >= sequence), None)
            assert stream.sequence_at(sequence) == next((n for n in left if n >= sequence), 22)
        assert [entry.sequence for _, found in stream.scan() for entry in found] == left


def test_around_a_batch_that_is_cut_out(thin_bytes: int) -> None:
    """Its number is missing, and no byte is."""
    files = FakeFiles()
    filled(files, range(1, 21))
    del files.seen[path(1)].data[SEGMENT_HEADER_BYTES + 9 * SIZE : SEGMENT_HEADER_BYTES + 10 * SIZE]
    for stream in readers(files, opened(files, repair=True)):
        found = [(header := found_at(stream, n)) and header.first_sequence for n in range(1, 22)]
        assert found == [*range(1, 10), 11, *range(11, 22)]
        assert [entry.sequence for _, found in stream.scan() for entry in found] == [*range(1, 10), *range(11, 22)]


def test_around_a_hole_in_which_nothing_is_lost(thin_bytes: int) -> None:
    files = FakeFiles()
    filled(files, range(1, 21))
    files.seen[path(1)].data[SEGMENT_HEADER_BYTES + 9 * SIZE : SEGMENT_HEADER_BYTES + 9 * SIZE] = b"?" * 50
    for stream in readers(files, opened(files)):
        assert [entry.sequence for _, found in stream.read(1, 21) for entry in found] == list(range(1, 22))
        assert [entry.sequence for _, found in stream.scan() for entry in found] == list(range(1, 22))
        assert [stream.sequence_at(time) for time in range(1, 22)] == list(range(1, 22))


def test_a_time_whose_stretch_cannot_be_read_is_where_that_begins() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 21))

    def hook(operation: str, _: Path) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "read fails")

    files.hook = hook
    assert [stream.sequence_at(time) for time in (0, 15, 21, 22)] == [1, 1, 21, 22]
    with pytest.raises(OSError, match="read fails"):
        stream.batch_with(15)
