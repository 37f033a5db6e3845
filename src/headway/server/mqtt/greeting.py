"""The greeting of an MQTT client: its CONNECT, its login, and the CONNACK that says whether it has a session.

While the client's password is being checked, or the journal does not know yet that its session is new, nothing more of
the client is handled.
"""

from __future__ import annotations

import secrets
from functools import partial
from math import inf

from headway.core.base import Reason, Refused
from headway.core.consumer import NO_WILL, ConnectRequest, Session, Will
from headway.core.message import Record
from headway.server.logins import SCRAM, Refusal, Scram, ScramError
from headway.server.mqtt.conversation import Conversation, Proof
from headway.server.mqtt.ports import NO_LIMIT, TOPIC_ALIAS_MAX, ClientSide
from headway.server.peers import OPEN, WAITING, PeerPart
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.packets import NEVER, Connect
from headway.wire.mqtt.properties import Fields
from headway.wire.mqtt.replies import Replies

CLIENT_ID_BYTES_MAX = 1024
"""Client ids are limited because each stands in every log line, verdict and metric of its client."""
RECEIVE_MAX = 1024
"""Exactly-once publishes that one client may leave unreleased, if its version can be told the limit."""
QUOTAS = {Reason.FLAPPING, Reason.TOO_MANY_SUBSCRIPTIONS, Reason.CLIENT_MEMORY, Reason.USER_LIMIT}


