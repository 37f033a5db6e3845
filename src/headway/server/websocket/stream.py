"""A WebSocket stream carries a protocol's bytes in the frames of a WebSocket.

Theory of operation. The protocol's packets need not be aligned with frames (MQTT 5, 6.0). So a lane in WebSocket frames
is the same lane: the header of a frame is one small buffer in front of the lane's own memory, in the same ``sendmsg``.
Nothing is done per record, and nothing is copied.

A header *announces* a number of bytes, and the kernel may take fewer. The rest of the frame is then *owed*: it is
filled with the next bytes of the stream, whatever they are.

Rules:
- Frames have ``FRAME_BYTES`` at most, and no more than this is ever owed. A browser hands out a frame when it is whole,
  so a consumer that did not take the last frames whole gets its records in smaller steps (``SLOW_FRAME_BYTES``),
  unless the kernel took about as much as it has room for: then the consumer has read all that came before.
- Where no bytes follow (the cursor has moved, or the connection ends) the frame is filled up with packets that say
  nothing (``Codec.filler``).
- Control frames go between frames. Only the last ping is answered, so that one Pong waits at most.
- Bytes of this stream's own (``_own``: the rest of a header, a Pong, filler) go before all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence

from headway.core.base import Reason
from headway.core.log import SpillHandle
from headway.server.connections import client_of, ended, shown
from headway.server.transport import Buffer, ByteStream, Opening, StreamError
from headway.server.websocket.decoder import INFLATED_BYTES_MAX, FrameDecoder, Over
from headway.server.websocket.deflate import PIECE_BYTES, PIECE_BYTES_MIN, Inflater, SharedDeflate
from headway.server.websocket.frames import close, code_of, framed, header, pong
from headway.server.websocket.handshake import Accepted, Refusal, Request, RequestReader, Rules, answer
from headway.wire.codec import Codec

# -- stream ------------------------------------------------------------------------------------------------------------


FRAME_BYTES = 128 * 1024
SLOW_FRAME_BYTES = 16 * 1024
ALL_READ_SHARE = 0.75
"""A kernel that takes this share of its room at once had sent nearly all before."""
FILE_BYTES = 64 * 1024
"""Bytes that are read from a file at once. They are not sent from the file itself, because each frame has a header."""


class _Below:
    """Waits for the stream below to get ready."""

    def __init__(self, opening: Opening, ready: Callable[[], None]) -> None:
        self._opening = opening
        self.address = opening.address
        self.opened, self.holds = ready, opening.holds

    def close(self, reason: Reason, text: str = "") -> None:
        self._opening.close(reason, text)


class WebSocketStream(ByteStream):
    __slots__ = (
        "_below", "_came", "_codecs", "_decoder", "_filler", "_frame_bytes", "_loop", "_opening",
        "_overhead_bytes", "_owed", "_own", "_pong", "_reader", "_refusal", "_room_bytes", "_rules", "_why",
        "pending", "protocol", "ready", "sock", "unsent",
    )  # fmt: skip

    def __init__(
        self, below: ByteStream, rules: Rules, codecs: Mapping[str, Codec], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._below = below
        self._rules = rules
        self._codecs = codecs
        self._filler, self.protocol = b"", ""
        self._loop = loop
        self.sock = below.sock
        self.ready = self.pending = self.unsent = False
        self._opening: Opening | None = None
        self._reader = RequestReader()
        self._refusal: Refusal | None = None
        self._decoder = FrameDecoder()
        self._came = b""
        """Bytes that came behind the request."""
        self._own = b""
        self._owed = 0
        """Bytes that were announced and are not taken yet."""
        self._pong: bytes | None = None
        """Payload of a Pong that waits for the end of a frame."""
        self._overhead_bytes = 0
        """Bytes on the wire that were not given to ``send``."""
        self._frame_bytes = FRAME_BYTES
        """Size of the frames to come."""
        self._room_bytes = max(FRAME_BYTES, self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        """The kernel takes no more at once, so no more is framed."""
        self._why = (Reason.NORMAL, "")

    # -- the handshake --------------------------------------------------------------------------------------------

    @property
    def user(self) -> str:  # type: ignore[override]
        return self._below.user

    @property
    def stage(self) -> str:
        return "the WebSocket handshake" if self._below.ready else self._below.stage

    def open(self, opening: Opening) -> None:
        self._opening = opening
        if self._below.ready:
            self._begin()
        else:
            self._below.open(_Below(opening, self._begin))

    def _begin(self) -> None:
        self._loop.add_reader(self.sock, self._read_request)
        if self._below.pending:
            self._loop.call_soon(self._read_request)

    def _read_request(self) -> None:
        opening = self._opening
        if opening is None or self.ready:
            return  # it ended, or was ready, before this call
        try:
            data = self._below.receive(self._reader.room_bytes)
            if not data:
                opening.close(Reason.CLIENT_GONE, "the client left during the WebSocket handshake")
                return
            whole = self._reader.feed(data)
            opening.holds(self._reader.held_bytes)
            if whole is None:
                if self._below.pending:
                    self._loop.call_soon(self._read_request)
                return
            request, self._came = whole
            self._note_client(request, opening)
            accepted = answer(request, self._rules)
        except BlockingIOError:
            return
        except OSError as error:
            opening.close(*ended(error))
            return
        except Refusal as refusal:
            self._refusal = refusal
            reason = Reason.NOT_AUTHORIZED if refusal.status == 403 else Reason.PROTOCOL_ERROR
            opening.close(reason, f"the WebSocket handshake was refused ({refusal.status}): {refusal}")
            return
        self._loop.remove_reader(self.sock)
        self._opening = None
        self._accepted(accepted)
        self.ready = True
        try:
            self._flush_own()
        except OSError as error:
            opening.close(*ended(error))
            return
        self._note_pending()
        opening.opened()

    def _accepted(self, accepted: Accepted) -> None:
        self._own = accepted.answer
        self.protocol, codec = accepted.protocol, self._codecs[accepted.protocol]
        self._filler, self._decoder = codec.filler, FrameDecoder(texts=codec.texts)

    def _note_client(self, request: Request, opening: Opening) -> None:
        """Takes the client's address from the proxies that are trusted."""
        if self._rules.proxies:
            host = opening.address.rpartition(":")[0]
            client = client_of(request.tokens("x-forwarded-for"), host, self._rules.proxies)
            if client != host:
                opening.address = shown(client, 0)

    # -- in ---------------------------------------------------------------------------------------------------------

    def receive(self, size: int) -> bytes:
        decoder = self._decoder
        if decoder.over is not None:
            raise self._end(decoder.over)
        data = b""
        if self._came:
            data, self._came = self._came, b""
        elif not decoder.more:
            data = self._below.receive(size)
            if not data:
                return b""
        payload = decoder.feed(data, min(size, INFLATED_BYTES_MAX))
        self._note_pending()
        if decoder.ping is not None:
            self._pong, decoder.ping = decoder.ping, None
            with contextlib.suppress(OSError):  # what came is handled, even if nothing can be said any more
                self._flush_own()
        if payload:
            return payload
        if decoder.over is not None:
            raise self._end(decoder.over)
        raise BlockingIOError

    def _note_pending(self) -> None:
        decoder = self._decoder
        self.pending = bool(self._came) or decoder.more or decoder.over is not None or self._below.pending

    def _end(self, over: Over) -> StreamError:
        self.pending = False
        if over.by_client:
            said = f": {over.text}" if over.text else ""
            return StreamError(f"the client closed the WebSocket ({over.code}){said}")
        return StreamError(f"the WebSocket was closed ({over.code}): {over.text}", Reason.PROTOCOL_ERROR, polite=True)

    @property
    def portion_bytes(self) -> float:  # type: ignore[override]
        return self._below.portion_bytes

    @property
    def held_bytes(self) -> int:  # type: ignore[override]  # the others hold nothing, and are asked at each read
        return self._decoder.buffered_bytes

    # -- out --------------------------------------------------------------------------------------------------------

    def send(self, views: Sequence[Buffer]) -> int:
        if self.unsent:
            self._flush_own()
            if self.unsent:
                raise BlockingIOError
        if not self._owed:
            total = sum(map(len, views))
            if total <= self._frame_bytes:
                head = header(total)
                sent = self._below.send([head, *views])
                if sent == len(head) + total:
                    self._overhead_bytes += len(head)
                    self.unsent = self._below.unsent
                    return total
                return self._account(sent, 0, [total])
        taken, rest = 0, views
        while rest:
            parts, lead, sizes, rest = framed(rest, self._owed, self._frame_bytes, self._room_bytes)
            size = sum(map(len, parts))
            try:
                sent = self._below.send(parts)
            except OSError:
                if taken:
                    break  # the next call finds it again
                raise
            if sent < size or not sizes:
                return taken + self._account(sent, lead, sizes)
            own = lead + sum(sizes)
            taken += own
            self._overhead_bytes += size - own
            self._owed, self._frame_bytes = 0, FRAME_BYTES
            if self._below.unsent:
                break
        self._say()
        return taken

    def _account(self, sent: int, lead: int, sizes: Sequence[int]) -> int:
        """Notes that so many bytes of a portion were sent. Returns how many of them were given to ``send``."""
        self._frame_bytes = FRAME_BYTES if sent >= ALL_READ_SHARE * self._room_bytes else SLOW_FRAME_BYTES
        taken = min(sent, lead)
        self._owed -= taken
        sent -= taken
        for size in sizes:
            if not sent:
                break
            head = header(size)
            part = head[:sent]
            sent -= len(part)
            self._overhead_bytes += len(part)
            step = min(sent, size)
            sent -= step
            taken += step
            self._owed = size - step
            if len(part) < len(head):
                self._own = head[len(part) :]
                break
        self._say()
        return taken

    def _say(self) -> None:
        self.unsent = bool(self._own) or self._below.unsent
        if self._pong is not None:
            with contextlib.suppress(OSError):
                self._flush_own()

    def _flush_own(self) -> bool:
        """Sends what this stream says itself, as far as there is room. Returns whether the kernel has taken any."""
        below, moved = self._below, False
        try:
            if below.unsent:
                moved = below.flush()
            while not below.unsent:
                if not self._own and self._pong is not None and not self._owed:
                    self._own, self._pong = pong(self._pong), None
                if not self._own:
                    break
                sent = below.send([self._own])
                moved = True
                self._own = self._own[sent:]
                self._overhead_bytes += sent
        except BlockingIOError:
            pass
        self.unsent = bool(self._own) or below.unsent
        return moved

    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        if self.unsent:
            self._flush_own()
            if self.unsent:
                return 0
        parts, lead, sizes, _ = framed([data], self._owed, self._frame_bytes, self._room_bytes)
        return self._account(self._below.send_pieces(b"".join(parts), piece_bytes), lead, sizes)

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        return self.send([handle.read(start, start + min(count, FILE_BYTES))])

    def be_frugal(self, frugal: bool) -> None:
        self._below.be_frugal(frugal)

    def flush(self) -> bool:
        return self._flush_own()

    def complete(self) -> None:
        if self._owed and not self.unsent:
            packets = self._filled(self._owed)
            rest = packets[self._owed :]
            self._own, self._owed = packets[: self._owed] + (header(len(rest)) + rest if rest else b""), 0
            self._flush_own()

    def _filled(self, owed: int) -> bytes:
        """Returns packets that say nothing, of so many bytes or a few more."""
        return self._filler * -(-owed // len(self._filler))

    def acknowledged(self, wire_bytes: int) -> int:
        return max(0, self._below.acknowledged(wire_bytes) - self._overhead_bytes)

    # -- the end ----------------------------------------------------------------------------------------------------

    def leaving(self, reason: Reason, text: str) -> None:
        self._why = reason, text

    def _close_frame(self) -> bytes:
        over = self._decoder.over
        return close(over.code, over.text) if over is not None else close(code_of(self._why[0]), self._why[1])

    def last_words(self, words: Sequence[Buffer]) -> list[Buffer]:
        *words, last = [memoryview(view) for view in words]
        missing = self._owed - sum(map(len, words)) - len(last)
        if missing > 0:
            words.append(memoryview(self._filled(missing)))
        words.append(last)
        owed, told = self._owed, [memoryview(self._own)]
        rest: list[memoryview] = []
        for view in words:
            told.append(view[:owed])
            rest.append(view[owed:])
            owed -= min(owed, len(view))
        size = sum(map(len, rest))
        if size:
            told += [memoryview(header(size)), *rest]
        told.append(memoryview(self._close_frame()))
        return self._below.last_words(told)

    def close(self) -> None:
        self._opening = None
        words = b""
        if self.ready:
            # A Close would be in the middle of a frame that is not whole; the client finds the end of the stream then.
            words = b"" if self.unsent or self._owed else self._close_frame()
        elif self._below.ready:
            if self._refusal is None and self._why[0] is Reason.CONNECT_TIMEOUT:
                self._refusal = Refusal(408, self._why[1])
            words = b"" if self._refusal is None else self._refusal.answer()
        if words:
            with contextlib.suppress(OSError):
                self._below.send([words])
        self._below.close()


# -- compressed --------------------------------------------------------------------------------------------------------
#
# A WebSocket stream whose client takes compressed messages.


SEND_BYTES = 256 * 1024
"""Bytes that one call looks at."""


class CompressedStream(WebSocketStream):
    """Sends frames that were compressed once for all. A frame is taken whole, and the part of it that the kernel does
    not take is unsent. Bytes that the client has not acknowledged count as they are on the wire."""

    __slots__ = ("_agreed", "_shared")

    def __init__(
        self, below: ByteStream, rules: Rules, codecs: Mapping[str, Codec], loop: asyncio.AbstractEventLoop,
        shared: SharedDeflate,
    ) -> None:  # fmt: skip
        super().__init__(below, rules, codecs, loop)
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
