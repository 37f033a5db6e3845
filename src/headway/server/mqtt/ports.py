"""Ports: the protocols by which the parts of MQTT's side of a connection know each other."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from headway.core.consumer import Session
    from headway.core.permission import Identity
    from headway.server.config import ListenerTable
    from headway.server.connections import Connection
    from headway.server.engine import Engine
    from headway.server.logins import Refusal
    from headway.server.peers import ClientState
    from headway.wire.mqtt.decoder import MqttDecoder
    from headway.wire.mqtt.replies import Replies

T = TypeVar("T")


class Greeted(Protocol):
    """The peer, as its greeting knows it."""

    engine: Engine
    connection: Connection
    listener: ListenerTable
    decoder: MqttDecoder
    replies: Replies
    session: Session | None
    keep_alive_s: float
    will_due: bool
    incoming_max: int
    state: ClientState
    identity: Identity

    @property
    def granted(self) -> Session: ...
    def write(self, frame: bytes | None) -> None: ...
    def send_pubrel(self, delivery_id: int, code: int = 0) -> None: ...
    @property
    def host(self) -> str: ...
    def check_password(
        self, username: str, password: bytes, done: Callable[[Refusal | None], None]
    ) -> None: ...
    def wait_for(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None: ...
    async def answer(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None: ...
    def take(self, found: Identity | Refusal) -> Refusal | None: ...
    def become(self, state: ClientState) -> None: ...
    def go_on(self) -> None: ...
