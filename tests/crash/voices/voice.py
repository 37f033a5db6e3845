"""A voice: a client of some protocol that says what an actor wants said, and puts down what it hears.

Deliveries and messages are called by numbers. Nothing is acknowledged and no credit is given unless it is said so.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from tests.crash.life import Life
from tests.interop.waiting import PATIENCE_S, received


class Place(NamedTuple):
    """A queue, or (``is_topic``) a topic or a filter of topics, as AMQP 0-9-1 writes it."""

    name: str
    is_topic: bool = False


class Kept(NamedTuple):
    """The broker has confirmed the message of this number."""

    number: int


class Came(NamedTuple):
    number: int
    body: bytes
    again: bool


class Begun(NamedTuple):
    """A transaction."""


class Ended(NamedTuple):
    """The transaction is committed or rolled back, whichever was wanted."""


class Fault(NamedTuple):
    text: str


class Voice(ABC):
    """Connects at once, under this name."""

    protocol: ClassVar[str]

    def __init__(self, life: Life, name: str) -> None:
        self.name = name
        self.inbox: list[Any] = []
        self.ended = False
        self.sock = socket.create_connection(("127.0.0.1", self.port(life)), PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @staticmethod
    @abstractmethod
    def port(life: Life) -> int:
        """The listener of this protocol."""

    def read(self, seconds: float = 0.0) -> bool:
        """Take in what has come. False when nothing came (or nothing more can)."""
        data = None if self.ended else received(self.sock, seconds)
        if not data:
            self.ended |= data is not None
            return False
        self.take(data)
        return True

    def until(self, kind: type[Any]) -> None:
        """Read until something of this kind has come; it stays in the inbox."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(isinstance(item, kind) for item in self.inbox):
            more = self.read(deadline - time.monotonic())
            faults = [item for item in self.inbox if isinstance(item, Fault)]
            assert not faults, faults
            assert more or (not self.ended and time.monotonic() < deadline), f"{self.name}: no {kind.__name__}"

    def close(self) -> None:
        """Vanish without a word."""
        self.sock.close()

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Bytes have come."""

    @abstractmethod
    def consume(self, place: Place, credit: int, *, upto: bool, durable: str = "") -> None:
        """``upto``: a settlement is of all deliveries up to its own; ``durable``: the name of a durable subscription,
        which is certain when this returns."""

    @abstractmethod
    def stop_consuming(self) -> None: ...

    @abstractmethod
    def send(self, place: Place, body: bytes, number: int) -> None:
        """A durable message; in the transaction if one has begun, and then it is not confirmed by itself."""

    @property
    def has_sent_all(self) -> bool:
        """Whether no message waits for the broker's permission to be sent."""
        return True

    @abstractmethod
    def settle(self, number: int) -> None:
        """In the transaction if one has begun."""

    @abstractmethod
    def give_back(self, number: int) -> None:
        """The delivery is for anybody again, and nobody speaks of transactions."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self, *, commit: bool) -> None: ...
