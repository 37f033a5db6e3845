"""STOMP's side of a connection: frames become commands to the broker, and its answers become frames.

Rules:
- The session is the connection: it begins with CONNECT and ends with the socket. Queues, and durable subscriptions,
  outlive it.
- STOMP has one answer to all that goes wrong: an ERROR frame with the reason, and the end of the connection. Everything
  before the fault still counts. No single subscription can be ended from our side, so a wish to close a consumer is
  told by advisory alone; what takes a subscription away (its queue, its permission) ends the connection.
- A receipt is sent once everything that its frame asked for is done, and is in the journal where it is to be kept.
- Deliveries are numbered per connection; an ACK names such a number.
"""

from __future__ import annotations

import secrets
from functools import partial
from math import inf

from headway import __version__
from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.core.consumer import NO_LIMIT, Channel, CloseChannel, Session, Subscription
from headway.server.config import ListenerTable
from headway.server.connections import Connection, Steps
from headway.server.engine import Engine
from headway.server.logins import Refusal
from headway.server.peers import CLOSING, OPEN, NamedQueues, PeerPart, Transaction, settle_in_steps
from headway.server.stomp.ports import ClientSide, Temporaries
from headway.server.stomp.publisher import Publisher
from headway.server.stomp.subscribing import LOOK_SHARE, Subscriber, flag
from headway.wire.stomp.versions import (
    HEARTBEAT,
    OFFERED,
    Acks,
    Connect,
    Frame,
    Headers,
    Item,
    Sent,
    StompFault,
    connected,
    error,
)

# -- greeting ----------------------------------------------------------------------------------------------------------
#
# The greeting of a STOMP client: its CONNECT, its login, and CONNECTED.
#
# A client that gives no login comes in where the listener lets anonymous clients in. Two clients may have the same
# ``client-id``: neither is thrown out, and the second one is numbered. A durable subscription has one consumer at a
# time.


LOGIN_CHARS_MAX = 200
BEAT_MS_MIN = 1000
"""The broker sends and expects heart-beats no more often."""
BEAT_MS_MAX = 86_400_000


class Greeting(PeerPart[ClientSide]):
    __slots__ = ()

    def begin(self, item: Connect) -> None:
        peer, headers = self._peer, item.headers
        if item.version is None:
            text = f"Supported versions are {OFFERED}"
            peer.end_with_error(text, Reason.PROTOCOL_ERROR, "Version mismatch", agreed=False)
            return
        peer.version = item.version
        certified, login = peer.connection.stream.user, headers.get("login")
        name = headers.get("client-id", "")
        peer.client_id = name[:LOGIN_CHARS_MAX] if name.isprintable() else ""
        peer.username = peer.connection.username = certified or login or ""
        peer.connection.client = peer.client_id
        password = headers.get("passcode", "").encode()
        peer.log_in(login or None, password, partial(self._checked, headers), wanted="a login and a passcode")

    def _checked(self, headers: Headers, refusal: Refusal | None) -> None:
        if refusal is None:
            self._admit(headers)
        else:
            self._deny(refusal.text)

    def _deny(self, text: str, reason: Reason = Reason.NOT_AUTHORIZED) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        peer.end_with_error(text, reason, "Bad CONNECT")

    def _admit(self, headers: Headers) -> None:
        peer = self._peer
        engine, connection = peer.engine, peer.connection
        every_ms, wanted_ms = _beats(headers.get("heart-beat", "0,0"))
        sends = max(wanted_ms, BEAT_MS_MIN) if wanted_ms else 0
        hears = max(every_ms, BEAT_MS_MIN) if every_ms else 0
        if fault := peer.listener.beat_fault(hears / 1000):
            self._deny(f"{fault} (heart-beat)", Reason.NOT_ALLOWED)
            return
        wanted = peer.client_id or f"stomp-{connection.address}"
        name = connection.client = peer.free_name(wanted)
        try:
            session = peer.connect(name, f"stomp-{peer.version}", peer.username)
        except Refused as error:
            self._deny(str(error), error.reason)
            return
        peer.become(OPEN)
        peer.opened(session, sends / 1000, hears / 1000 if hears else inf)
        peer.write(connected(peer.version, _session_id(wanted), f"Headway/{__version__}", (sends, hears)))
        engine.connected(connection)


def _session_id(wanted: str) -> str:
    """Returns an id of the session for the client. It does not say whether another client has the name, too."""
    return f"{wanted}/{secrets.token_hex(4)}"


