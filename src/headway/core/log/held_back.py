"""Held back: frames that may be sent once a commit is on disk, in order."""

from __future__ import annotations

from collections import deque

HELD_BACK_BYTES = 64 * 1024
"""A client for whom more waits is given nothing more to wait."""


class HeldBack:
    """Frames of one connection, each with the commit that has to be on disk first."""

    __slots__ = ("_frames", "size")

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes | bytearray]] = deque()
        self.size = 0
        """Bytes."""

    def add(self, number: int, frames: bytes | bytearray) -> None:
        self._frames.append((number, frames))
        self.size += len(frames)

    def upto(self, number: int) -> bytes:
        """What may be sent when this commit is on disk."""
        found = []
        while self._frames and self._frames[0][0] <= number:
            found.append(self._frames.popleft()[1])
        self.size -= sum(map(len, found))
        return b"".join(found)

    def clear(self) -> None:
        self._frames.clear()
        self.size = 0
