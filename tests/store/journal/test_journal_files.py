"""The journal as a whole on a real file system: round trip, the lock, errors of one stream among several."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles

from headway.store.journal.disk import REAL
from headway.store.journal.journal import Journal, Locked
from headway.store.journal.manifest import LOCK_NAME, MANIFEST_BYTES_MAX, MANIFEST_NAME, is_stream_name
from headway.store.journal.recovery import check, streams_of, verify
from headway.store.journal.segments import Corrupt, file_name
from headway.store.journal.segments.batch import Entry
from headway.store.staged import STAGED


def entries(*sequences: int) -> list[Entry]:
    return [Entry(1, sequence, 1, (b"%d" % sequence,)) for sequence in sequences]


def sequences(journal: Journal, name: str) -> list[int]:
    return [stored.sequence for _, found in journal.stream(name).scan() for stored in found]


def test_a_round_trip_on_a_real_disk(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "journal"
    journal = Journal(REAL, folder, segment_bytes=100_000)
    assert journal.open(["records", "facts-1"]) == []
    large = bytes(5000)
    for n in (1, 2):
        journal.commit({"records": [Entry(2, n, 1, (large,) * 1200)]}, 5)  # more pieces than one call takes
    journal.commit({"records": entries(3, 4), "facts-1": entries(1)}, 6, roll={"records"})
    assert [(s.first_sequence, s.last_sequence) for s in journal.stream("records").segments] == [(1, 1), (2, 2), (3, 4)]
    journal.stream("records").free_before(2)
    journal.close()
    again = Journal(REAL, folder)
    assert again.open(["records", "facts-1"]) == []
    assert sequences(again, "records") == [2, 3, 4]
    assert sequences(again, "facts-1") == [1]
    found = again.stream("records").batch_with(2)
    assert found is not None
    assert found[0].data == large * 1200
    again.close()
    assert [path.name for path in streams_of(folder)] == ["facts-1", "records"]
    assert all(verify(path).good for path in streams_of(folder))


def test_two_brokers_cannot_share_a_folder(tmp_path: Path) -> None:
    first, second = Journal(REAL, tmp_path), Journal(REAL, tmp_path)
    first.open(["records"])
    with pytest.raises(Locked, match=f"in use by process {os.getpid()}$"):
        second.open(["records"])
    first.close()
    second.open(["records"])
    second.close()


@pytest.mark.parametrize("name", ["", "Up", "a/b", "..", "a" * 65, LOCK_NAME, MANIFEST_NAME, STAGED])
def test_names_of_streams_are_plain(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        Journal(FakeFiles(), Path("/j")).open([name])


def test_an_error_of_one_stream_does_not_keep_the_others_from_the_disk() -> None:
    files = FakeFiles()
    journal = Journal(files, Path("/j"))
    journal.open(["one", "two"])
    journal.commit({"one": entries(1), "two": entries(1)}, 1)

    def hook(operation: str, path: Path) -> None:
        if operation == "sync" and path.parent.name == "one":
            raise OSError(errno.EIO, "sync fails")

    files.hook = hook
    with pytest.raises(OSError, match="sync fails"):
        journal.commit({"one": entries(2), "two": entries(2)}, 2)
    with pytest.raises(OSError, match="sync fails"):
        journal.commit({"one": entries(3), "two": entries(3)}, 3)
    assert journal.stream("two").unsynced_bytes == 0
    assert journal.stream("one").unsynced_bytes == journal.unsynced_bytes > 0
    assert journal.broken is not None
    files.hook = None
    journal.commit({}, 4)
    assert (journal.unsynced_bytes, journal.broken) == (0, None)
    assert sequences(journal, "one") == sequences(journal, "two") == [1, 2, 3]


def test_entries_that_cannot_be_written_leave_the_whole_work_out() -> None:
    journal = Journal(FakeFiles(), Path("/j"))
    journal.open(["one", "two"])
    with pytest.raises(ValueError, match="sequence 1 after 1"):
        journal.commit({"one": entries(1), "two": entries(1, 1)}, 1)
    assert sequences(journal, "one") == []
    journal.commit({"one": entries(1)}, 1, sync=False)
    assert journal.unsynced_bytes > 0
    journal.mend()
    assert journal.unsynced_bytes == 0


@pytest.mark.parametrize(("sync", "left"), [(False, [1]), (True, [1, 2])])
def test_what_a_start_finds_of_partial_commits_the_next_one_finds_too(sync: bool, left: list[int]) -> None:
    """The first stream, which decides, could not be written for two commits; then the process was killed. The other one
    gives up all that is not known to be on disk, and keeps the rest for good."""
    files = FakeFiles()
    journal = Journal(files, Path("/j"))
    journal.open(["one", "two"])
    journal.commit({"one": entries(1), "two": entries(1)}, 1)

    def hook(operation: str, path: Path) -> None:
        if operation in ("write", "create") and path.parent.name == "one":
            raise OSError(errno.EIO, "fails")

    files.hook = hook
    for sequence in (2, 3):
        with pytest.raises(OSError, match="fails"):
            journal.commit({"one": entries(sequence), "two": entries(sequence)}, sequence, sync=sync)
    for _ in range(3):
        files.kill()
        journal = Journal(files, Path("/j"))
        journal.open(["one", "two"])
        assert (sequences(journal, "one"), sequences(journal, "two")) == ([1], left)


# -- something else in the place of a file -----------------------------------------------------------------------------

NAMES = ("main", "retained", "topic-x")
LAST = f"topic-x/{file_name(2)}"
STRAY = f"main/{file_name(50)}"


def left_in(folder: Path, *, stop: bool) -> None:
    """A journal: topic-x has two segments, main one, retained none."""
    journal = Journal(REAL, folder)
    journal.open(NAMES)
    journal.commit({"main": entries(1, 2), "topic-x": entries(1)}, 1)
    journal.commit({"topic-x": entries(2)}, 2, roll=["topic-x"])
    journal.finish() if stop else journal.close()


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return damage


def _filled_folder(path: Path) -> None:
    path.mkdir()
    (path / "something").write_text("else")


def _listed(stream: str, more: bytes = b"") -> Callable[[Path], None]:
    """A manifest with a checksum that is right."""

    def damage(path: Path) -> None:
        text = path.read_bytes()[:-9].replace(b'"topic-x":', b'"%s":' % stream.encode()).replace(b"{", b"{" + more, 1)
        path.write_bytes(text + b"%08x\n" % zlib.crc32(text))

    return damage


A_FOLDER, A_PIPE = _replaced(_filled_folder), _replaced(os.mkfifo)
NOWHERE = _replaced(lambda path: path.symlink_to("/nonexistent/file"))
LOOP = _replaced(lambda path: path.symlink_to(path.name))
A_FILE = _replaced(lambda path: path.write_text("x"))
MISPLACED = "is missing: {} is in its place"
BAD = "cannot be a stream's name"

ODDITIES = {
    "folder": (LAST, A_FOLDER, MISPLACED.format("a folder")),
    "pipe": (LAST, A_PIPE, MISPLACED.format("a pipe")),
    "dangling link": (LAST, NOWHERE, MISPLACED.format("a link that leads nowhere")),
    "link loop": (LAST, LOOP, MISPLACED.format("a link that leads nowhere")),
    "device": (LAST, _replaced(lambda path: path.symlink_to("/dev/zero")), MISPLACED.format("a device")),
    "stray folder": (STRAY, A_FOLDER, MISPLACED.format("a folder")),
    "stray pipe": (STRAY, A_PIPE, MISPLACED.format("a pipe")),
    "first segment": (f"topic-x/{file_name(1)}", A_FOLDER, MISPLACED.format("a folder")),
    "stream a file": ("retained", A_FILE, MISPLACED.format("a file")),
    "listed stream a file": ("topic-x", A_FILE, MISPLACED.format("a file")),
    "stream a dangling link": ("main", NOWHERE, MISPLACED.format("a link that leads nowhere")),
    "stream a link loop": ("topic-x", LOOP, MISPLACED.format("a link that leads nowhere")),
    "manifest a folder": (MANIFEST_NAME, A_FOLDER, MISPLACED.format("a folder")),
    "manifest a pipe": (MANIFEST_NAME, A_PIPE, MISPLACED.format("a pipe")),
    "manifest a loop": (MANIFEST_NAME, LOOP, MISPLACED.format("a link that leads nowhere")),
    "manifest huge": (MANIFEST_NAME, lambda path: os.truncate(path, 2 * MANIFEST_BYTES_MAX), "longer than"),
    "manifest deep": (MANIFEST_NAME, _listed("y", b'"x":' + b"[" * 10**5 + b"]" * 10**5 + b","), "recursion"),
    "name outside": (MANIFEST_NAME, _listed("../evil"), f"'../evil', which {BAD}"),
    "name empty": (MANIFEST_NAME, _listed(""), f"'', which {BAD}"),
    "name long": (MANIFEST_NAME, _listed("x" * 400), BAD),
    "name with NUL": (MANIFEST_NAME, _listed("a\\u0000b"), f"'a\\x00b', which {BAD}"),
    "lock a folder": (LOCK_NAME, A_FOLDER, MISPLACED.format("a folder")),
    "lock a pipe": (LOCK_NAME, A_PIPE, MISPLACED.format("a pipe")),
    "lock a loop": (LOCK_NAME, LOOP, MISPLACED.format("a link that leads nowhere")),
}


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("kind", ODDITIES)
def test_verify_start_and_repair_agree_on_what_is_in_the_place_of_a_file(tmp_path: Path, kind: str, stop: bool) -> None:
    left_in(tmp_path, stop=stop)
    place, damage, what = ODDITIES[kind]
    damage(tmp_path / place)
    found = [loss for report in check(tmp_path, expected=NAMES) for loss in report.losses]
    assert found[0].startswith(f"{tmp_path / place} ")
    assert what in found[0]
    journal = Journal(REAL, tmp_path)
    with pytest.raises(Corrupt) as raised:
        journal.open(NAMES)
    assert str(raised.value).startswith(f"{tmp_path / place} is ")
    assert what in str(raised.value)
    said = journal.open(NAMES, repair=True)
    assert any(line.startswith(f"{tmp_path / place} ") and what in line for line in said)
    journal.commit({name: entries(10) for name in NAMES}, 3)
    assert all(sequences(journal, name)[-1] == 10 for name in NAMES)
    if not place.startswith(("main", "topic-x")):
        assert (sequences(journal, "main"), sequences(journal, "topic-x")) == ([1, 2, 10], [1, 2, 10])
    journal.finish()
    assert all(report.good for report in check(tmp_path, expected=NAMES))
    assert journal.open(NAMES) == []
    journal.close()
    if damage is A_FOLDER:
        assert (tmp_path / f"{place}.unreadable" / "something").read_text() == "else"


@pytest.mark.parametrize("name", ["lost+found", ".snapshot", "main.bak", "Topic X"])
def test_other_folders_are_no_streams(tmp_path: Path, name: str) -> None:
    left_in(tmp_path, stop=True)
    shutil.copytree(tmp_path / "main", tmp_path / name)
    assert [path.name for path in streams_of(tmp_path)] == ["main", "topic-x"]
    assert all(report.good for report in check(tmp_path))
    assert not is_stream_name(name)


def test_an_error_of_the_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_in(tmp_path, stop=True)

    def fails(*args: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("headway.store.journal.segments.segment.read_all", fails)
    with pytest.raises(OSError, match=file_name(1)):
        verify(tmp_path / "main")
