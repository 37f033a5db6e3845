"""The broker as an ASGI application, which a web framework mounts. It needs no library but the broker's own."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from headway.core.base import HeadwayError
from headway.server.config import ASGI_LISTENER, ListenerTable
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.http import DATA, PUBLIC, VOUCHED
from headway.server.protocols import PROTOCOLS, SUBPROTOCOLS, peer_of
from headway.server.running import Running
from headway.server.transport import PlainStream
from headway.server.websocket import Refusal, Request, Rules, check_page, is_loopback, is_no_name, subprotocol

# -- admittance --------------------------------------------------------------------------------------------------------
#
# Admittance: who may come in through the program's own web server.
#
# The broker's listeners decide by where they listen; here only the web server knows. So these are the rules:
#
# - Pages come in if they are from this very host, as at any WebSocket of the broker
# (``server/websocket/handshake.py``),
#   or from one of ``origins`` in ``[listeners.asgi]``.
# - With users (``[auth]``), clients log in, from wherever they come.
# - Without users, clients of this machine come in, and only under a host name that no page can have made up. With
#   ``allow_anonymous = true`` everybody does, but for operators' requests: those are for this machine only.


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Closed(Refusal):
    """The broker cannot be had at all."""

    def __init__(self, text: str) -> None:
        super().__init__(503, text)


class Came:
    """A request, as the web server tells of it (its *scope*)."""

    def __init__(self, scope: Message) -> None:
        root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
        self.path: str = path.removeprefix(root) or "/" if f"{path}/".startswith(f"{root}/") else path
        """The path below that which the application is mounted at."""
        self.method: str = scope.get("method", "GET")
        self.query: bytes = scope.get("query_string", b"")
        self.headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.secure = scope.get("scheme") in ("https", "wss")
        client = scope.get("client") or ("", 0)
        self.host, self.port = str(client[0]), int(client[1] or 0)
        self.offered: list[str] = list(scope.get("subprotocols", ()))

    @property
    def address(self) -> str:
        return f"{self.host or 'unknown'}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether the client is on this machine. A web server at a socket of the file system knows no address."""
        return not self.host or is_loopback(self.host)

    @property
    def is_one_line_each(self) -> bool:
        """Whether no part of it has a line end, so that it stays one request when it is written out."""
        parts = (self.method.encode(), self.query, *(part for header in self.headers for part in header))
        return not any(end in part for part in parts for end in (b"\r", b"\n")) and b" " not in self.query

    @cached_property
    def request(self) -> Request:
        found: dict[str, list[str]] = {}
        for name, value in self.headers:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if self.offered:
            found["sec-websocket-protocol"] = [", ".join(self.offered)]
        return Request(self.method, self.path, found)


class Admitted(NamedTuple):
    """A client of the WebSocket."""

    address: str
    subprotocol: str
    protocol: str
    table: ListenerTable


class Admittance:
    """Raises Refusal."""

    def check_request(self, engine: Engine, came: Came) -> None:
        if not came.is_one_line_each:
            raise Refusal(400, "the request has a line end where there may be none")
        if came.path.startswith(PUBLIC):
            return
        table = engine.settings.listeners[ASGI_LISTENER]
        host = check_page(came.request, _rules(table, came))
        data = came.path.startswith(DATA)
        if not engine.settings.auth.asks:
            self._check_stranger(came, host, everybody=bool(table.allow_anonymous_given) and data)

    def check_socket(self, engine: Engine, came: Came) -> Admitted:
        table = engine.settings.listeners[ASGI_LISTENER]
        rules = _rules(table, came)
        if came.path not in table.paths:
            raise Refusal(404, f"there is nothing here; the path of the WebSocket is {table.paths[0]}")
        host = check_page(came.request, rules)
        chosen = subprotocol(came.request, rules)
        if not engine.settings.auth.checks_names:
            self._check_stranger(came, host, everybody=bool(table.allow_anonymous_given))
        if engine.connections.by_listener[ASGI_LISTENER] >= table.connections_max:
            full = f"listeners.{ASGI_LISTENER} has its {table.connections_max} connections already"
            peer, _, _ = came.address.rpartition(":")
            if not engine.connections.make_room(ASGI_LISTENER, peer, full, engine.now()):
                engine.connections_refused += 1
                raise Closed(full)
        protocol = SUBPROTOCOLS[chosen.lower()]
        return Admitted(came.address, chosen, protocol, table.speaking(protocol))

    def _check_stranger(self, came: Came, host: str, *, everybody: bool) -> None:
        if everybody:
            return
        if not came.is_here:
            raise Refusal(403, f"nobody would have to log in: add [auth.users], or allow_anonymous = true in "
                               f"[listeners.{ASGI_LISTENER}] for what is no operator's")  # fmt: skip
        if not is_no_name(host):
            raise Refusal(403, f"{host[:100]!a} may be a name that a page has made up: use 127.0.0.1 or localhost, or "
                               "have users")  # fmt: skip


def _rules(table: ListenerTable, came: Came) -> Rules:
    origins = None if table.origins is None else tuple(table.origins)
    return Rules(table.paths, origins, SUBPROTOCOLS, ASGI_LISTENER, came.secure)


# -- requests ----------------------------------------------------------------------------------------------------------
#
# A request of the web server, passed on to the broker's HTTP server, and its answer passed back.
#
# Theory of operation. The broker's HTTP server is aiohttp's, which reads bytes from a transport and writes bytes to it.
# Here the transport is a buffer: the request is written out as HTTP/1.1, with its body as it comes, and the answer's
# bytes are read back into the messages of ASGI. So every path is there, with the same logins and limits.
#
# Rules:
# - The buffer has ``HIGH_BYTES`` and one write more; beyond that the answer has to wait, until ``send`` has taken them.
# - A body is handed over as fast as it is read, in chunks.
# - An answer that is broken off is never ended as if it were whole.


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


