"""Opening of lines: the connection, TLS, and the handshake of a WebSocket."""

from __future__ import annotations

import asyncio
import socket

from headway.trouble.line import Line
from headway.trouble.place import Place
from headway.trouble.wires import WebSocketLine, shake_hands

ANSWER_S = 10.0


def dial(place: Place, receive_buffer: int | None) -> socket.socket:
    """Connects, and does TLS's handshake; blocking. ``receive_buffer``: its size in bytes; None: the kernel's own.
    Raises OSError."""
    last: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(ANSWER_S)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if place.tls is None else place.tls.wrap_socket(sock, server_hostname=place.host)
        except OSError as error:
            sock.close()
            last = error
    raise last or OSError(f"{place.host} has no address")


async def open_line(place: Place, receive_buffer: int | None = None) -> Line:
    """Raises OSError."""
    sock = await asyncio.to_thread(dial, place, receive_buffer)
    if place.websocket_path is None:
        return Line(sock)
    try:
        rest = await asyncio.to_thread(shake_hands, sock, place)
    except OSError:
        sock.close()
        raise
    return WebSocketLine(sock, rest)


