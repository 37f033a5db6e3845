"""Slots: one file that many lanes share, for pieces that are too small for a file of their own.

A hundred thousand subscribers who are away may each have a few kilobytes waiting, and no process may open as many
files. The file grows by regions; a slot is the smallest part of one that its piece fits in, halved as often as need be.
Once the piece is released the slot is free, and put together again with its other half if that is free, too. So the
file takes up little more than the most that was in it at one time, and when it is empty it is begun anew.

A slot is written over, so it is never sent from the file (``sendfile``): the kernel would send what stands there by the
time the consumer has room, which may be somebody else's record.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable

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
