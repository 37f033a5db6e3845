"""Advisories, by the names that ActiveMQ gives them.

Those of temporary destinations are records on two topics, which clients of JMS get with an object in them. Those of
slow consumers, fast producers and discarded messages are the broker's own advisories, on ``$SYS/headway/…``: a consumer
of ActiveMQ's topic is a subscriber of these, and sees each as a message on that topic.
"""

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
