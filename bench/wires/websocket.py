"""A WebSocket client over a blocking socket: the handshake, and frames in both directions."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import struct
import zlib

from bench.errors import PeerFailed
from bench.wires.wire import take

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(payload: bytes, opcode: int = BINARY, *, final: bool = True, mask: bytes | None = None) -> bytes:
    """Returns a masked frame."""
    mask = os.urandom(4) if mask is None else mask
    size = len(payload)
    first = bytes((opcode | (0x80 if final else 0),))
    if size < 126:
        head = first + bytes((0x80 | size,))
    elif size < 65_536:
        head = first + b"\xfe" + struct.pack(">H", size)
    else:
        head = first + b"\xff" + struct.pack(">Q", size)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def request(path: str, host: str, subprotocol: str, *headers: str) -> tuple[bytes, str]:
    """Returns the request that opens a WebSocket, and its key."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: keep-alive, Upgrade",
        f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
        *([f"Sec-WebSocket-Protocol: {subprotocol}"] if subprotocol else []), *headers, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode(), key


def upgrade(sock: socket.socket, path: str, host: str, subprotocol: str, *headers: str) -> str:
    """Opens a WebSocket on a connected socket. Returns the head of the answer. Raises PeerFailed."""
    data, key = request(path, host, subprotocol, *headers)
    sock.sendall(data)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += take(sock, 1)
    text = head.decode("latin-1")
    proof = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
    if not text.startswith("HTTP/1.1 101 ") or proof not in text:
        raise PeerFailed(f"the WebSocket was refused: {text.splitlines()[0]}")
    return text


DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"
"""The offer that browsers make."""
COMPRESSED = 0x40
TAIL = b"\x00\x00\xff\xff"
"""The end of a compressed message that is not sent."""


class Frames:
    """Reads a server's frames. ``payload``: bytes of messages that are complete."""

    def __init__(self, answer: str = "") -> None:
        """``answer``: the head of the server's answer, which says whether and how messages may be compressed."""
        self._rest = b""
        self._message = b""
        self._deflated = "permessage-deflate" in answer
        self._each_by_itself = "server_no_context_takeover" in answer
        self._inflate = zlib.decompressobj(-15)
        self._is_compressed = False
        self.payload = b""
        self.control: list[tuple[int, bytes]] = []
        self.sizes: list[int] = []
        self.compressed = 0
        """Messages that were compressed."""

    def feed(self, data: bytes) -> None:
        self._rest += data
        while (whole := self._one()) is not None:
            first, payload = whole
            opcode = first & 15
            reserved = 0x70 & ~(COMPRESSED if self._deflated and opcode == BINARY else 0)
            if first & reserved or opcode not in (0, BINARY, CLOSE, PING, PONG):
                raise PeerFailed(f"a frame begins with {first:#04x}")
            if opcode >= CLOSE:
                self.control.append((opcode, payload))
                continue
            self.sizes.append(len(payload))
            self._message += payload
            if opcode == BINARY:
                self._is_compressed = bool(first & COMPRESSED)
            if first & 0x80:
                self.payload += self._whole()
                self._message = b""

    def _whole(self) -> bytes:
        if not self._is_compressed:
            return self._message
        self.compressed += 1
        if self._each_by_itself:
            self._inflate = zlib.decompressobj(-15)
        return self._inflate.decompress(self._message + TAIL)

    def _one(self) -> tuple[int, bytes] | None:
        rest = self._rest
        if len(rest) < 2:
            return None
        first, size, at = rest[0], rest[1], 2
        if size > 127:
            raise PeerFailed("a server masks its frames")
        if size == 126:
            size, at = int.from_bytes(rest[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(rest[2:10], "big"), 10
        if len(rest) < at + size:
            return None
        self._rest = rest[at + size :]
        return first, rest[at : at + size]

    def take(self) -> bytes:
        """Returns the payload that has come since the last call."""
        payload, self.payload = self.payload, b""
        return payload

    @property
    def closed(self) -> tuple[int, str] | None:
        """Code and reason of the server's Close."""
        for opcode, payload in self.control:
            if opcode == CLOSE:
                return int.from_bytes(payload[:2], "big"), payload[2:].decode()
        return None
