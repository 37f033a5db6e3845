"""Cuts: what an envelope (``core/message/record.py``) makes of a batch once, for all consumers who get it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate


class Cut:
    """Records that were split. ``pieces``: the bytes of each delivery that are equal for all consumers, or the part of
    them that differs between records. ``size``: the bytes of a delivery besides a consumer's own, if all have one size;
    else 0, and they are the pieces' sizes."""

    __slots__ = ("_ends", "_last", "pieces", "size")

    def __init__(self, pieces: Sequence[bytes], size: int = 0) -> None:
        self.pieces = pieces
        self.size = size
        self._ends: list[int] | None = None
        """Ends of the pieces, computed when needed."""
        self._last: tuple[Hashable, bytes] | None = None

    def written(self, whom: Hashable) -> bytes | None:
        """Returns the last bytes that were written, if they were written for the same arguments; else None."""
        return self._last[1] if self._last is not None and self._last[0] == whom else None

    def keep(self, whom: Hashable, frames: bytes) -> bytes:
        """Remembers bytes and the arguments that they were written for. Returns the bytes."""
        self._last = whom, frames
        return frames

    def count_within(self, count: int, bytes_max: int) -> int:
        """Returns how many of the first ``count`` deliveries stand before one whose piece is larger than this."""
        return next((at for at, piece in enumerate(self.pieces[:count]) if len(piece) > bytes_max), count)

    def ends(self, start: int, stop: int, own_bytes: int) -> list[int]:
        """Returns the end of each delivery of these records, of which ``own_bytes`` are the consumer's own."""
        if self.size:
            size = own_bytes + self.size
            return list(range(size, (stop - start) * size + 1, size))
        if self._ends is None:
            self._ends = list(accumulate(map(len, self.pieces)))
        before = self._ends[start - 1] if start else 0
        return [end - before + own_bytes * number for number, end in enumerate(self._ends[start:stop], 1)]
