"""The journal as a whole on a real file system: round trip, the lock, errors of one stream among several."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.store.journal.fake_files import FakeFiles

from headway.store.journal.disk import REAL
from headway.store.journal.journal import Journal, Locked
from headway.store.journal.recovery import streams_of, verify
from headway.store.journal.segments.batch import Entry


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


@pytest.mark.parametrize("name", ["", "Up", "a/b", "..", "lock", "a" * 65])
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
