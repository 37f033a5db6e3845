"""Partial input of every codec: bytes that have not come whole, and fields taken from those that have."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.core.base import ProtocolError

ALL = 1 << 62
"""More items than come in any number of bytes."""


class Tail:
    """The received part of a frame. It is not looked at again before the frame can be whole."""

    __slots__ = ("data", "need_bytes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.need_bytes = 0
        """With fewer the frame cannot be whole."""

    @property
    def missing_bytes(self) -> int:
        return max(0, self.need_bytes - len(self.data)) if self.data else 0

    def join(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """Joins the kept part and the new bytes; None: still too little, and kept."""
        if self.data:
            if len(self.data) + len(data) < self.need_bytes:
                self.data += data
                return None
            return b"".join((self.data, data))
        return data if type(data) is bytes else bytes(data)

    def keep(self, data: bytes, start: int) -> None:
        """Keeps the bytes from ``start`` on, and nothing else."""
        self.data = bytearray(data[start:])


class BytesReader(ABC):
    """Fields of one frame, read from front to back; what ends behind ``end`` is ``malformed``."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data) if end is None else end

    @staticmethod
    @abstractmethod
    def malformed(text: str) -> ProtocolError:
        """The protocol's way to say that the bytes do not parse."""

    def take(self, size: int, what: str) -> int:
        """Step over ``size`` bytes; where they start."""
        at = self.pos
        if at + size > self.end:
            raise self.malformed(f"ends within its {what}")
        self.pos = at + size
        return at
