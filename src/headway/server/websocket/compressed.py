"""A WebSocket stream whose client takes compressed messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from headway.core.log import Pool
from headway.server.transport import Buffer, ByteStream
from headway.server.websocket.decoder import FrameDecoder
from headway.server.websocket.deflate import PIECE_BYTES, PIECE_BYTES_MIN, Inflater, SharedDeflate
from headway.server.websocket.handshake import Accepted, Rules
from headway.server.websocket.stream import WebSocketStream
from headway.wire.codec import Codec

SEND_BYTES = 256 * 1024
"""Bytes that one call looks at."""


class CompressedStream(WebSocketStream):
    """Sends frames that were compressed once for all. A frame is taken whole, and the part of it that the kernel does
    not take is unsent. Bytes that the client has not acknowledged count as they are on the wire."""

    __slots__ = ("_agreed", "_shared")

    def __init__(
        self, below: ByteStream, rules: Rules, codecs: Mapping[str, Codec], loop: asyncio.AbstractEventLoop, pool: Pool,
        shared: SharedDeflate,
    ) -> None:  # fmt: skip
        super().__init__(below, rules, codecs, loop, pool)
        self._shared = shared
        self._agreed = False
        """Whether the client takes compressed messages."""

    def _accepted(self, accepted: Accepted) -> None:
        super()._accepted(accepted)
        if accepted.compression:
            self._agreed = True
            self._decoder = FrameDecoder(Inflater(), texts=self._codecs[self.protocol].texts)

    def send(self, views: Sequence[Buffer]) -> int:
        return self._send(_joined(views), 0) if self._agreed else super().send(views)

    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        if not self._agreed:
            return super().send_pieces(data, piece_bytes)
        try:
            return self._send(_joined([data]), piece_bytes)
        except BlockingIOError:
            return 0

    def _send(self, data: bytes, piece_bytes: int) -> int:
        """``piece_bytes``: the peer's kernel frees bytes in pieces of this size; 0: as it likes. Raises
        BlockingIOError."""
        taken = self._send_clear(data[: self._owed], piece_bytes) if self._owed else 0  # of a frame that is not whole
        if self.unsent:
            self._flush_own()
        if self.unsent or self._owed:
            if not taken:
                raise BlockingIOError
            return taken
        while taken < len(data):
            piece = data[taken : taken + PIECE_BYTES]
            frame = self._shared.frame(piece) if len(piece) >= PIECE_BYTES_MIN else None
            try:
                if frame is not None:
                    self._send_frame(frame, piece_bytes)
                    self._overhead_bytes -= len(piece)
                    count = len(piece)
                else:
                    count = self._send_clear(piece, piece_bytes)
            except OSError:
                if not taken:
                    raise
                return taken
            taken += count
            if count < len(piece) or self.unsent:
                return taken
        return taken

    def _send_clear(self, data: bytes, piece_bytes: int) -> int:
        return super().send_pieces(data, piece_bytes) if piece_bytes else super().send([data])

    def _send_frame(self, frame: bytes, piece_bytes: int) -> None:
        if piece_bytes:
            sent = self._below.send_pieces(frame, piece_bytes)
            self._overhead_bytes += sent
            frame = frame[sent:]
        self._own = frame
        self._flush_own()


def _joined(views: Sequence[Buffer]) -> bytes:
    """Returns the first bytes of what is offered, in one."""
    some: list[Buffer] = []
    left = SEND_BYTES
    for view in views:
        some.append(memoryview(view)[:left])
        left -= len(some[-1])
        if not left:
            break
    return b"".join(some)
