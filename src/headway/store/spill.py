"""The spill: chunks of lanes that had to leave memory, on disk until no cursor needs them.

A file is unlinked as soon as it is open, so that nothing is left behind however the process ends. Each lane appends to
a file of its own, and begins a new one every ``FILE_BYTES``. A file is closed, which frees its space, when its last
chunk is released. Lanes without a file that write less than ``SMALL_BYTES`` share one. A worker thread
writes; any thread reads and calls ``sendfile``.
"""

from __future__ import annotations

import os
import tempfile
import threading
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from pathlib import Path

# -- slots -------------------------------------------------------------------------------------------------------------
#
# Slots: one file that many lanes share, for pieces that are too small for a file of their own.
#
# A hundred thousand subscribers who are away may each have a few kilobytes waiting, and no process may open as many
# files. The file grows by regions; a slot is the smallest part of one that its piece fits in, halved as often as need
# be. Once the piece is released the slot is free, and put together again with its other half if that is free, too. So
# the file takes up little more than the most that was in it at one time, and when it is empty it is begun anew.
#
# A slot is written over, so it is never sent from the file (``sendfile``): the kernel would send what stands there by
# the time the consumer has room, which may be somebody else's record.


SLOT_BYTES_MIN = 1024
REGION_BYTES = 64 * 1024

Buffer = bytes | bytearray | memoryview


class SharedFile:
    """An unlinked file of pieces. One thread writes; any thread releases. The file is closed, which frees its space,
    when the writer and all pieces have released it. ``opened`` opens a new file and returns its descriptor."""

    def __init__(self, opened: Callable[[], int]) -> None:
        self.fd = opened()
        self.size = 0
        self._wanted = 1  # the writer's own
        self._lock = threading.Lock()

    @property
    def intact(self) -> bool:
        """Whether the file has everything that was written. Writing to a truncated file would leave a hole of zeros,
        which would be sent as records."""
        return os.fstat(self.fd).st_size >= self.size

    def release(self) -> None:
        """Releases a piece, or what the writer has of the file."""
        with self._lock:
            self._wanted -= 1
            done = self._wanted == 0
        if done:
            os.close(self.fd)


class SlotFile(SharedFile):
    """A file of slots."""

    def __init__(self, opened: Callable[[], int]) -> None:
        super().__init__(opened)
        self._free: defaultdict[int, set[int]] = defaultdict(set)
        """Offsets of free slots by size. Two halves of a larger slot are never both free; they are merged."""

    def write(self, piece: Buffer) -> Slot:
        """Writes a piece of at most ``REGION_BYTES``. Raises OSError when the disk is full."""
        slot_bytes = max(SLOT_BYTES_MIN, 1 << (len(piece) - 1).bit_length())
        with self._lock:
            if self._wanted == 1 and self.size:  # no piece is in it
                self._free.clear()
                self.size = 0
                os.ftruncate(self.fd, 0)
            offset = self._take(slot_bytes)
            self._wanted += 1
        slot = Slot(self, offset, len(piece), slot_bytes)
        try:
            _write_whole(self.fd, piece, offset)
        except OSError:
            slot.release()
            raise
        return slot

    def _take(self, slot_bytes: int) -> int:
        have = slot_bytes
        while have < REGION_BYTES and not self._free[have]:
            have *= 2
        if self._free[have]:
            offset = self._free[have].pop()
        else:
            offset = self.size
            os.ftruncate(self.fd, offset + REGION_BYTES)  # the region exists, if only as a hole: see ``intact``
            self.size += REGION_BYTES
        while have > slot_bytes:
            have //= 2
            self._free[have].add(offset + have)
        return offset

    def _give_back(self, slot_bytes: int, offset: int) -> None:
        while slot_bytes < REGION_BYTES and (other_half := offset ^ slot_bytes) in self._free[slot_bytes]:
            self._free[slot_bytes].remove(other_half)
            offset = min(offset, other_half)
            slot_bytes *= 2
        self._free[slot_bytes].add(offset)

    def free(self, slot: Slot) -> None:
        """Releases the piece in a slot."""
        with self._lock:
            self._give_back(slot.disk_bytes, slot.start)
        self.release()


class Slot:
    """One piece in a slot file."""

    __slots__ = ("_file", "disk_bytes", "size", "start")

    fd = offset = -1

    def __init__(self, file: SlotFile, start: int, size: int, slot_bytes: int) -> None:
        self._file = file
        self.start = start
        self.size = size
        self.disk_bytes = slot_bytes

    def read(self, start: int, stop: int) -> bytes:
        """Returns bytes ``start`` to ``stop`` of the piece. Raises OSError."""
        return read_whole(self._file.fd, self.start + start, stop - start)

    def release(self) -> None:
        self._file.free(self)


def read_whole(fd: int, offset: int, count: int) -> bytes:
    """Reads exactly ``count`` bytes. Raises OSError, also if the file ends before."""
    data = os.pread(fd, count, offset)
    if len(data) != count:
        raise OSError(f"spill file ends after {len(data)} of {count} bytes")
    return data


def _write_whole(fd: int, piece: Buffer, offset: int) -> None:
    view = memoryview(piece)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


