"""The spill on a real file system: whole pieces or an error, nothing left behind, space freed with the last reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.store.spill import FILE_BYTES, SpilledChunk, SpillStore


def written(store: SpillStore, lane: str, *pieces: bytes) -> list[SpilledChunk]:
    chunks = [answer for answer in store.write(lane, pieces) if isinstance(answer, SpilledChunk)]
    assert len(chunks) == len(pieces)
    return chunks


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_what_was_written_is_read_back_in_part_and_whole(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    pieces = [bytes([65 + n]) * (n * 1000) for n in range(1, 100)]
    chunks = written(store, "a", *pieces)
    assert [chunk.read(0, chunk.size) for chunk in chunks] == pieces
    assert chunks[7].read(5, 9) == b"IIII"
    assert list(tmp_path.iterdir()) == [], "files have no name, so nothing is left behind however the process ends"


def test_a_file_is_closed_with_the_last_of_its_chunks(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    first, second = written(store, "a", b"x", b"y")
    store.close()
    first.release()
    assert is_open(second.fd)
    fd = second.fd
    second.release()
    assert not is_open(fd)


def test_a_lane_that_needs_nothing_any_more_is_tidied_away(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    (idle,), (busy,) = written(store, "idle", b"x"), written(store, "busy", b"y")
    idle.release()
    store.tidy()
    assert not is_open(idle.fd)
    assert busy.read(0, 1) == b"y"


def test_a_new_file_is_begun_when_one_is_full(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    (big,) = written(store, "a", bytes(FILE_BYTES - 1))
    (next_one,) = written(store, "a", b"xy")
    assert big.fd != next_one.fd
    assert next_one.read(0, 2) == b"xy"


def test_a_file_that_somebody_cut_short_is_not_written_on(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    (lost,) = written(store, "a", b"x" * 100)
    os.ftruncate(lost.fd, 0)
    (kept,) = written(store, "a", b"y" * 100)
    assert kept.read(0, 100) == b"y" * 100
    with pytest.raises(OSError, match="ends after 0 of 100"):
        lost.read(0, 100)


def test_where_nothing_can_be_written_it_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OSError, match="file"):
        SpillStore(file / "folder")


def test_without_a_folder_any_more_each_piece_has_its_error(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    store = SpillStore(folder)
    folder.rmdir()
    answers = store.write("a", [b"x", b"y"])
    assert [type(answer) for answer in answers] == [FileNotFoundError, FileNotFoundError]
