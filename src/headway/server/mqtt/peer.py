"""MQTT's side of a connection: packets become commands to the broker, and its answers become packets.

Replies that release a packet id, or that say that part of a durable session has begun or ended, are sent once the
journal has that (core/delivery/frames.py).
"""

from __future__ import annotations

import secrets
from functools import partial
from itertools import groupby
from math import ceil, inf

import msgspec

from headway.core.base import ProtocolError, Reason, Refused, format_duration
from headway.core.consumer import (
    NO_WILL,
    ConnectRequest,
    Session,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Will,
    parse_options,
)
from headway.core.message import BadTopic, Record, Run
from headway.core.permission import ALL_RIGHTS, Operation
from headway.core.routing import FULL_QUEUE, part_of
from headway.core.selector import compile_work
from headway.server.config import ListenerTable
from headway.server.connections import SUBSCRIBE_WORK, Connection, Steps
from headway.server.engine import Engine
from headway.server.logins import SCRAM, Refusal, Scram, ScramError
from headway.server.mqtt.conversation import NO_LIMIT, TOPIC_ALIAS_MAX, ClientSide, Conversation, Proof
from headway.server.peers import OPEN, WAITING, PeerPart
from headway.wire.mqtt import packets
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.dialect import MqttDialect, gap_pairs
from headway.wire.mqtt.packets import (
    NEVER,
    Ack,
    AckRun,
    Connect,
    Item,
    PubAck,
    PubComp,
    Publish,
    PublishRun,
    PubRec,
    PubRel,
)
from headway.wire.mqtt.primitives import violation
from headway.wire.mqtt.properties import Fields
from headway.wire.mqtt.replies import Replies
from headway.wire.mqtt.scan import numbers_of

# -- greeting ----------------------------------------------------------------------------------------------------------
#
# The greeting of an MQTT client: its CONNECT, its login, and the CONNACK that says whether it has a session.
#
# While the client's password is being checked, or the journal does not know yet that its session is new, nothing more
# of the client is handled.


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
        if self._due is not None:
            assert self._peer.engine.journal is not None
            self._peer.engine.journal.forget(self)
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
        peer.engine.go_on_later(peer.connection)  # very many may have waited for one commit

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


# -- peer --------------------------------------------------------------------------------------------------------------


SHARED = MqttDialect(5, 2, None, True, False)
"""The dialect of a shared group's lane: nothing is left out."""
ACKS_BYTES = 2 * 2048
"""The packet ids of acknowledgements that are handled at once: in no order, they take some milliseconds."""
OWN_TOPICS = "topics that start with $ are the broker's own"
ONE_BY_ONE_WORK = 3
FILTER_SHARE_CHARS = 8
"""So many characters of a filter, which may all be levels, are one unit of work."""
_RETAIN_HANDLING = ("always", "new", "never")


