"""The greeting of a client of JMS: WireFormatInfo, then ConnectionInfo with its client id and login.

The client id is the client's name, as operators know it. Two connections with one client id are refused, as JMS wants
it; a client of the failover transport that is back takes the place of its old connection. A name that a client of
another protocol has, present or away, stays that client's: then the session of this one is numbered, and its durable
subscriptions are found by its client id all the same.
"""

from __future__ import annotations

from functools import partial

from headway.core.base import ProtocolError, Reason, Refused
from headway.server.logins import Refusal
from headway.server.openwire.faults import class_of
from headway.server.openwire.ports import ClientSide
from headway.server.peers import OPEN, PeerPart
from headway.wire.openwire import replies
from headway.wire.openwire.commands import ConnectionInfo
from headway.wire.openwire.decoder import Request, WireFormat

IDLE_S = 30.0
"""After so long without a word each side takes the connection for dead; a client may want less."""
IDLE_MS_MIN = 250
"""Less is not promised: what is kept for one client has to be kept for thousands."""
CLIENT_ID_CHARS_MAX = 1000
NAME = "headway"
PROTOCOL = "openwire"


class Greeting(PeerPart[ClientSide]):
    __slots__ = ()

    def agree(self, asked: WireFormat) -> None:
        """Answers WireFormatInfo. From then on both sides write in the form that both can."""
        peer = self._peer
        peer.wire, peer.objects = asked.form, asked.objects
        most_ms = int((peer.listener.beat_limit_s or IDLE_S) * 1000)
        idle_ms = min(max(asked.idle_ms, IDLE_MS_MIN), most_ms) if asked.idle_ms else 0
        peer.set_idle(idle_ms / 1000)
        peer.write(replies.write_wire_format(asked.form, idle_ms, peer.decoder.packet_bytes_max))
        peer.write(replies.write_broker_info(NAME, peer.connection.listener, asked.form))

    def connect(self, request: Request, info: ConnectionInfo) -> None:
        peer = self._peer
        if peer.session is not None:
            raise ProtocolError("ConnectionInfo comes twice", reason=Reason.PROTOCOL_ERROR)
        username = peer.connection.stream.user or info.username or ""
        client = info.client_id or info.connection.value
        peer.connection.client, peer.connection.username = client[:CLIENT_ID_CHARS_MAX], username
        if info.is_bridge:
            self._deny(request, replies.JMS_ERROR, "networks of brokers are not spoken here")
        elif fault := peer.listener.beat_fault(peer.heartbeat_s):
            self._deny(request, replies.JMS_ERROR, f"{fault} (wireFormat.maxInactivityDuration)", Reason.NOT_ALLOWED)
        elif len(client) > CLIENT_ID_CHARS_MAX or not client.isprintable():
            text = f"a client id has {CLIENT_ID_CHARS_MAX} characters at most, and none that cannot be printed"
            self._deny(request, replies.CLIENT_ID_ERROR, text)
        else:
            password = (info.password or "").encode()
            peer.log_in(info.username or None, password, partial(self._checked, request, info, client))

    def _checked(self, request: Request, info: ConnectionInfo, client: str, refusal: Refusal | None) -> None:
        if refusal is None:
            self._admit(request, info, client)
        else:
            self._deny(request, replies.SECURITY_ERROR, refusal.text)

    def _deny(self, request: Request, java_class: str, text: str, reason: Reason = Reason.NOT_AUTHORIZED) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        peer.end_with(replies.write_refusal(request.number, java_class, text), reason, text)

    def _admit(self, request: Request, info: ConnectionInfo, client: str) -> None:
        peer = self._peer
        engine = peer.engine
        known = engine.broker.registry.sessions.get(client)
        user = peer.identity.user or info.username  # others are not told that this one is there
        is_own = (known is not None and known.connected and known.protocol.startswith(PROTOCOL)
                  and known.username == user)  # fmt: skip
        if is_own and not info.reconnects:
            text = f"a client with the id {client!r} is connected already"
            self._deny(request, replies.CLIENT_ID_ERROR, text, Reason.NOT_ALLOWED)
            return
        name = client if is_own else peer.free_name(client)  # no session of others ends
        peer.connection.client, peer.client_id = name, client
        try:
            session = peer.connect(name, f"{PROTOCOL}-{peer.wire.version}", info.username)
        except Refused as error:
            self._deny(request, class_of(error), str(error), error.reason)
            return
        peer.opened(session)
        peer.become(OPEN)
        peer.write(replies.write_response(request.number))
        engine.connected(peer.connection)
