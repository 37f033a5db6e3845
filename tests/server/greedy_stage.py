"""Clients that ask for much, of any protocol: bare bytes to a house without sockets (amqp_stage.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.server.amqp_stage import House
from tests.server.pretended import Socket

READ = 1 << 22


class Greedy:
    """A client that writes bytes and does not care for the answers, unless a test does."""

    def __init__(self, house: House, peer: Callable[..., Any], *opening: bytes) -> None:
        self.house = house
        house.read_bytes = house.usual_read_bytes = READ
        self.sock = Socket()
        self.connection = house.accept(self.sock, peer=peer)
        for piece in opening:
            self.say(piece)
        assert self.connection.admitted, bytes(self.sock.taken)

    def send(self, data: bytes) -> None:
        """All of it is there to be read at once."""
        self.connection.read_bytes = READ
        self.sock.incoming.append(data)

    def say(self, data: bytes) -> bytes:
        """Returns the answers, once everything is done."""
        self.sock.taken.clear()
        self.send(data)
        self.house.run()
        return bytes(self.sock.taken)

    def turns(self, data: bytes) -> int:
        """How many turns it takes until this is done."""
        before = self.house.turns
        self.say(data)
        return self.house.turns - before

    @property
    def tab(self) -> dict[str, int]:
        """What is counted to the client, by kind."""
        session = self.connection.peer_side.session
        assert session is not None
        return dict(session.tab.amounts)
