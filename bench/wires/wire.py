"""The client side of a protocol, as the load driver needs it, and the size of one delivery.

Topics and filters are tuples of levels; in a filter ``+`` stands for any one level. Nothing here decodes a delivery:
for one topic and payload size every delivery has the same bytes but for counters of a fixed width, so that the driver
counts bytes and divides, the same work for every peer. ``measure`` finds the size by really receiving two.
"""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from typing import NamedTuple

from bench.errors import PeerFailed

HOST = "127.0.0.1"
ANSWER_S = 20.0
"""The longest time that a peer may take to answer a handshake."""

Levels = tuple[str, ...]


class Frame(NamedTuple):
    """A delivery: its size, and where in it the payload begins."""

    size_bytes: int
    payload_at: int


class Wire(ABC):
    """A protocol's client side, blocking."""

    noise = b""
    """Bytes that the server may send between deliveries, of its own accord."""
    slack_bytes = 0
    """Bytes that may come beside deliveries, once for many of them."""
    ack_every = 0
    """The number of deliveries that a subscriber acknowledges at once; 0: none are acknowledged."""

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
    """Receives two deliveries of this topic and size, and measures them."""
    first, second = os.urandom(payload_bytes), os.urandom(payload_bytes)
    subscriber, publisher = wire.open(port, "measure-in"), wire.open(port, "measure-out")
    try:
        wire.subscribe(subscriber, topic if filter is None else filter, conflate)
        wire.will_publish(publisher)
        publisher.sendall(wire.publication(publisher, topic, first, 1) + wire.publication(publisher, topic, second, 2))
        got = b""
        deadline = time.monotonic() + ANSWER_S
        while second not in got:
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
    size, at = got.index(second) - got.index(first), got.index(first)
    if not 0 <= len(got) - 2 * size <= wire.slack_bytes:
        raise PeerFailed(f"two deliveries are {len(got)} bytes and not twice {size}")
    return Frame(size, at)
