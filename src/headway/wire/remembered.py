"""Remembered: what was read lately of one client, so that the same is read once. It has a limit in bytes, and its owner
counts them to the client's tab."""

from __future__ import annotations

from typing import Generic, TypeVar

BYTES_MAX = 32 * 1024

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    __slots__ = ("_bytes_max", "_known", "bytes", "get")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: dict[Key, Value] = {}
        self.bytes = 0
        self.get = self._known.get

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Remembers this; ``size``: the bytes that both take up, about. What is large is not remembered, and when there
        is too much, all else is forgotten."""
        if size > self._bytes_max // 4:
            return
        if self.bytes + size > self._bytes_max:
            self.clear()
        self._known[key] = value
        self.bytes += size

    def clear(self) -> None:
        self._known.clear()
        self.bytes = 0
