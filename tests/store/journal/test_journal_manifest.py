"""The manifest: files that are missing or cut at the ends of streams are told, and no crash looks like that."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFile, FakeFiles, PowerLoss

from headway.store.journal.disk import REAL, RealFiles
from headway.store.journal.journal import Journal
from headway.store.journal.manifest import MANIFEST_NAME, missing_segments, read_manifest
from headway.store.journal.recovery import check, streams_of
from headway.store.journal.segments.batch import Entry
from headway.store.journal.segments.segment import SEGMENT_HEADER_BYTES, Corrupt, file_name, read_losses
from headway.store.journal.stream import Stream

FOLDER = Path("/journal")
NAMES = ("main", "retained", "topic-x")
MANIFEST = FOLDER / MANIFEST_NAME


def entries(sequence: int, size: int = 100) -> list[Entry]:
    return [Entry(1, sequence, 1, (bytes([sequence % 256]) * size,))]


def opened(files: FakeFiles, *, repair: bool = False) -> tuple[Journal, list[str]]:
    journal = Journal(files, FOLDER)
    return journal, journal.open(NAMES, repair=repair)


def filled(*, stop: bool) -> FakeFiles:
    """A journal: main and topic-x have three segments of three batches each, retained has one with three."""
    files = FakeFiles()
    journal, _ = opened(files)
    for sequence in range(1, 10):
        work = {"main": entries(sequence), "topic-x": entries(sequence)}
        work |= {"retained": entries(sequence)} if sequence > 6 else {}
        journal.commit(work, sequence, roll=NAMES if sequence in (4, 7) else ())
    assert [len(journal.stream(name).segments) for name in NAMES] == [3, 1, 3]
    if stop:
        journal.finish()
    files.kill()
    return files


def sequences(journal: Journal) -> dict[str, list[int]]:
    return {name: [stored.sequence for _, found in journal.stream(name).scan() for stored in found] for name in NAMES}


def losses(files: FakeFiles) -> list[str]:
    return [loss for report in check(FOLDER, files) for loss in report.losses]


def notes(files: FakeFiles) -> list[str]:
    return [note for report in check(FOLDER, files) for note in report.notes]


# -- damage -----------------------------------------------------------------------------------------------------------


def _path(name: str, ordinal: int) -> Path:
    return FOLDER / name / file_name(ordinal)


def deleted(name: str, ordinal: int) -> Callable[[FakeFiles], None]:
    def damage(files: FakeFiles) -> None:
        files.remove(_path(name, ordinal))

    return damage


def cut(name: str, ordinal: int, size: Callable[[int], int]) -> Callable[[FakeFiles], None]:
    def damage(files: FakeFiles) -> None:
        data = files.seen[_path(name, ordinal)].data
        del data[size(len(data)) :]

    return damage


def folder_removed(name: str) -> Callable[[FakeFiles], None]:
    def damage(files: FakeFiles) -> None:
        for path in [path for path in files.seen if path.parent.name == name]:
            files.remove(path)

    return damage


def empty(_: int) -> int:
    return 0


def in_batch(size: int) -> int:
    return size - 20


def at_batch(size: int) -> int:
    return size - (size - SEGMENT_HEADER_BYTES) // 3


LAST = "batch 9 is lost, with what there was of the sequences 9 to 9"
LAST_THREE = "batches 7 to 9 are lost, with what there was of the sequences 7 to 9"
ALL = "batches 1 to 9 are lost, with what there was of the sequences 1 to 9"
CASES = {
    "the only segment of retained deleted": (deleted("retained", 1), "is missing: no segment of the stream is left, "
                                             "batches 1 to 3 are lost, with what there was of the sequences 1 to 9"),
    "retained truncated to 0": (cut("retained", 1, empty), "at byte 0: the segment's header ends after 0 bytes, "
                                "batches 1 to 3 are lost"),
    "retained's folder removed": (folder_removed("retained"), "is missing: no segment of the stream is left"),
    "retained cut at a batch": (cut("retained", 1, at_batch), "the file ends here; it had 746 bytes when the broker "
                                "stopped, batch 3 is lost, with what there was of the sequences 9 to 9"),
    "retained cut in a batch": (cut("retained", 1, in_batch), "the file ends after 186 of 206 bytes of a batch; it had "
                                "746 bytes when the broker stopped, 186 bytes cannot be read, batch 3 is lost"),
    "first segment of topic-x deleted": (deleted("topic-x", 1), "is missing: it was the first segment, batches 1 to 3 "
                                         "are lost, with what there was of the sequences 1 to 3"),
    "last segment of topic-x deleted": (deleted("topic-x", 3), f"is missing: it was the last segment, {LAST_THREE}"),
    "topic-x truncated to 0": (cut("topic-x", 3, empty), f"the segment's header ends after 0 bytes, {LAST_THREE}"),
    "topic-x cut at a batch": (cut("topic-x", 3, at_batch), "the file ends here; it had 746 bytes when the broker "
                               f"stopped, {LAST}"),
    "topic-x cut in a batch": (cut("topic-x", 3, in_batch), LAST),
    "topic-x's folder removed": (folder_removed("topic-x"), f"no segment of the stream is left, {ALL}"),
    "first segment of main deleted": (deleted("main", 1), "it was the first segment, batches 1 to 3 are lost"),
    "last segment of main deleted": (deleted("main", 3), f"it was the last segment, {LAST_THREE}"),
    "main truncated to 0": (cut("main", 3, empty), LAST_THREE),
    "main cut at a batch": (cut("main", 3, at_batch), LAST),
    "main cut in a batch": (cut("main", 3, in_batch), LAST),
    "main's folder removed": (folder_removed("main"), f"no segment of the stream is left, {ALL}"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_missing_and_cut_files_are_told_and_repaired_after_a_clean_stop(case: str) -> None:
    damage, wanted = CASES[case]
    files = filled(stop=True)
    before, _ = opened(copied(files))
    assert losses(files) == []
    damage(files)
    there = {path: bytes(file.data) for path, file in files.seen.items() if path.name != "lock"}
    (loss,) = losses(files)
    assert wanted in loss
    with pytest.raises(Corrupt, match="--repair") as caught:
        opened(files)
    assert wanted in str(caught.value)
    assert {path: bytes(file.data) for path, file in files.seen.items() if path.name != "lock"} == there
    journal, said = opened(files, repair=True)
    assert said == [loss]
    found = sequences(journal)
    assert any(found[name] != all_of_it for name, all_of_it in sequences(before).items())
    assert all(set(found[name]) <= set(all_of_it) for name, all_of_it in sequences(before).items())
    assert len([name for name in NAMES if found[name] == sequences(before)[name]]) == 2, "others lose nothing"
    _goes_on(files, journal, found)
    for path, data in there.items():
        if path.suffix == ".journal" and path in files.seen:
            assert files.seen[path].data.startswith(data), "damaged files stay as they are"


def _goes_on(files: FakeFiles, journal: Journal, found: dict[str, list[int]]) -> None:
    """After a repair it is sound: at once, when it is killed before anything is written, and later."""
    assert losses(files) == []
    files.kill()
    journal, said = opened(files)
    assert (said, sequences(journal)) == ([], found)
    journal.commit({name: entries(20) for name in NAMES}, 20)
    for after in (copied(files), files.crash(random.Random(1)), files):
        if after is files:
            journal.finish()
        after.kill()
        assert losses(after) == []
        again, said = opened(after)
        assert (said, sequences(again)) == ([], {name: [*found[name], 20] for name in NAMES})
        again.close()


def copied(files: FakeFiles) -> FakeFiles:
    """A copy of what is seen, all of it on disk."""
    copy = FakeFiles()
    copy.folders = set(files.folders)
    for path, file in files.seen.items():
        copy.seen[path] = copy.durable[path] = FakeFile()
        copy.seen[path].data, copy.seen[path].disk = bytearray(file.data), bytearray(file.data)
    return copy


UNKNOWN_AFTER_A_KILL = {
    "retained cut at a batch", "retained cut in a batch", "topic-x cut at a batch", "topic-x cut in a batch",
    "main cut at a batch", "main cut in a batch",
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(CASES.keys() - UNKNOWN_AFTER_A_KILL))
def test_missing_files_are_told_and_repaired_after_a_kill(case: str) -> None:
    damage, _ = CASES[case]
    files = filled(stop=False)
    damage(files)
    (loss,) = losses(files)
    with pytest.raises(Corrupt, match="--repair"):
        opened(files)
    journal, said = opened(files, repair=True)
    assert [line.partition(":")[0] for line in said] == [loss.partition(":")[0]], (
        "and nothing of another stream is cut, though what it awaits in main is lost"
    )
    _goes_on(files, journal, sequences(journal))


def test_a_loss_whose_end_is_unknown_is_told_as_such() -> None:
    files = filled(stop=False)
    deleted("topic-x", 3)(files)
    deleted("retained", 1)(files)
    one, other = losses(files)
    assert one.endswith("is missing: no segment of the stream is left, its batches are lost, how many is not known")
    assert other.endswith("is missing: it was the last segment, its batches are lost, how many is not known")
    folder_removed("topic-x")(files)
    assert losses(files)[1].endswith("batches 1 to 6 are lost, and any after these, "
                                     "with what there was of the sequences 1 to 6")  # fmt: skip


def test_a_torn_tail_is_told_truly() -> None:
    """After a kill nobody knows whether it was confirmed; after a clean stop it was not."""
    files = filled(stop=False)
    cut("main", 3, in_batch)(files)
    (note,) = notes(files)
    assert "are not known to have been confirmed and are cut" in note
    assert "so does damage" in note
    assert note in opened(files)[1]
    files = filled(stop=True)
    files.seen[_path("main", 3)].data += b"half a batch"
    (note,) = notes(files)
    assert "the last 12 bytes, from byte 671, had not been confirmed and are cut" in note
    assert losses(files) == []
    assert opened(files)[1] == [note]


def test_a_stream_that_is_opened_no_more_is_missed_too() -> None:
    files = filled(stop=True)
    folder_removed("topic-x")(files)
    journal = Journal(files, FOLDER)
    with pytest.raises(Corrupt, match=r"topic-x/0000000001.journal is missing: .* batches 1 to 9 are lost"):
        journal.open(["main", "retained"])
    assert len(journal.open(["main", "retained"], repair=True)) == 1
    journal.finish()
    assert losses(files) == []
    assert journal.open(["main", "retained"]) == []


def test_a_stream_that_is_not_opened_keeps_its_entry() -> None:
    files = filled(stop=True)
    journal = Journal(files, FOLDER)
    journal.open(["main"])
    journal.finish()
    cut("topic-x", 3, at_batch)(files)
    assert LAST in losses(files)[0]


def test_readers_are_told_which_files_are_missing() -> None:
    files = filled(stop=False)
    assert missing_segments(files, FOLDER) == {}
    deleted("topic-x", 1)(files)
    deleted("main", 3)(files)
    folder_removed("retained")(files)
    assert missing_segments(files, FOLDER) == {
        "topic-x": [_path("topic-x", 1)], "main": [_path("main", 3)], "retained": [_path("retained", 1)],
    }  # fmt: skip


# -- the manifest itself ----------------------------------------------------------------------------------------------


def test_an_old_journal_without_a_manifest_opens_and_gets_one() -> None:
    files = FakeFiles()
    stream = Stream(files, FOLDER / "main", 500)
    stream.open()
    for sequence in range(1, 6):
        stream.append(entries(sequence), sequence)
        stream.sync()
    files.kill()
    assert losses(files) == []
    journal, said = opened(files)
    assert (said, sequences(journal)["main"]) == ([], [1, 2, 3, 4, 5])
    journal.commit({"main": entries(6)}, 6)
    files.kill()
    deleted("main", 1)(files)
    assert len(losses(files)) == 1


@pytest.mark.parametrize("at", [0, 40, 200, -2])
def test_a_damaged_manifest_is_told_and_made_new(at: int) -> None:
    files = filled(stop=True)
    files.flip(MANIFEST, at)
    _is_told_and_made_new(files, "manifest at byte 0: its checksum is wrong, so whether segments are missing")


@pytest.mark.parametrize("size", [0, 5, 100])
def test_a_manifest_that_is_cut_is_told_and_made_new(size: int) -> None:
    files = filled(stop=True)
    del files.seen[MANIFEST].data[size:]
    _is_told_and_made_new(files, "manifest at byte 0: its checksum is wrong")


def test_a_missing_manifest_is_told_and_made_new() -> None:
    files = filled(stop=True)
    files.remove(MANIFEST)
    _is_told_and_made_new(files, "manifest is missing: it lists the segments of all streams, so whether segments are")


def _is_told_and_made_new(files: FakeFiles, wanted: str) -> None:
    if MANIFEST in files.seen:
        (loss,) = losses(files)
        assert wanted in loss
    with pytest.raises(Corrupt, match="manifest"):
        opened(files)
    journal, said = opened(files, repair=True)
    assert len(said) == 1
    assert wanted in said[0]
    assert all(len(found) == len(set(found)) >= 3 for found in sequences(journal).values())
    _goes_on(files, journal, sequences(journal))


def test_commits_do_not_touch_the_manifest() -> None:
    files = FakeFiles()
    journal = Journal(files, FOLDER)
    journal.open(NAMES)
    journal.commit({name: entries(1) for name in NAMES}, 1)
    files.operations.clear()
    for sequence in range(2, 50):
        journal.commit({name: entries(sequence) for name in NAMES}, sequence)
    assert {operation for operation, _ in files.operations} == {"write", "sync"}
    assert {name for _, name in files.operations} == {file_name(1)}


# -- crashes ----------------------------------------------------------------------------------------------------------


def life(files: FakeFiles, confirmed: dict[str, int], freed: dict[str, int]) -> None:
    """Makes and removes segments, mends, and stops. Raises what the hook of ``files`` raises."""
    journal, _ = opened(files)
    for sequence in range(1, 10):
        names = NAMES if sequence % 3 else NAMES[:1]
        try:
            roll = names if sequence in (4, 7) else ()
            journal.commit({name: entries(sequence) for name in names}, sequence, roll=roll)
        except OSError:
            journal.commit({}, sequence)
        confirmed.update(dict.fromkeys(names, sequence))
    for name in NAMES:
        freed[name] = 6
        try:
            journal.stream(name).free_before(6)
        except OSError:
            journal.stream(name).free_before(6)
    journal.check()
    journal.finish()


def _is_sound(files: FakeFiles, confirmed: dict[str, int], freed: dict[str, int]) -> None:
    assert losses(files) == []
    journal, _ = opened(files)
    for name, found in sequences(journal).items():
        given = [sequence for sequence in range(1, 10) if name == "main" or sequence % 3]
        must = [sequence for sequence in given if freed.get(name, 1) <= sequence <= confirmed.get(name, 0)]
        assert found == given[given.index(found[0]) :][: len(found)] if found else not must
        assert set(must) <= set(found)
    journal.commit({name: entries(20) for name in NAMES}, 20)
    journal.finish()
    files.kill()
    assert losses(files) == []
    for name in NAMES:
        again = copied(files)
        last = read_manifest(again, FOLDER)
        assert last is not None
        deleted(name, last[name].last.ordinal)(again)
        assert losses(again), "and what is missing from then on is told"


def power_for(steps: int) -> Callable[..., None]:
    """The power is lost after so many operations."""
    left = iter(range(steps))

    def hook(*_: object) -> None:
        if next(left, None) is None:
            raise PowerLoss

    return hook


def test_a_crash_at_any_step_leaves_a_sound_journal() -> None:
    steps = 0
    while True:
        files, confirmed, freed = FakeFiles(), dict[str, int](), dict[str, int]()
        files.hook = power_for(steps)
        try:
            life(files, confirmed, freed)
            break
        except PowerLoss:
            pass
        for seed in range(4):
            files.hook = None
            _is_sound(files.crash(random.Random(seed)), confirmed, freed)
        files.kill()
        _is_sound(files, confirmed, freed)
        steps += 1
    assert steps > 150


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_failure_at_any_step_leaves_a_sound_journal(times: int) -> None:
    """The disk is full, or fails, for so many calls; then it works again. Then the power fails, or the process ends."""
    step = 0
    while True:
        files, confirmed, freed, at = FakeFiles(), dict[str, int](), dict[str, int](), 0

        def hook(operation: str, path: Path, step: int = step) -> None:
            nonlocal at
            if operation in ("create", "write", "sync", "rename", "sync_folder", "remove", "truncate"):
                at += 1
                if step < at <= step + times:
                    raise OSError(errno.ENOSPC, f"{operation} of {path.name} fails")

        files.hook = hook
        with suppress(OSError):
            life(files, confirmed, freed)
        if at <= step:
            break
        for seed in range(3):
            files.hook = None
            _is_sound(files.crash(random.Random(seed)), confirmed, freed)
        files.kill()
        _is_sound(files, confirmed, freed)
        step += 1
    assert step > 60


@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_step_of_a_repair_leaves_it_told_or_repaired(case: str) -> None:
    damage, _ = CASES[case]
    step = 0
    while True:
        files = filled(stop=True)
        damage(files)
        files = copied(files)
        (wanted,) = losses(files)
        files.hook = power_for(step)
        try:
            opened(files, repair=True)
            break
        except PowerLoss:
            files.hook = None
        for seed in range(3):
            after = files.crash(random.Random(seed))
            if losses(after):
                assert losses(after)[0].split()[0] == wanted.split()[0]
                with pytest.raises(Corrupt):
                    opened(after)
            else:
                assert any(read_losses(after, FOLDER / name) for name in NAMES), "a repair has given it up"
                opened(after)
        step += 1
    assert step > 20


def test_a_full_disk_at_a_start_keeps_the_mark_until_something_is_written() -> None:
    files = filled(stop=True)
    files.room = 0
    journal, said = opened(files)
    assert said == []
    with pytest.raises(OSError, match="no space"):
        journal.commit({"main": entries(10)}, 10)
    listed = read_manifest(files, FOLDER)
    assert listed is not None
    assert listed["main"].end is not None
    files.room = None
    journal.commit({}, 10)
    listed = read_manifest(files, FOLDER)
    assert listed is not None
    assert listed["main"].end is None
    files.kill()
    assert sequences(opened(files)[0])["main"] == list(range(1, 11))


def test_no_segment_is_made_while_the_first_manifest_cannot_be_written() -> None:
    """It would look as if the manifest had been deleted."""
    files = FakeFiles()

    def hook(operation: str, path: Path) -> None:
        if operation == "create" and path.name.startswith("manifest"):
            raise OSError(errno.EIO, "fails")

    files.hook = hook
    journal = Journal(files, FOLDER)
    journal.open(["main"])
    for work in ({"main": entries(1)}, {}):
        with pytest.raises(OSError, match="fails"):
            journal.commit(work, 1)
    assert [path.name for path in files.seen if path.suffix == ".journal"] == []
    files.hook = None
    journal.commit({}, 1)
    files.kill()
    assert losses(files) == []
    assert Journal(files, FOLDER).open(["main"]) == []


# -- beside a broker --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["names", "open", "read"])
def test_verify_beside_a_broker_takes_no_removed_segment_for_damage(operation: str) -> None:
    files = filled(stop=True)
    journal, _ = opened(files)

    def hook(done: str, path: Path) -> None:
        if done == operation and "topic-x" in (path.parent.name, path.name):
            files.hook = None
            assert journal.stream("topic-x").free_before(7) > 0

    files.hook = hook
    assert losses(files) == []
    assert files.hook is None
    assert missing_segments(files, FOLDER) == {}


@pytest.mark.parametrize("sequence", [7, 10])
def test_readers_beside_a_broker_take_no_removed_or_new_segment_for_a_missing_one(sequence: int) -> None:
    files = filled(stop=True)
    journal, _ = opened(files)

    def hook(done: str, path: Path) -> None:
        if done == "names" and path.name == "topic-x":
            files.hook = None
            if sequence == 7:
                journal.stream("topic-x").free_before(7)
            journal.commit({"topic-x": entries(10)}, 10, roll=["topic-x"])

    files.hook = hook
    assert missing_segments(files, FOLDER) == {}
    assert files.hook is None


def test_streams_are_found_while_the_manifest_is_replaced(tmp_path: Path) -> None:
    """Its partial file was there when the folder was listed, and is gone now."""

    class Files(RealFiles):
        def names(self, folder: Path) -> list[str]:
            return super().names(folder) + (["manifest.partial"] if folder == tmp_path else [])

    journal = Journal(REAL, tmp_path)
    journal.open(["main"])
    journal.commit({"main": entries(1)}, 1)
    assert streams_of(tmp_path, Files()) == [tmp_path / "main"]
    journal.close()
