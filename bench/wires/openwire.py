"""OpenWire 12, ActiveMQ's own protocol, loosely encoded: non-persistent messages to topics, or to a queue.

``cached``: both sides write an object that comes again as its number, as the JMS client does unless it is told not to.
A subscriber has the usual prefetch of a topic and acknowledges after half of it, up to a message that never comes,
which the broker takes for all that it has sent. ``OpenwireEach`` acknowledges each message, as a session of JMS does
with AUTO_ACKNOWLEDGE.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from bench.errors import PeerFailed
from bench.wires.wire import Frame, Levels, NamedQueueWire, Wire, dial, joined, take

PREFETCH, QUEUE_PREFETCH = 32_766, 100
VERSION, CACHE_SIZE = 12, 1024
WIRE_FORMAT, CONNECTION, SESSION, CONSUMER, PRODUCER, ACK, BYTES_MESSAGE, RESPONSE = 1, 3, 4, 5, 6, 22, 24, 30
QUEUE, TOPIC, MESSAGE_ID, CONNECTION_ID, SESSION_ID, CONSUMER_ID, PRODUCER_ID = 100, 101, 110, 120, 121, 122, 123
STANDARD_ACK = b"\x02"
NOTHING, NO, YES = b"\x00", b"\x00", b"\x01"
BOOLEAN, INTEGER, LONG = b"\x01", b"\x05", b"\x06"
WHO, WHERE = 1, 2
"""The numbers of a connection's two objects: its consumer or producer, and its destination."""
ID_BYTES, NUMBERS_BYTES = 2 + 1 + 2 + 3 + len("bench-00000") + 16, 16
"""The size of a message's id in front of its two numbers, and of these."""


class Openwire(Wire):
    kind = TOPIC
    prefetch = PREFETCH
    ack_every = PREFETCH // 2

    def __init__(self, *, cached: bool = False) -> None:
        self.cached = self.first_differs = cached

    def open(self, port: int, name: str) -> socket.socket:
        sock = dial(port)
        options = struct.pack(">i", 4) + b"".join((
            _utf("CacheEnabled"), BOOLEAN, YES if self.cached else NO, _utf("CacheSize"), INTEGER, _int(CACHE_SIZE),
            _utf("TightEncodingEnabled"), BOOLEAN, NO, _utf("MaxInactivityDuration"), LONG, _long(0),
        ))  # fmt: skip
        sock.sendall(_frame(WIRE_FORMAT, b"ActiveMQ" + _int(VERSION) + _some_bytes(options)))
        who = _who(sock)
        password = user = path = address = NOTHING
        master = manageable = client_master = tolerant = reconnects = NO
        _ask(
            sock, CONNECTION, self._whole(_object(CONNECTION_ID, who)), who, password, user, path, master, manageable,
            client_master, tolerant, reconnects, address,
        )  # fmt: skip
        _ask(sock, SESSION, self._whole(_object(SESSION_ID, who, _long(1))))
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        browser = no_local = exclusive = retroactive = network = optimized = no_range = NO
        selector = client = name = path = predicate = networks = NOTHING
        dispatch_async, priority, pending_limit = YES, b"\x00", _int(0)
        _ask(
            sock, CONSUMER, self._numbered(WHO, _consumer(sock)), browser,
            self._numbered(WHERE, self._destination(levels)), _int(self.prefetch), pending_limit, dispatch_async,
            selector, client, name, no_local, exclusive, retroactive, priority, path, predicate, network, optimized,
            no_range, networks,
        )  # fmt: skip

    def acknowledgement(self, sock: socket.socket, levels: Levels) -> bytes:
        cause, last = NOTHING, self._message_id(self._whole(_producer(sock)), _long(0) + _long(0))
        first = last if self.ack_every == 1 else NOTHING
        return _command(
            ACK, NO, self._known(WHERE, self._destination(levels)), self._whole(NOTHING),
            self._known(WHO, _consumer(sock)), STANDARD_ACK, first, last, _int(self.ack_every), cause,
        )  # fmt: skip

    def will_publish(self, sock: socket.socket) -> None:
        destination = path = NOTHING
        dispatch_async, window = NO, _int(0)
        _ask(
            sock, PRODUCER, self._numbered(WHO, _producer(sock)), self._whole(destination), path, dispatch_async,
            window,
        )  # fmt: skip

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        group = correlation = reply_to = kind = NOTHING
        properties = structure = path = user = cluster = NOTHING
        persistent = compressed = bridged = droppable = first_of_group = NO
        producer, nothing = self._known(WHO, _producer(sock)), self._whole(NOTHING)
        identity = self._message_id(producer, _long(number) + _long(0))
        expiration, priority, timestamp, arrival, times = _long(0), b"\x04", _long(0), _long(0), _long(0) + _long(0)
        return _command(
            BYTES_MESSAGE, NO, producer, self._whole(self._destination(levels)), nothing, nothing, identity, nothing,
            group, _int(0), correlation, persistent, expiration, priority, reply_to, timestamp, kind,
            _some_bytes(payload), properties, structure, nothing, compressed, _int(0), path, arrival, user, bridged,
            droppable, cluster, times, first_of_group,
        )  # fmt: skip

    def _destination(self, levels: Levels) -> bytes:
        return _object(self.kind, YES, _utf(joined(levels)))

    def _message_id(self, producer: bytes, numbers: bytes) -> bytes:
        text = NOTHING
        return _object(MESSAGE_ID, text, producer, numbers)

    # Where the other side may keep objects, each says first whether it comes whole, and its number; -1: keep it not.

    def _whole(self, known: bytes) -> bytes:
        return YES + b"\xff\xff" + known if self.cached else known

    def _numbered(self, number: int, known: bytes) -> bytes:
        return YES + number.to_bytes(2, "big") + known if self.cached else known

    def _known(self, number: int, known: bytes) -> bytes:
        return NO + number.to_bytes(2, "big") if self.cached else known


