"""Commands of the broker, as bytes. Deliveries are written by the dialect and the envelope."""

from __future__ import annotations

from headway.wire.openwire.codes import MAGIC, VERSION_MAX, Form, Type
from headway.wire.openwire.maps import TYPES, write_headers
from headway.wire.openwire.marshalling import (
    CACHE_OBJECTS,
    BrokerId,
    ConsumerId,
    ProducerId,
    write_cached,
    write_object,
)
from headway.wire.openwire.primitives import ABSENT, i32, i64, optional_binary, optional_text

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
