"""A stream over a file system that fails on demand: tails, damage, mending, freeing and reading."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles

from headway.store.journal.recovery.verify import verify
from headway.store.journal.segments.batch import BATCH_HEADER_BYTES, Entry, StoredEntry
from headway.store.journal.segments.segment import SEGMENT_HEADER_BYTES, Corrupt, file_name
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


# -- freeing ----------------------------------------------------------------------------------------------------------


def test_whole_segments_are_freed_oldest_first_and_never_the_current_one() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 13), segment_bytes=600)
    assert [(s.first_sequence, s.last_sequence) for s in stream.segments] == [(1, 3), (4, 6), (7, 9), (10, 12)]
    size = stream.segments[0].bytes
    assert stream.free_before(3) == 0
    assert stream.free_before(6) == size
    assert (stream.first_sequence, stream.last_sequence) == (4, 12)
    assert stream.free_for_age(6001, 100) == size
    assert stream.free_for_size(2 * size, 100) == 0
    assert stream.free_for_size(2 * size - 1, 9) == 0
    assert stream.free_for_size(0, 100) == size
    assert stream.free_before(100) == 0
    assert sorted(file.name for file in files.seen) == [file_name(4)]


def test_facts_do_not_keep_a_segment_but_their_order_does() -> None:
    files = FakeFiles()
    stream, _ = opened(files)
    for sequence, count in ((1, 1), (1, 0), (5, 1), (5, 0), (6, 1)):
        stream.roll()
        stream.append([entry(sequence, count=count)], 1)
        stream.sync()
    stream.free_before(5)
    assert [segment.first_sequence for segment in stream.segments] == [5, 0, 6]
    stream.free_before(6)
    assert [segment.first_sequence for segment in stream.segments] == [6]


def test_the_last_sequence_is_remembered_when_all_with_sequences_is_freed() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 6))
    stream.roll()
    stream.append([entry(5, count=0)], 1)
    stream.sync()
    stream.free_before(100)
    again, _ = opened(files.crash(random.Random(1)))
    assert (again.first_sequence, again.last_sequence) == (6, 5)
    assert again.batch_with(1) is None
    with pytest.raises(ValueError, match="sequence 5 after 5"):
        again.append([entry(5)], 1)


def test_what_cannot_be_removed_stays() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 13), segment_bytes=600)
    fail(files, "remove", code=errno.EROFS)
    with pytest.raises(OSError, match="remove fails"):
        stream.free_before(100)
    files.hook = None
    assert (stream.first_sequence, len(sequences(stream))) == (1, 12)
    assert stream.free_before(100) > 0


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_batch_is_found_by_any_sequence_it_covers_or_by_one_before_it() -> None:
    files = FakeFiles()
    stream, _ = opened(files)
    for sequence, count in ((5, 10), (15, 0), (20, 1), (30, 5)):
        stream.append([entry(sequence, count=count)], sequence)
    stream.sync()
    first = {wanted: (stream.batch_with(wanted) or [StoredEntry(0, 0, 0, b"")])[0].sequence for wanted in range(40)}
    assert first == {n: 5 if n <= 14 else 20 if n <= 20 else 30 if n <= 34 else 0 for n in range(40)}
    assert [time for time, _ in stream.read(14, 29)] == [5, 20]
    assert [time for time, _ in stream.read(15, 19)] == []
    assert [stream.sequence_at(time) for time in (0, 5, 6, 20, 30, 31)] == [5, 5, 20, 20, 30, 35]
    assert (stream.first_sequence, stream.last_sequence) == (5, 34)


def test_a_walking_reader_reads_each_batch_once() -> None:
    files = FakeFiles()
    stream, _ = opened(files, segment_bytes=20_000)
    for start in range(1, 101, 10):
        stream.append([entry(n) for n in range(start, start + 10)], 1)
    stream.sync()
    files.operations.clear()
    for sequence in range(1, 101):
        assert stream.batch_with(sequence)
    assert [operation for operation, _ in files.operations].count("read") == 10


def test_scan_gives_only_the_kinds_asked_for() -> None:
    files = FakeFiles()
    stream, _ = opened(files)
    stream.append([entry(n, kind=n % 3) for n in range(1, 10)], 77)
    assert [(time, [e.sequence for e in found]) for time, found in stream.scan({1, 2})] == [(77, [1, 2, 4, 5, 7, 8])]


def test_a_reader_whose_segment_is_freed_under_it_goes_on_behind() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 13), segment_bytes=600)

    def hook(operation: str, opened_path: Path) -> None:
        if (operation, opened_path) == ("open", path(1)):
            files.hook = None
            stream.free_before(7)

    files.hook = hook
    assert [e.sequence for e in stream.batch_with(1) or []] == [7]
    assert [e.sequence for _, found in stream.read(1, 100) for e in found] == [7, 8, 9, 10, 11, 12]


def test_a_file_that_is_freed_while_it_is_being_opened_does_not_stay_open() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 13), segment_bytes=600)
    really_open = files.open

    def open_and_free(wanted: Path, *, read_only: bool = False) -> int:
        fd = really_open(wanted, read_only=read_only)
        stream.free_before(7)
        return fd

    files.open = open_and_free  # type: ignore[method-assign]
    assert [e.sequence for e in stream.batch_with(1) or []] == [1], "what is open can still be read"
    assert [name.name for name, _ in files.fds.values()] == [file_name(4)], "only the writer's"


def test_readers_in_other_threads_see_whole_batches_in_order_while_there_is_writing_and_freeing() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 3), segment_bytes=2000)
    wrong: list[object] = []
    done = threading.Event()

    def walk() -> None:
        try:
            while not done.is_set():
                found = [e for _, entries in stream.read(stream.first_sequence, stream.last_sequence) for e in entries]
                numbers = [e.sequence for e in found]
                if numbers != sorted(set(numbers)):
                    wrong.append(numbers)
                wrong.extend(e for e in found if bytes(e.data[:8]) != e.sequence.to_bytes(8, "big"))
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=walk) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for sequence in range(3, 400):
            stream.append([entry(sequence)], 1)
            if sequence % 5 == 0:
                stream.sync()
            if sequence % 50 == 0:
                fail(files, "sync")
                stream.append([entry(sequence, count=0)], 1)
                with pytest.raises(OSError, match="sync fails"):
                    stream.sync()
                files.hook = None
                stream.mend()
                stream.free_before(sequence - 30)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
