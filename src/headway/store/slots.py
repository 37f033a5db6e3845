"""Slots: one file that many lanes share, for pieces that are too small for a file of their own.

A hundred thousand subscribers who are away may each have a few kilobytes waiting; as many open files nobody has. The
file grows by regions; a slot is the smallest part of one that its piece fits in, halved as often as need be. Once the
piece is released the slot is free, and put together again with its other half if that is free, too. So the file takes
up little more than the most that was in it at one time, and when it is empty it is begun anew.

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


class SlotFile:
    """``opened``: a new file, as a descriptor. Written by one thread; released by any. Closes itself with the last of
    its pieces, once the writer has let go of it."""

    def __init__(self, opened: Callable[[], int]) -> None:
        self.fd = opened()
        self.size = 0
        self._free: defaultdict[int, set[int]] = defaultdict(set)
        """Offsets of slots that are free, by their size. No two of them are the halves of one."""
        self._wanted = 1  # the writer's own
        self._lock = threading.Lock()

    @property
    def intact(self) -> bool:
        """All that was written is there. If somebody cut it short, writing on would leave a hole of zeros."""
        return os.fstat(self.fd).st_size >= self.size

    def write(self, piece: bytes | bytearray) -> Slot:
        """``REGION_BYTES`` at most. Raises OSError when there is no room."""
        slot_bytes = max(SLOT_BYTES_MIN, 1 << (len(piece) - 1).bit_length())
        with self._lock:
            if self._wanted == 1 and self.size:  # nobody has anything in it
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
            os.ftruncate(self.fd, offset + REGION_BYTES)  # all of it is there, if as a hole: see ``intact``
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

    def release(self, slot: Slot | None = None) -> None:
        """A piece is not wanted any more; or, without one, the writer lets go of the file."""
        with self._lock:
            if slot is not None:
                self._give_back(slot.disk_bytes, slot.start)
            self._wanted -= 1
            done = self._wanted == 0
        if done:
            os.close(self.fd)


class Slot:
    """Where one piece is."""

    __slots__ = ("_file", "disk_bytes", "size", "start")

    fd = offset = -1

    def __init__(self, file: SlotFile, start: int, size: int, slot_bytes: int) -> None:
        self._file = file
        self.start = start
        self.size = size
        self.disk_bytes = slot_bytes

    def read(self, start: int, stop: int) -> bytes:
        """Bytes ``start`` to ``stop`` of the piece. Raises OSError."""
        return read_whole(self._file.fd, self.start + start, stop - start)

    def release(self) -> None:
        self._file.release(self)


def read_whole(fd: int, offset: int, count: int) -> bytes:
    """Raises OSError, also if there is less."""
    data = os.pread(fd, count, offset)
    if len(data) != count:
        raise OSError(f"spill file ends after {len(data)} of {count} bytes")
    return data


def _write_whole(fd: int, piece: bytes | bytearray, offset: int) -> None:
    view = memoryview(piece)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count
