"""One HTTP connection: what its client may send ahead of the answers.

aiohttp limits each header and their number, which is a megabyte for one request, and reads up to 32 requests that come
before their turn. Here a head is ``HEAD_BYTES_MAX`` at most, with ``HEADERS_MAX`` headers, which take forty times their
bytes in memory; and while a request waits, nothing is read. Of a body no more is read than its handler takes, and
``READ_BUFFER_BYTES``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError, LineTooLong

from headway.server.http.bodies import json_answer
from headway.server.transport import ByteStream

# -- stream transport --------------------------------------------------------------------------------------------------
#
# A transport for asyncio's protocols over a byte stream, as its own transports are over a socket.
#
# asyncio's own TLS computes handshakes on the loop, has no limit for them, and keeps its certificates for as long as it
# listens; and what its transports read in one turn has no limit that could be chosen. The streams of clients'
# connections have none of these faults, so HTTP goes over them, too.


READ_BYTES, READ_BYTES_MIN = 64 * 1024, 1024
HEAD_READ_BYTES = 2 * 1024
PIECE_BYTES, PIECES = 256 * 1024, 64
"""The most that is offered to the stream at once of what waits: bytes, and pieces."""
HIGH_BYTES = 64 * 1024
"""Beyond this the protocol is asked to wait."""
LOW_BYTES = 16 * 1024
USER = "headway_user"
"""The name under which a transport tells the user whose certificate the client has shown."""
_RESET = struct.pack("ii", 1, 0)


class StreamTransport(asyncio.Transport):
    """``stream`` is ready. The transport owns it from now on."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stream: ByteStream, factory: Callable[[], asyncio.BaseProtocol],
        tls: object,
    ) -> None:  # fmt: skip
        """``tls``: anything that tells that the bytes are those of TLS; None: they are in clear. Raises OSError."""
        peer, own = stream.sock.getpeername(), stream.sock.getsockname()
        about = {"peername": peer, "sockname": own, "socket": stream.sock, "sslcontext": tls, USER: stream.user}
        super().__init__(about)
        self._loop = loop
        self._stream = stream
        self.read_bytes = HEAD_READ_BYTES
        """How much is read in one turn."""
        self._out: deque[memoryview] = deque()
        self._out_bytes = 0
        """Bytes that wait, and their number. An answer that many get is in memory once."""
        self._reads = True
        self._writing = self._closing = self._closed = self._asked_to_wait = False
        protocol = factory()
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol: asyncio.Protocol = protocol
        protocol.connection_made(self)
        if self._reads and not self._closed:
            self._read_on()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # -- in -----------------------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._reads and not self._closing

    def pause_reading(self) -> None:
        if self.is_reading():
            self._loop.remove_reader(self._stream.sock)
        self._reads = False

    def resume_reading(self) -> None:
        if not self._reads and not self._closing:
            self._reads = True
            self._read_on()

    def _read_on(self) -> None:
        self._loop.add_reader(self._stream.sock, self._readable)
        if self._stream.pending:
            self._loop.call_soon(self._readable)

    def _readable(self) -> None:
        if not self._reads or self._closing:
            return
        try:
            data = self._stream.receive(self.read_bytes)
        except BlockingIOError:
            data = None
        except OSError as error:
            self._end(error)
            return
        if self._stream.unsent:
            self._await_room()
        if data is None:
            return
        if data:
            self._protocol.data_received(data)
            if self._stream.pending:
                self._loop.call_soon(self._readable)
        elif self._protocol.eof_received():
            self.pause_reading()
        else:
            self.close()

    # -- out ----------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closed or not data:
            return
        taken = 0 if self._out else self._send((data,))
        if taken == len(data) or self._closed:
            return
        rest = memoryview(data if isinstance(data, bytes) else bytes(data))[taken:]
        self._out.append(rest)
        self._out_bytes += len(rest)
        self._await_room()
        if self._out_bytes > HIGH_BYTES and not self._asked_to_wait:
            self._asked_to_wait = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._out_bytes

    def can_write_eof(self) -> bool:
        return False

    def _send(self, data: Sequence[bytes | bytearray | memoryview]) -> int:
        taken = 0
        try:
            taken = self._stream.send(data)
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(error)
        if not self._closed and self._stream.unsent:
            self._await_room()
        return taken

    def _await_room(self) -> None:
        if not self._writing and not self._closed:
            self._writing = True
            self._loop.add_writer(self._stream.sock, self._writable)

    def _writable(self) -> None:
        if self._closed:
            return
        if self._stream.unsent:
            try:
                self._stream.flush()
            except OSError as error:
                self._end(error)
                return
        if self._out and not self._stream.unsent:
            self._send_some()
        if self._closed:
            return
        if self._asked_to_wait and self._out_bytes <= LOW_BYTES:
            self._asked_to_wait = False
            self._protocol.resume_writing()
        if not self._out and not self._stream.unsent:
            self._writing = False
            self._loop.remove_writer(self._stream.sock)
            if self._closing:
                self._end(None)

    def _send_some(self) -> None:
        """Sends some of what waits."""
        pieces, left = list[memoryview](), PIECE_BYTES
        for piece in islice(self._out, PIECES):
            pieces.append(piece[:left])
            left -= len(piece)
            if left <= 0:
                break
        taken = self._send(pieces)
        self._out_bytes -= taken
        while taken:
            first = self._out.popleft()
            if len(first) > taken:
                self._out.appendleft(first[taken:])
                break
            taken -= len(first)

    # -- the end ------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Closes once what was written is sent."""
        if not self._closing:
            self._closing = True
            self._loop.remove_reader(self._stream.sock)
            if not self._out and not self._stream.unsent:
                self._end(None)

    def abort(self) -> None:
        """Resets the connection, so that the peer does not take what it got for the whole."""
        if not self._closed:
            with contextlib.suppress(OSError):
                self._stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._end(ConnectionAbortedError(), goodbye=False)

    def _end(self, error: OSError | None, *, goodbye: bool = True) -> None:
        if self._closed:
            return
        self._closing = self._closed = True
        self._out.clear()
        self._out_bytes = 0
        self._loop.remove_reader(self._stream.sock)
        self._loop.remove_writer(self._stream.sock)
        if goodbye:
            self._stream.close()
        else:
            self._stream.sock.close()
        self._loop.call_soon(self._protocol.connection_lost, error)


