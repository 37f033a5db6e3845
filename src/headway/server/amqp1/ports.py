"""Ports: the protocols by which the parts of AMQP 1.0's side of a connection know each other."""

from __future__ import annotations

from abc import ABC
from typing import Protocol

from headway.core.consumer import GrantedChannel, Session, Subscription
from headway.server.peers import BasePeer, NamedQueues, Transaction
from headway.wire.amqp1.items import Item


class AttachReplies(Protocol):
    """Attaches that wait for the journal."""

    def attach(self, frame: bytes, link: Beginning, channel: int) -> None: ...
    def drop_channel(self, channel: int) -> None: ...


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting, its sessions and its links know it. ``pending_replies`` has settlements of what the
    client publishes."""

    __slots__ = (
        "container", "frame_bytes_max", "links", "message_bytes_max", "pending_attaches", "queues", "transactions",
    )  # fmt: skip

    container: str
    """The name that the client gave itself. With the name of a link it is the name of a durable subscription."""
    links: int
    """How many links there are, on all sessions."""
    frame_bytes_max: int
    """The largest frame that the client takes."""
    message_bytes_max: int
    queues: NamedQueues
    transactions: dict[bytes, Transaction]
    pending_attaches: AttachReplies


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
    gone: bool

    def frames_sent(self, count: int) -> None: ...
    def now(self) -> float: ...
    def say_flow(
        self, handle: int, count: int, credit: int, *, available: int | None = None, drain: bool = False,
        properties: dict[str, object] | None = None,
    ) -> None: ...  # fmt: skip
    def settle(self, first: int, last: int, state: bytes, *, kept: bool = False) -> None: ...
    def requeue(self, consumer: Subscription) -> None: ...
