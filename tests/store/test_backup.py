"""Held files: what is copied meanwhile is not removed, and goes once nothing holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.store.backup import (
    BadBackup,
    Contents,
    HeldFile,
    contents_at_rest,
    make_backup,
    read_backup,
    restore_backup,
)
from headway.store.journal import REAL, Entry, Journal, check
from headway.store.journal.manifest import read_manifest
from headway.store.staged import Staged


def filled(folder: Path, segments: int) -> Journal:
    journal = Journal(REAL, folder)
    journal.open(["main"])
    for number in range(1, segments + 1):
        journal.commit({"main": [Entry(1, number, 1, [b"x" * 100])]}, number, roll=["main"])
    return journal


def contents(folder: Path, held: list[tuple[Path, int]]) -> Contents:
    return Contents(str(folder), 1, "0", [HeldFile(str(path.relative_to(folder)), size) for path, size in held])


def test_segments_stay_while_two_hold_them(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal", 5)
    stream = journal.stream("main")
    first, second = journal.hold(), journal.hold()
    assert first == second
    journal.release()
    assert stream.free_before(5) == 0
    assert all(path.stat().st_size == size for path, size in first)
    journal.release()
    assert stream.free_before(5) > 0
    assert not first[0][0].exists()
    journal.close()


def test_a_backup_ends_where_the_hold_began(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal", 3)
    held = journal.hold()
    journal.commit({"main": [Entry(1, 9, 1, [b"later"])]}, 9)
    make_backup(contents(journal.folder, held), tmp_path / "backup", lambda: None)
    journal.close()
    restore_backup(tmp_path / "backup", tmp_path / "new")
    found = Journal(REAL, tmp_path / "new")
    found.open(["main"])
    assert found.stream("main").last_sequence == 3
    found.close()
    assert all(report.good and not report.notes for report in check(tmp_path / "new"))


def test_a_backup_of_a_running_journal_lists_what_is_in_it_and_no_clean_stop(tmp_path: Path) -> None:
    """Its manifest is made of the copy: that of the broker lists segments that were made since."""
    journal = filled(tmp_path / "journal", 3)
    held = journal.hold()
    journal.commit({"main": [Entry(1, 9, 1, [b"later"])]}, 9, roll=["main"])
    make_backup(contents(journal.folder, held), tmp_path / "backup", lambda: None)
    journal.finish()
    assert read_backup(tmp_path / "backup").files == contents(journal.folder, held).files
    restore_backup(tmp_path / "backup", tmp_path / "new")
    for folder in (tmp_path / "backup", tmp_path / "new"):
        listed = read_manifest(REAL, folder)
        assert listed is not None
        assert (listed["main"].first.ordinal, listed["main"].last.ordinal, listed["main"].end) == (1, 3, None)
    (tmp_path / "new" / "main" / "0000000003.journal").unlink()
    assert [report.good for report in check(tmp_path / "new")] == [False]


def test_a_backup_at_rest_has_the_marks_of_the_clean_stop(tmp_path: Path) -> None:
    filled(tmp_path / "journal", 3).finish()
    make_backup(contents_at_rest(tmp_path / "journal", 1, "0"), tmp_path / "backup", lambda: None)
    restore_backup(tmp_path / "backup", tmp_path / "new")
    assert (tmp_path / "new" / "manifest").read_bytes() == (tmp_path / "journal" / "manifest").read_bytes()
    last = tmp_path / "new" / "main" / "0000000003.journal"
    last.write_bytes(last.read_bytes()[:128])
    assert [report.good for report in check(tmp_path / "new")] == [False]


def test_a_backup_without_a_manifest_is_restored_and_gets_one(tmp_path: Path) -> None:
    """One that an older release made."""
    journal = filled(tmp_path / "journal", 3)
    make_backup(contents(journal.folder, journal.hold()), tmp_path / "backup", lambda: None)
    journal.close()
    (tmp_path / "backup" / "manifest").unlink()
    restore_backup(tmp_path / "backup", tmp_path / "new")
    listed = read_manifest(REAL, tmp_path / "new")
    assert listed is not None
    assert listed["main"].last.ordinal == 3


def test_two_backups_to_one_place_do_not_take_each_others_files(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal", 3)
    listed, place = contents(journal.folder, journal.hold()), tmp_path / "backup"

    def meanwhile() -> None:
        with pytest.raises(BadBackup, match="is being made by somebody else just now"):
            make_backup(listed, place, lambda: None)

    make_backup(listed, place, meanwhile)
    journal.close()
    assert read_backup(place) == listed
    killed = place.with_name(".again.partial")
    (killed / "main").mkdir(parents=True)
    (killed / "main" / "half").write_bytes(b"half")
    make_backup(listed, tmp_path / "again", lambda: None)
    assert not list((tmp_path / "again").rglob("half"))


def test_what_was_not_held_to_the_end_is_no_backup(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal", 3)
    listed = contents(journal.folder, journal.hold())
    journal.close()

    def gone() -> None:
        raise BadBackup("the broker stopped")

    with pytest.raises(BadBackup, match="stopped"):
        make_backup(listed, tmp_path / "backup", gone)
    with pytest.raises(BadBackup, match="there is no backup"):
        read_backup(tmp_path / "journal")
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_a_file_that_is_shorter_than_it_was_is_noticed(tmp_path: Path) -> None:
    journal = filled(tmp_path / "journal", 3)
    held = journal.hold()
    journal.close()
    last = held[-1][0]
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(BadBackup):
        make_backup(contents(tmp_path / "journal", held), tmp_path / "backup", lambda: None)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_parts_stay_while_they_are_held_or_needed_and_go_later(tmp_path: Path) -> None:
    staged = Staged(REAL, tmp_path / "staged")
    part = staged.add("w", b"rows")
    assert staged.hold() == [(staged.path("w", part), 4)]
    staged.remove("w", [part])
    assert staged.tidy(-60.0, ()) == 0
    assert staged.missing("w", [part]) == []
    staged.release()
    assert staged.tidy(-60.0, {part}) == 0
    assert staged.tidy(-60.0, ()) == 1
    assert staged.missing("w", [part]) == [part]


@pytest.mark.parametrize("path", ["../outside", "main/../../outside", "/tmp/outside", "", ".", "a\\u0000b"])
def test_a_list_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    """It made files wherever it named them."""
    place = tmp_path / "backups" / "one"
    place.mkdir(parents=True)
    (place.parent / "outside").write_bytes(b"x")
    listed = f'{{"folder": "", "time_us": 1, "release": "0", "files": [{{"path": "{path}", "bytes": 1}}]}}'
    (place / "backup.json").write_text(listed)
    with pytest.raises(BadBackup, match="no file within"):
        restore_backup(place, tmp_path / "new" / "journal")
    assert not (tmp_path / "new").exists()
