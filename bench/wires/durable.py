"""AMQP 0-9-1 that outlives the broker: durable queues, persistent messages, publisher confirms.

The very same bytes go to every broker. A queue is called what the levels are; it is published to by its name, or, with
an exchange, through that: so several queues, or an MQTT topic's subscriptions beside it, get the same records.
"""

from __future__ import annotations

import socket
import struct

from bench.errors import PeerFailed
from bench.wires.amqp import NO_ACK, Amqp, bind, consume, declare, expect, method, publication, short_string
from bench.wires.wire import Levels, joined

DURABLE, PASSIVE = 2, 1
PERSISTENT = struct.pack(">HB", 0x1000, 2)
"""The properties of a message: its delivery mode."""
CONFIRM = struct.Struct(">BHIHHQBB")
"""A basic.ack, and a basic.nack: both are of this length."""
ACK, NACK = (60, 80), (60, 120)


class AmqpDurable(Amqp):
    def __init__(self, exchange: str = "") -> None:
        self.exchange = exchange

    def declare(self, sock: socket.socket, levels: Levels) -> None:
        """Declares a queue that stays."""
        queue = short_string(joined(levels))
        declare(sock, queue, DURABLE)
        if self.exchange:
            bind(sock, queue, self.exchange, queue)

    def count(self, sock: socket.socket, levels: Levels) -> int:
        """Returns how many messages wait in the queue. Raises PeerFailed where there is none."""
        answer = declare(sock, short_string(joined(levels)), PASSIVE | DURABLE)
        return int.from_bytes(answer[1 + answer[0] :][:4], "big")

    def confirms(self, sock: socket.socket) -> None:
        """Asks for confirms: from now on the broker confirms each message, beginning with number 1."""
        sock.sendall(method(1, 85, 10, b"\x00"))
        expect(sock, 85, 11)

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        """Consumes the durable queue, without acknowledgements."""
        self.declare(sock, levels)
        consume(sock, short_string(joined(levels)), NO_ACK)

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return publication(self.exchange, joined(levels), payload, PERSISTENT)


class Confirms:
    """Confirms of the messages 1, 2, 3 ...: one for each message, in any order; a confirm may stand for many."""

    answers = b""

    def __init__(self) -> None:
        self._upto = 0
        """The number up to which all are confirmed."""
        self._beyond: set[int] = set()
        """Numbers beyond it that are confirmed."""
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
