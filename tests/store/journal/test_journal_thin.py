"""The thin index of a segment: what is found, what it takes, and while it is written and freed."""

from __future__ import annotations

import errno
import random
import threading
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles
from tests.store.journal.thin import FOLDER, entries, filled, found_at, opened, path, readers

from headway.store.journal.reading import WALKED_MAX, indexed
from headway.store.journal.recovery import recovery_scan
from headway.store.journal.segments import segment as index
from headway.store.journal.segments.batch import BatchHeader, Entry
from headway.store.journal.stream import Stream


def mixed(files: FakeFiles, seed: int = 1, batches: int = 150) -> tuple[Stream, list[BatchHeader]]:
    """Batches of one sequence and of many, with gaps and with facts between, under a clock that is set back."""
    rng = random.Random(seed)
    stream = opened(files)
    headers = []
    sequence, time_us = 1, 1000
    for _ in range(batches):
        count = rng.choice((0, 0, 1, 1, 1, 9))
        sequence += rng.choice((0, 0, 0, 5))
        data = rng.randbytes(rng.choice((0, 10, 60, 60, 300)))
        time_us += rng.choice((0, 10, 10, 10, 10, -70))
        (packed,) = stream.packed([Entry(1, sequence, count, (data,))], time_us)
        stream.append_packed([packed])
        stream.sync()
        headers.append(packed.header)
        sequence += count
    return stream, headers


# -- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_right_batch_is_found_at_every_sequence_and_time(seed: int, thin_bytes: int) -> None:
    files = FakeFiles()
    writer, headers = mixed(files, seed)
    own = [header for header in headers if header.first_sequence]
    last = own[-1].last_sequence
    order = random.Random(seed).sample(range(last + 3), last + 3)
    for stream in readers(files, writer):
        segments = stream._segments
        assert len(segments) > 3
        assert any(len(s) < s.batches for s in segments[:-1]) == (thin_bytes > 1)
        assert len(segments[-1]) == segments[-1].batches, "the current one is as it was"
        for sequence in [*range(last + 3), *order]:
            wanted = next((header for header in own if header.last_sequence >= sequence), None)
            assert found_at(stream, sequence) == wanted, sequence
        for time_us in range(900, max(header.time_us for header in headers) + 20):
            first = next((header.first_sequence for header in own if header.time_us >= time_us), last + 1)
            assert stream.sequence_at(time_us) == first, time_us
        for first in range(1, last, 7):
            read = [time_us for time_us, _ in stream.read(first, first + 40)]
            assert read == [h.time_us for h in own if h.last_sequence >= first and h.first_sequence <= first + 40]
        assert [decoded.header for decoded in stream._scan(None)] == headers
        assert (stream.first_sequence, stream.last_sequence, stream.freed_upto) == (own[0].first_sequence, last, 0)
        assert sum(segment.batches for segment in stream.segments) == len(headers)
        assert stream.segments == writer.segments


def test_the_first_and_the_last_of_a_segment_are_known(thin_bytes: int) -> None:
    files = FakeFiles()
    writer, headers = mixed(files)
    for stream in readers(files, writer):
        at = 0
        for segment in stream.segments:
            its = headers[at : at + segment.batches]
            own = [header for header in its if header.first_sequence]
            assert (segment.first_time_us, segment.last_time_us) == (its[0].time_us, its[-1].time_us)
            assert (segment.first_sequence, segment.last_sequence) == (own[0].first_sequence, own[-1].last_sequence)
            at += segment.batches


def test_a_sequence_between_facts_is_looked_for_behind_them(thin_bytes: int) -> None:
    """Facts at the beginning of a stretch, at its end, and a segment of nothing else."""
    files = FakeFiles()
    stream = opened(files, segment_bytes=10**6)
    for sequence, count in ((3, 0), (3, 2), (5, 0), (5, 0), (9, 1), (10, 0), (None, 0), (10, 0), (10, 0), (None, 0)):
        if sequence is None:
            stream.roll()
        else:
            stream.append([Entry(1, sequence, count, (b"?" * 50,))], sequence + (100 if not count else 0))
            stream.sync()
    stream.append([Entry(1, 20, 1, (b"!",))], 20)
    stream.sync()
    found = [(header := found_at(stream, sequence)) and header.first_sequence for sequence in range(23)]
    assert found == [3] * 5 + [9] * 5 + [20] * 11 + [None] * 2
    assert [stream.sequence_at(time) for time in (0, 3, 4, 9, 10, 20, 21)] == [3, 3, 9, 9, 20, 20, 21]


