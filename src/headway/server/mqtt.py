"""MQTT's side of a connection: packets become commands to the broker, and its answers become packets.

Rules:
- Packets are answered in the order they came; neighbouring QoS 0 runs go to the broker as one command. What is more
  than a connection's share of a turn waits for the next one, in the same order (share.py).
- A client that breaks the protocol is told how and disconnected; everything before the fault still counts.
- While a password is being checked (in a thread, for it takes long on purpose) nothing more is read from the client;
  nor is it while the journal does not know yet that its session is a new one.
- What releases a packet id, and what says that something of a durable session has begun or ended, is said once the
  journal has it (core/exactly.py).
"""

from __future__ import annotations

import secrets
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from headway.core.errors import ProtocolError, Reason, Refused
from headway.core.options import SubscribeRequest, parse_options
from headway.core.record import Record, Run
from headway.core.session import ConnectRequest, Session, Will
from headway.core.topics import BadTopic
from headway.server.answers import Answers
from headway.server.connection import Connection
from headway.server.farewell import Words
from headway.server.parts import Part
from headway.server.share import ITEMS_MAX, SUBSCRIBE_WORK, Share, Steps
from headway.wire.mqtt.codes import Code
from headway.wire.mqtt.decoder import Decoder
from headway.wire.mqtt.dialect import MqttDialect
from headway.wire.mqtt.packets import (
    NEVER,
    Auth,
    Connect,
    Disconnect,
    Item,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Unsubscribe,
)
from headway.wire.mqtt.properties import Fields
from headway.wire.mqtt.replies import Replies

if TYPE_CHECKING:
    from headway.core.effects import CloseChannel
    from headway.core.subscription import Subscription
    from headway.server.engine import Engine
    from headway.server.settings import ListenerTable

CLIENT_ID_BYTES_MAX = 1024
"""It is in every log line, verdict and metric of the client."""
CONNECT_BYTES_MAX = 96 * 1024
"""Nobody may have us keep more than this before we know who it is."""
TOPIC_ALIAS_MAX = 64
RECEIVE_MAX = 1024
"""Exactly-once publishes one client may leave unreleased, if it can be told so."""
NO_LIMIT = 65_535
"""As many as there are ids; each is a bit (core/packetids.py). To stop reading would not do: their releases come behind
them."""
READS_PER_POOL = 4
READ_BYTES_MIN = 4096
SHARED = MqttDialect(5, 2, None, True, False)
"""How the lane of a shared group is written: nothing is left out."""
_QUOTAS = {Reason.FLAPPING, Reason.TOO_MANY_SUBSCRIPTIONS, Reason.CLIENT_MEMORY}
_RETAIN_HANDLING = ("always", "new", "never")


