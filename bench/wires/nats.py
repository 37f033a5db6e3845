"""NATS core: text lines."""

from __future__ import annotations

import json
import socket

from bench.errors import PeerFailed
from bench.wires.wire import Levels, Wire, dial, joined, take, take_line

OPTIONS = {"verbose": False, "pedantic": False, "tls_required": False, "lang": "python", "version": "1", "protocol": 1}


class Nats(Wire):
    noise = b"PING\r\n"
    """The server's ping: it sends the first after two seconds, and then one every two minutes."""

    def greeted(self, port: int) -> socket.socket:
        """Connects, and takes the server's first line."""
        sock = dial(port)
        take_line(sock)
        return sock

    def open(self, port: int, name: str) -> socket.socket:
        sock = self.greeted(port)
        sock.sendall(b"CONNECT " + json.dumps(OPTIONS | {"name": name}).encode() + b"\r\nPING\r\n")
        _pong(sock)
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        sock.sendall(f"SUB {joined(levels)} 1\r\nPING\r\n".encode())
        _pong(sock)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return f"PUB {joined(levels)} {len(payload)}\r\n".encode() + payload + b"\r\n"


def _pong(sock: socket.socket) -> None:
    """Reads up to the answer to our ping."""
    while (said := take(sock, 6)) != b"PONG\r\n":
        if said != b"PING\r\n":
            raise PeerFailed((said + take_line(sock)).decode("latin-1").strip())
