"""AMQP 1.0's side of a connection: it hands each item to its session.

Rules:
- A fault of a link ends the link, one of a session ends the session, and breaking the protocol ends the connection. The
  client is told why, with an error condition. Everything before the fault still counts.
- The session of the core is the connection: it begins with ``open`` and ends with the socket. Queues outlive it, and so
  do durable subscriptions, which are queues.
- After the broker has ended a link or a session, what comes for it is ignored until the client has confirmed that.
"""

from __future__ import annotations

from math import inf
from typing import Any

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.core.consumer import Channel, CloseChannel, Session, Subscription
from headway.server.amqp1.consuming import ConsumingLink
from headway.server.amqp1.ports import ClientSide, LinkFault, SessionFault, connection_fault, end_condition, link_fault
from headway.server.amqp1.publishing import PublishingLink
from headway.server.amqp1.session import Amqp1Session
from headway.server.config import ListenerTable
from headway.server.connections import Connection, HoldingReplies
from headway.server.engine import Engine
from headway.server.logins import SCRAM
from headway.server.peers import GUEST, OPEN, NamedQueues, SaslLogin, Transaction, Unconfirmed
from headway.wire.amqp1.decoder import FRAME_BYTES_MIN, Amqp1Decoder
from headway.wire.amqp1.items import Empty, Frame, Item, Layer, Lost, Opening, SaslFrame, Transfers
from headway.wire.amqp1.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslResponse,
)
from headway.wire.amqp1.replies import EMPTY, HEADERS, error, sasl_challenge, sasl_mechanisms, sasl_outcome, write
from headway.wire.amqp1.values import Condition, malformed
from headway.wire.common import ANONYMOUS, EXTERNAL, PLAIN, read_plain

# -- greeting ----------------------------------------------------------------------------------------------------------
#
# The greeting: protocol headers, the login by SASL, and the open. Its end is the beginning of the session of the core.
#
# While the client's password is being checked (in a thread, because that is slow on purpose) nothing is read from it,
# and nothing that it has sent is handled.


REFUSED = 1


class Greeting(SaslLogin[ClientSide]):
    __slots__ = ("_done", "_offered", "_started")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._done = False
        """Whether it is known who the client is, or that it need not be."""
        self._offered: tuple[str, ...] = ()
        """Mechanisms; none: SASL has not begun."""
        self._started = False
        """Whether the client has chosen one."""

    def begin(self, layer: Layer) -> None:
        peer = self._peer
        certified = peer.connection.stream.user
        if layer is Layer.AMQP and not self._done and not self._offered and (certified or peer.takes_anybody):
            if certified:
                peer.username = peer.connection.username = certified
                peer.certify(same=True)
            self._done = True
        if layer is Layer.AMQP and self._done:
            peer.write(HEADERS[Layer.AMQP])
        elif layer is Layer.SASL and not self._offered:
            self._offered = self._mechanisms()
            peer.write(HEADERS[Layer.SASL] + sasl_mechanisms(self._offered))
        else:
            wanted = Layer.SASL if layer is Layer.AMQP else Layer.AMQP
            text = "asked for AMQP without SASL" if layer is Layer.AMQP else "asked for a layer that is not spoken here"
            fault = connection_fault(Condition.NOT_ALLOWED, text)
            peer.engine.protocol_error(peer.connection, fault)
            peer.end_with(HEADERS[wanted], Reason.PROTOCOL_ERROR, str(fault))

    def _mechanisms(self) -> tuple[str, ...]:
        peer = self._peer
        if peer.connection.stream.user:
            return EXTERNAL, PLAIN, ANONYMOUS
        scram = [SCRAM] if peer.engine.logins.scram() is not None else []
        return (*scram, PLAIN, *([ANONYMOUS] if peer.takes_anybody else []))

    # -- SASL ---------------------------------------------------------------------------------------------------------

    def handle(self, performative: Any) -> None:
        if self._done or not self._offered:
            raise connection_fault(Condition.NOT_ALLOWED, "a login is not expected now")
        match performative:
            case SaslInit(mechanism, response) if not self._started:
                self._started = True
                self._start(str(mechanism), response or b"")
            case SaslResponse(response) if self._scram is not None:
                self._prove(self._scram, response)
            case _:
                raise connection_fault(Condition.NOT_ALLOWED, "that is not what a login goes on with")

    def _start(self, mechanism: str, response: bytes) -> None:
        peer = self._peer
        scram = peer.engine.logins.scram() if mechanism == SCRAM else None  # None: also if a reload took it back
        if mechanism not in self._offered or (mechanism == SCRAM and scram is None):
            self._refuse(f"mechanism {mechanism!r} is not offered here")
            return
        certified = peer.connection.stream.user
        if scram is not None:
            self._converse(scram, response)
            return
        login = read_plain(response, malformed) if mechanism == PLAIN else GUEST
        peer.username = peer.connection.username = certified or ("" if mechanism == ANONYMOUS else login[0])
        self._log_in(login, names_user=mechanism == PLAIN)

    def _admit(self, message: bytes | None = None) -> None:
        self._done = True
        self._peer.write(sasl_outcome(0, message))

    def _refuse(self, text: str) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        peer.end_with(sasl_outcome(REFUSED), Reason.NOT_AUTHORIZED, text)

    def _challenge(self, message: bytes) -> None:
        self._peer.write(sasl_challenge(message))

    def _proven(self, answer: bytes) -> None:
        self._admit(answer)


