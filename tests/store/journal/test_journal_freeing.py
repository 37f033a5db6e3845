"""Streams of the journal: freeing segments, and reading while that happens."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles
from tests.store.journal.streams import entry, fail, filled, opened, path, sequences

from headway.store.journal.segments.batch import StoredEntry
from headway.store.journal.segments.segment import file_name

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
