"""Ports: the protocols by which the parts of STOMP's side of a connection know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headway.server.logins import LoginSide

if TYPE_CHECKING:
    from headway.core.base import Reason
    from headway.core.consumer import Channel, Session
    from headway.server.config import ListenerTable
    from headway.server.connections import Connection, PendingReplies, TurnBudget
    from headway.server.engine import Engine
    from headway.server.peers import ClientState, NamedQueues, Transaction
    from headway.server.stomp.temporaries import Temporaries
    from headway.wire.stomp.items import Headers
    from headway.wire.stomp.versions import Version


class Greeted(LoginSide, Protocol):
    """The peer, as its greeting knows it."""

    engine: Engine
    connection: Connection
    listener: ListenerTable
    session: Session | None
    version: Version
    username: str
    client_id: str
    """The client's own name for itself; empty: it has none."""

    def become(self, state: ClientState) -> None: ...
    def write(self, frame: bytes) -> None: ...
    def end_with_error(
        self, text: str, reason: Reason, heading: str = "", receipt_id: str | None = None, *, agreed: bool = True
    ) -> None: ...
    def opened(self, session: Session, send_s: float, hear_s: float) -> None: ...


class ClientSide(Protocol):
    """The peer, as its subscriptions and its publisher know it."""

    engine: Engine
    connection: Connection
    listener: ListenerTable
    version: Version
    username: str
    client_id: str
    pending_replies: PendingReplies
    budget: TurnBudget
    named: NamedQueues
    channel: Channel
    temporaries: Temporaries

    @property
    def granted(self) -> Session: ...
    @property
    def gone(self) -> bool: ...
    @property
    def must_wait(self) -> bool: ...
    def pace(self, lanes: int) -> None: ...
    def done(self, headers: Headers, *, kept: bool = False) -> None:
        """Sends the receipt that the client asked for; if ``kept``, once the journal has what it is for."""
    def transaction(self, headers: Headers) -> Transaction | None:
        """Returns the transaction that a frame belongs to; None: to none. Raises ProtocolError."""