# -- what it takes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100, 40_000, 200_000])
def test_a_closed_segment_takes_few_entries_however_small_its_batches_are(size: int) -> None:
    """Two for 64 KiB at the very most, each of some 40 bytes."""
    files = FakeFiles()
    stream = opened(files, segment_bytes=1024 * 1024)
    sequence = 0
    while len(stream.segments) < 4:
        sequence += 1
        stream.append([Entry(1, sequence, 1, (bytes(size),))], sequence)
    stream.sync()
    for each in readers(files, stream):
        assert len(entries(each)) == 3
        for segment in each._segments[:-1]:
            places = [segment.entry(at) for at in range(len(segment))]
            assert all(place.size <= index.THIN_BYTES or place.batches == 1 for place in places)
        for count, end in entries(each):
            assert count <= 2 * (end // index.THIN_BYTES + 1)
            if size <= 100:
                assert count <= end // (index.THIN_BYTES - 1000) + 1
    assert len(stream._walked) == 0


def test_at_a_start_no_more_than_one_segment_is_known_batch_by_batch() -> None:
    """Not even before it is judged: all of them would be the memory that is saved."""
    files = FakeFiles()
    filled(files, range(1, 101))
    for segments in (recovery_scan(files, FOLDER).segments, indexed(files, FOLDER)[0]):
        assert [len(segment) for segment in segments] == [1] * len(segments)
        assert sum(segment.batches for segment in segments) == 101


def test_a_reader_that_walks_on_reads_each_stretch_and_each_batch_once() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 1001), segment_bytes=10**6)
    ((count, _),) = entries(stream)
    assert count == 3
    files.operations.clear()
    assert len(list(stream.read(1, 1000))) == 1000
    assert [operation for operation, _ in files.operations].count("read") == 1000 + count
    files.operations.clear()
    for sequence in range(1, 1001):
        for _ in range(2):
            assert stream.batch_with(sequence)
    assert [operation for operation, _ in files.operations].count("read") == 1000, "it was walked through"


def test_what_was_walked_through_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "THIN_BYTES", 400)
    stream = filled(FakeFiles(), range(1, 201))
    assert len(list(stream.read(1, 200))) == 200
    assert len(stream._walked) == WALKED_MAX


def test_what_was_decoded_when_the_segment_was_the_current_one_is_no_stretch() -> None:
    stream = opened(FakeFiles(), segment_bytes=10**6)
    for sequence in (1, 2, 3):
        stream.append([Entry(1, sequence, 1, (b"?",))], 1)
    stream.sync()
    assert [entry.sequence for entry in stream.batch_with(1) or ()] == [1]
    stream.roll()
    stream.append([Entry(1, 4, 1, (b"?",))], 1)
    assert [entry.sequence for entry in stream.batch_with(2) or ()] == [2]


def test_a_large_batch_is_read_once() -> None:
    files = FakeFiles()
    stream = opened(files)
    for sequence in (1, 2, 3):
        stream.append([Entry(1, sequence, 1, (bytes(200_000),))], 1)
    stream.sync()
    files.operations.clear()
    assert stream.batch_with(1)
    assert [operation for operation, _ in files.operations].count("read") == 1


# -- while it is written and freed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "read"])
def test_a_segment_that_is_freed_while_it_is_walked_through(operation: str) -> None:
    for look in ("batch_with", "sequence_at"):
        files = FakeFiles()
        stream = filled(files, range(1, 101))
        kept = stream.segments[1].first_sequence

        def hook(what: str, where: Path, files: FakeFiles = files, stream: Stream = stream, kept: int = kept) -> None:
            if (what, where) == (operation, path(1)):
                files.hook = None
                stream.free_before(kept)

        files.hook = hook
        found = stream.sequence_at(5) if look == "sequence_at" else (found_at(stream, 5) or (0,) * 8)[5]
        assert files.hook is None
        assert found == (kept if operation == "open" else 5), "what is open can still be read"
        assert stream.first_sequence == kept


def test_a_stretch_that_was_walked_through_is_freed() -> None:
    files = FakeFiles()
    stream = filled(files, range(1, 101))
    kept = stream.segments[1].first_sequence
    assert stream.batch_with(5)
    stream.free_before(kept)
    assert (found_at(stream, 6) or (0,) * 8)[5] == stream.sequence_at(6) == kept


def test_readers_in_other_threads_while_segments_are_closed_and_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "THIN_BYTES", 700)
    stream = filled(FakeFiles(), range(1, 30), segment_bytes=3000)
    wrong: list[object] = []
    done = threading.Event()

    def look(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not done.is_set():
                first, last = stream.first_sequence, stream.last_sequence
                sequence = rng.randint(first, last)
                header = found_at(stream, sequence)
                at = stream.sequence_at(sequence)
                freed = stream.freed_upto
                if header is None or not (header.first_sequence == sequence or sequence <= freed):
                    wrong.append((sequence, header))
                if at != sequence and sequence > freed:
                    wrong.append((sequence, at))
                numbers = [e.sequence for _, entries in stream.read(sequence, sequence + 20) for e in entries]
                whole = list(range(sequence, min(last, sequence + 20) + 1))
                if numbers[: len(whole)] != whole and sequence > stream.freed_upto:
                    wrong.append(numbers)
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for sequence in range(31, 500):
            stream.append([Entry(1, sequence, 1, (b"x" * 114,))], sequence)
            stream.sync()
            if sequence % 40 == 0:
                stream.free_before(sequence - 60)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_the_tail_that_a_mend_leaves_is_thinned_and_what_was_not_confirmed_is_read_from_memory() -> None:
    files = FakeFiles()
    stream = opened(files, segment_bytes=10**6)
    for sequence in range(1, 41):
        stream.append([Entry(1, sequence, 1, (b"x" * 100,))], sequence)
        if sequence == 20:
            stream.sync()

    def hook(operation: str, _: Path) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "sync fails")

    files.hook = hook
    with pytest.raises(OSError, match="sync fails"):
        stream.sync()
    assert [entry.sequence for _, found in stream.read(1, 99) for entry in found] == list(range(1, 41))
    files.hook = None
    stream.mend()
    assert [(len(s), s.batches) for s in stream._segments] == [(1, 20), (20, 20)]
    assert [entry.sequence for _, found in stream.read(1, 99) for entry in found] == list(range(1, 41))
