"""OpenWire's side of a connection: it hands each command of a client of JMS to the part that it is for.

Rules:
- A command that is refused gets an exception as its response, and the connection goes on. If no response is wanted, the
  connection's ExceptionListener is told (ConnectionError).
- Breaking the protocol ends the connection. The client is told why.
- The session is the connection. Durable subscriptions, and queues that are not temporary, outlive it.
- A consumer that is to be closed is asked (ConsumerControl), and the ExceptionListener is told why. The broker sends it
  nothing more at once.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from weakref import WeakKeyDictionary

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.core.consumer import CloseChannel, Session, Subscription
from headway.core.queue import queue_of
from headway.server.config import ListenerTable
from headway.server.connections import Connection, Steps
from headway.server.engine import Engine
from headway.server.logins import Refusal
from headway.server.openwire.consuming import Consumer, Consuming
from headway.server.openwire.ports import ClientSide, JmsFault, class_of, class_of_reason
from headway.server.openwire.publishing import Publishing, Temporaries, Transactions
from headway.server.openwire.settling import Settling
from headway.server.peers import OPEN, NamedQueues, PeerPart
from headway.wire.openwire import commands, replies
from headway.wire.openwire.alike import Acks, Series
from headway.wire.openwire.commands import ConnectionInfo
from headway.wire.openwire.decoder import Item, Request, Sent, WireFormat
from headway.wire.openwire.marshalling import (
    ConnectionId,
    ConsumerId,
    LocalTransactionId,
    ProducerId,
    SessionId,
)

# -- greeting ----------------------------------------------------------------------------------------------------------
#
# The greeting of a client of JMS: WireFormatInfo, then ConnectionInfo with its client id and login.
#
# The client id is the client's name, as operators know it. Two connections with one client id are refused, as JMS wants
# it; a client of the failover transport that is back takes the place of its old connection. A name that a client of
# another protocol has, present or away, stays that client's: then the session of this one is numbered, and its durable
# subscriptions are found by its client id all the same.


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


# -- peer --------------------------------------------------------------------------------------------------------------


OBJECTS, HELD = "numbered_objects", "held_messages"
"""Kinds of memory: the objects that a client has numbered, and messages that wait for their turn. These may be a
thousand times as large as what came, if the client has compressed them."""
INFLATING_MAX = 4
"""Connections of a broker whose large compressed bodies are inflated at once; the others wait for their turns."""


class OpenWirePeer(ClientSide):
    __slots__ = (
        "_cache_bytes", "_consuming", "_doing", "_greeting", "_held_bytes", "_publishing", "_settling", "_transactions",
    )  # fmt: skip

    temporaries: Temporaries
    closes_consumers = True
    publishes, looked_at = frozenset({Sent, Series}), frozenset({Series})
    faults = (ProtocolError, Refused, JmsFault)
    heartbeat_word = replies.KEEP_ALIVE

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener)
        self._greeting = Greeting(self)
        self._publishing = Publishing(self)
        self._consuming = Consuming(self)
        self._settling = Settling(self, self._consuming)
        self._transactions = Transactions(self, self._publishing, self._consuming, self._settling)
        self.temporaries = Temporaries(self)
        self._doing: Item | None = None
        self._cache_bytes = self._held_bytes = 0

    # -- items --------------------------------------------------------------------------------------------------------

    def one(self, item: Item) -> None:
        self._doing = item
        if type(item) is WireFormat:
            self._greeting.agree(item)
            return
        if type(item) is Request and type(item.command) in _BEFORE_LOGIN:
            self._greet(item, item.command)
            return
        self.granted  # noqa: B018  raises
        if type(item) is Series:
            self._publishing.publish_series(item)
        elif type(item) is Acks:
            self._settling.settle_each(item)
        elif type(item) is Sent:
            self._sent(item)
        else:
            assert type(item) is Request
            self._request(item, item.command)

    def received(self, data: bytes) -> bool:
        inflating = inflating_of(self.engine)
        self.decoder.may_inflate = self in inflating or len(inflating) < INFLATING_MAX
        more = super().received(data)
        if self.session is not None:
            held_bytes = sum(map(_bytes_of, self._held))
            held_bytes += self.decoder.inflated_bytes
            if (self.decoder.cache_bytes, held_bytes) != (self._cache_bytes, self._held_bytes):
                self._cache_bytes, self._held_bytes = self.decoder.cache_bytes, held_bytes
                self.session.tab.put(OBJECTS, self._cache_bytes)
                self.session.tab.put(HELD, held_bytes)
        if self.decoder.inflated_bytes and self.connection.open:
            inflating.add(self)
        else:
            inflating.discard(self)
        return more

    def paused(self, why: str) -> None:
        """Lets others inflate their bodies while this client is not read."""
        if why:
            self.decoder.deflate()
            inflating_of(self.engine).discard(self)

    def _sent(self, item: Sent) -> None:
        if item.message.transaction is None:
            self._publishing.publish(item)
        else:
            self._transactions.send(item.message)
            self._publishing.answer(item, kept=False)

    def is_goodbye(self, item: Item) -> bool:
        return isinstance(item, Request) and isinstance(item.command, commands.RemoveInfo | commands.ShutdownInfo)

    def _greet(self, request: Request, command: commands.Command) -> None:
        """Carries out what may come before the client is let in, too."""
        match command:
            case commands.ConnectionInfo():
                self.connection_id = self.connection_id or command.connection.value
                self._greeting.connect(request, command)
            case commands.KeepAliveInfo() if request.wants_response:
                self.write(replies.KEEP_ALIVE)
            case commands.ShutdownInfo():
                self.end_with(b"", Reason.NORMAL, "the client said goodbye")
            case commands.Notice():
                self._respond(request, kept=False)

    def _request(self, request: Request, command: commands.Command) -> None:
        match command:
            case commands.MessageAck():
                if command.transaction is None:
                    self._settling.settle(command)
                else:
                    self._transactions.settle(command)
            case commands.TransactionInfo():
                self._transactions.carry_out(request.number, command, wants_response=request.wants_response)
                return
            case commands.MessagePull():
                self._consuming.pull(command)
            case commands.ConsumerInfo():
                self._consuming.add(command, partial(self._respond, request, kept=True))
                return
            case commands.ProducerInfo():
                self._add_producer(command)
            case commands.RemoveInfo():
                self._remove(command)
            case commands.DestinationInfo():
                self.temporaries.carry_out(command)
            case commands.RemoveSubscriptionInfo():
                self._consuming.remove_subscription(command.subscription)
            case commands.ConsumerControl():
                if command.consumer is not None:
                    self._consuming.set_prefetch(command.consumer, command.prefetch)
        self._respond(request, kept=type(command) in _KEPT)

    def _respond(self, request: Request, *, kept: bool) -> None:
        if request.wants_response:
            self.pending_replies.send(replies.write_response(request.number), kept=kept)

    def _add_producer(self, info: commands.ProducerInfo) -> None:
        destination = info.destination
        if destination is not None and not destination.is_topic and not destination.is_temporary:
            self._publishing.check_destination(destination)
        self._publishing.add_producer(info.producer, info.window_bytes)

    def _remove(self, info: commands.RemoveInfo) -> None:
        known = info.object
        if isinstance(known, ProducerId):
            self._publishing.remove_producer(known)
        elif isinstance(known, ConsumerId | SessionId):
            self._consuming.remove(known, info.last_delivered)
        elif isinstance(known, ConnectionId):
            self._consuming.remove(None, info.last_delivered)

    def opened(self, session: Session) -> None:
        self.session = session
        self.queues = NamedQueues(self.engine, session, self.budget)
        self._publishing.session = session
        self.decoder.packet_bytes_max = self.message_bytes_allowed

    # -- faults -------------------------------------------------------------------------------------------------------

    def blame(self, fault: HeadwayError) -> None:
        """Refuses what the client asked for. Breaking the protocol ends the connection."""
        if isinstance(fault, ProtocolError):
            self.break_off(fault)
            return
        if isinstance(fault, Refused):
            self.note_limit(fault)
        item = self._doing
        self._transactions.spoil(_transaction_of(item), str(fault))
        if isinstance(item, Request | Sent | Series) and item.wants_response:
            self.pending_replies.send(replies.write_refusal(item.number, class_of(fault), str(fault)), kept=False)
        else:
            self.write(replies.write_error(class_of(fault), str(fault)))

    def break_off(self, error: ProtocolError) -> None:
        self.engine.protocol_error(self.connection, error)
        self.end_with(replies.write_error(replies.JMS_ERROR, str(error)), error.reason, str(error))

    # -- requests of the broker ---------------------------------------------------------------------------------------

    def close_channel(self, effect: CloseChannel) -> None:
        self._close(self._consuming.of(effect.channel), class_of_reason(effect.reason), effect.text)

    def close_consumer(self, subscription: Subscription, text: str) -> None:
        self._close(self._consuming.of(subscription.channel), replies.JMS_ERROR, text)

    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None:
        self._close(self._consuming.of(subscription.channel), class_of_reason(reason), text)

    def _close(self, consumer: Consumer | None, java_class: str, text: str) -> None:
        if consumer is not None:
            self.write(replies.write_error(java_class, text))
            self._consuming.close(consumer)
            self.answer_now()

    def cancelled(self, subscription: Subscription, reason: Reason) -> None:
        """Closes a consumer whose last queue is gone. An answered query, and a consumer whose lease is over, stay open,
        for their client to close: a library that is asked to close drops what its user has not received."""
        consumer = self._consuming.of(subscription.channel)
        if reason is Reason.LEASE_EXPIRED and consumer is not None:
            self.write(replies.write_error(replies.JMS_ERROR, f"the lease of {consumer.info.destination} is over"))
            self.answer_now()
        elif reason is Reason.SUBSCRIPTION_ENDED and (consumer := self._consuming.lost(subscription)) is not None:
            text = f"queue://{queue_of(subscription.reader.queue).name} was deleted"
            self.write(replies.write_error(replies.JMS_ERROR, text))
            if not consumer.subscriptions:
                self._consuming.close(consumer)
            self.answer_now()

    # -- the end ------------------------------------------------------------------------------------------------------

    def last_word(self, reason: Reason, text: str) -> bytes:
        if self.state is not OPEN:
            return self._final
        return replies.write_error(class_of_reason(reason), text)

    def over(self) -> None:
        inflating_of(self.engine).discard(self)
        self._greeting.over()
        self.temporaries.over()
        self._consuming.over()
        if self.budget.running is None:
            self._parts_over()

    def _parts_over(self) -> None:
        self._transactions.over()
        self._settling.over()
        self._publishing.over()

    def leave(self, session: Session, reason: Reason) -> None:
        if self.budget.running is not None:  # a commit that has begun
            self.budget.running = self._finish(self.budget.running)
            self.finish_without(session)
        super().leave(session, reason)

    def _finish(self, running: Steps) -> Steps:
        with suppress(Refused, JmsFault):  # nobody is left to be told
            yield from running
        self._parts_over()


_INFLATING: WeakKeyDictionary[Engine, set[OpenWirePeer]] = WeakKeyDictionary()


def inflating_of(engine: Engine) -> set[OpenWirePeer]:
    """Returns the clients of a broker that have a body which is inflated in part."""
    return _INFLATING.setdefault(engine, set())


def _bytes_of(item: Item) -> int:
    """Returns the memory of what waits for its turn, about."""
    if type(item) is Sent:
        return len(item.message.payload)
    return len(item.run.data) if type(item) is Series else 0


def _transaction_of(item: Item | None) -> LocalTransactionId | None:
    """Returns the transaction that a message or an acknowledgement belongs to."""
    if isinstance(item, Sent):
        return item.message.transaction
    if isinstance(item, Request) and isinstance(item.command, commands.MessageAck):
        return item.command.transaction
    return None


_BEFORE_LOGIN = {commands.ConnectionInfo, commands.KeepAliveInfo, commands.ShutdownInfo, commands.Notice}
_KEPT = {
    commands.MessageAck, commands.RemoveSubscriptionInfo, commands.DestinationInfo,
}  # fmt: skip
"""Commands whose responses wait for the journal."""
