"""AMQP 0-9-1 for what is to outlive the broker: durable queues, persistent messages, publisher confirms.

The very same bytes go to every broker. A queue is called what the levels are; it is published to by its name, or, with
an exchange, through that: so several queues, or an MQTT topic's subscriptions beside it, get the same records.
"""

from __future__ import annotations

import socket
import struct

from bench.errors import PeerFailed
from bench.wires.amqp import (
    BODY,
    HEADER,
    NO_ACK,
    NOTHING,
    Amqp,
    expect,
    frame,
    method,
    routing_key,
    short_string,
    table,
)
from bench.wires.wire import Levels

DURABLE, PASSIVE = 2, 1
DELIVERY_MODE, PERSISTENT = 0x1000, 2
CONFIRM = struct.Struct(">BHIHHQBB")
"""A basic.ack, and a basic.nack: both are of this length."""
ACK, NACK = (60, 80), (60, 120)


class AmqpDurable(Amqp):
    def __init__(self, exchange: str = "") -> None:
        self.exchange = exchange

    def declare(self, sock: socket.socket, levels: Levels) -> None:
        """Declares a queue that stays."""
        queue = short_string(routing_key(levels))
        sock.sendall(self.declaration(levels))
        expect(sock, 50, 11)
        if self.exchange:
            names = queue + short_string(self.exchange) + queue
            sock.sendall(method(1, 50, 20, b"\x00\x00" + names + b"\x00" + table()))
            expect(sock, 50, 21)

    def declaration(self, levels: Levels) -> bytes:
        return method(1, 50, 10, b"\x00\x00" + short_string(routing_key(levels)) + bytes((DURABLE,)) + table())

    def count(self, sock: socket.socket, levels: Levels) -> int:
        """Returns how many messages wait in the queue. Raises PeerFailed where there is none."""
        queue = short_string(routing_key(levels))
        sock.sendall(method(1, 50, 10, b"\x00\x00" + queue + bytes((PASSIVE | DURABLE,)) + table()))
        answer = expect(sock, 50, 11)
        return int.from_bytes(answer[1 + answer[0] :][:4], "big")

    def confirms(self, sock: socket.socket) -> None:
        """Asks for confirms: from now on the broker confirms each message, beginning with number 1."""
        sock.sendall(method(1, 85, 10, b"\x00"))
        expect(sock, 85, 11)

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        """Consumes the durable queue, without acknowledgements."""
        self.declare(sock, levels)
        queue = short_string(routing_key(levels))
        sock.sendall(method(1, 60, 20, b"\x00\x00" + queue + short_string("c") + bytes((NO_ACK,)) + table()))
        expect(sock, 60, 21)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        names = short_string(self.exchange) + short_string(routing_key(levels))
        return (
            method(1, 60, 40, b"\x00\x00" + names + bytes((NOTHING,)))
            + frame(HEADER, 1, struct.pack(">HHQHB", 60, 0, len(payload), DELIVERY_MODE, PERSISTENT))
            + frame(BODY, 1, payload)
        )


class Confirms:
    """Confirms of the messages 1, 2, 3 ...: one for each message, in any order; a confirm may stand for many."""

    def __init__(self) -> None:
        self._upto = 0
        """All up to this one are confirmed,"""
        self._beyond: set[int] = set()
        """... and these."""
        self._rest = b""

    @property
    def count(self) -> int:
        return self._upto + len(self._beyond)

    def take(self, data: bytes) -> None:
        """Raises PeerFailed for a message that the broker refused, and for anything but confirms."""
        data = self._rest + data
        end = len(data) - len(data) % CONFIRM.size
        self._rest = data[end:]
        for _, _, _, kind, number, tag, several, _ in CONFIRM.iter_unpack(data[:end]):
            if (kind, number) != ACK:
                raise PeerFailed(f"refused message {tag}" if (kind, number) == NACK else "said something else")
            if several or tag == self._upto + 1:
                self._upto = max(self._upto, tag)
            elif tag > self._upto:
                self._beyond.add(tag)
        if self._beyond:
            self._beyond = {tag for tag in self._beyond if tag > self._upto}
            while self._upto + 1 in self._beyond:
                self._upto += 1
                self._beyond.discard(self._upto)
