"""Ports: what the parts of STOMP's side of a connection know of each other."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod

from headway.core.base import ProtocolError, Reason, Refused
from headway.core.consumer import Channel, Session
from headway.core.message import topic_of
from headway.server.config import ListenerTable
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.peers import CLOSING, BasePeer, NamedQueues, Transaction
from headway.wire.common import Address
from headway.wire.stomp.decoder import StompDecoder
from headway.wire.stomp.destinations import Destination, Kind
from headway.wire.stomp.versions import V1_0, Headers, Item, Version, error, receipt

# -- temporaries -------------------------------------------------------------------------------------------------------
#
# Temporary queues and topics of one connection, by the names that its client has for them.


TEMPORARIES_MAX = 1000
NAME_CHARS_MAX = 255


class Temporaries:
    __slots__ = ("_addresses", "_named")

    def __init__(self, named: NamedQueues) -> None:
        self._named = named
        self._addresses: dict[Destination, Address] = {}

    def address(self, destination: Destination) -> Address:
        """Returns the address of a temporary queue or topic, which is made when it is first named. Raises
        :class:`Refused`."""
        address = self._addresses.get(destination)
        if address is None:
            if len(self._addresses) >= TEMPORARIES_MAX:
                text = f"a connection may have {TEMPORARIES_MAX} temporary destinations"
                raise Refused(Reason.TOO_MANY_QUEUES, text)
            if len(destination.name) > NAME_CHARS_MAX:
                text = f"the name of a temporary destination has {len(destination.name)} characters"
                raise Refused(Reason.PROTOCOL_ERROR, f"{text} (at most {NAME_CHARS_MAX})")
            if destination.kind is Kind.TEMP_QUEUE:
                address = Address(self._named.temporary().name)
            else:
                address = Address(topic_of(f"temp-topic.{secrets.token_urlsafe(16)}"), is_topic=True)
            self._addresses[destination] = address
        return address


# -- ports -------------------------------------------------------------------------------------------------------------


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting, its subscriptions and its publisher know it."""

    __slots__ = ("channel", "client_id", "named", "temporaries", "transactions", "version")

    decoder: StompDecoder
    named: NamedQueues
    channel: Channel
    temporaries: Temporaries

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener, StompDecoder(listener.packet_bytes_max))
        self.version: Version = V1_0
        self.client_id = ""
        """The client's own name for itself; empty: it has none."""
        self.transactions: dict[str, Transaction] = {}

    @abstractmethod
    def opened(self, session: Session, send_s: float, hear_s: float) -> None:
        """Begins the session. ``send_s``: how often something is sent (0: when there is something); ``hear_s``: how
        often the client is."""

    @property
    def gone(self) -> bool:
        """Whether the connection has ended; a commit goes on without it."""
        return self.session is None

    def end_with_error(
        self, text: str, reason: Reason, heading: str = "", receipt_id: str | None = None, *, agreed: bool = True
    ) -> None:
        """Ends the connection with an ERROR frame. ``receipt_id``: the receipt that the frame at fault asked for;
        ``agreed``: on a version."""
        if self.connection.open and self.state is not CLOSING:
            self.end_with(error(text, self.version if agreed else None, receipt_id, heading), reason, text)

    def done(self, headers: Headers, *, kept: bool = False, told: Headers | None = None) -> None:
        """Sends the receipt that the client asked for; if ``kept``, once the journal has what it is for. ``told``: more
        headers of the receipt."""
        asked = headers.get("receipt")
        if asked is not None and not self.gone:
            self.pending_replies.send(receipt(asked, self.version, told), kept=kept)

    def transaction(self, headers: Headers) -> Transaction | None:
        """Returns the transaction that a frame belongs to; None: to none. Raises ProtocolError."""
        name = headers.get("transaction")
        return None if name is None else self.transaction_named(name)

    def transaction_named(self, name: str) -> Transaction:
        found = self.transactions.get(name)
        if found is None:
            raise ProtocolError(f"there is no transaction {name[:60]!r}", reason=Reason.PROTOCOL_ERROR)
        return found
