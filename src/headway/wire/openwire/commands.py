"""Commands of clients: what each is made of, in the order of its fields, and how they are read.

Fields that only other brokers set are read and forgotten. A command that only brokers send to clients is refused.
Messages are read apart (messages.py), for there are many of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headway.wire.openwire.codes import AckType, Type
from headway.wire.openwire.marshalling import (
    ConnectionId,
    ConsumerId,
    Destination,
    FrameReader,
    LocalTransactionId,
    MessageId,
    Object,
    ProducerId,
    SessionId,
    malformed,
)

ADD, REMOVE = 0, 1
"""Operations of a DestinationInfo."""
_ACK_TYPES = frozenset(AckType)


class ConnectionInfo(NamedTuple):
    connection: ConnectionId
    client_id: str | None
    password: str | None
    username: str | None
    is_bridge: bool
    reconnects: bool
    """A client of the failover transport is back."""


class SessionInfo(NamedTuple):
    session: SessionId


class ConsumerInfo(NamedTuple):
    consumer: ConsumerId
    browses: bool
    destination: Destination | None
    prefetch: int
    selector: str | None
    subscription: str | None
    """The name of a durable subscription."""
    no_local: bool
    exclusive: bool
    retroactive: bool
    priority: int


class ProducerInfo(NamedTuple):
    producer: ProducerId
    destination: Destination | None
    window_bytes: int
    """Bytes that the client has sent at most without a word of the broker; 0: it does not count."""


class TransactionInfo(NamedTuple):
    transaction: Object | None
    step: int


class DestinationInfo(NamedTuple):
    destination: Destination
    removes: bool


class RemoveSubscriptionInfo(NamedTuple):
    subscription: str
    client_id: str


class KeepAliveInfo(NamedTuple):
    pass


class ShutdownInfo(NamedTuple):
    pass


class Notice(NamedTuple):
    """A command that asks for nothing but its response: a client of the failover transport tells that it is back, for
    example."""


class RemoveInfo(NamedTuple):
    object: Object
    last_delivered: int
    """The broker's number of the last message that the application has seen."""


class ConsumerControl(NamedTuple):
    """The client changes its prefetch."""

    consumer: ConsumerId | None
    prefetch: int


class MessagePull(NamedTuple):
    consumer: ConsumerId
    timeout_ms: int
    """How long the client waits; 0: until there is one; below 0: not at all."""


class MessageAck(NamedTuple):
    transaction: LocalTransactionId | None
    consumer: ConsumerId
    kind: int
    first: int
    """The broker's number of the first message; 0: that which is the oldest."""
    last: int
    messages: int
    cause: str
    """Why a message is given up."""


Command = (
    ConnectionInfo | SessionInfo | ConsumerInfo | ProducerInfo | TransactionInfo | DestinationInfo
    | RemoveSubscriptionInfo | KeepAliveInfo | ShutdownInfo | Notice | RemoveInfo | ConsumerControl | MessagePull
    | MessageAck
)  # fmt: skip


def _need(found: Any, kind: type[Any], what: str) -> Any:
    if not isinstance(found, kind):
        raise malformed(f"has no {what}")
    return found


def _connection_info(r: FrameReader) -> ConnectionInfo:
    connection = _need(r.cached("connection"), ConnectionId, "id of its connection")
    client_id, password, username = r.text("client id"), r.text("password"), r.text("user name")
    r.objects("path of brokers")
    is_bridge = r.flag("flags")
    for _ in range(3):
        r.flag("flags")
    reconnects = r.flag("flags")
    return ConnectionInfo(connection, client_id, password, username, is_bridge, reconnects)


def _session_info(r: FrameReader) -> SessionInfo:
    return SessionInfo(_need(r.cached("session"), SessionId, "id of its session"))


def _consumer_info(r: FrameReader) -> ConsumerInfo:
    consumer = _need(r.cached("consumer"), ConsumerId, "id of its consumer")
    browses, destination = r.flag("flags"), r.cached("destination")
    prefetch = r.i32("prefetch")
    r.i32("limit of pending messages")
    r.flag("flags")
    selector = r.text("selector")
    r.text("client id")
    name = r.text("name of a subscription")
    no_local, exclusive, retroactive = r.flag("flags"), r.flag("flags"), r.flag("flags")
    priority = r.u8("priority")
    r.objects("path of brokers")
    r.nested("predicate")
    return ConsumerInfo(
        consumer, browses, destination if isinstance(destination, Destination) else None, prefetch, selector, name,
        no_local, exclusive, retroactive, priority - 256 if priority > 127 else priority,
    )  # fmt: skip