class OpenwireEach(Openwire):
    """Acknowledges each message on its own."""

    ack_every = 1


class OpenwireQueue(Openwire, NamedQueueWire):
    """One queue that consumers share. Each has up to ``QUEUE_PREFETCH`` messages and acknowledges them one by one, by
    the ids that they came with."""

    kind = QUEUE
    prefetch = QUEUE_PREFETCH
    ack_every = 0

    def names_in(self, data: bytes, frame: Frame) -> tuple[list[bytes], int]:
        at, size = frame.number_at - ID_BYTES, ID_BYTES + NUMBERS_BYTES
        each = struct.Struct(f"{at}x{size}s{frame.size_bytes - at - size}x")
        used = len(data) - len(data) % frame.size_bytes
        return [name for (name,) in each.iter_unpack(data[:used])], used

    def acknowledgements_of(self, sock: socket.socket, queue: Levels, names: Sequence[bytes]) -> bytes:
        """Each name is a message's id as it came."""
        lead = _command(
            ACK, NO, self._known(WHERE, self._destination(queue)), self._whole(NOTHING),
            self._known(WHO, _consumer(sock)), STANDARD_ACK,
        )  # fmt: skip
        one, cause = _int(1), NOTHING
        size = len(lead) - 4 + 2 * (ID_BYTES + NUMBERS_BYTES) + len(one) + len(cause)
        before, behind = _int(size) + lead[4:], one + cause
        return b"".join([b"%b%b%b%b" % (before, name, name, behind) for name in names])


def _who(sock: socket.socket) -> bytes:
    """Returns the connection's name, of one length for all connections."""
    return YES + _utf(f"bench-{sock.getsockname()[1]:05d}")


def _consumer(sock: socket.socket) -> bytes:
    return _object(CONSUMER_ID, _who(sock), _long(1), _long(1))


def _producer(sock: socket.socket) -> bytes:
    return _object(PRODUCER_ID, _who(sock), _long(1), _long(1))


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
