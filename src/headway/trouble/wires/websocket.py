"""A client's side of WebSocket (RFC 6455), for MQTT in binary frames."""

from __future__ import annotations

import base64
import os
import socket

from headway.trouble.line import Line
from headway.trouble.place import Place

HEAD_BYTES_MAX = 16_384
BINARY, CLOSE, PING, PONG = 2, 8, 9, 10


def shake_hands(sock: socket.socket, place: Place) -> bytes:
    """Asks for the upgrade; blocking. Returns what has come behind the answer. Raises OSError."""
    key = base64.b64encode(os.urandom(16)).decode()
    host = f"[{place.host}]" if ":" in place.host else place.host
    sock.sendall(
        f"GET {place.websocket_path} HTTP/1.1\r\nHost: {host}:{place.port}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = sock.recv(4096)
        if not data or len(answer) > HEAD_BYTES_MAX:
            raise OSError("the WebSocket handshake was not answered")
        answer += data
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if " 101" not in status:
        raise OSError(f"the WebSocket handshake was refused: {status}")
    return rest


class WebSocketLine(Line):
    def __init__(self, sock: socket.socket, rest: bytes) -> None:
        super().__init__(sock)
        self._in = bytearray(rest)

    def _received(self, data: bytes) -> bytes:
        self._in += data
        held, at, found = self._in, 0, bytearray()
        while len(held) - at >= 2:
            kind, size, body = held[at] & 0x0F, held[at + 1] & 0x7F, at + 2
            extra = {126: 2, 127: 8}.get(size, 0)
            if extra:
                size, body = int.from_bytes(held[body : body + extra], "big"), body + extra
            if len(held) < body + size:
                break
            if kind in (0, BINARY):
                found += held[body : body + size]
            elif kind == PING:
                super().write(_frame(PONG, bytes(held[body : body + size])))
            at = body + size
        del held[:at]
        return bytes(found)

    def write(self, data: bytes | bytearray) -> None:
        super().write(_frame(BINARY, bytes(data)))


def _frame(kind: int, data: bytes) -> bytes:
    """Returns a whole frame, masked as a client's must be."""
    size, mask = len(data), os.urandom(4)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big") if size < 65_536 else (
        b"\xff" + size.to_bytes(8, "big"))  # fmt: skip
    keys = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return bytes((0x80 | kind,)) + length + mask + (int.from_bytes(data, "big") ^ keys).to_bytes(size, "big")
