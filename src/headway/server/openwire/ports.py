"""Ports: the protocols by which the parts of OpenWire's side of a connection know each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from headway.server.logins import LoginSide

if TYPE_CHECKING:
    from headway.core.base import Reason
    from headway.core.consumer import Session
    from headway.core.message import Record
    from headway.server.config import ListenerTable
    from headway.server.connections import Connection, PendingReplies, TurnBudget
    from headway.server.engine import Engine
    from headway.server.peers import ClientState, NamedQueues
    from headway.wire.openwire.codes import Form
    from headway.wire.openwire.decoder import OpenWireDecoder
    from headway.wire.openwire.marshalling import Destination


class ClientSide(LoginSide, Protocol):
    """The peer, as its parts know it."""

    engine: Engine
    connection: Connection
    listener: ListenerTable
    session: Session | None
    pending_replies: PendingReplies
    budget: TurnBudget
    wire: Form
    queues: NamedQueues
    connection_id: str
    client_id: str
    """By which durable subscriptions are found again; the session may have another name."""

    @property
    def granted(self) -> Session: ...
    @property
    def must_wait(self) -> bool: ...
    @property
    def gone(self) -> bool:
        """The connection has ended, or is about to."""
    def make_queue(self, destination: Destination) -> None:
        """Makes a queue that is sent to, if there is none. Raises :class:`Refused`."""
    @property
    def temporaries(self) -> TemporariesSide: ...
    def answer_now(self) -> None: ...
    def write(self, frame: bytes) -> None: ...
    def pace(self, lanes: int) -> None: ...
    def end_with(self, word: bytes, reason: Reason, text: str) -> None: ...


class TemporariesSide(Protocol):
    """Temporary destinations, as consumers know them."""

    def check_owner(self, destination: Destination) -> None: ...
    def known(self, topic: str) -> Iterator[Record]: ...


class Greeted(ClientSide, Protocol):
    """The peer, as its greeting knows it."""

    decoder: OpenWireDecoder

    def set_idle(self, idle_s: float) -> None: ...
    def opened(self, session: Session) -> None: ...
    def become(self, state: ClientState) -> None: ...