# -- http connection ---------------------------------------------------------------------------------------------------


HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 64
TURN_BYTES = 128 * 1024
"""Bytes of bodies that are read in a turn, of all connections, about. A body may come in chunks of one byte."""
READ_BUFFER_BYTES = 8 * 1024
IDLE_S = 30.0
_TEXT = msgspec.json.encode({"error": f"the request line and the headers have {HEAD_BYTES_MAX} bytes at most"})
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_TEXT), _TEXT)
)
_BYTES = re.compile(r""":?\s*(\n|\b(bytearray\(|b['"]))""")
"""The place in the text of a fault behind which aiohttp shows the bytes, as Python writes them."""

admin_log = logging.getLogger("headway.admin")


class HttpConnection(web.RequestHandler):
    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, everybody: set[web.RequestHandler],
        over: Callable[[HttpConnection], object],
    ) -> None:  # fmt: skip
        """``everybody``: all connections of the server. ``over`` is called when this one is lost."""
        super().__init__(
            server, loop=loop, keepalive_timeout=IDLE_S, access_log=None, logger=admin_log,  # type: ignore[arg-type]
            auto_decompress=False, max_headers=HEADERS_MAX, read_bufsize=READ_BUFFER_BYTES,
        )  # fmt: skip
        self._everybody = everybody
        self._over = over
        self._request: web.Request | None = None
        """The request that is being answered, or the last one."""
        self._head_bytes = 0
        """Bytes of a request whose head has not come whole."""

    def begin(self, request: web.Request) -> None:
        """Takes note of the request that is answered now."""
        self._request = request
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._everybody.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._everybody.discard(self)
        self._over(self)

    def data_received(self, data: bytes) -> None:
        of_body = self._body_comes
        super().data_received(data)
        if isinstance(self.transport, StreamTransport):
            fair = max(READ_BYTES_MIN, min(READ_BYTES, TURN_BYTES // len(self._everybody)))
            self.transport.read_bytes = fair if self._body_comes else HEAD_READ_BYTES
        if self._messages:
            if self._request is not None and self._body_comes:  # what is behind a body that has not ended is a fault
                self._request.content.set_exception(web.RequestPayloadError("the body is no HTTP"))
            self._pause_reading_for_buffer()  # until it is answered
        elif not of_body and self.transport is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.write(_TOO_LARGE)
                self.force_close()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:  # fmt: skip
        """Returns the answer to what is no HTTP, as other refusals are; nothing is logged of it."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size:
            return super().handle_error(request, status, exc, message)
        response = json_answer({"error": _text_of(exc)}, 400)
        response.force_close()
        return response

    @property
    def _body_comes(self) -> bool:
        return self._request is not None and not self._request.content.is_eof()


def _text_of(fault: HttpProcessingError) -> str:
    """Says in a sentence why a request is no HTTP."""
    if isinstance(fault, LineTooLong):
        return f"the request line or a header is too long: {fault.args[1]} bytes are allowed"
    if isinstance(fault, InvalidURLError):
        return "this is no valid HTTP: the URL cannot be read"
    return f"this is no valid HTTP: {_BYTES.split(fault.message, 1)[0].rstrip('.')}"
