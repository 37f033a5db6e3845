"""Frames that are held back until a commit is on disk; they are sent in order."""

from __future__ import annotations

from collections import deque
from typing import Protocol

HELD_BACK_BYTES = 64 * 1024
"""A client with more held back than this gets no new deliveries that would have to wait."""


class HeldBack:
    """Frames of one connection, each with the commit that has to be on disk first."""

    __slots__ = ("_frames", "size")

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes | bytearray]] = deque()
        self.size = 0
        """The sum of all frames, in bytes."""

    def add(self, number: int, frames: bytes | bytearray) -> None:
        self._frames.append((number, frames))
        self.size += len(frames)

    def upto(self, number: int) -> bytes:
        """Removes and returns the frames that waited for a commit up to this one."""
        found = []
        while self._frames and self._frames[0][0] <= number:
            found.append(self._frames.popleft()[1])
        self.size -= sum(map(len, found))
        return b"".join(found)

    def clear(self) -> None:
        self._frames.clear()
        self.size = 0


class CommitWaiter(Protocol):
    """A client with frames that wait for a commit."""

    held_back: HeldBack

    def written(self, number: int) -> None:
        """Sends the frames that waited for a commit up to this one, which is now on disk."""
