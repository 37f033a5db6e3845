"""The decoder of a codec: from the bytes of one connection to items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from headway.core.base import ProtocolError
from headway.wire.common import Tail

ALL = 1 << 62
"""More items than any input can have."""

Item = TypeVar("Item")


class Decoder(ABC, Generic[Item]):
    """Decodes one peer's bytes. ``feed`` never raises: it sets ``error`` where the bytes are wrong. Items before that
    are still returned, and bytes after it are ignored.

    A caller that limits the number of items (``items_max``) feeds no more bytes until ``waits`` is false, and sees an
    error only when its item is due.
    """

    __slots__ = ("_rest", "error", "extra_work", "packets", "remembered_bytes", "tail")

    def __init__(self) -> None:
        self.error: ProtocolError | None = None
        self.packets = 0
        """Packets that have come whole; each message of a run counts."""
        self.extra_work = 0
        """Units of a turn's work in the last call of ``feed``, besides one for each item: for frames that brought no
        item, and for items that take longer to read and carry out than the smallest."""
        self.remembered_bytes = 0
        """The memory of what was read and is kept for later packets."""
        self.tail = Tail()
        self._rest: tuple[bytes, int] | None = None
        """Received bytes that are not decoded yet, from this position on."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of packets that have not come whole."""
        return len(self.tail.data)

    @property
    def overhead_bytes(self) -> int:
        """The memory of what was read of these packets already."""
        return 0

    @property
    def missing_bytes(self) -> int:
        """Bytes of these packets that are still to come, as far as is known."""
        return self.tail.missing_bytes

    @property
    def unknown_bytes(self) -> int:
        """The most that may come besides, of packets whose sizes are known only at their ends."""
        return 0

    @property
    def oldest(self) -> int:
        """The number of the incomplete packet that began first."""
        return self.packets

    def remember_less(self) -> bool:
        """Forgets what is kept for later packets, as there is no memory for it. Returns whether that was possible."""
        return False

    @property
    def waits(self) -> bool:
        """More items have come than were asked for."""
        return self._rest is not None

    def feed(self, data: bytes | bytearray | memoryview, items_max: int = ALL) -> list[Item]:
        """Returns the items that ``data`` completes, in order, at most ``items_max``; calls without data return the
        rest."""
        items: list[Item] = []
        self.extra_work = 0
        if self.error is not None:
            return items
        rest = self._rest
        if rest is None:
            whole, start = self.tail.join(data) if data else None, 0
        else:
            whole, start = rest if not data else (rest[0][rest[1] :] + bytes(data), 0)
            self._rest = None
        if whole is None:
            return items
        used = self._scan(whole, start, items, items_max)
        if used == len(whole):
            self.tail.data.clear()
        elif len(items) + self.extra_work >= items_max:
            self._rest = whole, used
        else:
            self.tail.keep(whole, used)
        return items

    @abstractmethod
    def _scan(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        """Decodes packets from ``pos`` on. Returns the start of the first that is incomplete or was not asked for."""


class FrameDecoder(Decoder[Item]):
    """A decoder of frames that are told apart by where they begin."""

    __slots__ = ("_bytes", "_done")

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0
        """Number of bytes decoded so far."""
        self._done = False
        """Whether the rest of the bytes is ignored."""

    def _scan(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        if self._done:
            return len(data)
        self._bytes -= pos
        used = self._frames(data, pos, items, items_max)
        self._bytes += used
        return used

    @abstractmethod
    def _frames(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        """Does what ``_scan`` does. Errors are set by ``_fail``."""

    def _fail(self, pos: int, error: ProtocolError) -> None:
        text = f"the frame at byte {self._bytes + pos} {error}"
        self.error = ProtocolError(text, reason=error.reason, code=error.code)
