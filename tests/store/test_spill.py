"""The spill on a real file system: whole pieces or an error, nothing left behind, space freed with the last reader."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.store.spill import FILE_BYTES, SMALL_BYTES, Slot, SpilledChunk, SpillStore

LARGE = bytes(SMALL_BYTES)
"""Enough for a file of its lane's own."""


def written(store: SpillStore, lane: str, *pieces: bytes) -> list[SpilledChunk]:
    chunks = [answer for answer in store.write(lane, pieces) if isinstance(answer, SpilledChunk)]
    assert len(chunks) == len(pieces)
    return chunks


def shared(store: SpillStore, lane: str, piece: bytes) -> Slot:
    (slot,) = store.write(lane, [piece])
    assert isinstance(slot, Slot)
    return slot


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
    first, second = written(store, "a", LARGE, b"y")
    store.close()
    first.release()
    assert is_open(second.fd)
    fd = second.fd
    second.release()
    assert not is_open(fd)


def test_a_lane_that_needs_nothing_any_more_is_tidied_away(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    (idle,), (busy,) = written(store, "idle", LARGE), written(store, "busy", LARGE)
    idle.release()
    store.tidy()
    assert not is_open(idle.fd)
    assert busy.read(0, busy.size) == LARGE


def test_a_new_file_is_begun_when_one_is_full(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    (big,) = written(store, "a", bytes(FILE_BYTES - 1))
    (next_one,) = written(store, "a", b"xy")
    assert big.fd != next_one.fd
    assert next_one.read(0, 2) == b"xy"


def test_a_file_that_somebody_cut_short_is_not_written_on(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    (lost,) = written(store, "a", LARGE)
    os.ftruncate(lost.fd, 0)
    (kept,) = written(store, "a", b"y" * 100)  # it has a file, if a damaged one
    assert kept.read(0, 100) == b"y" * 100
    with pytest.raises(OSError, match="ends after 0 of 65536"):
        lost.read(0, SMALL_BYTES)


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


def test_those_who_have_little_share_a_file(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    slots = [shared(store, f"lane {n}", bytes([n]) * (n * 100 + 1)) for n in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert [slot.read(0, slot.size) for slot in slots] == [bytes([n]) * (n * 100 + 1) for n in range(100)]
    assert slots[50].read(3, 5) == b"22"
    store.close()
    assert slots[99].read(0, 1) == b"c", "who lets go of the store does not take it from those who read"
    for slot in slots:
        slot.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_released_is_written_over_and_nothing_else(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    first, second, third = (shared(store, name, name.encode() * 1500) for name in "abc")
    second.release()
    again = shared(store, "d", b"d" * 2048)
    assert again.start == second.start
    larger = shared(store, "e", b"e" * 2049)
    assert [one.read(0, 9)[:1] for one in (first, again, third, larger)] == [b"a", b"d", b"c", b"e"]
    assert again.disk_bytes == 2048
    assert larger.disk_bytes == 4096


def test_free_slots_are_put_together_and_divided(tmp_path: Path) -> None:
    """Pieces of every size one after the other, and one that stays: the file has room for all of them in turn."""
    store = SpillStore(tmp_path)
    stays = shared(store, "stays", b"s" * 10)
    for size in (1000, 60_000, 3000, 30_000, 1000, 15_000):
        slots = [shared(store, "a", bytes([size % 251]) * size) for _ in range(500_000 // size)]
        assert all(slot.read(0, slot.size) == bytes([size % 251]) * size for slot in slots)
        for slot in slots:
            slot.release()
    assert os.fstat(stays._file.fd).st_size <= 2 * 524_288 + 65_536
    assert stays.read(0, 10) == b"s" * 10


def test_an_empty_shared_file_takes_up_nothing(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    slots = [shared(store, "a", b"a" * 10_000) for _ in range(10)]
    for slot in slots:
        slot.release()
    assert shared(store, "b", b"b").start == 0


def test_a_shared_file_that_somebody_cut_short_is_not_written_on(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    lost = shared(store, "a", b"x" * 100)
    os.truncate(f"/proc/self/fd/{lost._file.fd}", 0)
    kept = shared(store, "a", b"y" * 100)
    assert kept.read(0, 100) == b"y" * 100
    with pytest.raises(OSError, match="ends after 0 of 100"):
        lost.read(0, 100)


def test_what_is_sent_from_a_file_is_never_written_over(tmp_path: Path) -> None:
    """The kernel sends what stands in the file when the consumer has room for it."""
    assert shared(SpillStore(tmp_path), "a", b"x").fd == -1