class Greeting(PeerPart[ClientSide]):
    __slots__ = ("_due", "_proof", "conversation")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._due: tuple[int, bytes] | None = None
        """CONNACK, and the commit that it waits for."""
        self._proof = b""
        """The server's last message of the authentication, which CONNACK carries."""
        self.conversation = Conversation(peer)

    def over(self) -> None:
        self._due = None
        self.conversation.over()
        super().over()

    def begin(self, packet: Connect) -> None:
        peer = self._peer
        certified = peer.connection.stream.user
        username = certified or packet.username
        peer.connection.client, peer.connection.username = packet.client_id, username or ""
        peer.replies, peer.is_bridge = Replies.to(packet), packet.is_bridge
        scram = peer.engine.logins.scram() if packet.auth_method == SCRAM and not certified else None
        if packet.auth_method is not None and scram is None:
            self._deny(ReasonCode.BAD_AUTH_METHOD, f"authentication method {packet.auth_method!r} is not offered here")
        elif len(packet.client_id.encode()) > CLIENT_ID_BYTES_MAX:
            self._deny(ReasonCode.CLIENT_ID_NOT_VALID, f"a client id may have {CLIENT_ID_BYTES_MAX} bytes")
        elif scram is not None:
            self._converse(packet, scram)
        else:
            peer.log_in(packet.username, packet.password or b"", partial(self._checked, packet))

    def _checked(self, packet: Connect, refusal: Refusal | None) -> None:
        if refusal is None:
            self._admit(packet)
        else:
            code = ReasonCode.SERVER_UNAVAILABLE if refusal.away else ReasonCode.BAD_USER_OR_PASSWORD
            self._deny(code if refusal.checked else ReasonCode.NOT_AUTHORIZED, refusal.text)

    def _converse(self, packet: Connect, scram: Scram) -> None:
        """Begins the authentication that CONNECT asks for."""
        try:
            self.conversation.begin(scram, packet.auth_data or b"", partial(self._proved, packet))
        except ScramError as error:
            self._deny(ReasonCode.NOT_AUTHORIZED, str(error))
            return
        self._peer.connection.username = scram.name

    def _proved(self, packet: Connect, proof: Proof) -> None:
        """Lets the client in if it has shown that it knows the password."""
        found, self._proof = proof
        refused = self._peer.take(found)
        refusal = refused.text if refused is not None else ""
        if not refusal and packet.username not in (None, self._peer.identity.user):
            refusal = "the user name is not that of the authentication"
        if refusal:
            self._deny(ReasonCode.NOT_AUTHORIZED, refusal)
        else:
            self._admit(packet)

    def _deny(self, code: int, text: str, fields: Fields | None = None, reason: Reason = Reason.NOT_AUTHORIZED) -> None:
        peer = self._peer
        fields = fields or Fields()
        fields.reason_string = text
        peer.write(peer.replies.connack(code, fields=fields))
        peer.engine.refused(peer.connection, text)
        peer.connection.close_gracefully(reason, text)

    def _admit(self, packet: Connect) -> None:
        peer = self._peer
        client = peer.connection.client = packet.client_id or f"auto-{secrets.token_hex(8)}"
        now = peer.engine.now()
        expiry = inf if packet.session_expiry_s == NEVER else float(packet.session_expiry_s)
        request = ConnectRequest(
            client, peer.connection.listener, packet.clean_start, expiry,
            min(packet.receive_max, peer.listener.in_flight_max), packet.max_packet_bytes or 2**62,
            peer.identity.user or packet.username,
            "mqtt5" if packet.version == 5 else "mqtt3.1.1", _will(packet),
            peer.engine.permissions.rights(peer.identity, client),
            peer.engine.allowances.of(peer.identity), peer.owner,
        )  # fmt: skip
        durable = peer.engine.broker.is_kept(client)
        try:
            session = peer.engine.broker.connect(request, peer.connection, now)
        except Refused as error:
            code = ReasonCode.QUOTA_EXCEEDED if error.reason in QUOTAS else ReasonCode.SERVER_BUSY
            if error.reason is Reason.NOT_AUTHORIZED:
                code = ReasonCode.NOT_AUTHORIZED
            user = (("retry-after-s", f"{error.retry_after_s:.1f}"),) if error.retry_after_s else ()
            self._deny(code, str(error), Fields(user=user), error.reason)
            return
        peer.session = session
        peer.decoder.packet_bytes_max = peer.listener.packet_bytes_max
        asked = float(packet.keep_alive_s) or inf
        peer.keep_alive_s = min(asked, peer.listener.keep_alive_max_s)
        fields = self._fields(packet, session)
        greeting = peer.replies.connack(session_present=session.present, fields=fields)
        peer.incoming_max = fields.receive_max or NO_LIMIT
        if not greeting:
            peer.will_due = False
            self._deny(ReasonCode.PACKET_TOO_LARGE, f"CONNACK does not fit into {packet.max_packet_bytes} bytes")
            return
        if not session.present and (durable or session.durable):
            self._greet_later(greeting)
        else:
            self._greet(greeting)

    def _greet(self, greeting: bytes) -> None:
        peer = self._peer
        session = peer.granted
        peer.become(OPEN)
        peer.write(greeting)
        for delivery_id in session.channel.orphaned_ids:
            peer.send_pubrel(delivery_id)
        for delivery_id, delivery in session.channel.in_flight.items():
            if delivery.released:
                peer.send_pubrel(delivery_id)
        peer.engine.connected(peer.connection)

    def _greet_later(self, greeting: bytes) -> None:
        """Greets the client once the journal knows that its session is new. The client begins with new packet ids then;
        if a crash brought back the old session, new publishes would be taken for old ones."""
        peer = self._peer
        number = peer.engine.journal.wait(self) if peer.engine.journal is not None else 0
        if not number:
            self._greet(greeting)
            return
        self._due = number, greeting
        peer.become(WAITING)
        peer.connection.pause_reading("journal")
        peer.engine.turn_soon()

    def on_commit(self, number: int) -> None:
        """Sends CONNACK if the journal has the commit it waits for."""
        if self._due is None:
            return
        peer, (due, greeting) = self._peer, self._due
        if number < due:
            assert peer.engine.journal is not None
            peer.engine.journal.wait(self)
            return
        self._due = None
        peer.connection.resume_reading("journal")
        self._greet(greeting)
        peer.go_on()

    def _fields(self, packet: Connect, session: Session) -> Fields:
        """Returns CONNACK's fields: the server's limits where they differ from MQTT 5's defaults."""
        peer = self._peer
        expiry = NEVER if session.expiry_s == inf else int(session.expiry_s)
        return Fields(
            session_expiry=expiry if expiry != packet.session_expiry_s else None,
            receive_max=RECEIVE_MAX if packet.version == 5 else None,
            max_packet_bytes=peer.listener.packet_bytes_max,
            assigned_client_id=session.client if not packet.client_id else None,
            topic_alias_max=TOPIC_ALIAS_MAX,
            server_keep_alive=int(peer.keep_alive_s) if packet.keep_alive_s > peer.keep_alive_s else None,
            response_info="response" if packet.request_response_info else None,
            auth_method=SCRAM if self._proof else None,
            auth_data=self._proof or None,
            reason_string=peer.engine.broker.deletion_notice(session.client),
        )


def _will(packet: Connect) -> Will:
    will = packet.will
    if will is None:
        return NO_WILL
    record = Record(will.topic, will.payload, will.properties, will.qos, will.retain)
    return Will(record, float(will.delay_s), inf if will.expiry_s is None else float(will.expiry_s))
