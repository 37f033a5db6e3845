"""AMQP 0-9-1, transient messages: a queue per subscriber, exclusive and gone with it, bound to ``amq.topic``, without
acknowledgements; or one queue that consumers share, with them."""

from __future__ import annotations

import socket
import struct
from functools import lru_cache

from bench.errors import PeerFailed
from bench.wires.wire import Levels, QueueWire, Wire, dial, joined, take

EXCHANGE = "amq.topic"
FRAME_MAX_BYTES = 131_072
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
EXCLUSIVE_AUTO_DELETE, NO_ACK, NOTHING = 4 | 8, 2, 0
PREFETCH = 100
BLOCK = 1 << 16
"""Acknowledgements that are made at once: they differ in the last two bytes of the tag."""


class Amqp(Wire):
    def open(self, port: int, name: str) -> socket.socket:
        sock = dial(port)
        sock.sendall(b"AMQP\x00\x00\x09\x01")
        expect(sock, 10, 10)
        login = long_string(b"\x00guest\x00guest")
        sock.sendall(method(0, 10, 11, table() + short_string("PLAIN") + login + short_string("en_US")))
        expect(sock, 10, 30)
        sock.sendall(method(0, 10, 31, struct.pack(">HIH", 1, FRAME_MAX_BYTES, 0)))
        sock.sendall(method(0, 10, 40, short_string("/") + b"\x00\x00"))
        expect(sock, 10, 41)
        sock.sendall(method(1, 20, 10, b"\x00"))
        expect(sock, 20, 11)
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        answer = declare(sock, short_string(""), EXCLUSIVE_AUTO_DELETE)
        queue = answer[: 1 + answer[0]]
        bind(sock, queue, EXCHANGE, short_string(joined(levels)))
        consume(sock, queue, NO_ACK)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return publication(EXCHANGE, joined(levels), payload)


class AmqpQueue(Amqp, QueueWire):
    """One queue that consumers share, neither durable nor exclusive, named as the levels are. It is
    published to by its name; each consumer has up to ``PREFETCH`` messages and acknowledges them one by one."""

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        queue = short_string(joined(levels))
        declare(sock, queue, NOTHING)
        sock.sendall(method(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, NOTHING)))
        expect(sock, 60, 11)
        consume(sock, queue, NOTHING)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return publication("", joined(levels), payload)

    def acknowledgements(self, first: int, count: int) -> bytes:
        parts = b""
        while count:
            block, at = divmod(first, BLOCK)
            step = min(count, BLOCK - at)
            made = _acknowledgements(block)
            size = len(made) // BLOCK
            parts += made[at * size : (at + step) * size]
            first, count = first + step, count - step
        return parts


@lru_cache(maxsize=4)
def _acknowledgements(block: int) -> bytes:
    """Makes the acknowledgements of a whole block of tags, column by column."""
    one = method(1, 60, 80, struct.pack(">QB", block * BLOCK, NOTHING))
    made, low = bytearray(one * BLOCK), len(one) - 3
    made[low - 1 :: len(one)] = b"".join(bytes((high,)) * 256 for high in range(256))
    made[low :: len(one)] = bytes(range(256)) * 256
    return bytes(made)


def publication(exchange: str, key: str, payload: bytes, properties: bytes = b"\x00\x00") -> bytes:
    """Encodes a basic.publish; ``properties``: their flags, and the values."""
    return (
        method(1, 60, 40, b"\x00\x00" + short_string(exchange) + short_string(key) + bytes((NOTHING,)))
        + frame(HEADER, 1, struct.pack(">HHQ", 60, 0, len(payload)) + properties)
        + frame(BODY, 1, payload)
    )


def frame(kind: int, channel: int, body: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(body)) + body + END


def method(channel: int, kind: int, number: int, arguments: bytes) -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", kind, number) + arguments)


def short_string(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def long_string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def table() -> bytes:
    """Returns an empty table."""
    return b"\x00\x00\x00\x00"


def declare(sock: socket.socket, queue: bytes, flags: int) -> bytes:
    """Declares a queue, by its name as a short string; returns the answer's arguments."""
    sock.sendall(declaration(queue, flags))
    return expect(sock, 50, 11)


def declaration(queue: bytes, flags: int) -> bytes:
    return method(1, 50, 10, b"\x00\x00" + queue + bytes((flags,)) + table())


def bind(sock: socket.socket, queue: bytes, exchange: str, key: bytes) -> None:
    sock.sendall(method(1, 50, 20, b"\x00\x00" + queue + short_string(exchange) + key + b"\x00" + table()))
    expect(sock, 50, 21)


def consume(sock: socket.socket, queue: bytes, flags: int) -> None:
    sock.sendall(method(1, 60, 20, b"\x00\x00" + queue + short_string("c") + bytes((flags,)) + table()))
    expect(sock, 60, 21)


def expect(sock: socket.socket, kind: int, number: int) -> bytes:
    """The arguments of the method that has to come now."""
    _, _, size = struct.unpack(">BHI", take(sock, 7))
    body = take(sock, size + 1)[:-1]
    if struct.unpack_from(">HH", body) != (kind, number):
        raise PeerFailed(f"answered {body[4:].decode('latin-1', 'replace')!r}")
    return body[4:]
