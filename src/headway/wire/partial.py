"""Partial input, for every codec: keeps the start of an incomplete frame, and reads the fields of complete frames."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.core.base import ProtocolError


class Tail:
    """The received part of a frame. It is not parsed again until the frame can be complete."""

    __slots__ = ("data", "need_bytes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.need_bytes = 0
        """Least size of the complete frame."""

    @property
    def missing_bytes(self) -> int:
        return max(0, self.need_bytes - len(self.data)) if self.data else 0

    def join(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """Joins the kept part and the new bytes; None: the frame is still incomplete, and the bytes are kept."""
        if self.data:
            if len(self.data) + len(data) < self.need_bytes:
                self.data += data
                return None
            return b"".join((self.data, data))
        return data if type(data) is bytes else bytes(data)

    def keep(self, data: bytes, start: int) -> None:
        """Keeps only the bytes from ``start`` on."""
        self.data = bytearray(data[start:])


class BytesReader(ABC):
    """Reads the fields of one frame in order; a field that goes beyond ``end`` is ``malformed``."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data) if end is None else end

    @staticmethod
    @abstractmethod
    def malformed(text: str) -> ProtocolError:
        """Returns the protocol's error for bytes that do not parse."""

    def take(self, size: int, what: str) -> int:
        """Skips ``size`` bytes and returns their start."""
        at = self.pos
        if at + size > self.end:
            raise self.malformed(f"ends within its {what}")
        self.pos = at + size
        return at

    def u8(self, what: str) -> int:
        return self.data[self.take(1, what)]

    def u16(self, what: str) -> int:
        at = self.take(2, what)
        return self.data[at] << 8 | self.data[at + 1]
