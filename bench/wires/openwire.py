"""OpenWire 1, ActiveMQ's own protocol, loosely encoded and without its cache, so that every delivery has the same size.

Non-persistent messages to topics. A subscriber has the usual prefetch of a topic and acknowledges after half of it, up
to a message that never comes, which the broker takes for all that it has sent.
"""

from __future__ import annotations

import socket
import struct

from bench.errors import PeerFailed
from bench.wires.wire import Levels, Wire, dial, joined, take

PREFETCH = 32_766
WIRE_FORMAT, CONNECTION, SESSION, CONSUMER, PRODUCER, ACK, BYTES_MESSAGE, RESPONSE = 1, 3, 4, 5, 6, 22, 24, 30
TOPIC, MESSAGE_ID, CONNECTION_ID, SESSION_ID, CONSUMER_ID, PRODUCER_ID = 101, 110, 120, 121, 122, 123
STANDARD_ACK = b"\x02"
NOTHING, NO, YES = b"\x00", b"\x00", b"\x01"
BOOLEAN, LONG = b"\x01", b"\x06"


class Openwire(Wire):
    ack_every = PREFETCH // 2

    def open(self, port: int, name: str) -> socket.socket:
        sock = dial(port)
        options = struct.pack(">i", 3) + b"".join((
            _utf("CacheEnabled"), BOOLEAN, NO, _utf("TightEncodingEnabled"), BOOLEAN, NO,
            _utf("MaxInactivityDuration"), LONG, _long(0),
        ))  # fmt: skip
        sock.sendall(_frame(WIRE_FORMAT, b"ActiveMQ" + _int(1) + _some_bytes(options)))
        who = _who(sock)
        password = user = path = NOTHING
        master = manageable = NO
        _ask(sock, CONNECTION, _object(CONNECTION_ID, who), who, password, user, path, master, manageable)
        _ask(sock, SESSION, _object(SESSION_ID, who, _long(1)))
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        browser = no_local = exclusive = retroactive = network = optimized = no_range = NO
        selector = name = path = predicate = NOTHING
        dispatch_async, priority, pending_limit = YES, b"\x00", _int(0)
        _ask(
            sock, CONSUMER, _consumer(sock), browser, _topic(levels), _int(PREFETCH), pending_limit, dispatch_async,
            selector, name, no_local, exclusive, retroactive, priority, path, predicate, network, optimized, no_range,
        )  # fmt: skip

    def acknowledgement(self, sock: socket.socket, levels: Levels) -> bytes:
        transaction = first = NOTHING
        last = _object(MESSAGE_ID, _producer(sock), _long(0), _long(0))
        count = _int(self.ack_every)
        return _command(ACK, NO, _topic(levels), transaction, _consumer(sock), STANDARD_ACK, first, last, count)

    def will_publish(self, sock: socket.socket) -> None:
        destination = path = NOTHING
        _ask(sock, PRODUCER, _producer(sock), destination, path)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        transaction = original = original_transaction = group = correlation = reply_to = kind = NOTHING
        properties = structure = target = path = user = NOTHING
        persistent = compressed = bridged = NO
        identity = _object(MESSAGE_ID, _producer(sock), _long(number), _long(0))
        expiration, priority, timestamp, arrival = _long(0), b"\x04", _long(0), _long(0)
        return _command(
            BYTES_MESSAGE, NO, _producer(sock), _topic(levels), transaction, original, identity, original_transaction,
            group, _int(0), correlation, persistent, expiration, priority, reply_to, timestamp, kind,
            _some_bytes(payload), properties, structure, target, compressed, _int(0), path, arrival, user, bridged,
        )  # fmt: skip


def _who(sock: socket.socket) -> bytes:
    """Returns the connection's name, of one length for all connections."""
    return YES + _utf(f"bench-{sock.getsockname()[1]:05d}")


def _consumer(sock: socket.socket) -> bytes:
    return _object(CONSUMER_ID, _who(sock), _long(1), _long(1))


def _producer(sock: socket.socket) -> bytes:
    return _object(PRODUCER_ID, _who(sock), _long(1), _long(1))


def _topic(levels: Levels) -> bytes:
    return _object(TOPIC, YES, _utf(joined(levels)))


def _int(number: int) -> bytes:
    return struct.pack(">i", number)


def _long(number: int) -> bytes:
    return struct.pack(">q", number)


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _some_bytes(data: bytes) -> bytes:
    return YES + _int(len(data)) + data


def _object(kind: int, *fields: bytes) -> bytes:
    """Encodes an object nested in another: a flag that there is one, its kind, its fields."""
    return YES + bytes((kind,)) + b"".join(fields)


def _frame(kind: int, body: bytes) -> bytes:
    return _int(len(body) + 1) + bytes((kind,)) + body


def _command(kind: int, answer: bytes, *fields: bytes) -> bytes:
    return _frame(kind, _int(1) + answer + b"".join(fields))


def _ask(sock: socket.socket, kind: int, *fields: bytes) -> None:
    """Sends a command, and reads up to its answer."""
    sock.sendall(_command(kind, YES, *fields))
    while True:
        (size,) = struct.unpack(">i", take(sock, 4))
        body = take(sock, size)
        if body[0] == RESPONSE:
            return
        if body[0] == RESPONSE + 1:
            raise PeerFailed(f"refused: {body[10:200].decode('latin-1')!r}")
