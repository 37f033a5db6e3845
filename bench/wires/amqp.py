"""AMQP 0-9-1: a queue per subscriber, exclusive and gone with it, bound to ``amq.topic``; transient messages without
acknowledgements."""

from __future__ import annotations

import socket
import struct

from bench.errors import PeerFailed
from bench.wires.wire import Levels, Wire, dial, take

EXCHANGE = "amq.topic"
FRAME_MAX_BYTES = 131_072
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
EXCLUSIVE_AUTO_DELETE, NO_ACK = 4 | 8, 2


class Amqp(Wire):
    def open(self, port: int, name: str) -> socket.socket:
        sock = dial(port)
        sock.sendall(b"AMQP\x00\x00\x09\x01")
        _answer(sock, 10, 10)
        login = _long_string(b"\x00guest\x00guest")
        sock.sendall(_method(0, 10, 11, _table() + _short_string("PLAIN") + login + _short_string("en_US")))
        _answer(sock, 10, 30)
        sock.sendall(_method(0, 10, 31, struct.pack(">HIH", 1, FRAME_MAX_BYTES, 0)))
        sock.sendall(_method(0, 10, 40, _short_string("/") + b"\x00\x00"))
        _answer(sock, 10, 41)
        sock.sendall(_method(1, 20, 10, b"\x00"))
        _answer(sock, 20, 11)
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        sock.sendall(_method(1, 50, 10, b"\x00\x00\x00" + bytes((EXCLUSIVE_AUTO_DELETE,)) + _table()))
        answer = _answer(sock, 50, 11)
        queue = answer[: 1 + answer[0]]
        names = queue + _short_string(EXCHANGE) + _short_string(_routing_key(levels))
        sock.sendall(_method(1, 50, 20, b"\x00\x00" + names + b"\x00" + _table()))
        _answer(sock, 50, 21)
        sock.sendall(_method(1, 60, 20, b"\x00\x00" + queue + _short_string("c") + bytes((NO_ACK,)) + _table()))
        _answer(sock, 60, 21)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        names = _short_string(EXCHANGE) + _short_string(_routing_key(levels))
        return (
            _method(1, 60, 40, b"\x00\x00" + names + b"\x00")
            + _frame(HEADER, 1, struct.pack(">HHQH", 60, 0, len(payload), 0))
            + _frame(BODY, 1, payload)
        )


def _routing_key(levels: Levels) -> str:
    return ".".join("*" if level == "+" else level for level in levels)


def _frame(kind: int, channel: int, body: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(body)) + body + END


def _method(channel: int, kind: int, number: int, arguments: bytes) -> bytes:
    return _frame(METHOD, channel, struct.pack(">HH", kind, number) + arguments)


def _short_string(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def _long_string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def _table() -> bytes:
    """Nothing in it."""
    return b"\x00\x00\x00\x00"


def _answer(sock: socket.socket, kind: int, number: int) -> bytes:
    """The arguments of the method that has to come now."""
    _, _, size = struct.unpack(">BHI", take(sock, 7))
    body = take(sock, size + 1)[:-1]
    if struct.unpack_from(">HH", body) != (kind, number):
        raise PeerFailed(f"answered {body[4:].decode('latin-1', 'replace')!r}")
    return body[4:]
