"""Ports: the protocols by which the parts of STOMP's side of a connection know each other."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.core.base import Reason
from headway.core.consumer import Channel, Session
from headway.server.peers import BasePeer, NamedQueues, Transaction
from headway.server.stomp.temporaries import Temporaries
from headway.wire.stomp.items import Headers, Item
from headway.wire.stomp.versions import Version


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting, its subscriptions and its publisher know it."""

    __slots__ = ("channel", "client_id", "named", "temporaries", "version")

    version: Version
    client_id: str
    """The client's own name for itself; empty: it has none."""
    named: NamedQueues
    channel: Channel
    temporaries: Temporaries

    @property
    @abstractmethod
    def gone(self) -> bool:
        """Whether the connection has ended; a commit goes on without it."""
    @abstractmethod
    def opened(self, session: Session, send_s: float, hear_s: float) -> None:
        """Begins the session. ``send_s``: how often something is sent (0: when there is something); ``hear_s``: how
        often the client is."""
    @abstractmethod
    def end_with_error(
        self, text: str, reason: Reason, heading: str = "", receipt_id: str | None = None, *, agreed: bool = True
    ) -> None:
        """Ends the connection with an ERROR frame. ``receipt_id``: the receipt that the frame at fault asked for;
        ``agreed``: on a version."""
    @abstractmethod
    def done(self, headers: Headers, *, kept: bool = False, told: Headers | None = None) -> None:
        """Sends the receipt that the client asked for; if ``kept``, once the journal has what it is for. ``told``: more
        headers of the receipt."""
    @abstractmethod
    def transaction(self, headers: Headers) -> Transaction | None:
        """Returns the transaction that a frame belongs to; None: to none. Raises ProtocolError."""
