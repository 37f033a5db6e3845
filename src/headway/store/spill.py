"""The spill: chunks of lanes that had to leave memory, on disk until no cursor needs them.

A file is unlinked as soon as it is open, so nothing is left behind however the process ends. Each lane appends to a
file of its own, a new one every ``FILE_BYTES``; a file is closed, and its space free, when the last of its chunks is
released. Writing happens in a worker thread, reading and ``sendfile`` wherever they are wanted.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from pathlib import Path

FILE_BYTES = 64 * 1024 * 1024
OPEN_LANES_MAX = 256


class SpillFile:
    """An unlinked file and how many chunks in it are still wanted. Closes itself with the last of them."""

    def __init__(self, folder: Path) -> None:
        self.fd = _open_unnamed(folder)
        self.size = 0
        self._wanted = 1  # the writer's own
        self._lock = threading.Lock()

    @property
    def idle(self) -> bool:
        """Only the writer still has it."""
        return self._wanted == 1

    def hold(self) -> None:
        with self._lock:
            self._wanted += 1

    def release(self) -> None:
        with self._lock:
            self._wanted -= 1
            done = self._wanted == 0
        if done:
            os.close(self.fd)


class SpilledChunk:
    """Where one chunk's bytes are. ``fd`` and ``offset`` are for ``sendfile``."""

    __slots__ = ("_file", "_offset", "size")

    def __init__(self, file: SpillFile, offset: int, size: int) -> None:
        file.hold()
        self._file = file
        self._offset = offset
        self.size = size

    @property
    def fd(self) -> int:
        return self._file.fd

    @property
    def offset(self) -> int:
        return self._offset

    def read(self, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of the chunk. Raises OSError."""
        data = os.pread(self.fd, stop - start, self._offset + start)
        if len(data) != stop - start:
            raise OSError(f"spill file ends after {len(data)} of {stop - start} bytes")
        return data

    def release(self) -> None:
        self._file.release()


class SpillStore:
    """Writes chunks into ``folder``. Raises OSError at once if nothing can be written there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        os.close(_open_unnamed(folder))
        self._current: OrderedDict[Hashable, SpillFile] = OrderedDict()

    def write(self, lane: Hashable, pieces: Sequence[bytes | bytearray]) -> list[SpilledChunk | OSError]:
        """Append the pieces, in order. Each is on disk whole, or its place in the answer says why not."""
        answer: list[SpilledChunk | OSError] = []
        for piece in pieces:
            try:
                file = self._file_for(lane, len(piece))
                _write_all(file.fd, piece, file.size)
                answer.append(SpilledChunk(file, file.size, len(piece)))
                file.size += len(piece)
            except OSError as error:
                answer.append(error)
        return answer

    def _file_for(self, lane: Hashable, size: int) -> SpillFile:
        file = self._current.get(lane)
        if file is None or file.size + size > FILE_BYTES:
            fresh = SpillFile(self.folder)
            if file is not None:
                file.release()
            self._current[lane] = file = fresh
            if len(self._current) > OPEN_LANES_MAX:
                self._current.popitem(last=False)[1].release()
        self._current.move_to_end(lane)
        return file

    def tidy(self) -> None:
        """Let go of files that nobody wants a chunk of any more. To be called by the thread that writes."""
        for lane, file in list(self._current.items()):
            if file.idle:
                self._current.pop(lane).release()

    def close(self) -> None:
        while self._current:
            self._current.popitem()[1].release()


def _open_unnamed(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, IsADirectoryError, OSError):
        fd, name = tempfile.mkstemp(dir=folder)  # a file system without unnamed files
        os.unlink(name)
        return fd


def _write_all(fd: int, data: bytes | bytearray, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view = view[written:]
        offset += written