class MqttPeer(ClientSide):
    __slots__ = ("_greeting", "final_expiry_s")

    publishes = looked_at = frozenset({Run, Publish, PublishRun})
    settles = frozenset({PubAck, PubComp, AckRun})

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener)
        self.final_expiry_s: float | None = None
        self._greeting = Greeting(self)

    # -- the end ------------------------------------------------------------------------------------------------------

    def last_word(self, reason: Reason, text: str) -> bytes:
        error = self.decoder.error
        if error is not None and str(error) == text:
            return self._replies_for(self.decoder.version).refuse(error, self.state is OPEN) or b""
        if self.state is not OPEN:
            return b""
        return self.replies.disconnect_for(reason, text) or b""

    def _replies_for(self, version: int) -> Replies:
        return self.replies if self.replies.version else Replies(version)

    def over(self) -> None:
        self._greeting.over()

    def leave(self, session: Session, reason: Reason) -> None:
        self.engine.broker.disconnect(
            session, self.connection, reason, self.engine.now(), will=self.will_due, expiry_s=self.final_expiry_s
        )

    # -- packets ------------------------------------------------------------------------------------------------------

    def one(self, item: Item) -> None:
        if type(item) is Publish:
            self._on_publish(item)
            return
        if type(item) is PublishRun:
            self._on_run(item)
            return
        if type(item) is AckRun:
            self._on_acks(item)
            return
        if type(item) is PubAck:
            self.engine.broker.acknowledge(self.granted, item.packet_id, self.engine.now())
            return
        match item:
            case packets.PubRec():
                self._on_pubrec(item)
            case packets.PubRel():
                self._on_pubrel(item)
            case packets.PubComp():
                self.engine.broker.on_pubcomp(self.granted, item.packet_id, self.engine.now())
            case packets.Subscribe():
                self.budget.begin(self._subscribe(item))
            case packets.Unsubscribe():
                self.budget.begin(self._unsubscribe(item))
            case packets.PingReq() if self.session is not None:
                self.write(self.replies.pingresp())
            case packets.DisconnectPacket():
                self._on_disconnect(item)
            case packets.Connect():
                self._greeting.begin(item)
            case packets.Auth():
                self._greeting.conversation.on_auth(item)
            case _:
                raise ProtocolError(f"{type(item).__name__} is not for a client to send", reason=Reason.PROTOCOL_ERROR)

    def is_goodbye(self, item: Item) -> bool:
        return type(item) is packets.DisconnectPacket

    def _on_disconnect(self, packet: packets.DisconnectPacket) -> None:
        if packet.session_expiry_s is not None:
            if packet.session_expiry_s and not self.granted.expiry_s:
                raise violation("DISCONNECT may not give a session an expiry that CONNECT did not")
            never = packet.session_expiry_s == NEVER
            self.final_expiry_s = inf if never else float(packet.session_expiry_s)
        self.will_due = packet.code != ReasonCode.SUCCESS
        said = f" (0x{packet.code:02X})" if packet.code else ""
        said += f": {packet.reason}" if packet.reason else ""
        self.connection.close(Reason.NORMAL, f"the client said goodbye{said}")

    # -- publishing ---------------------------------------------------------------------------------------------------

    def _on_publish(self, item: Publish) -> None:
        session, now, run = self.granted, self.engine.now(), item.run
        again = item.qos == 2 and item.packet_id in session.incoming
        if item.qos == 2 and not again and len(session.incoming) >= self.incoming_max:
            text = f"more than {self.incoming_max} publishes are waiting for their PUBREL"
            raise ProtocolError(text, reason=Reason.CREDIT_EXCEEDED, code=ReasonCode.RECEIVE_MAX_EXCEEDED)
        if item.expiry_s is not None:
            run.expires_s = now + item.expiry_s
            run.properties = msgspec.structs.replace(run.properties, lifetime_ms=item.expiry_s * 1000)
        code, text, taken = 0, "", 1
        if run.topic[0] == "$":
            code, text = ReasonCode.NOT_AUTHORIZED, OWN_TOPICS
            session.refused_records += 1
        elif not again:
            _, taken, work, refused, _, feeds = self.engine.broker.intake.publish_some(session, [run], now, 0)
            self.budget.left -= work - 1  # the packet itself has counted as one
            if refused is None:
                self.pace(taken, feeds)
            else:
                code, text = _PUBLISH_CODES.get(refused.reason, ReasonCode.QUOTA_EXCEEDED), str(refused)
                self._tell_operators(code, text)
        if not code and not taken and self.replies.version == 5:
            code = ReasonCode.NO_MATCHING_SUBSCRIBERS
        if item.qos == 1:
            self.pending_replies.send(self.replies.puback(item.packet_id, code, text), kept=run.journaled or run.retain)
        elif item.qos == 2:
            if code < 0x80:
                self.engine.broker.keep_packet_id(session, item.packet_id)
            kept = session.durable or run.journaled or run.retain
            self.pending_replies.send(self.replies.pubrec(item.packet_id, code, text), kept=kept)

    def _on_run(self, item: PublishRun) -> None:
        session, run = self.granted, item.run
        if run.qos == 2 and not self._are_new(item.packet_ids):
            self.budget.begin(self._publish_each(item))
            return
        rights, text = session.rights, ""
        if run.topic[0] == "$":
            text = OWN_TOPICS
        elif rights is not ALL_RIGHTS and not rights.may_publish(run.topic, len(run)):
            text = str(rights.refusal(Operation.PUBLISH, run.topic))
        if text:
            self._refuse(run, item.packet_ids, ReasonCode.NOT_AUTHORIZED, text)
            return
        start, work = self._publish_part(item, 0)
        self.budget.left -= work - 1  # the item itself has counted as one
        if start < len(run):
            self.budget.begin(self._publish_rest(item, start))

    def _publish_rest(self, item: PublishRun, start: int) -> Steps:
        while start < len(item.run):
            if self.waits_with(item.run, start):
                yield 0
            else:
                start, work = self._publish_part(item, start)
                yield work

    def _are_new(self, packet_ids: bytes) -> bool:
        """Tells whether all of these may begin an exactly-once publish."""
        numbers, incoming = numbers_of(packet_ids), self.granted.incoming
        return (len(incoming) + len(numbers) <= self.incoming_max and len(set(numbers)) == len(numbers)
                and not any(map(incoming.__contains__, numbers)))

    def _publish_each(self, item: PublishRun) -> Steps:
        """Publishes messages one by one: of some, the ids are in use."""
        for index, packet_id in enumerate(numbers_of(item.packet_ids)):
            while self.waits_with(item.run, index):
                yield 0
            self._on_publish(Publish(part_of(item.run, index, index + 1), item.run.qos, packet_id))
            yield ONE_BY_ONE_WORK

    def _publish_part(self, item: PublishRun, start: int) -> tuple[int, int]:
        """Publishes messages of a run from ``start`` on, as many as one step takes, and confirms them in one write.
        Returns the index of the first one left, and the work."""
        part, taken, accepted, work, stop, refused, feeds = self.engine.broker.intake.publish_slice(
            self.granted, item.run, self.engine.now(), start
        )
        ids = item.packet_ids[2 * start : 2 * stop]
        if refused is not None:
            self._refuse(part, ids, _PUBLISH_CODES.get(refused.reason, ReasonCode.QUOTA_EXCEEDED), str(refused))
            return stop, work
        self.pace(taken, feeds)
        code = ReasonCode.NO_MATCHING_SUBSCRIBERS if not taken and self.replies.version == 5 else 0
        there, kept = ids[: 2 * accepted], part.journaled
        if part.qos == 2:
            for packet_id in numbers_of(there):
                self.engine.broker.keep_packet_id(self.granted, packet_id)
            kept = kept or self.granted.durable
        self.pending_replies.send(self.replies.acks(_ANSWERS[part.qos], there, code), kept=kept)
        if accepted < len(part):
            self._refuse(part, ids[2 * accepted :], ReasonCode.QUOTA_EXCEEDED, FULL_QUEUE)
        return stop, work

    def _refuse(self, run: Run, packet_ids: bytes, code: int, text: str) -> None:
        count = len(packet_ids) // 2
        self.budget.left -= count  # each is told why
        self.granted.refused_records += count
        self._tell_operators(code, text)
        self.pending_replies.send(self.replies.acks(_ANSWERS[run.qos], packet_ids, code, text), kept=False)

    def _tell_operators(self, code: int, text: str) -> None:
        """Logs a refusal for want of room that a client of 3.1.1 cannot be told: it is acknowledged and dropped."""
        if code == ReasonCode.QUOTA_EXCEEDED and self.replies.version == 4:
            self.engine.limited(self.granted, f"{text} (MQTT 3.1.1 cannot tell it; refused_records counts them)")

    def _on_pubrel(self, item: packets.PubRel) -> None:
        session = self.granted
        unknown = self.replies.version == 5 and item.packet_id not in session.incoming
        self.engine.broker.free_packet_id(session, item.packet_id)
        code = ReasonCode.PACKET_ID_NOT_FOUND if unknown else 0
        # An unknown id waits, too: the journal may not have heard yet that it was released.
        self.pending_replies.send(self.replies.pubcomp(item.packet_id, code), kept=session.durable)

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def _on_acks(self, item: AckRun) -> None:
        if len(item.packet_ids) <= ACKS_BYTES:
            self.budget.left -= self._acks(item.kind, item.packet_ids)
        else:
            self.budget.begin(self._acks_in_steps(item))

    def _acks_in_steps(self, item: AckRun) -> Steps:
        for at in range(0, len(item.packet_ids), ACKS_BYTES):
            yield self._acks(item.kind, item.packet_ids[at : at + ACKS_BYTES])

    def _acks(self, kind: type[Ack], ids: bytes) -> int:
        """Handles acknowledgements that came at once. Returns the work: those that are in no order are much more."""
        broker, session = self.engine.broker, self.granted
        numbers = numbers_of(ids)
        if kind is PubAck or (kind is PubComp and not session.channel.orphaned_ids):
            if numbers[-1] - numbers[0] != len(numbers) - 1:  # then neighbours stand together
                return broker.acknowledge_all(session, sorted(numbers))
            return broker.acknowledge_all(session, numbers)
        if kind is PubComp:
            for number in numbers:
                broker.on_pubcomp(session, number, self.engine.now())
        elif kind is PubRec:
            answers, work = broker.on_pubrecs(session, numbers)
            self._answer_all(PubRel, ids, answers)
            return work
        else:
            known = []
            for number in numbers:
                known.append(number in session.incoming)
                broker.free_packet_id(session, number)
            self._answer_all(PubComp, ids, known)
        return len(numbers) // 4

    def _answer_all(self, kind: type[Ack], packet_ids: bytes, known: list[bool]) -> None:
        """Answers the steps of handshakes that came at once, some of which may be of ids that are not known."""
        start = 0
        for is_known, some in groupby(known if self.replies.version == 5 else [True] * len(known)):
            stop = start + 2 * len(list(some))
            code = 0 if is_known else ReasonCode.PACKET_ID_NOT_FOUND
            answers = self.replies.acks(kind, packet_ids[start:stop], code)
            self.pending_replies.send(answers, kept=self.granted.durable)
            start = stop

    def _on_pubrec(self, item: packets.PubRec) -> None:
        broker, session = self.engine.broker, self.granted
        if item.code >= 0x80:
            broker.acknowledge(session, item.packet_id, self.engine.now())
            return
        if broker.on_pubrec(session, item.packet_id):
            self.send_pubrel(item.packet_id)
        else:
            self.send_pubrel(item.packet_id, ReasonCode.PACKET_ID_NOT_FOUND if self.replies.version == 5 else 0)

    def _subscribe(self, packet: packets.Subscribe) -> Steps:
        """A bridge gets nothing that came from it, so that nothing goes round in circles, and gets retain flags as they
        were published, so that the other broker retains what this one does. 3.1.1 has no other way to ask for that."""
        session, version = self.granted, self.replies.version
        codes: list[int] = []
        texts: list[str] = []
        told: list[tuple[str, str]] = []
        compiling = 0
        options: SubscriptionOptions | Refused | None = None  # of all filters; read once, by whoever may read one
        for entry in packet.entries:
            try:
                self.engine.broker.check_subscribe(session, entry.filter)
                if options is None:
                    options = _options(packet)
                    compiling = 0 if isinstance(options, Refused) else compile_work(options.selector)
                if isinstance(options, Refused):
                    raise options.with_traceback(None)
                shared = entry.filter.startswith("$share/")
                no_local = entry.no_local or (self.is_bridge and not shared)
                as_published = entry.retain_as_published or self.is_bridge
                dialect = MqttDialect(version, entry.qos, packet.identifier, as_published, options.offsets)
                request = SubscribeRequest(
                    entry.filter, dialect, SHARED, entry.qos, no_local, as_published,
                    "never" if shared else _RETAIN_HANDLING[entry.retain_handling], options,
                )  # fmt: skip
                subscription = self.engine.broker.subscribe(session, request, self.engine.now())
                codes.append(entry.qos)
                if options.lease_s is not None:  # it tells the client if its lease had run out
                    told.append(("renewed", "true" if subscription.renewals else "false"))
                    told += _progress(subscription, self.engine)
                if options.patience_s is not None:
                    told.append(("patience", format_duration(subscription.patience_s)))
            except Refused as error:
                codes.append(_suback_code(error))
                texts.append(str(error))
                self.note_limit(error)
            yield SUBSCRIBE_WORK + len(entry.filter) // FILTER_SHARE_CHARS + compiling
        # SUBACK goes first unless it waits for the journal: deliveries are sent at the end of the turn.
        answer = self.replies.suback(packet.packet_id, codes, "; ".join(dict.fromkeys(texts)), tuple(told))
        self.pending_replies.send(answer, kept=session.durable)

    def _unsubscribe(self, packet: packets.Unsubscribe) -> Steps:
        session, codes = self.granted, []
        for filter in packet.filters:
            ended = self.engine.broker.unsubscribe(session, filter, self.engine.now())
            codes.append(0 if ended else ReasonCode.NO_SUBSCRIPTION_EXISTED)
            yield SUBSCRIBE_WORK + len(filter) // FILTER_SHARE_CHARS
        self.pending_replies.send(self.replies.unsuback(packet.packet_id, codes), kept=session.durable)


