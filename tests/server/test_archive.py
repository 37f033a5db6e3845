"""The archive: what retention has taken from a reader is told, also while it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.queue_wire import run_of
from tests.store.journal.fake_files import FakeFiles

from headway.core.log import JournaledRun, Ledger
from headway.core.message import SCAN_MAX, Record
from headway.server.journal.entries import LOOKS_A_RUN, Archive, encode_run, stream_name
from headway.server.recorded import (
    OffsetGone,
    RangeRequest,
    RecordedStream,
    Timestamp,
    Trimmed,
    earliest,
    read_parts,
    resolve_range,
    whole_from,
)
from headway.store.journal.stream import Stream


def recorded(archive: Archive, files: FakeFiles, topic: str, sequences: range) -> Stream:
    """A recorded topic with a record of 1 kB at each of these offsets, ten in a segment."""
    stream = Stream(files, Path(f"/journal/{topic}"), 10_000)
    stream.open()
    for sequence in sequences:
        run = run_of(topic.replace("/", "."), [b"%-1000d" % sequence])
        stream.append([encode_run(JournaledRun(topic, run, sequence, "p"), 0.0)], sequence)
        stream.sync()
    archive.add(topic, stream)
    return stream


def two_streams(archive: Archive) -> tuple[Stream, Stream]:
    """Offsets 1 to 100: the odd ones are all there, of the even ones the first are deleted."""
    files = FakeFiles()
    ones, twos = recorded(archive, files, "t/a", range(1, 101, 2)), recorded(archive, files, "t/b", range(2, 102, 2))
    twos.free_before(60)
    assert ones.freed_upto == 0 < 40 < twos.freed_upto
    return ones, twos


def test_freed_records_are_told_at_the_start_and_while_reading() -> None:
    archive, gone = Archive(lambda: 0.0), list[tuple[int, int]]()
    stream = recorded(archive, FakeFiles(), "a", range(10, 110, 2))
    stream.free_before(30)
    assert (freed := stream.freed_upto) >= 26
    found = archive.read("a", 4, 200, lambda record: True, lambda first, last: gone.append((first, last)))
    first = next(found)
    assert first is not None
    assert (first.sequence, gone) == (freed + 2, [(5, freed)]), "not up to the newest"
    next(found)
    stream.free_before(80)
    rest = [record.sequence for record in found if record is not None]
    assert rest[0] == stream.freed_upto + 2
    assert rest[-1] == 108
    assert gone[1:] == [(first.sequence + 3, stream.freed_upto)], "from behind the second record on"
    stream.close()


def test_offset_is_told_once_though_it_is_freed_in_two_streams() -> None:
    archive, files, gone = Archive(lambda: 0.0), FakeFiles(), list[tuple[int, int]]()
    ones, twos = recorded(archive, files, "t/a", range(1, 101, 2)), recorded(archive, files, "t/b", range(2, 102, 2))
    ones.free_before(60)
    twos.free_before(30)
    assert twos.freed_upto < ones.freed_upto
    found = [one for one in archive.read("t/#", 0, 200, lambda record: True, lambda *span: gone.append(span)) if one]
    assert found[0].sequence == twos.freed_upto + 2
    assert sum(last - first + 1 for first, last in gone) == max(last for _, last in gone) == ones.freed_upto


def test_held_records_of_all_streams_are_read_and_only_later_deletes_told() -> None:
    archive, gone = Archive(lambda: 0.0), list[tuple[int, int]]()
    ones, twos = two_streams(archive)
    assert (archive.earliest("t/#"), archive.earliest("t/b"), archive.earliest("u")) == (1, twos.freed_upto + 1, None)
    read = archive.read("t/#", 0, 200, lambda record: True, lambda *span: gone.append(span), held=True)
    freed, _ = twos.freed_upto, ones.free_before(20)  # it has not read anything yet
    found = [next(read), next(read)]
    assert (found[0] and found[0].sequence, gone) == (ones.freed_upto + 2, [(1, ones.freed_upto)])
    ones.free_before(90)
    offsets = [record.sequence for record in read if record is not None]
    assert [one for one in offsets if one % 2 == 0] == list(range(freed + 2, 101, 2))
    assert gone[-1][1] == ones.freed_upto


def test_range_of_a_filter_begins_with_what_any_stream_holds() -> None:
    """Reading once began where the most trimmed topic begins, and left out silently what the others still held."""
    ones, twos = two_streams(Archive(lambda: 0.0))
    sources = [RecordedStream(ones, None), RecordedStream(twos, None)]

    def read(asked: RangeRequest) -> list[int]:
        found = resolve_range(asked, sources)
        parts = read_parts(sources, "t/#", found.first, found.stop, found.deleted)
        return [part.first for part in parts if part.run]

    freed = twos.freed_upto
    held = [one for one in range(1, 101) if one % 2 or one > freed]
    assert (earliest([ones, twos]), whole_from([ones, twos])) == (1, freed + 1)
    assert read(RangeRequest()) == read(RangeRequest(start=Timestamp(0))) == held
    assert resolve_range(RangeRequest(), sources).deleted == {freed}
    assert read(RangeRequest(start=freed + 1)) == list(range(freed + 1, 101))
    for start in (0, 1, 7, freed):
        with pytest.raises(OffsetGone, match=f"all are from {freed + 1} on"):
            read(RangeRequest(start=start))
    known = frozenset({freed})
    assert read(RangeRequest(start=8, deleted=known)) == [one for one in held if one >= 8]
    ones.free_before(30)  # less than the other, which is known
    with pytest.raises(OffsetGone):
        read(RangeRequest(start=8, deleted=known))
    assert read(RangeRequest(start=ones.freed_upto + 1, deleted=known))[0] == ones.freed_upto + 2


@pytest.mark.parametrize("further", [False, True])
def test_stream_that_is_trimmed_while_it_is_read_is_told(further: bool) -> None:
    ones, twos = two_streams(Archive(lambda: 0.0))
    sources = [RecordedStream(ones, None), RecordedStream(twos, None)]
    found = resolve_range(RangeRequest(), sources)
    parts = read_parts(sources, "t/#", found.first, found.stop, found.deleted)
    if further:
        twos.free_before(90)  # before the first read
    else:
        next(parts)
        ones.free_before(50)
    with pytest.raises(Trimmed):
        list(parts)


def test_records_of_this_turn_are_read_before_its_commit() -> None:
    """Whoever subscribed with ``from`` in the turn of a publish lost the record, and was told nothing."""
    archive, ledger = Archive(lambda: 0.0), Ledger()
    recorded(archive, FakeFiles(), "a", range(50, 53))
    archive.untaken = ledger.untaken
    found = archive.read("a", 50, 55, lambda record: True, lambda first, last: None)
    for sequence, topic in ((53, "b"), (54, "a"), (55, "a")):
        ledger.run(stream_name(topic), run_of(topic, [b"%d" % sequence]), sequence, "p")
    assert [one.sequence for one in found if one is not None] == [51, 52, 54, 55]
    commit = ledger.take(55, 0.0)
    assert commit is not None
    for run in commit.runs[1:]:
        archive.recorded[run.stream].published(run)
    again = archive.read("a", 50, 55, lambda record: True, lambda first, last: None)
    assert [one.sequence for one in again if one is not None] == [51, 52, 54, 55]


def test_nothing_is_told_of_offsets_that_others_have() -> None:
    archive, gone = Archive(lambda: 0.0), list[tuple[int, int]]()
    recorded(archive, FakeFiles(), "a", range(50, 60, 3))
    read = archive.read("a", 0, 1 << 30, lambda record: True, lambda *span: gone.append(span))
    assert [one.sequence for one in read if one is not None] == [50, 53, 56, 59]
    assert gone == []


def test_a_step_reads_a_few_runs_because_each_is_decoded() -> None:
    archive, steps = Archive(lambda: 0.0), list[list[Record]]([[]])
    recorded(archive, FakeFiles(), "a", range(1, 201))
    for found in archive.read("a", 0, 200, lambda record: True, lambda first, last: None):
        if found is None:
            steps.append([])
        else:
            steps[-1].append(found)
    assert sum(map(len, steps)) == 200
    assert max(map(len, steps)) <= SCAN_MAX // LOOKS_A_RUN
