"""Streams of the journal: torn tails, damage, and mending."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles
from tests.store.journal.streams import FOLDER, entry, fail, filled, opened, path, sequences

from headway.store.journal.recovery import verify
from headway.store.journal.segments.batch import BATCH_HEADER_BYTES, Entry
from headway.store.journal.segments.segment import SEGMENT_HEADER_BYTES, Corrupt, file_name

# -- tails ------------------------------------------------------------------------------------------------------------


def test_a_tail_torn_at_any_length_is_cut_and_said() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 4))
    whole = stream.bytes
    stream.append([entry(4)], 1)
    size = stream.bytes
    data = bytes(files.seen[path(1)].data)
    for length in range(whole, size):
        files.kill()
        files.seen[path(1)].data[:] = data[:length]
        again, said = opened(files)
        assert sequences(again) == [1, 2, 3]
        assert len(files.seen[path(1)].data) == whole
        assert len(said) == (length > whole)
        if said:
            assert f"the last {length - whole} bytes, from byte {whole}" in said[0]
        again.append([entry(4)], 1)
        again.sync()
        assert sequences(again) == [1, 2, 3, 4]


def test_a_torn_batch_takes_whole_ones_behind_it_along() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    torn = stream.bytes
    for sequence in (3, 4, 5):
        stream.append([entry(sequence)], 1)
    files.flip(path(1), torn + 70)
    again, said = opened(files)
    assert sequences(again) == [1, 2]
    assert "checksum is wrong" in said[0]
    assert again.last_sequence == 2


def test_a_segment_that_was_never_finished_is_removed() -> None:
    files = FakeFiles()
    filled(files, range(1, 3))
    for size in (0, 60, SEGMENT_HEADER_BYTES):
        files.close(files.create(path(2)))
        files.seen[path(2)].data[:] = bytes(size)
        again, said = opened(files)
        assert said == []
        assert path(2) not in files.seen
        assert sequences(again) == [1, 2]


def test_what_nobody_confirmed_is_written_again_at_the_next_start() -> None:
    """The process ends after a sync that failed: the cache shows what the disk does not have."""
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    stream.append([entry(3, 9000)], 1)
    fail(files, "sync")
    with pytest.raises(OSError, match="sync fails"):
        stream.sync()
    files.kill()
    again, _ = opened(files)
    assert sequences(again) == [1, 2, 3]
    again.append([entry(4)], 1)
    again.sync()
    after = files.crash(random.Random(1))
    assert sequences(opened(after)[0]) == [1, 2, 3, 4]


# -- damage -----------------------------------------------------------------------------------------------------------


def damaged() -> tuple[FakeFiles, int]:
    """Five synced batches, of which the third has a wrong byte; and where it is."""
    files = FakeFiles()
    stream = filled(files, range(1, 6))
    size = (stream.bytes - SEGMENT_HEADER_BYTES) // 5
    offset = SEGMENT_HEADER_BYTES + 2 * size
    files.flip(path(1), offset + BATCH_HEADER_BYTES + 20)
    return files, offset


def test_damage_in_the_middle_is_refused_and_nothing_changed() -> None:
    files, offset = damaged()
    before = bytes(files.seen[path(1)].data)
    with pytest.raises(Corrupt, match=f"0000000001.journal is damaged at byte {offset}: a batch's checksum") as caught:
        opened(files)
    assert "batch 3 is lost" in str(caught.value)
    assert "--repair" in str(caught.value)
    assert files.seen[path(1)].data == before


def test_a_repair_goes_on_with_what_can_be_read_for_good() -> None:
    files, offset = damaged()
    stream, said = opened(files, repair=True)
    assert len(said) == 1
    assert f"at byte {offset}" in said[0]
    assert "batch 3 is lost, with what there was of the sequences 3 to 3" in said[0]
    assert sequences(stream) == [1, 2, 4, 5]
    assert [e.sequence for e in stream.batch_with(3) or []] == [4]
    stream.append([entry(6)], 1)
    stream.sync()
    again, said = opened(files.crash(random.Random(1)))
    assert said == []
    assert sequences(again) == [1, 2, 4, 5, 6]


@pytest.mark.parametrize("at", range(0, SEGMENT_HEADER_BYTES, 9))
def test_a_damaged_header_of_a_segment_is_refused_and_repaired(at: int) -> None:
    files = FakeFiles()
    filled(files, range(1, 6))
    files.flip(path(1), at)
    with pytest.raises(Corrupt, match="at byte 0"):
        opened(files)
    stream, said = opened(files, repair=True)
    assert len(said) == 1
    assert sequences(stream) == [1, 2, 3, 4, 5]
    again, said = opened(files)
    assert (said, sequences(again)) == ([], [1, 2, 3, 4, 5])


def test_a_missing_segment_is_refused_and_repaired() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 13), segment_bytes=600)
    assert len(stream.segments) == 4
    del files.seen[path(2)]
    with pytest.raises(Corrupt, match="batches 4 to 6 are lost, with what there was of the sequences 4 to 6"):
        opened(files)
    again, _ = opened(files, repair=True)
    assert sequences(again) == [1, 2, 3, 7, 8, 9, 10, 11, 12]
    assert opened(files)[1] == []


def test_a_batch_cut_out_of_the_middle_is_missed() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 6))
    size = (stream.bytes - SEGMENT_HEADER_BYTES) // 5
    del files.seen[path(1)].data[SEGMENT_HEADER_BYTES + 2 * size : SEGMENT_HEADER_BYTES + 3 * size]
    with pytest.raises(Corrupt, match="batch 4 where 3 is due, batch 3 is lost"):
        opened(files)
    assert sequences(opened(files, repair=True)[0]) == [1, 2, 4, 5]


def test_a_tail_that_a_later_segment_confirms_is_no_torn_tail() -> None:
    files = FakeFiles()
    filled(files, range(1, 7), segment_bytes=600)
    del files.seen[path(1)].data[-10:]
    with pytest.raises(Corrupt, match=r"0000000001.*the file ends after .* batch 3 is lost"):
        opened(files)
    again, _ = opened(files, repair=True)
    assert sequences(again) == [1, 2, 4, 5, 6]


def test_a_payload_is_never_taken_for_a_batch() -> None:
    """Not even when a copy of a file of another stream was published, and the batch around it is damaged."""
    other = FakeFiles()
    filled(other, range(1, 9))
    forged = bytes(other.seen[path(1)].data)
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    offset = stream.bytes
    stream.append([Entry(1, 3, 1, (forged,))], 1)
    stream.sync()
    files.flip(path(1), offset + BATCH_HEADER_BYTES)
    assert sequences(opened(files)[0]) == [1, 2]


def test_damage_is_noticed_by_a_reader() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 4))
    files.flip(path(1), SEGMENT_HEADER_BYTES + BATCH_HEADER_BYTES + 20)
    assert stream.batch_with(2)
    with pytest.raises(Corrupt, match="checksum"):
        stream.batch_with(1)


def test_verify_says_what_is_there_and_changes_nothing() -> None:
    files, _ = damaged()
    before = {known: bytes(file.data) for known, file in files.seen.items()}
    files.operations.clear()
    report = verify(FOLDER, files)
    assert not report.good
    assert "batch 3 is lost" in report.losses[0]
    (segment,) = report.segments
    assert (segment.batches, segment.first_sequence, segment.last_sequence) == (4, 1, 5)
    assert (segment.first_time_us, segment.last_time_us) == (1000, 5000)
    assert {known: bytes(file.data) for known, file in files.seen.items()} == before
    assert {operation for operation, _ in files.operations} <= {"open", "read", "names"}
    opened(files, repair=True)
    assert verify(FOLDER, files).good


# -- mending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync", "create", "sync_folder"])
def test_a_broken_stream_remembers_and_is_mended(operation: str) -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    stream.roll()
    fail(files, operation)
    with pytest.raises(OSError, match=f"{operation} fails"):
        stream.append([entry(3)], 3)
    assert stream.broken is not None
    stream.append([entry(4)], 4)
    assert stream.unsynced_bytes > 200
    assert [e.sequence for _, entries in stream.read(1, 9) for e in entries] == [1, 2, 3, 4]
    assert sequences(stream) == [1, 2, 3, 4]
    with pytest.raises(OSError, match="fails"):
        stream.mend()
    assert stream.broken is not None
    files.hook = None
    stream.mend()
    assert (stream.broken, stream.unsynced_bytes) == (None, 0)
    for seed in range(10):
        assert sequences(opened(files.crash(random.Random(seed)))[0]) == [1, 2, 3, 4]


def test_a_sync_that_failed_is_not_believed_when_it_is_tried_again() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    stream.append([entry(3, 9000)], 3)
    fail(files, "sync")
    with pytest.raises(OSError, match="sync fails"):
        stream.sync()
    files.hook = None
    with pytest.raises(OSError, match="sync fails"):
        stream.sync()
    stream.mend()
    assert [segment.name for segment in stream.segments] == [file_name(1), file_name(2)]
    assert sequences(opened(files.crash(random.Random(1)))[0]) == [1, 2, 3]


def test_a_mend_that_failed_and_could_not_be_removed_outlives_nothing_that_supersedes_it() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    stream.append([entry(3)], 1)
    fail(files, "sync")
    with pytest.raises(OSError, match="sync fails"):
        stream.sync()
    syncs = 0

    def hook(operation: str, _: Path) -> None:
        nonlocal syncs
        syncs += operation == "sync"
        if operation == "remove" or (operation == "sync" and syncs > 1):
            raise OSError(errno.EROFS, f"{operation} fails")

    files.hook = hook
    with pytest.raises(OSError, match="sync fails"):
        stream.mend()
    fail(files, "remove")
    stream.mend()
    assert path(2) in files.seen, "it could not be removed"
    stream.roll()
    stream.append([entry(4)], 1)
    stream.sync()
    files.seen[path(2)].data[200:] = b"?" * 50
    assert sequences(opened(files)[0]) == [1, 2, 3, 4]
    with pytest.raises(OSError, match="remove fails"):
        stream.free_before(100)
    files.hook = None
    stream.free_before(100)
    assert sequences(opened(files)[0]) == [4]
    assert path(2) not in files.seen


def test_a_superseded_tail_is_ignored_whatever_it_is() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 3))
    whole = stream.bytes
    for sequence in (3, 4):
        stream.append([entry(sequence)], 1)
    size = stream.bytes
    fail(files, "sync", "truncate")
    with pytest.raises(OSError, match="sync fails"):
        stream.sync()
    fail(files, "truncate")
    stream.mend()
    assert len(files.seen[path(1)].data) == size, "it could not be cut"
    files.hook = None
    for at in range(whole, size, 7):
        files.flip(path(1), at)
        again, said = opened(files)
        assert said == []
        assert sequences(again) == [1, 2, 3, 4]


def test_the_first_file_that_cannot_be_made_is_made_later() -> None:
    files = FakeFiles()
    stream, _ = opened(files)
    fail(files, "create", code=errno.EROFS)
    with pytest.raises(OSError, match="create fails"):
        stream.append([entry(1)], 1)
    assert sequences(stream) == [1]
    files.hook = None
    stream.mend()
    assert (len(stream.segments), sequences(stream)) == (1, [1])
