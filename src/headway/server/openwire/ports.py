"""Ports: what the parts of OpenWire's side of a connection know of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import inf
from typing import Protocol

from headway.core.consumer import Session
from headway.core.message import Record
from headway.server.config import ListenerTable
from headway.server.connections import SUBSCRIBE_WORK, Connection
from headway.server.engine import Engine
from headway.server.peers import CLOSING, BasePeer, NamedQueues
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.decoder import Item, OpenWireDecoder
from headway.wire.openwire.marshalling import Destination

SILENCE = 1 / 1.5
"""Factor for the keep-alive: the client's own limit is the one that counts, and the engine allows one and a half."""


class TemporariesSide(Protocol):
    """Temporary destinations, as consumers and publishers know them."""

    def check_owner(self, destination: Destination) -> None: ...
    def check_there(self, destination: Destination) -> None: ...
    def known(self, topic: str) -> Iterator[Record]: ...


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its parts know it."""

    __slots__ = ("client_id", "connection_id", "objects", "queues", "temporaries", "wire")

    decoder: OpenWireDecoder
    queues: NamedQueues
    """Set when the client is let in."""
    temporaries: TemporariesSide

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener, OpenWireDecoder(listener.packet_bytes_max))
        self.wire = Form()
        self.objects = 0
        """The client keeps so many objects by numbers."""
        self.connection_id = ""
        self.client_id = ""
        """By which durable subscriptions are found again; the session may have another name."""

    @abstractmethod
    def opened(self, session: Session) -> None: ...

    @property
    def gone(self) -> bool:
        """Whether the connection has ended, or is about to."""
        return self.session is None or not self.connection.open or self.state is CLOSING

    def make_queue(self, destination: Destination) -> None:
        """Makes a queue that is sent to, if there is none. Raises :class:`Refused`."""
        if destination.kind is Type.TEMP_QUEUE:
            self.temporaries.check_there(destination)
        else:
            self.queues.check_send(destination.name)
            if not self.queues.knows(destination.name):
                self.budget.left -= SUBSCRIBE_WORK
            self.queues.named(destination.name)

    def set_idle(self, idle_s: float) -> None:
        self.heartbeat_s = idle_s
        self.keep_alive_s = idle_s * SILENCE or inf