def _producer_info(r: FrameReader) -> ProducerInfo:
    producer, destination = _need(r.cached("producer"), ProducerId, "id of its producer"), r.cached("destination")
    r.objects("path of brokers")
    r.flag("flags")
    return ProducerInfo(producer, destination if isinstance(destination, Destination) else None, r.i32("window"))


def _transaction_info(r: FrameReader) -> TransactionInfo:
    r.cached("connection")
    return TransactionInfo(r.cached("transaction"), r.u8("step"))


def _destination_info(r: FrameReader) -> DestinationInfo:
    r.cached("connection")
    destination = _need(r.cached("destination"), Destination, "destination")
    operation = r.u8("operation")
    if operation not in (ADD, REMOVE):
        raise malformed(f"has the unknown operation {operation}")
    return DestinationInfo(destination, operation == REMOVE)


def _remove_subscription(r: FrameReader) -> RemoveSubscriptionInfo:
    r.cached("connection")
    name = r.text("name of a subscription")
    return RemoveSubscriptionInfo(name or "", r.text("client id") or "")


def _remove_info(r: FrameReader) -> RemoveInfo:
    known = r.cached("object")
    if known is None:
        raise malformed("says not what is removed")
    return RemoveInfo(known, r.i64("number of a message"))


def _consumer_control(r: FrameReader) -> ConsumerControl:
    r.nested("destination")
    r.flag("flags")
    consumer = r.nested("consumer")
    return ConsumerControl(consumer if isinstance(consumer, ConsumerId) else None, r.i32("prefetch"))


def _message_pull(r: FrameReader) -> MessagePull:
    consumer = _need(r.cached("consumer"), ConsumerId, "id of its consumer")
    r.cached("destination")
    return MessagePull(consumer, r.i64("time-out"))


def _message_ack(r: FrameReader) -> MessageAck:
    r.cached("destination")
    transaction = r.cached("transaction")
    consumer = _need(r.cached("consumer"), ConsumerId, "id of its consumer")
    kind = r.u8("type")
    if kind not in _ACK_TYPES:
        raise malformed(f"has the unknown type {kind}")
    first, last = r.nested("first message"), r.nested("last message")
    count, cause = r.i32("number of messages"), ""
    if r.flag("cause"):
        named = r.text("cause")
        cause = r.text("cause") or named or ""
    if transaction is not None and not isinstance(transaction, LocalTransactionId):
        raise malformed("belongs to a distributed transaction, and there are none")
    return MessageAck(
        transaction, consumer, kind, first.delivery if isinstance(first, MessageId) else 0,
        last.delivery if isinstance(last, MessageId) else 0, max(0, count), cause,
    )  # fmt: skip


READERS = {
    Type.CONNECTION_INFO: _connection_info,
    Type.SESSION_INFO: _session_info,
    Type.CONSUMER_INFO: _consumer_info,
    Type.PRODUCER_INFO: _producer_info,
    Type.TRANSACTION_INFO: _transaction_info,
    Type.DESTINATION_INFO: _destination_info,
    Type.REMOVE_SUBSCRIPTION_INFO: _remove_subscription,
    Type.KEEP_ALIVE_INFO: lambda _: KeepAliveInfo(),
    Type.SHUTDOWN_INFO: lambda _: ShutdownInfo(),
    Type.CONTROL_COMMAND: lambda _: Notice(),
    Type.FLUSH_COMMAND: lambda _: Notice(),
    Type.CONNECTION_CONTROL: lambda _: Notice(),
    Type.REMOVE_INFO: _remove_info,
    Type.CONSUMER_CONTROL: _consumer_control,
    Type.MESSAGE_PULL: _message_pull,
    Type.MESSAGE_ACK: _message_ack,
}
"""By the type of the frame; each reads what stands after the command's number and whether it wants a response."""
