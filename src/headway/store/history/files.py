"""Files of the history: lines are appended, and the oldest files are removed.

Rules:
- Each kind of entry has a series of files, ``FOLDER/<kind>s-<number>.jsonl``. Only the last one grows.
- A series is limited in size and in age. A file is a small part of either limit, and is removed whole.
- An append that fails leaves the file as it was. A torn last line of a crash is ended when the file is opened again;
  readers skip it.
- One broker at a time writes into a folder: it holds a lock on the folder itself, which leaves no file behind.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from headway.store.history.entry import EntryKind, decode_entry

PARTS = 16
"""A file holds about this part of what its series may hold."""
PART_BYTES_MIN = 4_096
_HEAD_BYTES = 64 * 1024


class FolderLocked(Exception):
    """Another broker writes its history into this folder."""


class FolderLock:
    """Makes the folder, and locks it. Raises OSError, FolderLocked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(folder))
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise FolderLocked(str(folder)) from None
        except OSError:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)


class Series:
    """The files of one kind of entry. One thread appends to them."""

    def __init__(self, folder: Path, kind: EntryKind, bytes_max: int, keep_s: float) -> None:
        self._folder = folder
        self._kind = kind
        self._bytes_max = bytes_max
        self._keep_s = keep_s
        self.part_bytes = max(PART_BYTES_MIN, bytes_max // PARTS)
        """The size of one file, and the most that one append takes."""
        self._fd: int | None = None
        self._size = 0
        self._begun_s = 0.0
        """Time of the first entry of the open file."""

    def append(self, lines: bytes, wall_s: float) -> None:
        """Appends whole lines, at most ``part_bytes`` of them, and removes what is beyond the limits. Raises OSError;
        then nothing was appended."""
        fd = self._file(len(lines), wall_s)
        written = 0
        try:
            while written < len(lines):
                written += os.write(fd, lines[written:])
            os.fdatasync(fd)
        except OSError:
            self._undo(fd)
            raise
        self._size += len(lines)
        self.remove_old(wall_s)

    def _undo(self, fd: int) -> None:
        """Takes back a half-written append. Where that fails too, the next append goes to a new file."""
        try:
            os.ftruncate(fd, self._size)
        except OSError:
            self.close()

    def _file(self, more: int, wall_s: float) -> int:
        """Returns the open file to append to: the last one, or a new one. Raises OSError."""
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self.close()  # somebody removed it
        if self._fd is None:
            self._reopen()
        old = wall_s - self._begun_s > self._keep_s / PARTS
        if self._fd is None or (self._size and (self._size + more > self.part_bytes or old)):
            self.close()
            last = files_of(self._folder, self._kind)[-1:]
            number = _number(last[0]) + 1 if last else 1
            path = self._folder / f"{self._kind}s-{number:08d}.jsonl"
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size, self._begun_s = 0, wall_s
        return self._fd

    def _reopen(self) -> None:
        """Opens the last file of an earlier start, and ends its last line if a crash tore it. Raises OSError."""
        last = files_of(self._folder, self._kind)[-1:]
        if not last or last[0].stat().st_size >= self.part_bytes:
            return
        self._fd = os.open(last[0], os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._fd).st_size
        first = decode_entry(os.pread(self._fd, _HEAD_BYTES, 0).partition(b"\n")[0])
        self._begun_s = first.wall_s if first is not None else 0.0
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._size += os.write(self._fd, b"\n")

    def remove_old(self, wall_s: float) -> None:
        """Removes files that have nothing younger than ``keep``, and the oldest beyond the size. Raises OSError."""
        found = [(path, path.stat()) for path in files_of(self._folder, self._kind)]
        total = sum(stat.st_size for _, stat in found)
        for number, (path, stat) in enumerate(found, 1):
            last = number == len(found)
            too_much = total > self._bytes_max - self.part_bytes and not last
            if not too_much and wall_s - stat.st_mtime <= self._keep_s:
                break
            if last:
                self.close()
            path.unlink()
            total -= stat.st_size

    @property
    def bytes(self) -> int:
        """The size of all files of the series; raises OSError."""
        return sum(path.stat().st_size for path in files_of(self._folder, self._kind))

    def close(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None


_NAME = re.compile(r"([a-z]+)s-(\d{8,18})\.jsonl")


def files_of(folder: Path, kind: EntryKind) -> list[Path]:
    """Returns the files of a series, the oldest first; none if there is no such folder. Raises OSError."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [match for name in names if (match := _NAME.fullmatch(name)) and match[1] == kind]
    return [folder / match[0] for match in sorted(found, key=lambda match: int(match[2]))]


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match else 0
