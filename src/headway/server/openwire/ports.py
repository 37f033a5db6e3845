"""Ports: the protocols by which the parts of OpenWire's side of a connection know each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from headway.core.consumer import Session
from headway.core.message import Record
from headway.server.peers import BasePeer, NamedQueues
from headway.wire.openwire.codes import Form
from headway.wire.openwire.decoder import Item, OpenWireDecoder
from headway.wire.openwire.marshalling import Destination


class TemporariesSide(Protocol):
    """Temporary destinations, as consumers know them."""

    def check_owner(self, destination: Destination) -> None: ...
    def known(self, topic: str) -> Iterator[Record]: ...


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its parts know it."""

    __slots__ = ("client_id", "connection_id", "queues", "wire")

    decoder: OpenWireDecoder
    wire: Form
    queues: NamedQueues
    """Set when the client is let in."""
    connection_id: str
    client_id: str
    """By which durable subscriptions are found again; the session may have another name."""

    @property
    @abstractmethod
    def gone(self) -> bool:
        """The connection has ended, or is about to."""
    @property
    @abstractmethod
    def temporaries(self) -> TemporariesSide: ...
    @abstractmethod
    def make_queue(self, destination: Destination) -> None:
        """Makes a queue that is sent to, if there is none. Raises :class:`Refused`."""
    @abstractmethod
    def set_idle(self, idle_s: float) -> None: ...
    @abstractmethod
    def opened(self, session: Session) -> None: ...