def _options(packet: packets.Subscribe) -> SubscriptionOptions | Refused:
    try:
        return parse_options(packet.user)
    except Refused as error:
        return error


_ANSWERS: dict[int, type[Ack]] = {1: PubAck, 2: PubRec}
"""The answers to publishes, by QoS."""
_PUBLISH_CODES = {
    Reason.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    Reason.MALFORMED: ReasonCode.PAYLOAD_FORMAT_INVALID,
    Reason.NOT_FOUND: ReasonCode.IMPLEMENTATION_ERROR,
}
"""The codes for refused publishes. The last two are for patches: one is none, or its key is not known."""


def _progress(subscription: Subscription, engine: Engine) -> list[tuple[str, str]]:
    """Returns what a client that renews its lease is told of its image of the topic: how far that goes."""
    last = engine.broker.registry.sequence
    told = [("keyed", "true" if subscription.keyed else "false"), ("last-offset", str(last)), ("life", engine.life)]
    upto = subscription.sent_upto(last, engine.now())
    if upto is not None:
        told += [("sent-offset", str(upto[0])), ("age-s", f"{ceil(upto[1] * 1000) / 1000:.3f}")]
    return told if subscription.gap is None else [*told, *gap_pairs(subscription.gap)]


def _suback_code(error: Refused) -> int:
    if isinstance(error.__cause__, BadTopic):
        return ReasonCode.FILTER_INVALID
    if error.reason is Reason.NOT_AUTHORIZED:
        return ReasonCode.NOT_AUTHORIZED
    return ReasonCode.QUOTA_EXCEEDED if error.reason in QUOTAS else ReasonCode.IMPLEMENTATION_ERROR
