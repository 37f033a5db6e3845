"""A WebSocket of the web server, carried to the broker.

Theory of operation. The web server has the WebSocket; the broker has connections, which are kernel sockets. So there is
a pair of local sockets between them: the broker's end is a connection as any other, with its protocol, its cursor, its
meters and its policies. The other end is read here, a piece at a time, and each piece is handed to ``send``, which
returns when the server has room. While it does not, nothing is read here, the pair fills up, and the consumer's cursor
waits in the broker's log.

So a page that does not read costs ``SEND_BUFFER_BYTES`` in the kernel, a piece of ``PIECE_BYTES`` here, and what the
web server buffers on its own (uvicorn: 64 KiB and that piece), whatever is published meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from headway.embed.asgi.admittance import Admitted, Receive, Send
from headway.server.config import ASGI_LISTENER
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.protocols import PROTOCOLS, peer_of
from headway.server.transport import PlainStream

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