def _beats(text: str) -> tuple[int, int]:
    """Returns how often the client can send something, and how often it wants to hear something, in milliseconds; 0:
    not at all."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts):
        return 0, 0
    return min(int(parts[0]), BEAT_MS_MAX), min(int(parts[1]), BEAT_MS_MAX)


# -- peer --------------------------------------------------------------------------------------------------------------


TRANSACTIONS_MAX = 100
NAME_CHARS_MAX = 255
"""Limit of the name of a transaction."""
SILENCE = 2 / 1.5
"""Factor for the keep-alive: a client may miss a heart-beat, and the engine allows one and a half intervals."""
_QUIET = frozenset({Reason.NORMAL, Reason.CLIENT_GONE})


class StompPeer(ClientSide):
    __slots__ = ("_committing", "_doing", "_greeting", "_publisher", "_subscriber")

    publishes = looked_at = frozenset({Sent})
    faults = (ProtocolError, Refused)
    heartbeat_word = HEARTBEAT

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener)
        self._subscriber: Subscriber
        self._publisher: Publisher
        self._greeting = Greeting(self)
        self._committing: Transaction | None = None
        """The transaction whose commit has begun and is not done."""
        self._doing: Headers = {}
        """Headers of the frame that is being handled."""

    def opened(self, session: Session, send_s: float, hear_s: float) -> None:
        self.session = session
        self.heartbeat_s, self.keep_alive_s = send_s, hear_s * SILENCE
        self.named = NamedQueues(self.engine, session, self.budget)
        self.temporaries = Temporaries(self.named)
        self.channel = Channel(NO_LIMIT, NO_LIMIT, 1, session.number, session.channel.in_flight_bytes)
        self.channel.whole = session.channel
        self._subscriber = Subscriber(self)
        self._publisher = Publisher(self, session, self._subscriber)
        self.decoder.packet_bytes_max = self.message_bytes_allowed

    # -- frames -------------------------------------------------------------------------------------------------------

    def one(self, item: Item) -> None:
        if type(item) is Connect:
            self._greeting.begin(item)
            return
        self.granted  # noqa: B018  raises
        if type(item) is Acks:
            self._doing = {}
            ids = self._subscriber.settled_by(item.ids)
            self.budget.begin(self._settled(ids, refuses=False, requeue=False))
            return
        assert not isinstance(item, Connect | Acks)
        self._doing = headers = item.headers
        if type(item) is Sent:
            self._publisher.send(item)
            return
        assert type(item) is Frame
        match item.command:
            case "SUBSCRIBE":
                kept, told = self._subscriber.subscribe(headers)
                self.done(headers, kept=kept, told=told)
            case "UNSUBSCRIBE":
                self.done(headers, kept=self._subscriber.unsubscribe(headers))
            case "ACK":
                self._settle(headers, "ACK")
            case "NACK":
                self._settle(headers, "NACK")
            case "BEGIN":
                self._begin(headers)
            case "COMMIT":
                self._commit(headers)
            case "ABORT":
                self._take(headers, "ABORT").forget()
                self.done(headers)
            case "DISCONNECT":
                self._disconnect(headers)

    def is_goodbye(self, item: Item) -> bool:
        return type(item) is Frame and item.command == "DISCONNECT"

    def _disconnect(self, headers: Headers) -> None:
        """Says goodbye once everything before has its receipts."""
        self.done(headers)
        self.budget.begin(self._leave_when_said())

    def _leave_when_said(self) -> Steps:
        while self.pending_replies.waiting:
            yield 0
        self._final = b""
        self.become(CLOSING)
        self.connection.close_gracefully(Reason.NORMAL, "the client said goodbye")

    # -- acknowledgements and transactions ----------------------------------------------------------------------------

    def _settle(self, headers: Headers, command: str) -> None:
        transaction = self.transaction(headers)
        ids = self._subscriber.acknowledged(headers, command)
        refuses = command == "NACK"
        requeue = flag(headers, "requeue", default=True)
        if transaction is not None:
            others = self.transactions.values()
            ids = [one for one in ids if not any(one in other.named(self.channel) for other in others)]
            self.budget.left -= len(ids) * len(others) // LOOK_SHARE
            transaction.settle(self._settled(ids, refuses=refuses, requeue=requeue), self.channel, ids)
            self.done(headers)
            return
        self.budget.begin(self._settled(ids, refuses=refuses, requeue=requeue, headers=headers))

    def _settled(self, ids: list[int], *, refuses: bool, requeue: bool, headers: Headers | None = None) -> Steps:
        """Settles deliveries in steps; those that are gone meanwhile are skipped."""
        queues, channel = self.engine.broker.queues, self.channel
        refuse, accept = partial(queues.refuse, channel, requeue=requeue), partial(queues.acknowledge, channel)
        yield from settle_in_steps(self.engine, channel, ids, refuse if refuses else accept)
        if headers is not None:
            self.done(headers, kept=True)

    def _begin(self, headers: Headers) -> None:
        name = _transaction(headers, "BEGIN")
        if name in self.transactions:
            raise ProtocolError(f"transaction {name[:60]!r} has begun already", reason=Reason.PROTOCOL_ERROR)
        if len(self.transactions) >= TRANSACTIONS_MAX:
            raise Refused(Reason.CLIENT_MEMORY, f"a connection may have {TRANSACTIONS_MAX} transactions at a time")
        self.transactions[name] = Transaction(self.granted)
        self.done(headers)

    def _take(self, headers: Headers, command: str) -> Transaction:
        name = _transaction(headers, command)
        transaction = self.transaction_named(name)
        del self.transactions[name]
        return transaction

    def _commit(self, headers: Headers) -> None:
        transaction = self._take(headers, "COMMIT")
        transaction.check_named()
        self._committing = transaction
        transaction.commit = self._committed(transaction, headers)
        self.budget.begin(transaction.commit)

    def _committed(self, transaction: Transaction, headers: Headers) -> Steps:
        try:
            yield from transaction.done(self, lambda: self.gone)
        except Refused:
            if not self.gone:  # nobody is left to be told
                raise
        finally:
            self._committing = None
        self.done(headers, kept=True)

    # -- requests of the broker ---------------------------------------------------------------------------------------

    def close_channel(self, effect: CloseChannel) -> None:
        self.end_with_error(effect.text, effect.reason)

    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None:
        self.end_with_error(text, reason)

    def cancelled(self, subscription: Subscription, reason: Reason) -> None:
        """Ends the connection, as STOMP has no other way to tell that a queue is gone. An answered query ends nothing:
        its end mark says that it is over. Neither does a lease that is over: the next SUBSCRIBE is told."""
        if reason in (Reason.NORMAL, Reason.LEASE_EXPIRED):
            return
        _, name = subscription.request.label.split("/", 1)
        text = f"the queue of subscription {name!r} is gone: it was deleted, or may not be read any more"
        self.end_with_error(text, Reason.SUBSCRIPTION_ENDED)

    # -- the end ------------------------------------------------------------------------------------------------------

    def blame(self, fault: HeadwayError) -> None:
        """Ends the connection for the frame that is being handled."""
        receipt_id = self._doing.get("receipt")
        if isinstance(fault, Refused):
            self.note_limit(fault)
            self.end_with_error(str(fault), fault.reason, str(fault.reason), receipt_id)
        else:
            assert isinstance(fault, ProtocolError)
            self.break_off(fault, receipt_id)

    def break_off(self, error: ProtocolError, receipt_id: str | None = None) -> None:
        self.engine.protocol_error(self.connection, error)
        heading = error.heading if isinstance(error, StompFault) else ""
        self.end_with_error(str(error), error.reason, heading, receipt_id)

    def last_word(self, reason: Reason, text: str) -> bytes:
        if self.state is CLOSING or reason in _QUIET:
            return self._final
        return error(text or str(reason), self.version)

    def over(self) -> None:
        self._greeting.over()
        self._doing = {}

    def leave(self, session: Session, reason: Reason) -> None:
        for transaction in self.transactions.values():
            transaction.forget()
        self.transactions.clear()
        if self.budget.running is not None and self._committing is not None:  # it is done without the client
            self._committing.forget()
            self.finish_without(session)
        self.budget.running = None
        self.named.queues.close_channel(session, self.channel, self.engine.now())
        self._subscriber.over()
        if self._committing is None:
            self._publisher.over()
        super().leave(session, reason)


def _transaction(headers: Headers, command: str) -> str:
    name = headers.get("transaction")
    if not name:
        raise ProtocolError(f"{command} names no transaction", reason=Reason.PROTOCOL_ERROR)
    if len(name) > NAME_CHARS_MAX:
        text = f"the name of a transaction has {len(name)} characters (at most {NAME_CHARS_MAX})"
        raise ProtocolError(text, reason=Reason.PROTOCOL_ERROR)
    return name
