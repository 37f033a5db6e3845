"""Commands of the broker, as bytes. Deliveries are written by the dialect and the envelope."""

from __future__ import annotations

import msgspec

from headway.core.base import ProtocolError
from headway.core.message import Properties, Record, topic_of
from headway.wire.openwire.codes import MAGIC, VERSION_MAX, Form, Type
from headway.wire.openwire.maps import TYPES, write_headers
from headway.wire.openwire.marshalling import (
    ABSENT,
    CACHE_OBJECTS,
    BrokerId,
    ConnectionId,
    ConsumerId,
    Destination,
    ProducerId,
    i32,
    i64,
    optional_binary,
    optional_text,
    write_cached,
    write_object,
)

# -- replies -----------------------------------------------------------------------------------------------------------


JMS_ERROR = "javax.jms.JMSException"
SECURITY_ERROR = "javax.jms.JMSSecurityException"
CLIENT_ID_ERROR = "javax.jms.InvalidClientIDException"
DESTINATION_ERROR = "javax.jms.InvalidDestinationException"
SELECTOR_ERROR = "javax.jms.InvalidSelectorException"
FULL_ERROR = "javax.jms.ResourceAllocationException"
STATE_ERROR = "javax.jms.IllegalStateException"
ROLLED_BACK = "javax.jms.TransactionRolledBackException"


def frame(kind: int, *fields: bytes) -> bytes:
    """Returns a command that wants no response."""
    body = b"".join((bytes((kind,)), b"\0\0\0\0\0", *fields))
    return i32(len(body)) + body


def write_wire_format(form: Form, idle_ms: int, frame_bytes_max: int) -> bytes:
    known: dict[str, object] = {
        "CacheEnabled": True, "CacheSize": CACHE_OBJECTS, "TightEncodingEnabled": False, "SizePrefixDisabled": False,
        "StackTraceEnabled": False, "TcpNoDelayEnabled": True,
    }  # fmt: skip
    longs = {
        "MaxInactivityDuration": idle_ms, "MaxInactivityDurationInitalDelay": 10_000, "MaxFrameSize": frame_bytes_max,
    }  # fmt: skip
    known[TYPES] = " ".join(f"l{name}" for name in longs)
    body = b"".join((
        bytes((Type.WIRE_FORMAT_INFO,)), MAGIC, i32(min(form.version, VERSION_MAX)),
        optional_binary(write_headers({**known, **longs})),
    ))  # fmt: skip
    return i32(len(body)) + body


def write_broker_info(name: str, url: str, form: Form) -> bytes:
    return frame(
        Type.BROKER_INFO, write_cached(BrokerId(f"ID:{name}"), form), optional_text(url), ABSENT, optional_text(name),
        b"\0\0\0\0\0", i64(0), ABSENT, ABSENT,
    )  # fmt: skip


def write_response(number: int) -> bytes:
    return frame(Type.RESPONSE, i32(number))


def write_nothing_found(number: int) -> bytes:
    """A response with an empty list in it."""
    return frame(Type.DATA_ARRAY_RESPONSE, i32(number), b"\1\0\0")


def write_refusal(number: int, kind: str, text: str) -> bytes:
    """A response that the client throws: an exception of this Java class."""
    return frame(Type.EXCEPTION_RESPONSE, i32(number), _throwable(kind, text))


def write_error(kind: str, text: str) -> bytes:
    """An error that the connection's ExceptionListener is told."""
    return frame(Type.CONNECTION_ERROR, _throwable(kind, text), ABSENT)


def _throwable(kind: str, text: str) -> bytes:
    return b"\1" + optional_text(kind) + optional_text(text)


def write_close_consumer(consumer: ConsumerId) -> bytes:
    """Asks the client to close a consumer."""
    return frame(Type.CONSUMER_CONTROL, ABSENT, b"\1", write_object(consumer), i32(0), b"\0\0\0")


def write_producer_ack(producer: ProducerId, size: int) -> bytes:
    """Says that the broker has taken so many bytes of a producer."""
    return frame(Type.PRODUCER_ACK, write_object(producer), i32(size))


def write_nothing(consumer: bytes, form: Form) -> bytes:
    """A delivery without a message: nothing has come in time, or a browser has seen all there is."""
    return frame(Type.MESSAGE_DISPATCH, consumer, write_cached(None, form), ABSENT, i32(0))


KEEP_ALIVE = frame(Type.KEEP_ALIVE_INFO)


def write_numbering(consumer: bytes) -> bytes:
    """A command that says nothing to a client but the number of a consumer's id (marshalling.py)."""
    return frame(Type.REMOVE_INFO, consumer, i64(0))


# -- advisory ----------------------------------------------------------------------------------------------------------
#
# Advisories, by the names that ActiveMQ gives them.
#
# Those of temporary destinations are records on two topics, which clients of JMS get with an object in them. Those of
# slow consumers, fast producers and discarded messages are the broker's own advisories, on ``$SYS/headway/…``: a
# consumer of ActiveMQ's topic is a subscriber of these, and sees each as a message on that topic.


TEMPORARY_QUEUES, TEMPORARY_TOPICS = "ActiveMQ.Advisory.TempQueue", "ActiveMQ.Advisory.TempTopic"
_JSON = Properties(payload_format=1, content_type="application/json")
FOLLOWED = frozenset({TEMPORARY_QUEUES, TEMPORARY_TOPICS})


KINDS = {"SlowConsumer": "slow", "FastProducer": "fast_producer", "MessageDiscarded": "gap"}
"""The broker's own kinds of advisories, by ActiveMQ's names."""
PREFIX = "ActiveMQ.Advisory."


def own_filter(name: str) -> tuple[str, str] | None:
    """Returns the filter of the broker's advisories that are meant by a topic's name, and the names of the destinations
    that they are to be about (``>``: any); None: it is the name of no such topic."""
    kind, _, about = name.removeprefix(PREFIX).partition(".")
    if not name.startswith(PREFIX) or kind not in KINDS:
        return None
    about = about.removeprefix("Topic.").removeprefix("Queue.")
    return f"$SYS/headway/{KINDS[kind]}/+", ">" if about in ("", ">", "Topic", "Queue") else about


class _Change(msgspec.Struct):
    kind: int
    name: str
    removed: bool = False


def advisory_topic(destination: Destination) -> str:
    return TEMPORARY_TOPICS if destination.is_topic else TEMPORARY_QUEUES


def advisory_of(destination: Destination, *, removed: bool) -> Record:
    payload = msgspec.json.encode(_Change(int(destination.kind), destination.name, removed))
    return Record(topic_of(advisory_topic(destination)), payload, _JSON)


def write_structure(payload: bytes, form: Form) -> bytes:
    """Writes the object that says which destination was made, or has ended; nothing for what says no such thing."""
    try:
        change = msgspec.json.decode(payload, type=_Change)
        destination = Destination(Type(change.kind), change.name)
    except (msgspec.DecodeError, ValueError, ProtocolError):
        return ABSENT
    connection = ConnectionId(change.name.rpartition(":")[0])
    return b"".join((
        bytes((1, Type.DESTINATION_INFO)), b"\0\0\0\0\0", write_cached(connection, form),
        write_cached(destination, form), b"\1" if change.removed else b"\0", i64(0), ABSENT,
    ))  # fmt: skip
