"""A request of the web server, passed on to the broker's HTTP server, and its answer passed back.

Theory of operation. The broker's HTTP server is aiohttp's, which reads bytes from a transport and writes bytes to it.
Here the transport is a buffer: the request is written out as HTTP/1.1, with its body as it comes, and the answer's
bytes are read back into the messages of ASGI. So every path is there, with the same logins and limits.

Rules:
- The buffer has ``HIGH_BYTES`` and one write more; beyond that the answer has to wait, until ``send`` has taken them.
- A body is handed over as fast as it is read, in chunks.
- An answer that is broken off is never ended as if it were whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

from headway.embed.asgi.admittance import Came, Message, Receive, Send
from headway.server.http import VOUCHED

HIGH_BYTES = 64 * 1024
HEAD_END = b"\r\n\r\n"
_DROPPED = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"}
"""Headers about one connection only."""
_SIZE = b"content-length"
"""A body is handed over in chunks of its own. Whatever size the client has told, nothing behind it is a request."""
_OF_THE_SERVER = (b"date", b"server")
"""Headers that the web server sets itself."""
_WITHOUT_BODY = (204, 304)


async def pass_on(protocol: asyncio.BaseProtocol, came: Came, receive: Receive, send: Send) -> None:
    """Passes a request on to an HTTP protocol of the broker. An answer that was broken off ends without its end, which
    the web server makes a broken connection."""
    assert isinstance(protocol, asyncio.Protocol)
    transport = RequestTransport(protocol, came)
    body = asyncio.create_task(_hand_over(transport, came, receive))
    try:
        with suppress(OSError):  # the client is gone
            await _answer(transport, came.method, send)
    finally:
        body.cancel()
        transport.abort()
        await asyncio.wait([body])


async def _hand_over(transport: RequestTransport, came: Came, receive: Receive) -> None:
    """Hands over the request; then waits until the client is gone."""
    chunked = begun = False
    message = await receive()
    while message["type"] == "http.request":
        data, more = message.get("body", b""), message.get("more_body", False)
        if not begun:
            begun = True
            chunked = bool(data) or more
            transport.protocol.data_received(_head(came, chunked=chunked))
        if data:
            transport.protocol.data_received(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if chunked and not more:
            transport.protocol.data_received(b"0\r\n\r\n")
        await transport.readable.wait()
        message = await receive()
    transport.lose()


def _head(came: Came, *, chunked: bool) -> bytes:
    path = quote(came.path).encode() + (b"?" + came.query if came.query else b"")
    lines = [b"%b %b HTTP/1.1" % (came.method.encode(), path)]
    lines += [b"%b: %b" % (name, value) for name, value in came.headers if name.lower() not in (*_DROPPED, _SIZE)]
    lines.append(b"connection: close")
    if chunked:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + HEAD_END


async def _answer(transport: RequestTransport, method: str, send: Send) -> None:
    """Sends the answer. Raises OSError if the client is gone."""
    answer = Answer(method)
    while True:
        data, ended = await transport.take()
        for message in answer.feed(data):
            await send(message)
        if answer.whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if ended:
            return


class Answer:
    """The bytes of an answer as messages of ASGI. ``whole``: its end has come."""

    def __init__(self, method: str) -> None:
        self.whole = False
        self._method = method
        self._data = bytearray()
        self._begun = self._chunked = False
        self._left = 0
        """Bytes to come of the body, or of the chunk."""
        self._between = False
        """The line end behind a chunk has to come yet."""

    def feed(self, data: bytes) -> Iterator[Message]:
        self._data += data
        if not self._begun:
            end = self._data.find(HEAD_END)
            if end < 0:
                return
            head = bytes(self._data[:end])
            del self._data[: end + len(HEAD_END)]
            yield self._start(head)
        body = bytes(self._dechunked()) if self._chunked else self._plain()
        if body:
            yield {"type": "http.response.body", "body": body, "more_body": True}

    def _start(self, head: bytes) -> Message:
        line, *rest = head.split(b"\r\n")
        status = int(line.split(b" ", 2)[1])
        headers = [(name.lower(), value.strip()) for name, _, value in (one.partition(b":") for one in rest)]
        said = dict(headers)
        self._begun = True
        self._chunked = said.get(b"transfer-encoding", b"").lower() == b"chunked"
        self._left = int(said.get(b"content-length", b"0")) if not self._chunked else 0
        if self._method == "HEAD" or status in _WITHOUT_BODY:
            self._chunked, self._left = False, 0
        self.whole = not self._chunked and not self._left
        kept = [(name, value) for name, value in headers if name not in _DROPPED and name not in _OF_THE_SERVER]
        return {"type": "http.response.start", "status": status, "headers": kept}

    def _plain(self) -> bytes:
        body = bytes(self._data[: self._left])
        del self._data[: len(body)]
        self._left -= len(body)
        self.whole = not self._left
        return body

    def _dechunked(self) -> bytearray:
        body, data = bytearray(), self._data
        while not self.whole:
            if self._left:
                part = data[: self._left]
                if not part:
                    break
                body += part
                del data[: len(part)]
                self._left -= len(part)
                self._between = not self._left
                continue
            if self._between:
                if len(data) < 2:
                    break
                del data[:2]
                self._between = False
            end = data.find(b"\r\n")
            if end < 0:
                break
            self._left = int(data[:end].partition(b";")[0], 16)
            del data[: end + 2]
            self.whole = not self._left
        return body


class RequestTransport(asyncio.Transport):
    """The transport that the HTTP protocol has: it writes into a buffer, which is taken from here."""

    def __init__(self, protocol: asyncio.Protocol, came: Came) -> None:
        about = {"peername": (came.host, came.port) if came.host else None, VOUCHED: True}
        super().__init__(about | ({"sslcontext": True} if came.secure else {}))
        self.protocol = protocol
        self.readable = asyncio.Event()
        """Set while the protocol takes more of the body."""
        self.readable.set()
        self._out = bytearray()
        self._changed = asyncio.Event()
        self._closing = self._lost = self._asked_to_wait = False
        protocol.connection_made(self)

    # -- for the protocol ---------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing:
            return
        self._out += data
        self._changed.set()
        if len(self._out) > HIGH_BYTES and not self._asked_to_wait:
            self._asked_to_wait = True
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._out)

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self.readable.is_set()

    def pause_reading(self) -> None:
        self.readable.clear()

    def resume_reading(self) -> None:
        self.readable.set()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def close(self) -> None:
        """Ends; what was written can still be taken."""
        if not self._closing:
            self._closing = True
            self._changed.set()
            asyncio.get_running_loop().call_soon(self.lose)

    def abort(self) -> None:
        self._out.clear()
        self.close()

    # -- for the web server -------------------------------------------------------------------------------------------

    async def take(self) -> tuple[bytes, bool]:
        """Returns what was written, and whether nothing more comes."""
        while not self._out and not self._closing:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._out)
        self._out.clear()
        if self._asked_to_wait:
            self._asked_to_wait = False
            self.protocol.resume_writing()
        return data, self._closing

    def lose(self) -> None:
        """Tells the protocol that the connection is over."""
        if not self._lost:
            self._lost = self._closing = True
            self._changed.set()
            self.readable.set()
            self.protocol.connection_lost(None)
