"""The conversation of MQTT 5's enhanced authentication (4.12), by SCRAM-SHA-256: that of CONNECT, and those by which a
client shows again, later, that it is still its user.

While a client has not shown who it is, it may send nothing but AUTH and DISCONNECT. Later everything else goes on.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from enum import StrEnum
from functools import partial

from headway.core.base import Reason, moved
from headway.core.permission import Identity
from headway.server.config import ListenerTable
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.logins import SCRAM, Refusal, Scram, ScramError
from headway.server.peers import BasePeer, PeerPart
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Auth, Item
from headway.wire.mqtt.primitives import violation
from headway.wire.mqtt.replies import Replies

# -- ports -------------------------------------------------------------------------------------------------------------
#
# Ports: what the parts of MQTT's side of a connection know of each other.


CONNECT_BYTES_MAX = 64 * 1024
"""Limit of a CONNECT, will and all."""
TOPIC_ALIAS_MAX = 64
NO_LIMIT = 65_535
"""The limit for clients that cannot be told one: all ids there are. Each takes one bit (tables.py). Not reading the
client would be no way out, because its releases come behind its publishes."""


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting knows it."""

    __slots__ = ("incoming_max", "is_bridge", "replies", "will_due")

    decoder: MqttDecoder

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        decoder = MqttDecoder(min(CONNECT_BYTES_MAX, listener.packet_bytes_max), topic_alias_max=TOPIC_ALIAS_MAX)
        super().__init__(engine, connection, listener, decoder)
        self.replies = Replies(0)
        self.is_bridge = False
        """Whether the client is another broker's bridge: see ``MqttPeer._subscribe``."""
        self.will_due = True
        """Whether the will is published at the end: yes, unless the client disconnects normally."""
        self.incoming_max = NO_LIMIT

    def send_pubrel(self, delivery_id: int, code: int = 0) -> None:
        self.pending_replies.send(self.replies.pubrel(delivery_id, code), kept=self.granted.durable)


# -- conversation ------------------------------------------------------------------------------------------------------


class AuthState(StrEnum):
    NOT_AGREED = "not agreed on"
    """CONNECT named no method, so AUTH may not come."""
    ASKED = "asked"
    """The client's first message is answered, and its last one is expected."""
    CHECKING = "checking"
    """The client's last message is being checked."""
    IDLE = "idle"
    """A client that is let in may begin again."""


NOT_AGREED, ASKED, CHECKING, IDLE = AuthState
AUTH_MOVES = {
    NOT_AGREED: {ASKED},
    ASKED: {CHECKING},
    CHECKING: {IDLE},
    IDLE: {ASKED},
}
Proof = tuple[Identity | Refusal, bytes]


class Conversation(PeerPart[ClientSide]):
    __slots__ = ("_proved", "_scram", "state")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._scram: Scram | None = None
        """The conversation that goes on, while ``ASKED``."""
        self._proved: Callable[[Proof], None] | None = None
        self.state = NOT_AGREED
        """Only ``_become`` sets it."""

    def _become(self, state: AuthState) -> None:
        self.state = moved(AUTH_MOVES, self.state, state)

    def over(self) -> None:
        self._proved = None
        super().over()

    def begin(self, scram: Scram, message: bytes, proved: Callable[[Proof], None]) -> None:
        """Answers the client's first message. Calls ``proved`` once the last one is checked. Raises ScramError."""
        answer = scram.first(message)
        self._become(ASKED)
        self._scram, self._proved = scram, proved
        self._peer.write(self._peer.replies.auth(ReasonCode.CONTINUE_AUTHENTICATION, SCRAM, answer))

    def on_auth(self, packet: Auth) -> None:
        """Handles AUTH. Raises ProtocolError."""
        if self.state is NOT_AGREED:
            raise violation("AUTH came, but no authentication method was agreed on")
        if packet.method != SCRAM:
            raise violation(f"AUTH names another method than CONNECT, {SCRAM}")
        message = packet.data or b""
        if packet.code == ReasonCode.REAUTHENTICATE:
            self._again(message)
            return
        scram, self._scram = self._scram, None
        if scram is None or self._proved is None:
            raise violation("AUTH goes on with an authentication that has not begun")
        self._become(CHECKING)
        peer, checked = self._peer, partial(self._checked, self._proved)
        proof = peer.engine.logins.check_proof(scram, message, peer.host, peer.is_wanted)
        if peer.session is None:
            peer.wait_for(proof, checked)
        else:
            peer.engine.spawn(peer.answer(proof, checked))

    def _checked(self, proved: Callable[[Proof], None], proof: Proof) -> None:
        self._become(IDLE)
        proved(proof)

    def _again(self, message: bytes) -> None:
        """Answers the first message of a client that is let in already."""
        peer = self._peer
        scram = peer.engine.logins.scram()
        if peer.session is None or self.state is not IDLE:
            raise violation("AUTH begins an authentication before the last one has ended")
        try:
            if scram is None:
                raise ScramError("no user can log in by SCRAM any more")
            self.begin(scram, message, self._still)
        except ScramError as error:
            peer.connection.close_gracefully(Reason.NOT_AUTHORIZED, str(error))

    def _still(self, proof: Proof) -> None:
        """Tells a client that it is still its user, or ends its connection."""
        peer, (found, answer) = self._peer, proof
        if isinstance(found, Refusal):
            peer.engine.refused(peer.connection, found.text)
            peer.connection.close_gracefully(Reason.NOT_AUTHORIZED, found.text)
        elif found.user != peer.identity.user:
            text = f"the client is {peer.identity.user}, and may not become {found.user}"
            peer.connection.close_gracefully(Reason.NOT_AUTHORIZED, text)
        else:
            peer.write(peer.replies.auth(ReasonCode.SUCCESS, SCRAM, answer))
            peer.connection.out_soon()
