"""Ports: the protocols by which the parts of AMQP 1.0's side of a connection know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headway.server.logins import LoginSide

if TYPE_CHECKING:
    from headway.core.base import Reason
    from headway.core.consumer import GrantedChannel, Session, Subscription
    from headway.server.config import ListenerTable
    from headway.server.connections import Connection, PendingReplies, Steps, TurnBudget
    from headway.server.engine import Engine
    from headway.server.peers import NamedQueues, Transaction
    from headway.wire.amqp1.codes import Condition
    from headway.wire.amqp1.items import Transfers
    from headway.wire.amqp1.performatives import Attach, Flow


class AttachReplies(Protocol):
    """Attaches that wait for the journal."""

    def attach(self, frame: bytes, link: Beginning, channel: int) -> None: ...
    def drop_channel(self, channel: int) -> None: ...


class ClientSide(LoginSide, Protocol):
    """The peer, as its greeting, its sessions and its links know it."""

    engine: Engine
    connection: Connection
    listener: ListenerTable
    session: Session | None
    username: str
    container: str
    """The name that the client gave itself. With the name of a link it is the name of a durable subscription."""
    links: int
    """How many links there are, on all sessions."""
    frame_bytes_max: int
    """The largest frame that the client takes."""
    message_bytes_max: int
    pending_replies: PendingReplies
    """Settlements of what the client publishes."""
    budget: TurnBudget
    queues: NamedQueues
    transactions: dict[bytes, Transaction]

    @property
    def pending_attaches(self) -> AttachReplies: ...
    @property
    def must_wait(self) -> bool: ...
    def write(self, frame: bytes) -> None: ...
    def pace(self, lanes: int) -> None: ...
    def end_with(self, word: bytes, reason: Reason, text: str) -> None: ...


class Beginning(Protocol):
    """A link whose attach is not sent yet."""

    consumer: Subscription

    def let_on(self) -> None: ...


class SessionSide(Protocol):
    """A session, as its links know it."""

    peer: ClientSide
    session: Session
    number: int
    core: GrantedChannel

    @property
    def gone(self) -> bool: ...
    def frames_sent(self, count: int) -> None: ...
    def now(self) -> float: ...
    def say_flow(self, link: tuple[int, int, int] | None = None, *, available: int | None = None, drain: bool = False,
                 properties: dict[str, object] | None = None) -> None: ...  # fmt: skip
    def settle(self, first: int, last: int, state: bytes, *, kept: bool = False) -> None: ...
    def requeue(self, consumer: Subscription) -> None: ...
    def commit(self, steps: Steps) -> None: ...


class Link(Protocol):
    """A link, as its session knows it."""

    attach: Attach
    handle: int

    @property
    def name(self) -> str: ...
    def flow(self, flow: Flow) -> None: ...
    def end(self, *, closed: bool) -> None: ...
    def publish(self, item: Transfers) -> None: ...
    def lost(self, first_id: int, condition: Condition, text: str) -> Any: ...