# -- sockets -----------------------------------------------------------------------------------------------------------
#
# A WebSocket of the web server, carried to the broker.
#
# Theory of operation. The web server has the WebSocket; the broker has connections, which are kernel sockets. So there
# is a pair of local sockets between them: the broker's end is a connection as any other, with its protocol, its cursor,
# its meters and its policies. The other end is read here, a piece at a time, and each piece is handed to ``send``,
# which returns when the server has room. While it does not, nothing is read here, the pair fills up, and the consumer's
# cursor waits in the broker's log.
#
# So a page that does not read costs ``SEND_BUFFER_BYTES`` in the kernel, a piece of ``PIECE_BYTES`` here, and what the
# web server buffers on its own (uvicorn: 64 KiB and that piece), whatever is published meanwhile.


PIECE_BYTES = 32 * 1024
SEND_BUFFER_BYTES = 64 * 1024
NORMAL, UNSUPPORTED = 1000, 1003


async def carry(engine: Engine, admitted: Admitted, receive: Receive, send: Send) -> None:
    """Accepts the WebSocket, and carries its bytes until one side ends."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        _connect(engine, admitted, ours)  # before anything is waited for, so that others find it counted
        await send({"type": "websocket.accept", "subprotocol": admitted.subprotocol})
        texts = PROTOCOLS[admitted.protocol].texts
        out = asyncio.create_task(_out(engine.loop, theirs, send))
        come = asyncio.create_task(_come(engine.loop, theirs, receive, texts=texts))
        try:
            await asyncio.wait([out, come], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (out, come):
                task.cancel()
            await asyncio.wait([out, come])
        text = not come.cancelled() and come.result()
        if not text and not come.cancelled():
            return  # the client is gone
        code = UNSUPPORTED if text else NORMAL
        with suppress(OSError, RuntimeError):  # it is gone meanwhile
            await send({"type": "websocket.close", "code": code})


def _connect(engine: Engine, admitted: Admitted, sock: socket.socket) -> None:
    """Makes a connection of the broker of one end of the pair."""
    sock.setblocking(False)
    # The kernel doubles the size, to have room for its own bookkeeping.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES // 2)
    pool = engine.broker.registry.pool_of(ASGI_LISTENER)
    connection = Connection(engine, PlainStream(sock), admitted.address, ASGI_LISTENER, pool, engine.now())
    engine.connections.add(connection, connection.opened_s + admitted.table.connect_timeout_s)
    connection.start(peer_of(admitted.protocol)(engine, connection, admitted.table))


async def _out(loop: asyncio.AbstractEventLoop, sock: socket.socket, send: Send) -> None:
    """Hands bytes of the broker to the web server, until the broker has ended the connection."""
    with suppress(OSError):  # the client is gone
        while piece := await loop.sock_recv(sock, PIECE_BYTES):
            await send({"type": "websocket.send", "bytes": piece})


async def _come(loop: asyncio.AbstractEventLoop, sock: socket.socket, receive: Receive, *, texts: bool) -> bool:
    """Hands bytes of the client to the broker, and no faster than it reads. Returns whether the client has sent a text
    where the protocol has none; otherwise it is gone."""
    while (message := await receive())["type"] == "websocket.receive":
        data = message.get("bytes")
        if data is None:
            if not texts:
                return True
            data = message["text"].encode()
        try:
            await loop.sock_sendall(sock, data)
        except OSError:
            await asyncio.get_running_loop().create_future()  # the broker has ended it, and the other task says so
    return False


# -- application -------------------------------------------------------------------------------------------------------
#
# The application: to each request, WebSocket and life span of the web server, its part here.
#
# Below the path that it is mounted at it has
#
# - a WebSocket, at ``/mqtt``, ``/stomp``, ``/ws`` and ``/`` itself, for MQTT and STOMP;
# - the admin API with all of its paths: ``/v1/...``, server-sent events, ``/metrics``;
# - ``/javascript/headway-view.js``, the client for pages.
#
# Who may come in is decided here, because the web server has the address.


POLICY_VIOLATION = 1008


class Host(Protocol):
    """The broker, as its application sees it."""

    @property
    def running(self) -> Running: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Application:
    """An ASGI 3 application. Alone, without a framework around it, it starts and stops the broker with the server."""

    def __init__(self, broker: Host) -> None:
        self._broker = broker
        self._admittance = Admittance()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        elif kind == "http":
            await self._http(scope, receive, send)

    def _running(self) -> Running:
        """Raises Refusal."""
        try:
            running = self._broker.running
        except HeadwayError as error:
            raise Closed(str(error)) from None
        if running.engine.loop is not asyncio.get_running_loop():
            raise Closed("the broker runs on another loop than this web server: start it in the server's lifespan")
        return running

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        came = Came(scope)
        try:
            running = self._running()
            self._admittance.check_request(running.engine, came)
        except Refusal as no:
            body = json.dumps({"error": str(no)}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": no.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        assert running.admin is not None  # an embedded broker has one
        await pass_on(running.admin.connection(), came, receive, send)

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        came = Came(scope)
        try:
            running = self._running()
            admitted = self._admittance.check_socket(running.engine, came)
        except Refusal as no:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": str(no)[:120]})
            return
        await carry(running.engine, admitted, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Raises nothing: the server is told."""
        await receive()
        try:
            await self._broker.start()
        except (HeadwayError, OSError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            await self._broker.stop()
        await send({"type": "lifespan.shutdown.complete"})
