"""Files of the history: they are limited, they survive a crash and a full disk, and one broker has them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headway.store.history import (
    PARTS,
    EntryKind,
    FolderLock,
    FolderLocked,
    HistoryEntry,
    Series,
    decode_entry,
    encode_entry,
    files_of,
    utc,
)

NOW = 1_795_000_000.0
MB = 1_000_000


def line(number: int, wall_s: float = NOW, text: str = "") -> bytes:
    entry = HistoryEntry(wall_s=wall_s, time=utc(wall_s), kind=EntryKind.VERDICT, run="r", client=f"c{number}",
                  reason="blocked", number=number, text=text)  # fmt: skip
    return encode_entry(entry) + b"\n"


def series(folder: Path, bytes_max: int = MB, keep_s: float = 86_400.0) -> Series:
    return Series(folder, EntryKind.VERDICT, bytes_max, keep_s)


def numbers(folder: Path) -> list[int]:
    """The numbers of all entries, in the order of the files."""
    lines = [text for path in files_of(folder, EntryKind.VERDICT) for text in path.read_bytes().split(b"\n")]
    return [entry.number for text in lines if (entry := decode_entry(text)) is not None]


def test_what_is_appended_is_there_and_a_later_start_goes_on_in_the_same_file(tmp_path: Path) -> None:
    first = series(tmp_path)
    first.append(line(1) + line(2), NOW)
    first.close()
    series(tmp_path).append(line(3), NOW)
    assert numbers(tmp_path) == [1, 2, 3]
    assert [path.name for path in files_of(tmp_path, EntryKind.VERDICT)] == ["verdicts-00000001.jsonl"]


def test_all_files_together_stay_within_the_size_and_the_latest_are_kept(tmp_path: Path) -> None:
    one = series(tmp_path)
    for number in range(600):
        one.append(line(number, text="x" * 4_000), NOW)
        assert one.bytes <= MB
    kept = numbers(tmp_path)
    assert kept == list(range(kept[0], 600))
    assert one.bytes > MB * (PARTS - 2) / PARTS
    assert one.bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_what_is_too_old_goes_a_file_at_a_time_also_the_last_one(tmp_path: Path) -> None:
    one = series(tmp_path, keep_s=1600.0)
    for number in range(4):
        one.append(line(number), NOW + number * 200)  # a file each: a part of the age is 100 s
    paths = files_of(tmp_path, EntryKind.VERDICT)
    assert len(paths) == 4
    for number, path in enumerate(paths):
        os.utime(path, (NOW + number * 200, NOW + number * 200))
    one.remove_old(NOW + 1900)
    assert numbers(tmp_path) == [2, 3]
    one.remove_old(NOW + 9999)
    assert numbers(tmp_path) == []
    one.append(line(9), NOW + 9999)
    assert numbers(tmp_path) == [9]


@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_torn_last_line_costs_only_itself(tmp_path: Path, cut: int) -> None:
    one = series(tmp_path)
    one.append(line(1) + line(2), NOW)
    one.close()
    (path,) = files_of(tmp_path, EntryKind.VERDICT)
    os.truncate(path, path.stat().st_size - cut)
    series(tmp_path).append(line(3), NOW)
    assert numbers(tmp_path) == ([1, 2, 3] if cut == 1 else [1, 3])


@pytest.mark.parametrize("also_the_undoing", [False, True])
def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, also_the_undoing: bool
) -> None:
    one = series(tmp_path)
    one.append(line(1), NOW)
    whole, truncate = os.write, os.ftruncate

    def half(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(fd, data[: len(data) // 2])

    def fails(fd: int, size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", half)
    if also_the_undoing:
        monkeypatch.setattr(os, "ftruncate", fails)
    with pytest.raises(OSError, match="No space left"):
        one.append(line(2), NOW)
    monkeypatch.setattr(os, "write", whole)
    monkeypatch.setattr(os, "ftruncate", truncate)
    one.append(line(3), NOW)
    assert numbers(tmp_path) == [1, 3]


def test_a_file_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    one = series(tmp_path / "deep" / "er")
    one.append(line(1), NOW)
    for path in files_of(tmp_path / "deep" / "er", EntryKind.VERDICT):
        path.unlink()
    (tmp_path / "deep" / "er").rmdir()
    one.append(line(2), NOW)
    assert numbers(tmp_path / "deep" / "er") == [2]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    names = ("verdicts-1.jsonl", "verdicts.jsonl", "xverdicts-00000001.jsonl", "ends-00000001.jsonl")
    others = [tmp_path / name for name in names]
    for path in others:
        path.write_text("mine")
    one = series(tmp_path, keep_s=0.0)
    one.append(line(1), NOW)
    one.remove_old(NOW * 2)
    assert numbers(tmp_path) == []
    assert all(path.read_text() == "mine" for path in others)


def test_one_broker_at_a_time(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "history")
    with pytest.raises(FolderLocked):
        FolderLock(tmp_path / "history")
    lock.close()
    FolderLock(tmp_path / "history").close()
    assert list((tmp_path / "history").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        FolderLock(tmp_path / "file")
