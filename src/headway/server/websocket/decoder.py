"""Decoder of the frames that a WebSocket client sends (RFC 6455), without I/O.

Rules:
- Payload of messages is returned as it comes, whatever its frames are: it is a stream of bytes to the protocol
  above (MQTT 5, 6.0: packets need not be aligned with frames). So no frame is ever held, whatever its size.
- Only a header and the payload of a control frame wait until they are whole: 139 bytes at most.
- One call handles ``FRAMES_MAX`` frames. If more have come, ``more`` is true and they are handled by the next calls.
- The first Close or error is the last thing that is read: it is ``over``.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from headway.server.websocket.deflate import Inflater
from headway.server.websocket.frames import (
    BAD_DATA,
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    CONTROL_BYTES_MAX,
    FINAL,
    NO_CODE,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    UNSUPPORTED,
    unmasking,
)

FRAMES_MAX = 1000
"""Some milliseconds of work."""
INFLATED_BYTES_MAX = 128 * 1024
"""Bytes that one call decompresses, and the part of a message that came with them."""
HEADER_BYTES_MIN = 6
"""The header of a small frame with its mask."""
_OPCODES = {CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}
_RESERVED = 0x70
_MASKED = 0x80
_UNMASKED = bytes(4)


class Over(NamedTuple):
    """How the client's side of a WebSocket ended."""

    code: int
    text: str
    by_client: bool
    """The client closed it; otherwise it broke the protocol, and is told this code."""


class FrameDecoder:
    __slots__ = (
        "_fragmented", "_inflated", "_inflater", "_left", "_mask", "_rest", "_room", "_texts", "_unmask", "more",
        "over", "ping",
    )  # fmt: skip

    def __init__(self, inflater: Inflater | None = None, *, texts: bool = False) -> None:
        self._texts = texts
        """Whether text messages are taken, as if they were binary ones."""
        self._inflater = inflater
        """None: messages may not be compressed."""
        self._inflated = False
        """Whether the current message is compressed."""
        self._rest = b""
        """Bytes that are not decoded yet."""
        self._left = 0
        """Payload bytes of the current frame that are still to come, and the mask for them."""
        self._mask = _UNMASKED
        self._unmask = unmasking()
        self._room = INFLATED_BYTES_MAX
        self._fragmented = False
        """Whether more frames of the current message are to come."""
        self.more = False
        """Whether frames that have come are left for the next call."""
        self.ping: bytes | None = None
        """Payload of the last ping; whoever answers it sets this to None."""
        self.over: Over | None = None

    @property
    def buffered_bytes(self) -> int:
        return len(self._rest) + (self._inflater.buffered_bytes if self._inflater is not None else 0)

    def feed(self, data: bytes, room: int = INFLATED_BYTES_MAX) -> bytes:
        """Returns the payload among these bytes, and among those that were left; of compressed messages up to ``room``
        bytes."""
        self._room = room
        if self._rest:
            data, self._rest = self._rest + data, b""
        out: list[bytes | bytearray] = []
        at, size, frames = 0, len(data), FRAMES_MAX
        full = self._inflater is not None and self._inflater.more and self._inflate(b"", out, last=False)
        while at < size and self.over is None and not full:
            if self._left:
                piece = bytearray(data[at : at + self._left])
                at += len(piece)
                self._left -= len(piece)
                if self._mask != _UNMASKED:
                    self._unmask(self._mask, piece)
                    turn = len(piece) & 3
                    if turn and self._left:
                        self._mask = self._mask[turn:] + self._mask[:turn]
                if self._inflated:
                    full = self._inflate(piece, out, last=not self._left and not self._fragmented)
                else:
                    out.append(piece)
                continue
            if not frames:
                break
            frames -= 1
            step = self._begin(data, at)
            if not step:
                break
            at += step
            if self._inflated and not self._left and not self._fragmented:
                full = self._inflate(b"", out, last=True)  # the last fragment is empty
        self.more = full or (not frames and at < size and self.over is None)
        if self.over is None:
            self._rest = data[at:]
        return bytes(out[0]) if len(out) == 1 else b"".join(out)

    def _inflate(self, piece: bytes | bytearray, out: list[bytes | bytearray], *, last: bool) -> bool:
        """Decompresses what came. Returns whether there is more than one call may bring."""
        assert self._inflater is not None
        try:
            out.append(self._inflater.feed(piece, self._room, last=last))
            self._room -= len(out[-1])  # not 0: there is more to come then, and this call ends
        except zlib.error:
            self._fail("a compressed message cannot be decompressed", BAD_DATA)
            return False
        if self._inflater.done:
            self._inflated = False
        return self._inflater.more

    def _begin(self, data: bytes, at: int) -> int:
        """Reads a header, and the whole of a control frame. Returns the bytes that it took; 0: there are too few."""
        left = len(data) - at
        first = data[at]
        opcode = first & 0x0F
        compressed = first & _RESERVED == COMPRESSED and opcode in (TEXT, BINARY) and self._inflater is not None
        if first & _RESERVED and not compressed:
            return self._fail("a reserved bit is set and no extension was agreed on")
        if opcode not in _OPCODES:
            return self._fail(f"opcode {opcode} is reserved")
        if left < 2:
            return 0
        second = data[at + 1]
        if not second & _MASKED:
            return self._fail("a frame of a client is not masked")
        size = second & 0x7F
        begin = at + HEADER_BYTES_MIN
        if size == 126:
            begin += 2
        elif size == 127:
            begin += 8
        if opcode >= CLOSE and (size > CONTROL_BYTES_MAX or not first & FINAL):
            return self._fail("a control frame is too long or fragmented")
        if begin - at > left:
            return 0
        if size >= 126:
            wide = size == 127
            size = int.from_bytes(data[at + 2 : begin - 4], "big")
            if size >> 63 or size < (65_536 if wide else 126):
                return self._fail("the length of a frame is not valid")
        mask = data[begin - 4 : begin]
        if opcode >= CLOSE:
            if begin - at + size > left:
                return 0
            payload = bytearray(data[begin : begin + size])
            self._unmask(mask, payload)
            self._control(opcode, bytes(payload))
            return begin - at + size
        if opcode == TEXT and not self._texts:
            return self._fail("a text message came, and only binary ones are taken", UNSUPPORTED)
        if (opcode == CONTINUATION) != self._fragmented:
            text = "the message before is not complete" if self._fragmented else "there is no message to continue"
            return self._fail(text)
        self._fragmented = not first & FINAL
        if opcode != CONTINUATION:
            self._inflated = compressed
        self._left, self._mask = size, mask
        return begin - at

    def _fail(self, text: str, code: int = PROTOCOL_ERROR) -> int:
        self.over = Over(code, text, False)
        return 0

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.ping = payload
        elif opcode == CLOSE:
            self.over = closed_by_client(payload)


def closed_by_client(payload: bytes) -> Over:
    """Returns what a Close says, or the error in it."""
    if not payload:
        return Over(NO_CODE, "", True)
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        return Over(PROTOCOL_ERROR, "the code of a Close is not valid", False)
    try:
        return Over(code, payload[2:].decode(), True)
    except UnicodeDecodeError:
        return Over(BAD_DATA, "the reason of a Close is not UTF-8", False)