# -- peer --------------------------------------------------------------------------------------------------------------


CHANNEL_MAX = 255
FRAME_BYTES_MAX = 131_072
GREETING_BYTES_MAX = 64 * 1024
"""Limit of a client's bytes before its login is known."""
PARTS_MAX = 2
"""Limit of partial messages on all links of a connection together, in messages of the largest size."""
IDLE_S = 60.0
IDLE_MS_MIN = 250
"""A thousand clients that want to hear something every millisecond would keep the broker from all else (2.4.5)."""
SILENCE = 2 / 1.5
"""Factor for the keep-alive: a client may be silent for twice what it was told, and the engine allows one and a half
times."""
NAME_CHARS_MAX = 200
DRAIN_AGAIN_S = 0.5
"""Time between two looks at links that are being drained and whose client has to read first."""
CAPABILITIES = ["ANONYMOUS-RELAY", "SHARED-SUBS"]


class Amqp1Peer(ClientSide):
    __slots__ = ("_doing", "_draining", "_greeting", "_leaving", "channel_max", "sessions")

    decoder: Amqp1Decoder
    closes_consumers = True
    publishes = looked_at = frozenset({Transfers})
    faults = (LinkFault, ProtocolError, Refused)
    heartbeat_word = EMPTY

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener, Amqp1Decoder(GREETING_BYTES_MAX, GREETING_BYTES_MAX))
        self.sessions: dict[int, Amqp1Session] = {}
        """Sessions by their channel, which is the same for both sides."""
        self.links = 0
        """How many links there are, on all sessions."""
        self.channel_max = CHANNEL_MAX
        self.frame_bytes_max = FRAME_BYTES_MIN
        self.message_bytes_max = listener.packet_bytes_max
        self.container = ""
        self.transactions: dict[bytes, Transaction] = {}
        self.queues: NamedQueues
        self.pending_links = HoldingReplies(connection, engine.journal)
        self.closing = False
        self._greeting = Greeting(self)
        self._leaving = Unconfirmed()
        """Channels of sessions that the broker has ended, and the client has not yet."""
        self._doing: Item = Empty()
        self._draining = False

    # -- items --------------------------------------------------------------------------------------------------------

    @property
    def broken(self) -> ProtocolError | None:
        if self.buffered_bytes > PARTS_MAX * self.decoder.message_bytes_max + GREETING_BYTES_MAX:
            text = "parts of too many messages on too many links"
            return connection_fault(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        return self.decoder.error

    def blame(self, fault: HeadwayError) -> None:
        if isinstance(fault, Refused):
            self.note_limit(fault)
        if isinstance(fault, ProtocolError):
            self.break_off(fault)
            return
        fault, item = link_fault(fault), self._doing
        channel: int = getattr(item, "channel", -1)
        session = self.sessions.get(channel)
        performative = item.performative if isinstance(item, Frame) else item
        handle = getattr(performative, "handle", None)
        if session is None:
            self.break_off(connection_fault(fault.condition, str(fault)))
        elif isinstance(fault, SessionFault) or handle is None or handle not in session.links:
            self._end_session(session, fault)
        else:
            session.end_link(handle, fault.condition, str(fault))
            self.decoder.skip(channel, handle)

    def _end_session(self, session: Amqp1Session, fault: LinkFault) -> None:
        del self.sessions[session.number]
        self._leaving.add(session.number)
        self.decoder.skip(session.number)
        session.end(fault)

    def one(self, item: Item) -> None:
        self._doing = item
        if type(item) is Transfers:
            session = self._session(item.channel)
            if session is not None:
                session.on_transfers(item)
            return
        match item:
            case Frame(channel, performative):
                self._performative(channel, performative)
            case Lost(channel):
                session = self._session(channel)
                if session is not None:
                    session.on_lost(item)
            case Opening(layer):
                self._greeting.begin(layer)
            case SaslFrame(performative):
                self._greeting.handle(performative)
            case Empty():
                return

    def holds_up(self, item: Item) -> bool:
        if not self.pending_links.waiting:
            self.closing = False
            return False
        said = item.performative if isinstance(item, Frame) else None
        if isinstance(said, Detach) or (isinstance(said, Attach) and not self.closing):
            return False
        return self.pending_links.hold()

    def is_goodbye(self, item: Item) -> bool:
        return isinstance(item, Frame) and isinstance(item.performative, Close | Detach | End)

    def _performative(self, channel: int, performative: Any) -> None:
        if isinstance(performative, Disposition):  # the most frequent
            session = self._session(channel)
            if session is not None:
                session.on_disposition(performative)
            return
        match performative:
            case Open():
                self._open(performative)
            case Close(failure):
                named = isinstance(failure, Error)
                said = f": {failure.condition} {failure.description or ''}".rstrip() if named else ""
                self.end_with(write(0, Close()), Reason.NORMAL, f"the client said goodbye{said}")
            case Begin():
                self._begin(channel, performative)
            case _:
                session = self._session(channel)
                if session is None:
                    if isinstance(performative, End):
                        self._leaving.remove(channel)
                    return
                match performative:
                    case Attach():
                        session.on_attach(performative)
                    case Flow():
                        session.on_flow(performative)
                    case Detach():
                        session.on_detach(performative)
                    case End():
                        del self.sessions[channel]
                        session.end()

    def _session(self, channel: int) -> Amqp1Session | None:
        """Returns a session; None: the broker has ended it, and the client did not know yet. Raises ProtocolError."""
        session = self.sessions.get(channel)
        if session is None and channel not in self._leaving:
            if self.state is not OPEN:
                raise connection_fault(Condition.NOT_ALLOWED, "the connection is not open yet")
            raise connection_fault(Condition.NOT_ALLOWED, f"there is no session on channel {channel}")
        return session

    def _no_room(self, session: Session, item: Any) -> bool:
        own = self.sessions.get(item.channel)
        return own is not None and own.direct(item) and super()._no_room(session, item)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _open(self, said: Open) -> None:
        """Begins the session at the end of the greeting. Raises ProtocolError."""
        if self.session is not None:
            raise connection_fault(Condition.NOT_ALLOWED, "the connection is open already")
        frame_bytes_max = said.max_frame_size if said.max_frame_size is not None else 0xFFFF_FFFF
        if frame_bytes_max < FRAME_BYTES_MIN:
            text = f"max-frame-size {frame_bytes_max} (at least {FRAME_BYTES_MIN})"
            raise connection_fault(Condition.INVALID_FIELD, text)
        if said.idle_time_out and said.idle_time_out < IDLE_MS_MIN:
            text = f"idle-time-out {said.idle_time_out} ms (at least {IDLE_MS_MIN})"
            raise connection_fault(Condition.NOT_ALLOWED, text)
        self.frame_bytes_max = min(frame_bytes_max, 2 * self.listener.packet_bytes_max + FRAME_BYTES_MAX)
        self.channel_max = min(CHANNEL_MAX, said.channel_max if said.channel_max is not None else CHANNEL_MAX)
        self.container = said.container_id[:NAME_CHARS_MAX]
        self.heartbeat_s = (said.idle_time_out or 0) / 1000
        self.keep_alive_s = self.listener.offers_beat(IDLE_S) * SILENCE
        printable = self.container if self.container.isprintable() else ""
        name = self.free_name(printable or f"amqp-{self.connection.address}")
        self.connection.client = name
        self._greet()
        try:
            self.session = self.connect(name, "amqp-1.0", self.username)
        except Refused as refused:
            self.engine.refused(self.connection, str(refused))
            fault = link_fault(refused)
            self.end_with(write(0, Close(error(fault.condition, str(fault)))), refused.reason, str(refused))
            return
        self.message_bytes_max = self.decoder.message_bytes_max = self.message_bytes_allowed
        self.decoder.frame_bytes_max = FRAME_BYTES_MAX
        self.queues = NamedQueues(self.engine, self.session, self.budget)
        self.become(OPEN)
        self.engine.connected(self.connection)

    def _greet(self) -> None:
        """Answers an open. Clients for JMS put the prefixes before the names of their queues and topics."""
        idle_ms = int(self.listener.offers_beat(IDLE_S) * 1000)
        self.write(write(0, Open(
            f"headway-{self.engine.life}", None, FRAME_BYTES_MAX, CHANNEL_MAX, idle_ms,
            offered_capabilities=CAPABILITIES,
            properties={"product": "Headway", "queue-prefix": "queue://", "topic-prefix": "topic://"},
        )))  # fmt: skip

    def _begin(self, channel: int, said: Begin) -> None:
        if self.session is None:
            raise connection_fault(Condition.NOT_ALLOWED, "the connection is not open yet")
        if channel > self.channel_max:
            raise connection_fault(Condition.NOT_ALLOWED, f"channel {channel} (at most {self.channel_max})")
        if channel in self.sessions or channel in self._leaving:
            raise connection_fault(Condition.NOT_ALLOWED, f"channel {channel} has a session already")
        self.sessions[channel] = Amqp1Session(self, self.session, channel, said)
        self.session.tab.check(0)  # after it is charged: a session that is refused begins, and ends with the reason

    # -- requests of the broker ---------------------------------------------------------------------------------------

    def _of(self, core: Channel) -> Amqp1Session | None:
        """Returns the session that belongs to a channel of the core; None: it has ended."""
        session = self.sessions.get(core.number)
        return session if session is not None and session.core is core else None

    def close_channel(self, effect: CloseChannel) -> None:
        session = self._of(effect.channel)
        if session is not None:
            self._end_session(session, SessionFault(end_condition(effect.reason), effect.text))
            self.after()

    def close_consumer(self, subscription: Subscription, text: str) -> None:
        self._end_consumer(subscription, Condition.RESOURCE_LIMIT_EXCEEDED, text)

    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None:
        self._end_consumer(subscription, end_condition(reason), text)

    def cancelled(self, subscription: Subscription, reason: Reason) -> None:
        """Ends a link whose queue is gone, or whose lease is over. That of an answered query stays, for its client to
        close: the end mark says that it is over."""
        if reason is Reason.LEASE_EXPIRED:
            self._end_consumer(subscription, Condition.DETACH_FORCED, "its lease is over")
        elif reason is not Reason.NORMAL:
            self._end_consumer(subscription, Condition.RESOURCE_DELETED, "the queue was deleted")

    def _end_consumer(self, subscription: Subscription, condition: Condition, text: str) -> None:
        session = self._of(subscription.channel)
        link = None if session is None else session.links.of(subscription)
        if session is not None and link is not None:
            session.end_link(link.handle, condition, text)
            self.after()

    def paused(self, why: str) -> None:
        """Takes the credit of a client that has to wait, or gives it back."""
        if self.state is OPEN:
            for session in self.sessions.values():
                for link in session.links.values():
                    if isinstance(link, PublishingLink):
                        link.give_credit(why)
            self.after()

    def heartbeat(self, now: float) -> float:
        """Goes on with links that are being drained, besides."""
        if self.state is not OPEN:
            return inf
        if self._drain():
            self.answer_now()
        again_s = super().heartbeat(now)
        return min(again_s, now + DRAIN_AGAIN_S) if self._draining else again_s

    def _drain(self) -> bool:
        """Goes on with links that are being drained. Returns whether one of them is done."""
        waiting = [
            link for session in self.sessions.values() for link in session.links.values()
            if isinstance(link, ConsumingLink) and link.draining
        ]  # fmt: skip
        done = [link.drain() for link in waiting]
        self._draining = not all(done)
        return any(done)

    # -- the end ------------------------------------------------------------------------------------------------------

    def break_off(self, fault: ProtocolError) -> None:
        self.engine.protocol_error(self.connection, fault)
        condition = Condition(fault.code) if fault.code else Condition.DECODE_ERROR
        if self.state is not OPEN and self.session is None and self._may_close:
            self._greet()  # a close stands behind an open
        word = self._close_for(condition, str(fault)) if self._may_close else b""
        self.end_with(word, fault.reason, str(fault))

    @property
    def _may_close(self) -> bool:
        """Whether the layer of AMQP has begun, in which there is a close."""
        return self.decoder.layer is Layer.AMQP

    def last_word(self, reason: Reason, text: str) -> bytes:
        if self.state is not OPEN:
            return self._final
        return self._close_for(end_condition(reason), text)

    def _close_for(self, condition: Condition, text: str) -> bytes:
        return write(0, Close(error(condition, text, self.frame_bytes_max - 128)))

    def over(self) -> None:
        self._greeting.over()
        self.pending_links.over()

    def leave(self, session: Session, reason: Reason) -> None:
        self.finish_without(session)  # before what it settles is requeued
        for one in self.sessions.values():
            one.close()
        self.sessions.clear()
        for transaction in self.transactions.values():
            transaction.forget()
        self.transactions.clear()
        super().leave(session, reason)
