"""The disk, as the journal uses it: calls on files that a test can replace, and a cache of open files."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

# -- files -------------------------------------------------------------------------------------------------------------
#
# The file system as the journal uses it: few calls, so that a test can replace it.


Buffer = bytes | bytearray | memoryview


class Misplaced(OSError):
    """Something else is in the place of a file or a folder, such as a pipe or a link to nothing; ``strerror`` says
    what. It had no bytes of the journal, so callers take it for a missing file that cannot be written either."""


class Files(Protocol):
    """Calls on files. All raise OSError. A file is a descriptor; offsets are in bytes."""

    def create(self, path: Path) -> int:
        """Returns a new file, to read and write. Raises FileExistsError."""

    def open(self, path: Path, *, read_only: bool = False) -> int:
        """Raises FileNotFoundError; Misplaced."""

    def write(self, fd: int, views: Sequence[Buffer], offset: int) -> int:
        """Returns how many bytes were written, possibly fewer than given."""

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Returns at most ``size`` bytes, which may be fewer; none at the end."""

    def sync(self, fd: int) -> None:
        """Syncs the file's data and size to disk. After an error nothing is known of what was not synced
        before, and a second call that succeeds says nothing about it."""

    def truncate(self, fd: int, size: int) -> None: ...

    def close(self, fd: int) -> None: ...

    def size(self, path: Path) -> int: ...

    def names(self, folder: Path) -> list[str]:
        """Raises FileNotFoundError; Misplaced."""

    def make_folder(self, path: Path) -> None:
        """Creates a folder and its parents durably."""

    def remove(self, path: Path) -> None: ...

    def rename(self, old: Path, new: Path) -> None:
        """Renames a file; ``new`` is replaced if it is there."""

    def sync_folder(self, path: Path) -> None:
        """Brings the names in a folder to disk."""

    def lock(self, path: Path) -> int:
        """Opens a file, or creates it, and locks it until it is closed. Raises BlockingIOError; Misplaced."""


class RealFiles:
    """The os module."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)

    def open(self, path: Path, *, read_only: bool = False) -> int:
        _demand(path, stat.S_IFREG)  # before it is opened: to open a pipe would wait for a writer
        return os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)

    def write(self, fd: int, views: Sequence[Buffer], offset: int) -> int:
        return os.pwritev(fd, views, offset)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)  # brings the size along

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, path: Path) -> int:
        return os.stat(path).st_size

    def names(self, folder: Path) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError:
            _demand(folder, stat.S_IFDIR)
            raise

    def make_folder(self, path: Path) -> None:
        if path.is_dir():
            with suppress(PermissionError):  # the folder existed before, and belongs to another user
                self.sync_folder(path.parent)
            return
        self.make_folder(path.parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> int:
        try:
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            _demand(path, stat.S_IFREG)
            raise
        try:
            _demand(path, stat.S_IFREG)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return fd


_KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def _demand(path: Path, kind: int) -> None:
    """Raises Misplaced unless there is a file or a folder (``kind``, of the module stat); OSError."""
    try:
        found = stat.S_IFMT(os.stat(path).st_mode)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) or not path.is_symlink():
            raise
        raise Misplaced(errno.EINVAL, "a link that leads nowhere is in its place", str(path)) from None
    if found != kind:
        raise Misplaced(errno.EINVAL, f"{_KINDS.get(found, 'a device')} is in its place", str(path))


REAL: Files = RealFiles()

IOV_MAX = 1024
"""Buffers that the kernel takes in one call."""


@contextmanager
def opened(files: Files, path: Path, *, read_only: bool = False) -> Iterator[int]:
    """Yields the descriptor of a file, which is closed at the end of the block. Raises OSError."""
    fd = files.open(path, read_only=read_only)
    try:
        yield fd
    finally:
        files.close(fd)


def write_all(files: Files, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
    """Writes all buffers, in as few calls as possible. Raises OSError; then any part of them may be written."""
    views = [memoryview(buffer) for buffer in buffers]
    done = 0
    while done < len(views):
        count = files.write(fd, views[done : done + IOV_MAX], offset)
        offset += count
        while done < len(views) and count >= len(views[done]):
            count -= len(views[done])
            done += 1
        if done < len(views):
            views[done] = views[done][count:]


def write_file(files: Files, path: Path, data: bytes) -> None:
    """Writes a file that appears whole and on disk, or not at all; it replaces an older one. Raises OSError."""
    partial = path.with_suffix(".partial")
    with suppress(FileNotFoundError):
        files.remove(partial)
    try:
        fd = files.create(partial)
        try:
            write_all(files, fd, [data], 0)
            files.sync(fd)
        finally:
            files.close(fd)
        files.rename(partial, path)
    except BaseException:
        with suppress(OSError):
            files.remove(partial)
        raise
    files.sync_folder(path.parent)


def read_all(files: Files, fd: int, size: int, offset: int) -> bytes:
    """Returns so many bytes, or as many as there are before the end of the file."""
    data = files.read(fd, size, offset)
    if len(data) == size or not data:
        return data
    pieces = [data]
    have = len(data)
    while have < size and (data := files.read(fd, size - have, offset + have)):
        pieces.append(data)
        have += len(data)
    return b"".join(pieces)


# -- file cache --------------------------------------------------------------------------------------------------------
#
# The file cache: keeps a few files open for reading, and closes none while it is read.


OPEN_MAX = 8


class _CachedFile:
    __slots__ = ("fd", "forgotten", "readers")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.readers = 0
        self.forgotten = False


class FileCache:
    """For any thread."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _CachedFile] = OrderedDict()
        self._forgets = 0

    @contextmanager
    def reading(self, path: Path) -> Iterator[int]:
        """Yields the file's descriptor, good until the end of the block. Raises OSError."""
        file = self._hold(path)
        try:
            yield file.fd
        finally:
            self._release(file)

    def forget(self, path: Path) -> None:
        """Drops a file that was removed or replaced."""
        with self._lock:
            self._forgets += 1
            file = self._open.pop(path, None)
            if file is not None:
                self._retire(file)

    def close(self) -> None:
        with self._lock:
            while self._open:
                self._retire(self._open.popitem()[1])

    def _hold(self, path: Path) -> _CachedFile:
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                return self._held(path, file)
            forgets = self._forgets
        fresh = _CachedFile(self._files.open(path, read_only=True))  # may be slow
        with self._lock:
            if forgets != self._forgets:  # perhaps this file was removed: an open one would keep its space
                fresh.readers = 1
                fresh.forgotten = True
                return fresh
            file = self._open.get(path)
            if file is not None:
                self._retire(fresh)
            return self._held(path, file or fresh)

    def _held(self, path: Path, file: _CachedFile) -> _CachedFile:
        self._open[path] = file
        file.readers += 1
        self._open.move_to_end(path)
        if len(self._open) > OPEN_MAX:
            self._retire(self._open.popitem(last=False)[1])
        return file

    def _release(self, file: _CachedFile) -> None:
        with self._lock:
            file.readers -= 1
            if file.forgotten and not file.readers:
                self._files.close(file.fd)

    def _retire(self, file: _CachedFile) -> None:
        """Hides the file from new readers; its last reader closes it."""
        file.forgotten = True
        if not file.readers:
            self._files.close(file.fd)
