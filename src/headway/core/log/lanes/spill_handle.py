"""A spill handle is the place of a chunk on disk."""

from __future__ import annotations

import errno
from typing import Final, Protocol


class SpillHandle(Protocol):
    """A chunk's bytes on disk. The store creates it; the core passes it on, reads through it and releases it."""

    @property
    def fd(self) -> int:
        """The file with the bytes (for ``sendfile``); -1 if no file has them as they are."""

    @property
    def offset(self) -> int:
        """The position of the bytes in that file."""

    @property
    def disk_bytes(self) -> int:
        """The bytes' share of the pool's disk; 0 if the journal has them."""

    def read(self, start: int, stop: int) -> bytes:
        """Returns bytes ``start`` to ``stop`` of the chunk. Raises OSError."""

    def release(self) -> None:
        """Frees the bytes, which no cursor needs any more."""


class NoBytes:
    """Stands for the bytes of a chunk that nobody will read."""

    __slots__ = ()
    fd = -1
    offset = 0
    disk_bytes = 0

    def read(self, start: int, stop: int) -> bytes:
        raise OSError(errno.ENODATA, "these records were left out for all who had not read them")

    def release(self) -> None:
        pass


NO_BYTES: Final = NoBytes()
