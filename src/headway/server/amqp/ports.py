"""Ports: the protocols by which the parts of AMQP's side of a connection know each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol

from headway.server.logins import LoginSide

if TYPE_CHECKING:
    from pamqp import base

    from headway.core.base import Reason
    from headway.core.clients import Queues
    from headway.core.consumer import Channel, Session, Subscription
    from headway.server.amqp.states import PublishMode
    from headway.server.config import ListenerTable
    from headway.server.connections import Connection, PendingReplies, TurnBudget
    from headway.server.engine import Engine
    from headway.wire.amqp.versions import Version

Settle = Callable[[Sequence[int]], None]


class ClientSide(LoginSide, Protocol):
    """The peer, as its handshake and its channels know it."""

    engine: Engine
    connection: Connection
    listener: ListenerTable
    session: Session | None
    version: Version
    username: str
    frame_bytes_max: int
    cancels: bool
    """The client understands basic.cancel from the server."""
    tells_blocked: bool
    """The client understands connection.blocked."""
    pending_replies: PendingReplies
    """Confirms, and every reply of a transactional channel."""
    budget: TurnBudget

    @property
    def pending_declares(self) -> PendingReplies:
        """Replies to declarations."""
    @property
    def must_wait(self) -> bool: ...
    def write(self, frame: bytes) -> None: ...
    def say(self, channel: int, command: base.Frame) -> None: ...
    def pace(self, lanes: int) -> None: ...
    def tuned(self, channel_max: int, frame_bytes_max: int, heartbeat_s: float) -> None: ...
    def opened(self, name: str) -> None: ...
    def end_with(self, word: bytes, reason: Reason, text: str) -> None: ...


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
