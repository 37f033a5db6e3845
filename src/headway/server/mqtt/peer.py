"""MQTT's side of a connection: packets become commands to the broker, and its answers become packets.

Rules:
- Packets are answered in the order they came; neighbouring QoS 0 runs go to the broker as one command. What is more
  than a connection's share of a turn waits for the next one, in the same order (share.py).
- A client that breaks the protocol is told how and disconnected; everything before the fault still counts.
- While a password is being checked (in a thread, for it takes long on purpose) nothing more is read from the client;
  nor is it while the journal does not know yet that its session is a new one.
- What releases a packet id, and what says that something of a durable session has begun or ended, is said once the
  journal has it (core/delivery/exactly_once.py).
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from headway.core.base import ProtocolError, Reason, Refused
from headway.core.consumer import Session, SubscribeRequest, parse_options
from headway.core.message import BadTopic, Run
from headway.server.connections import ITEMS_MAX, SUBSCRIBE_WORK, Answers, Connection, Part, Share, Steps, Words
from headway.server.mqtt.greeting import NO_LIMIT, QUOTAS, TOPIC_ALIAS_MAX, Greeting
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
from headway.wire.mqtt.replies import Replies

if TYPE_CHECKING:
    from headway.core.consumer import CloseChannel, Subscription
    from headway.server.config import ListenerTable
    from headway.server.engine import Engine

CONNECT_BYTES_MAX = 96 * 1024
"""Nobody may have us keep more than this before we know who it is."""
READS_PER_POOL = 4
READ_BYTES_MIN = 4096
SHARED = MqttDialect(5, 2, None, True, False)
"""How the lane of a shared group is written: nothing is left out."""
_RETAIN_HANDLING = ("always", "new", "never")


class MqttPeer:
    """One client's protocol state. ``session`` is None until CONNECT is granted."""

    __slots__ = (
        "_answers", "_greeting", "_held", "_lanes", "_share", "connection", "decoder", "engine", "final_expiry_s",
        "incoming_max", "keep_alive_s", "listener", "replies", "session", "waits", "will_due",
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
        self.decoder = Decoder(min(CONNECT_BYTES_MAX, listener.packet_bytes_max), topic_alias_max=TOPIC_ALIAS_MAX)
        self.replies = Replies(0)
        self._answers = Answers(connection, engine.keeper)
        self._held: list[Item] = []
        """Decoded, and not handled yet."""
        self._share = Share()
        self._lanes = -1
        """That what it publishes goes to; -1: nothing has been published."""
        self.waits = False
        """Nothing that comes is handled at the moment."""
        self.incoming_max = NO_LIMIT
        self._greeting = Greeting(self)

    # -- bytes ------------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> bool:
        engine, share, decoder, connection = self.engine, self._share, self.decoder, self.connection
        share.left = granted = engine.share()
        if data or not self._held:
            self._held += decoder.feed(data, ITEMS_MAX if granted else 0)
        try:
            asked = self._handle()
        except ProtocolError as error:
            asked = True
            self._refuse(error)
        engine.work_left -= granted - share.left
        left = bool(self._held) or share.under_way is not None or decoder.waits
        if decoder.error is not None and not left and connection.open:
            self._refuse(decoder.error)
        elif self.session is None:
            connection.send_out()
        elif asked or connection.out:  # to say to the client, or to give it, that it had no room for
            engine.broker.fanout.again[self.session] = None
        return left and connection.open and not self.waits

    def write(self, frame: bytes | None) -> None:
        if frame is not None:
            self.connection.out += frame

    def _handle(self) -> bool:
        """As much as its share allows. Returns whether that was anything but records that nobody is told of (QoS 0)."""
        items, share, broker, at = self._held, self._share, self.engine.broker, 0
        asked, room = share.under_way is not None, False
        if asked:
            share.go_on()
        while at < len(items) and share.left > 0 and share.under_way is None and not self.waits:
            item = items[at]
            kind = type(item)
            if kind is Run or kind is Publish:
                session = self.granted
                if session.paused_by or (not room and broker.short_of_room and self._must_wait(session, item)):
                    break  # what it brought goes on when it is read again
                room = True
            if kind is Run:
                at += self._publish_runs(session, items, at)
            else:
                at += 1
                share.left -= 1
                asked = True
                self._one(item)
            if not self.connection.open:
                break
        del items[:at]
        return asked

    def _must_wait(self, session: Session, item: Item) -> bool:
        """Asked of the first records that a read has brought, where there may be no room for them."""
        run = item.run if isinstance(item, Publish) else item
        assert isinstance(run, Run)
        return self.engine.broker.must_wait(session, run, self.engine.now())

    def _refuse(self, error: ProtocolError) -> None:
        """The client broke the protocol: tell it, and end the connection."""
        self.engine.protocol_error(self.connection, error)
        self.connection.say_goodbye(error.reason, str(error))

    @property
    def buffered_bytes(self) -> int:
        return len(self.decoder.tail.data)

    def part(self) -> Part:
        decoder = self.decoder
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
        error = self.decoder.error
        if error is not None and str(error) == text:
            return self._replies_for(self.decoder.version).refuse(error, self._greeting.done) or b""
        if not self._greeting.done:
            return b""
        return self.replies.disconnect_for(reason, text) or b""

    def _replies_for(self, version: int) -> Replies:
        return self.replies if self.replies.version else Replies(version)

    # MQTT has no word for these: an advisory says them.

    def beat(self, now: float) -> float:
        return inf

    def paused(self, why: str) -> None: ...
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription) -> None: ...

    def connection_lost(self, reason: Reason) -> None:
        self._greeting.over()
        self._share.under_way = None
        session, self.session = self.session, None
        if session is not None:
            self.engine.broker.disconnect(
                session, self.connection, reason, self.engine.now(), will=self.will_due, expiry_s=self.final_expiry_s
            )

    # -- packets ----------------------------------------------------------------------------------------------------

    def _one(self, item: Item) -> None:
        if type(item) is PubAck:
            self.engine.broker.acknowledge(self.granted, item.packet_id, self.engine.now())
            return
        match item:
            case Publish():
                self._publish(item)
            case PubRec():
                self._received(item)
            case PubRel():
                self._released(item)
            case PubComp():
                self.engine.broker.let_go(self.granted, item.packet_id, self.engine.now())
            case Subscribe():
                self._share.begin(self._subscribe(item))
            case Unsubscribe():
                self._share.begin(self._unsubscribe(item))
            case PingReq():
                self.write(self.replies.pingresp())
            case Disconnect():
                self._goodbye(item)
            case Connect():
                self._greeting.begin(item)
            case Auth():
                text = "AUTH came, but no authentication method was agreed on"
                raise ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=Code.PROTOCOL_ERROR)
            case _:
                raise ProtocolError(f"{type(item).__name__} is not for a client to send", reason=Reason.PROTOCOL_ERROR)

    @property
    def granted(self) -> Session:
        assert self.session is not None
        return self.session

    # -- CONNECT ----------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """With what came while nothing was handled."""
        if not self.waits:
            self.connection.go_on()
            self.engine.turn_soon()

    def _goodbye(self, packet: Disconnect) -> None:
        if packet.session_expiry_s is not None:
            if packet.session_expiry_s and not self.granted.expiry_s:
                text = "DISCONNECT may not give a session an expiry that CONNECT did not"
                raise ProtocolError(text, reason=Reason.PROTOCOL_ERROR, code=Code.PROTOCOL_ERROR)
            never = packet.session_expiry_s == NEVER
            self.final_expiry_s = inf if never else float(packet.session_expiry_s)
        self.will_due = packet.code != Code.SUCCESS
        said = f" (0x{packet.code:02X})" if packet.code else ""
        said += f": {packet.reason}" if packet.reason else ""
        self.connection.close(Reason.NORMAL, f"the client said goodbye{said}")

    # -- publishing -------------------------------------------------------------------------------------------------

    def _publish_runs(self, session: Session, items: list[Item], at: int) -> int:
        """Publish the runs that stand there one behind the other, as far as the share goes. Returns how many; of the
        one behind them there may be less left."""
        share = self._share
        runs: list[Run] = []
        for item in islice(items, at, None):
            if type(item) is not Run or item.topic[0] == "$":
                break
            runs.append(item)
        if not runs:
            session.refused_records += len(items[at])  # type: ignore[arg-type]
            share.left -= 1
            return 1
        engine = self.engine
        count, taken, work, refused, rest = engine.broker.publish_some(session, runs, engine.now(), share.left)
        share.left -= work
        if refused is None:
            self._pace(session, taken // count)
        else:
            session.refused_records += 1  # QoS 0 has no answer; the client's counters show it
        if rest is None:
            return count
        items[at + count - 1] = rest
        return count - 1

    def _pace(self, session: Session, lanes: int) -> None:
        """Each lane has a copy of what is published to it: with many, less is read at once, or one read would take up
        more memory than there is before anybody could be told to wait."""
        if lanes != self._lanes:
            self._lanes = lanes
            share = session.pool.memory_limit // READS_PER_POOL // max(1, lanes)
            self.connection.read_bytes = max(READ_BYTES_MIN, min(self.engine.read_bytes, share))

    def _publish(self, item: Publish) -> None:
        session, now, run = self.granted, self.engine.now(), item.run
        again = item.qos == 2 and item.packet_id in session.incoming
        if item.qos == 2 and not again and len(session.incoming) >= self.incoming_max:
            text = f"more than {self.incoming_max} publishes are waiting for their PUBREL"
            raise ProtocolError(text, reason=Reason.CREDIT_EXCEEDED, code=Code.RECEIVE_MAX_EXCEEDED)
        if item.expiry_s is not None:
            run.expires_s = now + item.expiry_s
        code, text, taken = 0, "", 1
        if run.topic[0] == "$":
            code, text = Code.NOT_AUTHORIZED, "topics that start with $ are the broker's own"
            session.refused_records += 1
        elif not again:
            _, taken, work, refused, _ = self.engine.broker.publish_some(session, [run], now, 0)
            self._share.left -= work - 1  # one is counted for each packet
            if refused is None:
                self._pace(session, taken)
            else:
                code, text = Code.QUOTA_EXCEEDED, str(refused)
        if not code and not taken and self.replies.version == 5:
            code = Code.NO_MATCHING_SUBSCRIBERS
        if item.qos == 1:
            self._answers.say(self.replies.puback(item.packet_id, code, text), kept=run.kept or run.retain)
        elif item.qos == 2:
            if code < 0x80:
                self.engine.broker.arrived(session, item.packet_id, there=True)
            kept = session.kept or run.kept or run.retain
            self._answers.say(self.replies.pubrec(item.packet_id, code, text), kept=kept)

    def _released(self, item: PubRel) -> None:
        session = self.granted
        unknown = self.replies.version == 5 and item.packet_id not in session.incoming
        self.engine.broker.arrived(session, item.packet_id, there=False)
        code = Code.PACKET_ID_NOT_FOUND if unknown else 0
        # Also when it is unknown: it may be so for a moment only, and the journal not know of it.
        self._answers.say(self.replies.pubcomp(item.packet_id, code), kept=session.kept)

    # -- being delivered to -----------------------------------------------------------------------------------------

    def _received(self, item: PubRec) -> None:
        broker, session = self.engine.broker, self.granted
        if item.code >= 0x80:
            broker.acknowledge(session, item.packet_id, self.engine.now())
            return
        if broker.release(session, item.packet_id):
            self.release(item.packet_id)
        else:
            self.release(item.packet_id, Code.PACKET_ID_NOT_FOUND if self.replies.version == 5 else 0)

    def release(self, delivery_id: int, code: int = 0) -> None:
        self._answers.say(self.replies.pubrel(delivery_id, code), kept=self.granted.kept)

    def _subscribe(self, packet: Subscribe) -> Steps:
        session, version = self.granted, self.replies.version
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
        answer = self.replies.suback(packet.packet_id, codes, "; ".join(texts), renewed)
        self._answers.say(answer, kept=session.kept)

    def _unsubscribe(self, packet: Unsubscribe) -> Steps:
        session, codes = self.granted, []
        for filter in packet.filters:
            ended = self.engine.broker.unsubscribe(session, filter, self.engine.now())
            codes.append(0 if ended else Code.NO_SUBSCRIPTION_EXISTED)
            yield SUBSCRIBE_WORK
        self._answers.say(self.replies.unsuback(packet.packet_id, codes), kept=session.kept)


def _suback_code(error: Refused) -> int:
    if isinstance(error.__cause__, BadTopic):
        return Code.FILTER_INVALID
    return Code.QUOTA_EXCEEDED if error.reason in QUOTAS else Code.IMPLEMENTATION_ERROR