# -- spill -------------------------------------------------------------------------------------------------------------


FILE_BYTES = 64 * 1024 * 1024
OPEN_LANES_MAX = 256
SMALL_BYTES = 64 * 1024
BATCH_PIECES = 64
"""Chunks written in one call. Fewer calls mean less contention with the loop's thread for the interpreter."""


class SpillFile(SharedFile):
    """A file of whole chunks, one after the other."""

    @property
    def idle(self) -> bool:
        """Whether only the writer still holds the file."""
        return self._wanted == 1

    def _hold(self, sizes: list[int]) -> list[SpilledChunk]:
        """Returns the handles of pieces of these sizes that were appended."""
        with self._lock:
            self._wanted += len(sizes)
        handles = []
        for size in sizes:
            handles.append(SpilledChunk(self, self.size, size))
            self.size += size
        return handles

    def append(self, pieces: Sequence[Buffer]) -> list[SpilledChunk | OSError]:
        """Appends the pieces, as far as the disk has room."""
        sizes = [len(piece) for piece in pieces]
        written, error = self._write(pieces, sum(sizes))
        if error is None:
            return [*self._hold(sizes)]
        whole = bisect_right(list(accumulate(sizes)), written)
        return [*self._hold(sizes[:whole]), *[error] * (len(sizes) - whole)]

    def _write(self, pieces: Sequence[Buffer], size: int) -> tuple[int, OSError | None]:
        """Writes in as few calls as possible. Returns the bytes written, and the error that stopped it."""
        written, left = 0, pieces
        while written < size:
            try:
                count = os.pwritev(self.fd, left, self.size + written)
            except OSError as error:
                return written, error
            written += count
            if written < size:
                left = _rest(left, count)
        return written, None


def _rest(pieces: Sequence[Buffer], written: int) -> list[Buffer]:
    """Returns the pieces without the bytes that were written."""
    views = [memoryview(piece) for piece in pieces]
    while views and written >= len(views[0]):
        written -= len(views.pop(0))
    return [views[0][written:], *views[1:]]


class SpilledChunk:
    """One chunk in a spill file, which counts it. ``fd`` and ``offset`` are for ``sendfile``."""

    __slots__ = ("_file", "disk_bytes", "offset", "size")

    def __init__(self, file: SpillFile, offset: int, size: int) -> None:
        self._file = file
        self.offset = offset
        self.size = self.disk_bytes = size

    @property
    def fd(self) -> int:
        return self._file.fd

    def read(self, start: int, stop: int) -> bytes:
        """Returns bytes ``start`` to ``stop`` of the chunk. Raises OSError."""
        return read_whole(self.fd, self.offset + start, stop - start)

    def release(self) -> None:
        self._file.release()


class SpillStore:
    """Writes chunks into ``folder``. Raises OSError if the folder cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        os.close(_open_unnamed(folder))
        self._current: OrderedDict[Hashable, SpillFile] = OrderedDict()
        self._shared: SlotFile | None = None

    def write(self, lane: Hashable, pieces: Sequence[Buffer]) -> list[SpilledChunk | Slot | OSError]:
        """Appends the pieces in order. The answer has a handle for each piece, or the error that kept it from being
        written."""
        if lane not in self._current and sum(map(len, pieces)) < SMALL_BYTES:
            return [self._write_small(piece) for piece in pieces]
        answer: list[SpilledChunk | Slot | OSError] = []
        for start in range(0, len(pieces), BATCH_PIECES):
            batch = pieces[start : start + BATCH_PIECES]
            try:
                file = self._file_for(lane, sum(map(len, batch)))
                answer += file.append(batch)
            except OSError as error:  # no file could be opened
                answer += [error] * len(batch)
        return answer

    def _write_small(self, piece: Buffer) -> Slot | OSError:
        try:
            if self._shared is None or not self._shared.intact:
                fresh = SlotFile(lambda: _open_unnamed(self.folder))
                if self._shared is not None:
                    self._shared.release()
                self._shared = fresh
            return self._shared.write(piece)
        except OSError as error:
            return error

    def _file_for(self, lane: Hashable, size: int) -> SpillFile:
        file = self._current.get(lane)
        if file is None or file.size + size > FILE_BYTES or not file.intact:
            fresh = SpillFile(lambda: _open_unnamed(self.folder))
            if file is not None:
                file.release()
            self._current[lane] = file = fresh
            if len(self._current) > OPEN_LANES_MAX:
                self._current.popitem(last=False)[1].release()
        self._current.move_to_end(lane)
        return file

    def tidy(self) -> None:
        """Closes files without chunks in use. To be called by the thread that writes."""
        for lane, file in list(self._current.items()):
            if file.idle:
                self._current.pop(lane).release()

    def close(self) -> None:
        while self._current:
            self._current.popitem()[1].release()
        if self._shared is not None:
            self._shared.release()
            self._shared = None


def _open_unnamed(folder: Path) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (AttributeError, IsADirectoryError, OSError):
        fd, name = tempfile.mkstemp(dir=folder)  # a file system without unnamed files
        os.unlink(name)
        return fd
