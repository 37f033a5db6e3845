"""A file system in memory that fails on demand, and of which ``crash`` leaves what a power loss would.

What it takes from Linux at its worst:
- A sync that fails calls the pages clean without having written them: the cache shows what the disk does not have, and
  the next sync succeeds.
- After a power loss each sector of a page that was not synced since it was written is old or new, or zeros where
  nothing had been synced; the size is anything between the synced one and the one that was seen.
- A name that was made or removed since its folder was synced may be there or not, each for itself.

A sector that was synced is not lost when the bytes behind it in the same page are written: disks do not do that, and
the journal builds on it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.store.journal.disk import Buffer

PAGE = 4096
SECTOR = 512


class PowerLoss(BaseException):
    """Raised by a hook in the middle of an operation: nobody is left to handle it."""


class FakeFile:
    def __init__(self) -> None:
        self.data = bytearray()
        """What is seen."""
        self.disk = bytearray()
        self.dirty: set[int] = set()

    def dirtied(self, start: int, stop: int) -> None:
        self.dirty.update(range(start // PAGE, (stop + PAGE - 1) // PAGE))

    def synced(self) -> None:
        size = len(self.data)
        del self.disk[size:]
        self.disk.extend(bytes(size - len(self.disk)))
        for page in self.dirty:
            self.disk[page * PAGE : (page + 1) * PAGE] = self.data[page * PAGE : (page + 1) * PAGE]
        self.dirty.clear()

    def crashed(self, rng: random.Random) -> FakeFile:
        """What is left of it after a power loss."""
        low, high = sorted((len(self.disk), len(self.data)))
        size = rng.choice((low, high, rng.randint(low, high)))
        left = bytearray(self.disk[:size]) + bytes(max(0, size - len(self.disk)))
        for page in sorted(self.dirty):
            fate = rng.choice(("old", "new", "sectors"))
            for start in range(page * PAGE, min((page + 1) * PAGE, size, len(self.data)), SECTOR):
                stop = min(start + SECTOR, size, len(self.data))
                if fate == "new" or (fate == "sectors" and rng.random() < 0.5):
                    left[start:stop] = self.data[start:stop]
        after = FakeFile()
        after.data, after.disk = left, bytearray(left)
        return after


class FakeFiles:
    """``hook`` is called with the name of each operation and the path before it is done; it may raise or block."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.hook: Callable[[str, Path], None] | None = None
        self.room: int | None = None
        """Bytes that can still be written; then there is ENOSPC."""
        self.rng = rng
        """Where there is one, writes are short at random."""
        self.operations: list[tuple[str, str]] = []
        """Operation and file name."""
        self.seen: dict[Path, FakeFile] = {}
        self.durable: dict[Path, FakeFile] = {}
        self.folders: set[Path] = set()
        self.fds: dict[int, tuple[Path, FakeFile]] = {}
        self.locks: dict[Path, int] = {}
        self._next_fd = 3

    # -- what the journal sees --------------------------------------------------------------------------------------

    def create(self, path: Path) -> int:
        self._enter("create", path)
        if path in self.seen:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        if path.parent not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no folder", str(path))
        self.seen[path] = FakeFile()
        return self._opened(path)

    def open(self, path: Path, *, read_only: bool = False) -> int:
        self._enter("open", path)
        self._known(path)
        return self._opened(path)

    def write(self, fd: int, views: Sequence[Buffer], offset: int) -> int:
        path, file = self.fds[fd]
        self._enter("write", path)
        assert len(views) <= 1024
        data = b"".join(views)
        if self.rng and len(data) > 1 and self.rng.random() < 0.1:
            data = data[: self.rng.randint(1, len(data))]
        if self.room is not None:
            data = data[: self.room]
            if not data:
                raise OSError(errno.ENOSPC, "no space left")
            self.room -= len(data)
        if offset > len(file.data):
            file.data.extend(bytes(offset - len(file.data)))
        file.data[offset : offset + len(data)] = data
        file.dirtied(offset, offset + len(data))
        return len(data)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        path, file = self.fds[fd]
        self._enter("read", path)
        if self.rng and size > 1 and self.rng.random() < 0.1:
            size = self.rng.randint(1, size)
        return bytes(file.data[offset : offset + size])

    def sync(self, fd: int) -> None:
        path, file = self.fds[fd]
        try:
            self._enter("sync", path)
        except OSError:
            file.dirty.clear()  # as Linux does
            raise
        file.synced()

    def truncate(self, fd: int, size: int) -> None:
        path, file = self.fds[fd]
        self._enter("truncate", path)
        del file.data[size:]
        file.data.extend(bytes(size - len(file.data)))
        file.dirty = {page for page in file.dirty if page * PAGE < size}

    def close(self, fd: int) -> None:
        path, _ = self.fds.pop(fd)
        if self.locks.get(path) == fd:
            del self.locks[path]

    def size(self, path: Path) -> int:
        return len(self._known(path).data)

    def names(self, folder: Path) -> list[str]:
        self._enter("names", folder)
        return [path.name for path in self.seen if path.parent == folder]

    def make_folder(self, path: Path) -> None:
        self._enter("make_folder", path)
        self.folders.update((path, *path.parents))

    def remove(self, path: Path) -> None:
        self._enter("remove", path)
        self._known(path)
        del self.seen[path]

    def rename(self, old: Path, new: Path) -> None:
        self._enter("rename", old)
        self.seen[new] = self._known(old)
        del self.seen[old]

    def sync_folder(self, path: Path) -> None:
        self._enter("sync_folder", path)
        self.durable = {known: file for known, file in self.durable.items() if known.parent != path}
        self.durable |= {known: file for known, file in self.seen.items() if known.parent == path}

    def lock(self, path: Path) -> int:
        self._enter("lock", path)
        if path in self.locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")
        self.seen.setdefault(path, FakeFile())
        fd = self._opened(path)
        self.locks[path] = fd
        return fd

    # -- what the tests do ------------------------------------------------------------------------------------------

    def crash(self, rng: random.Random) -> FakeFiles:
        """What there is after a power loss. This one is not to be used any more."""
        after = FakeFiles(self.rng)
        after.folders = set(self.folders)
        left = {id(file): file.crashed(rng) for file in [*self.seen.values(), *self.durable.values()]}
        for path in sorted(self.seen.keys() | self.durable.keys()):
            file = rng.choice((self.seen.get(path), self.durable.get(path)))
            if file is not None:
                after.seen[path] = after.durable[path] = left[id(file)]
        return after

    def kill(self) -> None:
        """The process ends; what it wrote is still in the cache."""
        self.hook = None
        self.room = None
        self.fds.clear()
        self.locks.clear()

    def flip(self, path: Path, offset: int, bits: int = 0xFF) -> None:
        """Damage a byte, as a disk does that rots."""
        self.seen[path].data[offset] ^= bits

    def _enter(self, operation: str, path: Path) -> None:
        self.operations.append((operation, path.name))
        if self.hook:
            self.hook(operation, path)

    def _known(self, path: Path) -> FakeFile:
        if path not in self.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return self.seen[path]

    def _opened(self, path: Path) -> int:
        self._next_fd += 1
        self.fds[self._next_fd] = (path, self.seen[path])
        return self._next_fd
