"""A dialogue: a client's side of some protocol on one connection. Bytes in, deliveries out, answers in ``out``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

WINDOW = 1000
"""Records that a publisher has unconfirmed at most, unless the broker permits fewer."""


class Delivery(NamedTuple):
    payload: bytes
    tag: int
    """To acknowledge it with; 0: it needs none."""


class Dialogue(ABC):
    def __init__(self) -> None:
        self.out = bytearray()
        """Bytes for the broker."""
        self.greeted = False
        """The broker has let the client in."""
        self.granted = False
        """The broker has granted all that was subscribed to."""
        self.over = ""
        """The broker's last words; empty: it goes on."""
        self.product = ""
        """The broker's name for itself, where the protocol has a place for it."""
        self.held = ""
        """Why the broker asks publishers to wait; empty: it does not."""
        self.window = WINDOW
        self.unconfirmed = self.confirmed = self.refused = 0
        self.refusal = ""
        """The broker's words for the latest record that it refused."""

    @abstractmethod
    def open(self, window: int | None) -> None:
        """Asks to be let in. ``window``: the deliveries that it permits without an acknowledgement; None: any."""

    @abstractmethod
    def subscribe(self, filters: Sequence[str], *, acked: bool) -> None: ...

    @abstractmethod
    def prepare(self) -> None:
        """Says that this client is going to publish, and wants its records confirmed."""

    @abstractmethod
    def publish(self, topic: str, payload: bytes, *, confirmed: bool) -> None: ...

    @abstractmethod
    def take(self, data: bytes) -> list[Delivery]:
        """Handles what has come."""

    @abstractmethod
    def acknowledge(self, tags: Sequence[int]) -> None: ...

    @abstractmethod
    def ping(self) -> None: ...

    @abstractmethod
    def goodbye(self) -> None: ...
