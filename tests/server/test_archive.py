"""The archive: what retention has taken from a reader is told, also while it reads."""

from __future__ import annotations

from pathlib import Path

from tests.core.queue_wire import run_of
from tests.store.journal.fake_files import FakeFiles

from headway.core.log import JournaledRun, Ledger
from headway.core.message import SCAN_MAX, Record
from headway.server.journal.entries import LOOKS_A_RUN, Archive, encode_run, stream_name
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
