"""A compressed body is inflated in pieces, for a large one takes tens of milliseconds."""

from __future__ import annotations

import zlib

from headway.core.base import ProtocolError
from headway.wire.openwire.primitives import malformed

PIECE_BYTES = 128 * 1024
INPUT_BYTES = 64 * 1024
INPUTS_MAX = 4
"""Inputs of one step: there is input that inflates to nothing."""


class Inflation:
    """The inflation of one body, to ``bytes_max`` at most."""

    __slots__ = ("_at", "_bytes_max", "_inflater", "_pieces", "_raw", "begun", "bytes")

    def __init__(self, raw: bytes, bytes_max: int) -> None:
        self._raw = raw
        self._bytes_max = bytes_max
        self.begun = False
        self.start_over()

    @property
    def done(self) -> bool:
        return self._inflater.eof

    def step(self) -> int:
        """Inflates the next piece. Returns its size, or that of the input if that is more. Raises ProtocolError."""
        inflater, produced, taken, self.begun = self._inflater, 0, 0, True
        for _ in range(INPUTS_MAX):
            data = inflater.unconsumed_tail
            if not data:
                data = self._raw[self._at : self._at + INPUT_BYTES]
                self._at += len(data)
            taken += len(data)
            try:
                piece = inflater.decompress(data, PIECE_BYTES - produced)
            except zlib.error as error:
                raise malformed(f"has a body that cannot be inflated ({error})") from None
            produced += len(piece)
            self._pieces.append(piece)
            if inflater.eof or produced >= PIECE_BYTES:
                break
            if not data:
                raise self._too_large_or_short()
        self.bytes += produced
        if self.bytes > self._bytes_max:
            raise self._too_large_or_short()
        return max(produced, taken)

    def _too_large_or_short(self) -> ProtocolError:
        return malformed(f"has a body that cannot be inflated, or to more than {self._bytes_max} bytes")

    def start_over(self) -> None:
        """Gives back the memory of what is inflated, because nothing goes on for now."""
        self._at = 0
        """How much of ``_raw`` the inflater was given."""
        self._inflater = zlib.decompressobj()
        self._pieces: list[bytes] = []
        self.bytes = 0
        """Size of what is inflated."""

    def take(self) -> bytes:
        """Returns the body, which is done."""
        return b"".join(self._pieces)
