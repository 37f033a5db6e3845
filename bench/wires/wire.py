"""The client side of a protocol, as the load driver needs it, and the size of one delivery.

Topics and filters are tuples of levels; in a filter ``+`` stands for any one level. Nothing here decodes a delivery:
for one topic and payload size every delivery has the same bytes but for counters of a fixed width, so that the driver
counts bytes and divides, the same work for every peer. ``measure`` finds the size by really receiving two. Where a
counter's width is not fixed, a byte that ends each delivery is counted.
"""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from bench.errors import PeerFailed

HOST = "127.0.0.1"
NUMBER, NUMBER_FORM = 0x0102_0304_0506_0700, Struct(">q")
"""A number that a delivery has nowhere else."""
ANSWER_S = 20.0
"""The longest time that a peer may take to answer a handshake."""

Levels = tuple[str, ...]


class Frame(NamedTuple):
    """A delivery: its size, and where in it the payload begins."""

    size_bytes: int
    payload_at: int
    number_at: int = -1
    """Where its publisher's number is; -1: nowhere."""
    first_bytes: int = 0
    """By how much a connection's first delivery is longer than all others."""


class Wire(ABC):
    """A protocol's client side, blocking."""

    noise = b""
    """Bytes that the server may send between deliveries, of its own accord."""
    slack_bytes = 0
    """Bytes that may come beside deliveries, once for many of them."""
    ack_every = 0
    """The number of deliveries that a subscriber acknowledges at once; 0: none are acknowledged."""
    ends_with = b""
    """A byte that ends each delivery and stands nowhere else, where deliveries may be of different sizes."""
    first_differs = False
    """Whether a connection's first delivery may be longer than all others."""

    @abstractmethod
    def open(self, port: int, name: str) -> socket.socket:
        """Connects, and takes the answer to the handshake."""

    @abstractmethod
    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        """Subscribes, confirmed: nothing but deliveries comes from now on. ``conflate``: where the peer has that."""

    @abstractmethod
    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        """Returns the bytes that publish one message on this connection, unconfirmed. ``number``, of 64 bits, for a
        protocol in which the publisher counts its messages."""

    def acknowledgement(self, sock: socket.socket, levels: Levels) -> bytes:
        """Returns the bytes that acknowledge the last ``ack_every`` deliveries; none where none are needed."""
        return b""

    def will_publish(self, sock: socket.socket) -> None:  # noqa: B027  most need nothing
        """Prepares a connection that only publishes from now on."""


class QueueWire(Wire):
    """A wire whose subscribers share a queue, and acknowledge each delivery. Those of a connection are numbered from 1
    on."""

    @abstractmethod
    def acknowledgements(self, first: int, count: int) -> bytes:
        """Returns the bytes that acknowledge so many deliveries, each by itself."""


class NamedQueueWire(Wire):
    """As QueueWire; a delivery is acknowledged by a part of it, its *name*."""

    @abstractmethod
    def names_in(self, data: bytes, frame: Frame) -> tuple[list[bytes], int]:
        """Returns the names of the whole deliveries in these bytes, which begin with one, and their size."""

    @abstractmethod
    def acknowledgements_of(self, sock: socket.socket, queue: Levels, names: Sequence[bytes]) -> bytes:
        """Returns the bytes that acknowledge the deliveries of these names, each by itself."""

    def answers_to(self, sock: socket.socket, queue: Levels, data: bytes, frame: Frame) -> tuple[int, bytes, int]:
        """Returns how many deliveries are settled with these bytes, what answers them, and their size."""
        names, used = self.names_in(data, frame)
        return len(names), self.acknowledgements_of(sock, queue, names), used


def dial(port: int) -> socket.socket:
    """Opens a plain connection, with a limit on the wait for each answer."""
    sock = socket.create_connection((HOST, port), ANSWER_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def joined(levels: Levels, separator: str = ".") -> str:
    """Writes levels for a protocol in which ``*`` stands for any one level."""
    return separator.join("*" if level == "+" else level for level in levels)


def take(sock: socket.socket, count: int) -> bytes:
    """Reads exactly so many bytes, and none behind them."""
    parts = b""
    while len(parts) < count:
        try:
            part = sock.recv(count - len(parts))
        except TimeoutError:
            raise PeerFailed(f"no answer within {ANSWER_S:g} s") from None
        if not part:
            raise PeerFailed("closed the connection in the middle of an answer")
        parts += part
    return parts


def take_line(sock: socket.socket) -> bytes:
    """Reads a line with its end, and nothing behind it."""
    line = b""
    while not line.endswith(b"\n"):
        line += take(sock, 1)
    return line


def measure(
    wire: Wire, port: int, topic: Levels, payload_bytes: int, filter: Levels | None = None, conflate: str | None = None
) -> Frame:
    """Receives some deliveries of this topic and size, and measures them."""
    payloads = [os.urandom(payload_bytes) for _ in range(3 if wire.first_differs else 2)]
    subscriber, publisher = wire.open(port, "measure-in"), wire.open(port, "measure-out")
    try:
        wire.subscribe(subscriber, topic if filter is None else filter, conflate)
        wire.will_publish(publisher)
        publications = [
            wire.publication(publisher, topic, payload, NUMBER + n) for n, payload in enumerate(payloads)
        ]
        publisher.sendall(b"".join(publications))
        got = b""
        deadline = time.monotonic() + ANSWER_S
        while payloads[-1] not in got:
            if time.monotonic() > deadline:
                raise PeerFailed("two messages were published and not delivered")
            got += take(subscriber, 1)
        subscriber.settimeout(0.1)
        try:
            while more := subscriber.recv(4096):
                got += more
        except TimeoutError:
            pass
    finally:
        subscriber.close()
        publisher.close()
    if wire.noise:
        got = got.replace(wire.noise, b"")
    places = [got.index(payload) for payload in payloads]
    size, over = places[-1] - places[-2], len(got) - len(payloads) * (places[-1] - places[-2])
    most = size if wire.first_differs else wire.slack_bytes
    if not (0 <= over <= most or wire.ends_with):
        raise PeerFailed(f"{len(payloads)} deliveries are {len(got)} bytes and not of {size} each")
    first_bytes = over if wire.first_differs else 0
    payload_at = places[-1] - (len(payloads) - 1) * size - first_bytes
    number_at = got.rfind(NUMBER_FORM.pack(NUMBER + len(payloads) - 1)) - places[-1] + payload_at
    return Frame(size, payload_at, max(-1, number_at), first_bytes)
