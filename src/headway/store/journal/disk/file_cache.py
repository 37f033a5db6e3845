"""The file cache: keeps a few files open for reading, and closes none while it is read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.store.journal.disk.files import Files

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