class MqttPeer:
    """One client's protocol state. ``session`` is None until CONNECT is granted."""

    __slots__ = (
        "_answers", "_decoder", "_greeted", "_greeting_due", "_held", "_incoming_max", "_replies", "_share", "_waits",
        "connection", "engine", "final_expiry_s", "keep_alive_s", "listener", "session", "will_due",
    )  # fmt: skip

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        self.engine = engine
        self.connection = connection
        self.listener = listener
        self.session: Session | None = None
        self.keep_alive_s = 0.0
        self.will_due = True
        """The connection ends without the client's goodbye unless it says otherwise."""
        self.final_expiry_s: float | None = None
        self._decoder = Decoder(min(CONNECT_BYTES_MAX, listener.packet_bytes_max), topic_alias_max=TOPIC_ALIAS_MAX)
        self._replies = Replies(0)
        self._answers = Answers(connection, engine.keeper)
        self._held: list[Item] = []
        """Decoded, and not handled yet."""
        self._share = Share()
        self._waits = False
        """Nothing that comes is handled at the moment."""
        self._incoming_max = NO_LIMIT
        self._greeted = False
        self._greeting_due: tuple[int, bytes] | None = None
        """The commit that CONNACK waits for, and CONNACK."""

    # -- bytes ------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> bool:
        share = self._share
        share.left = granted = self.engine.share()
        if data or not self._held:
            self._held += self._decoder.feed(data, ITEMS_MAX if granted else 0)
        try:
            self._handle()
        except ProtocolError as error:
            self._refuse(error)
        self.engine.spent(granted - share.left)
        self._after()
        return self._has_more and not self._waits

    @property
    def _has_more(self) -> bool:
        """Something has come that is not handled yet."""
        left = bool(self._held) or self._share.under_way is not None or self._decoder.waits
        return left and self.connection.open

    def _after(self) -> None:
        error = self._decoder.error
        if error is not None and not self._has_more and self.connection.open:
            self._refuse(error)
        elif self.session is None:
            self.connection.send_out()
        else:
            self.engine.broker.fanout.again[self.session] = None

    def _write(self, frame: bytes | None) -> None:
        if frame is not None:
            self.connection.out += frame

    def _handle(self) -> None:
        """As much as its share allows."""
        items, share, at = self._held, self._share, 0
        share.go_on()
        while at < len(items) and share.left > 0 and share.under_way is None and not self._waits:
            item = items[at]
            if type(item) is Run:
                at += self._publish_runs(items, at)
            else:
                at += 1
                share.left -= 1
                self._one(item)
            if not self.connection.open:
                break
        del items[:at]

    def _refuse(self, error: ProtocolError) -> None:
        """The client broke the protocol: tell it, and end the connection."""
        self.engine.protocol_error(self.connection, error)
        self.connection.say_goodbye(error.reason, str(error))

    def part(self) -> Part:
        decoder = self._decoder
        if decoder.waits:
            return Part(0, 0, decoder.packets)  # it is not read before that is looked at
        return Part(decoder.buffered_bytes, decoder.missing_bytes, decoder.packets)

    def unfinished(self) -> Words | None:
        """What is left of a record that is half sent on this connection; None: it cannot be read."""
        session = self.session
        if session is None or session.outlet is not self.connection:
            return b""
        return self.engine.broker.unfinished(session)

    def last_word(self, reason: Reason, text: str) -> bytes:
        """The packet that ends the connection from our side; empty where the version has none."""
        error = self._decoder.error
        if error is not None and str(error) == text:
            return self._replies_for(self._decoder.version).refuse(error, self._greeted) or b""
        if not self._greeted:
            return b""
        return self._replies.disconnect_for(reason, text) or b""

    def _replies_for(self, version: int) -> Replies:
        return self._replies if self._replies.version else Replies(version)

    # MQTT has no word for these: an advisory says them.

    def beat(self, now: float) -> float:
        return inf
    def paused(self, paused: bool) -> None: ...
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription) -> None: ...

    def connection_lost(self, reason: Reason) -> None:
        session, self.session = self.session, None
        if session is not None:
            self.engine.broker.disconnect(
                session, self.connection, reason, self.engine.now(), will=self.will_due, expiry_s=self.final_expiry_s
            )

    # -- packets ----------------------------------------------------------------------------------------------------

    def _one(self, item: Item) -> None:
        if type(item) is PubAck:
            self.engine.broker.acknowledge(self._granted, item.packet_id, self.engine.now())
            return
        match item:
            case Publish():
                self._publish(item)
            case PubRec():
                self._received(item)
            case PubRel():
                self._released(item)
            case PubComp():
                self.engine.broker.let_go(self._granted, item.packet_id, self.engine.now())
            case Subscribe():
                self._share.begin(self._subscribe(item))
            case Unsubscribe():
                self._share.begin(self._unsubscribe(item))
            case PingReq():
                self._write(self._replies.pingresp())
            case Disconnect():
                self._goodbye(item)
            case Connect():
                self._connect(item)
            case Auth():
                text = "AUTH came, but no authentication method was agreed on"
                raise ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=Code.PROTOCOL_ERROR)
            case _:
                raise ProtocolError(f"{type(item).__name__} is not for a client to send", reason=Reason.PROTOCOL_ERROR)

    @property
    def _granted(self) -> Session:
        assert self.session is not None
        return self.session

    # -- CONNECT ----------------------------------------------------------------------------------------------------

    def _connect(self, packet: Connect) -> None:
        self.connection.client, self.connection.username = packet.client_id, packet.username or ""
        self._replies = Replies.to(packet)
        users = self.engine.logins.users
        if packet.auth_method is not None:
            self._deny(Code.BAD_AUTH_METHOD, f"authentication method {packet.auth_method!r} is not offered here")
        elif not packet.client_id and packet.version == 4 and not packet.clean_start:
            self._deny(Code.CLIENT_ID_NOT_VALID, "a session to be kept needs a client id")
        elif len(packet.client_id.encode()) > CLIENT_ID_BYTES_MAX:
            self._deny(Code.CLIENT_ID_NOT_VALID, f"a client id may have {CLIENT_ID_BYTES_MAX} bytes")
        elif packet.username is None:
            if self._anonymous:
                self._admit(packet)
            else:
                self._deny(Code.NOT_AUTHORIZED, "this listener wants a user name and a password")
        elif not len(users) and self._anonymous:
            self._admit(packet)  # no users are configured: a name is only a label
        else:
            password = packet.password or b""
            if users.remembers(packet.username, password):
                self._admit(packet)
                return
            self._waits = True
            self.connection.hold("password")
            self.engine.spawn(self._check(packet, packet.username, password))

    @property
    def _anonymous(self) -> bool:
        return self.listener.allows_anonymous(bool(self.engine.logins.users))

    async def _check(self, packet: Connect, username: str, password: bytes) -> None:
        right = await self.engine.check_password(username, password, self.connection)
        self._waits = False
        if not self.connection.open:
            return
        self.connection.let_go("password")
        if right:
            self._admit(packet)
        else:
            self._deny(Code.BAD_USER_OR_PASSWORD, "wrong user name or password")
        self._go_on()

    def _go_on(self) -> None:
        """With what came while nothing was handled."""
        if not self._waits:
            self.connection.go_on()
            self.engine.turn_soon()

    def _deny(self, code: int, text: str, fields: Fields | None = None, reason: Reason = Reason.NOT_AUTHORIZED) -> None:
        fields = fields or Fields()
        fields.reason_string = text
        self._write(self._replies.connack(code, fields=fields))
        self.engine.refused(self.connection, text)
        self.connection.say_goodbye(reason, text)

    def _admit(self, packet: Connect) -> None:
        client = self.connection.client = packet.client_id or f"auto-{secrets.token_hex(8)}"
        now = self.engine.now()
        expiry = inf if packet.session_expiry_s == NEVER else float(packet.session_expiry_s)
        request = ConnectRequest(
            client, self.connection.listener, packet.clean_start, expiry, packet.receive_max,
            packet.max_packet_bytes or 2**62, packet.username, "mqtt5" if packet.version == 5 else "mqtt3.1.1",
            _will(packet),
        )  # fmt: skip
        durable = self.engine.broker.is_kept(client)
        try:
            session = self.engine.broker.connect(request, self.connection, now)
        except Refused as error:
            code = Code.QUOTA_EXCEEDED if error.reason in _QUOTAS else Code.SERVER_BUSY
            user = (("retry-after-s", f"{error.retry_after_s:.1f}"),) if error.retry_after_s else ()
            self._deny(code, str(error), Fields(user=user), error.reason)
            return
        self.session = session
        self._decoder.packet_bytes_max = self.listener.packet_bytes_max
        asked = float(packet.keep_alive_s) or inf
        self.keep_alive_s = min(asked, self.listener.keep_alive_max_s)
        fields = self._greeting(packet, session)
        greeting = self._replies.connack(session_present=session.present, fields=fields)
        self._incoming_max = fields.receive_max or NO_LIMIT
        if not greeting:
            self.will_due = False
            self._deny(Code.PACKET_TOO_LARGE, f"CONNACK does not fit into {packet.max_packet_bytes} bytes")
            return
        if not session.present and (durable or session.kept):
            self._greet_later(greeting)
        else:
            self._greet(greeting)

    def _greet(self, greeting: bytes) -> None:
        session = self._granted
        self._greeted = True
        self._write(greeting)
        for delivery_id in session.channel.doubtful:
            self._release(delivery_id)
        for delivery_id, delivery in session.channel.in_flight.items():
            if delivery.released:
                self._release(delivery_id)
        self.engine.connected(self.connection)

    def _greet_later(self, greeting: bytes) -> None:
        """A client that is told that it has no session begins with its packet ids anew. It must not find the old
        session again, for that would take its publishes for those that it knows."""
        number = self.engine.keeper.wait(self) if self.engine.keeper is not None else 0
        if not number:
            self._greet(greeting)
            return
        self._greeting_due = number, greeting
        self._waits = True
        self.connection.hold("journal")
        self.engine.turn_soon()

    def kept(self, number: int) -> None:
        """The journal has everything up to this commit."""
        if self._greeting_due is None or not self.connection.open:
            return
        due, greeting = self._greeting_due
        if number < due:
            assert self.engine.keeper is not None
            self.engine.keeper.wait(self)
            return
        self._greeting_due, self._waits = None, False
        self.connection.let_go("journal")
        self._greet(greeting)
        self._go_on()

    def _greeting(self, packet: Connect, session: Session) -> Fields:
        """The server's limits, where they differ from what MQTT 5 takes for granted."""
        expiry = NEVER if session.expiry_s == inf else int(session.expiry_s)
        return Fields(
            session_expiry=expiry if expiry != packet.session_expiry_s else None,
            receive_max=RECEIVE_MAX if packet.version == 5 else None,
            max_packet_bytes=self.listener.packet_bytes_max,
            assigned_client_id=session.client if not packet.client_id else None,
            topic_alias_max=TOPIC_ALIAS_MAX,
            server_keep_alive=int(self.keep_alive_s) if packet.keep_alive_s > self.keep_alive_s else None,
            response_info="response" if packet.request_response_info else None,
            reason_string=self.engine.broker.obituary(session.client),
        )

    def _goodbye(self, packet: Disconnect) -> None:
        if packet.session_expiry_s is not None:
            if packet.session_expiry_s and not self._granted.expiry_s:
                text = "DISCONNECT may not give a session an expiry that CONNECT did not"
                raise ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=Code.PROTOCOL_ERROR)
            never = packet.session_expiry_s == NEVER
            self.final_expiry_s = inf if never else float(packet.session_expiry_s)
        self.will_due = packet.code != Code.SUCCESS
        said = f" (0x{packet.code:02X})" if packet.code else ""
        said += f": {packet.reason}" if packet.reason else ""
        self.connection.close(Reason.NORMAL, f"the client said goodbye{said}")

    # -- publishing -------------------------------------------------------------------------------------------------

    def _publish_runs(self, items: list[Item], at: int) -> int:
        """Publish the runs that stand there one behind the other, as far as the share goes. Returns how many."""
        session, share = self._granted, self._share
        runs: list[Run] = []
        for item in islice(items, at, None):
            if type(item) is not Run or item.topic[0] == "$":
                break
            runs.append(item)
        if not runs:
            session.refused_records += len(items[at])  # type: ignore[arg-type]
            share.left -= 1
            return 1
        some = self.engine.broker.publish_some(session, runs, self.engine.now(), share.left)
        share.left -= some.work
        if some.refused is None:
            self._pace(session, some.taken // some.runs)
        else:
            session.refused_records += 1  # QoS 0 has no answer; the client's counters show it
        return some.runs

    def _pace(self, session: Session, lanes: int) -> None:
        """Each lane has a copy of what is published to it: with many, less is read at once, or one read would take up
        more memory than there is before anybody could be told to wait."""
        share = session.pool.memory_limit // READS_PER_POOL // max(1, lanes)
        self.connection.read_bytes = max(READ_BYTES_MIN, min(self.engine.read_bytes, share))

    def _publish(self, item: Publish) -> None:
        session, now, run = self._granted, self.engine.now(), item.run
        again = item.qos == 2 and item.packet_id in session.incoming
        if item.qos == 2 and not again and len(session.incoming) >= self._incoming_max:
            text = f"more than {self._incoming_max} publishes are waiting for their PUBREL"
            raise ProtocolError(text, reason=Reason.CREDIT_EXCEEDED, code=Code.RECEIVE_MAX_EXCEEDED)
        if item.expiry_s is not None:
            run.expires_s = now + item.expiry_s
        code, text, taken = 0, "", 1
        if run.topic[0] == "$":
            code, text = Code.NOT_AUTHORIZED, "topics that start with $ are the broker's own"
            session.refused_records += 1
        elif not again:
            try:
                taken = self.engine.broker.publish(session, [run], now)
                self._pace(session, taken)
                self._share.left -= taken
            except Refused as error:
                code, text = Code.QUOTA_EXCEEDED, str(error)
        if not code and not taken and self._replies.version == 5:
            code = Code.NO_MATCHING_SUBSCRIBERS
        if item.qos == 1:
            self._answers.say(self._replies.puback(item.packet_id, code, text), kept=run.kept or run.retain)
        elif item.qos == 2:
            if code < 0x80:
                self.engine.broker.arrived(session, item.packet_id, there=True)
            kept = session.kept or run.kept or run.retain
            self._answers.say(self._replies.pubrec(item.packet_id, code, text), kept=kept)

    def _released(self, item: PubRel) -> None:
        session = self._granted
        unknown = self._replies.version == 5 and item.packet_id not in session.incoming
        self.engine.broker.arrived(session, item.packet_id, there=False)
        code = Code.PACKET_ID_NOT_FOUND if unknown else 0
        # Also when it is unknown: it may be so for a moment only, and the journal not know of it.
        self._answers.say(self._replies.pubcomp(item.packet_id, code), kept=session.kept)

    # -- being delivered to -----------------------------------------------------------------------------------------

    def _received(self, item: PubRec) -> None:
        broker, session = self.engine.broker, self._granted
        if item.code >= 0x80:
            broker.acknowledge(session, item.packet_id, self.engine.now())
            return
        if broker.release(session, item.packet_id):
            self._release(item.packet_id)
        else:
            self._release(item.packet_id, Code.PACKET_ID_NOT_FOUND if self._replies.version == 5 else 0)

    def _release(self, delivery_id: int, code: int = 0) -> None:
        self._answers.say(self._replies.pubrel(delivery_id, code), kept=self._granted.kept)

    def _subscribe(self, packet: Subscribe) -> Steps:
        session, version = self._granted, self._replies.version
        codes: list[int] = []
        texts: list[str] = []
        renewed: tuple[tuple[str, str], ...] = ()
        for entry in packet.entries:
            if entry.no_local and entry.filter.startswith("$share/"):
                text = "No Local may not be set on a shared subscription"
                raise ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=Code.PROTOCOL_ERROR)
            try:
                options = parse_options(list(packet.user))
                dialect = MqttDialect(version, entry.qos, packet.identifier, entry.retain_as_published, options.offsets)
                shared = entry.filter.startswith("$share/")
                request = SubscribeRequest(
                    entry.filter, dialect, SHARED, entry.qos, entry.no_local, entry.retain_as_published,
                    "never" if shared else _RETAIN_HANDLING[entry.retain_handling], options,
                )  # fmt: skip
                subscription = self.engine.broker.subscribe(session, request, self.engine.now())
                codes.append(entry.qos)
                if options.lease_s is not None:  # a client whose subscription was cancelled meanwhile learns it here
                    renewed += (("renewed", "true" if subscription.renewals else "false"),)
            except Refused as error:
                codes.append(_suback_code(error))
                texts.append(str(error))
                if error.reason is Reason.CLIENT_MEMORY:
                    self.engine.limited(session, str(error))
            yield SUBSCRIBE_WORK
        # The answer goes first, unless it waits: what was subscribed to is sent at the end of this turn.
        answer = self._replies.suback(packet.packet_id, codes, "; ".join(texts), renewed)
        self._answers.say(answer, kept=session.kept)

    def _unsubscribe(self, packet: Unsubscribe) -> Steps:
        session, codes = self._granted, []
        for filter in packet.filters:
            ended = self.engine.broker.unsubscribe(session, filter, self.engine.now())
            codes.append(0 if ended else Code.NO_SUBSCRIPTION_EXISTED)
            yield SUBSCRIBE_WORK
        self._answers.say(self._replies.unsuback(packet.packet_id, codes), kept=session.kept)


def _suback_code(error: Refused) -> int:
    if isinstance(error.__cause__, BadTopic):
        return Code.FILTER_INVALID
    return Code.QUOTA_EXCEEDED if error.reason in _QUOTAS else Code.IMPLEMENTATION_ERROR


def _will(packet: Connect) -> Will | None:
    will = packet.will
    if will is None:
        return None
    record = Record(will.topic, will.payload, will.properties, will.qos, will.retain)
    return Will(record, float(will.delay_s), None if will.expiry_s is None else float(will.expiry_s))
