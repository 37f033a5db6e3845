"""Ports: the protocols by which the parts of AMQP's side of a connection know each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Set
from typing import Any, Protocol

from pamqp import base

from headway.core.clients import Queues
from headway.core.consumer import Channel, Session, Subscription
from headway.server.amqp.states import PublishMode
from headway.server.connections import PendingReplies
from headway.server.peers import BasePeer, Settle
from headway.wire.amqp.items import Item
from headway.wire.amqp.versions import Version


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its handshake and its channels know it. ``pending_replies`` has confirms, and every reply of a
    transactional channel."""

    __slots__ = ("cancels", "frame_bytes_max", "pending_declares", "tells_blocked", "version")

    version: Version
    frame_bytes_max: int
    cancels: bool
    """The client understands basic.cancel from the server."""
    tells_blocked: bool
    """The client understands connection.blocked."""
    pending_declares: PendingReplies
    """Replies to declarations."""

    @abstractmethod
    def say(self, channel: int, command: base.Frame) -> None: ...
    @abstractmethod
    def tuned(self, channel_max: int, frame_bytes_max: int, heartbeat_s: float) -> None: ...
    @abstractmethod
    def opened(self, name: str) -> None: ...


class ChannelSide(Protocol):
    """A channel, as its commands know it."""

    peer: ClientSide
    session: Session
    number: int
    queues: Queues
    core: Channel
    mode: PublishMode
    prefetch: int
    last_queue: str
    reply_queue: str
    tags: dict[str, Subscription]
    tag_numbers: Iterator[int]

    @property
    def gone(self) -> bool: ...
    @property
    def flows(self) -> bool: ...
    @property
    def named(self) -> Set[int]: ...
    def now(self) -> float: ...
    def knows(self, queue: str) -> bool: ...
    def write(self, frame: bytes) -> None: ...
    def say(self, command: base.Frame) -> None: ...
    def answer(self, asked: Any, command: base.Frame) -> None: ...
    def send_when_kept(self, frame: bytes, *, kept: bool) -> None: ...
    def wake(self) -> None: ...
    def settle(self, tags: Sequence[int], *, multiple: bool, do: Settle) -> None: ...
