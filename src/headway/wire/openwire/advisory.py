"""Advisories of temporary destinations: records on two topics, which clients of JMS get with an object in them."""

from __future__ import annotations

import msgspec

from headway.core.base import ProtocolError
from headway.core.message import Properties, Record, topic_of
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.marshalling import ConnectionId, Destination, write_cached
from headway.wire.openwire.primitives import ABSENT, i64

TEMPORARY_QUEUES, TEMPORARY_TOPICS = "ActiveMQ.Advisory.TempQueue", "ActiveMQ.Advisory.TempTopic"
_JSON = Properties(payload_format=1, content_type="application/json")
FOLLOWED = frozenset({TEMPORARY_QUEUES, TEMPORARY_TOPICS})


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
