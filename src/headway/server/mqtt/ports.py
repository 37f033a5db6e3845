"""Ports: the protocols by which the parts of MQTT's side of a connection know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headway.server.logins import LoginSide

if TYPE_CHECKING:
    from headway.core.consumer import Session
    from headway.server.config import ListenerTable
    from headway.server.connections import Connection
    from headway.server.engine import Engine
    from headway.server.peers import ClientState
    from headway.wire.mqtt.decoder import MqttDecoder
    from headway.wire.mqtt.replies import Replies


class Greeted(LoginSide, Protocol):
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

    @property
    def granted(self) -> Session: ...
    def write(self, frame: bytes | None) -> None: ...
    def send_pubrel(self, delivery_id: int, code: int = 0) -> None: ...
    def become(self, state: ClientState) -> None: ...
    def go_on(self) -> None: ...
