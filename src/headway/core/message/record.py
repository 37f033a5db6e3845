"""Records, runs of records, and the dialects they are written in.

Theory of operation. A publisher's bytes are not taken apart into one object per message. The codec scans what one
``recv`` brought and groups neighbouring messages of one topic into a :class:`Run`: one buffer, and two lists of
positions. Everything after that (matching, sequencing, appending, counting) happens once per run. A :class:`Record`
object is made only where one message is wanted by itself: retained, kept as state, a will, looked at by a selector.

Invariants:
- Records and runs are immutable once published.
- ``ends`` ascends and its last value is ``len(data)``; record *i* is ``data[ends[i-1]:ends[i]]`` (from 0 for the
  first), and its payload is ``data[bodies[i]:ends[i]]``.
- Where all records are of one size, ``ends`` may be a range with that size as its step.
- All records of a run share topic, publisher, QoS, retain flag, properties and expiry.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import msgspec

PROPERTIES_BYTES = 200
PAIR_BYTES = 150
"""What a user property takes up beside its letters, as two strings in a tuple."""
SCAN_MAX = 256
"""Who looks for records among others looks at so many in one step, and says when it has found none of them."""


class Properties(msgspec.Struct, frozen=True, gc=False):
    """What a publisher said about a message besides topic and payload; passed on unaltered."""

    payload_format: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user: tuple[tuple[str, str], ...] = ()
    native: bytes | None = None
    """All of them as the publisher wrote them, for consumers that speak its protocol; None: there is no more to know.
    """

    def user_value(self, name: str) -> str | None:
        """The first user property called ``name``."""
        for key, value in self.user:
            if key == name:
                return value
        return None

    @property
    def size(self) -> int:
        """About so many bytes; 0 of none."""
        if self is NO_PROPERTIES:
            return 0
        texts = (self.content_type, self.response_topic, self.correlation_data, self.native)
        user = sum(PAIR_BYTES + len(name) + len(value) for name, value in self.user)
        return PROPERTIES_BYTES + sum(len(text) for text in texts if text is not None) + user


NO_PROPERTIES = Properties()


TOPICS = "amq.topic"
"""The exchange that is the topics themselves."""
_SWAP = str.maketrans("./", "/.")


def topic_of(routing_key: str) -> str:
    """The topic that a routing key stands for. The separators are exchanged for each other, so nothing is lost."""
    return routing_key.translate(_SWAP)


def routing_key_of(topic: str) -> str:
    """The routing key that a topic stands for."""
    return topic.translate(_SWAP)


class Record(msgspec.Struct, frozen=True):
    """One immutable message. Times are seconds on the broker's monotonic clock."""

    topic: str
    """Its routing key, where it came by an exchange (``topic_of``)."""
    payload: bytes
    properties: Properties = NO_PROPERTIES
    qos: int = 0
    retain: bool = False
    sequence: int = 0
    time_s: float = 0.0
    expires_s: float | None = None
    publisher: int = 0
    exchange: str = TOPICS

    @property
    def size(self) -> int:
        """What of it takes up memory, but for the object itself."""
        return len(self.topic) + len(self.payload) + self.properties.size

    def run(self) -> Run:
        """This record as a run of one."""
        return Run(
            self.topic, self.payload, [len(self.payload)], [0], None, self.qos, self.retain, self.properties,
            self.expires_s, self.exchange,
        )


class Durability(IntEnum):
    """What binds the broker to a record that somebody durable has not been given."""

    TRANSIENT = 0
    """Nobody was promised it: it may be given up for want of room, as a gap."""
    ACCEPTED = 1
    """Its publisher is told that it is taken: it stays, in memory or on the spill's disk."""
    JOURNALED = 2
    """It is in the journal, or on its way there."""


TRANSIENT, ACCEPTED, JOURNALED = Durability
"""Looked up for each run."""


class Run:
    """Consecutive records of one topic from one publisher."""

    __slots__ = (
        "bodies", "confirmed", "data", "ends", "exchange", "expires_s", "form", "headers", "journaled", "origin",
        "properties", "publisher", "qos", "retain", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        data: bytes,
        ends: Sequence[int],
        bodies: Sequence[int],
        form: object = None,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
        expires_s: float | None = None,
        exchange: str = TOPICS,
        headers: Mapping[str, object] | None = None,
    ) -> None:
        self.topic = topic
        self.data = data
        self.ends = ends
        self.bodies = bodies
        self.form = form
        """The wire form that ``data`` holds whole frames of (compared with ``Dialect.form``). None: there may be
        anything between the payloads, so only ``bodies`` and ``ends`` say where they are."""
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_s = expires_s
        self.exchange = exchange
        """What it was published to."""
        self.headers = headers
        """Where an exchange may route by them."""
        self.publisher = 0
        self.journaled = False
        """The journal has it, or is given it in this turn."""
        self.confirmed = False
        """Its publisher is told that it is taken, whatever its QoS."""
        self.origin = ""
        """Where it is from, if that says more than who published it; see writers.py."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def durability(self) -> Durability:
        if self.journaled:
            return JOURNALED
        return ACCEPTED if self.qos or self.confirmed else TRANSIENT

    def payload(self, index: int) -> bytes:
        return self.data[self.bodies[index] : self.ends[index]]

    def record(self, index: int, first_sequence: int, now: float) -> Record:
        """Record ``index`` as an object of its own; ``first_sequence`` is that of record 0."""
        return Record(
            self.topic, self.payload(index), self.properties, self.qos, self.retain, first_sequence + index, now,
            self.expires_s, self.publisher, self.exchange,
        )


class EncodedRun(NamedTuple):
    """A run written in a dialect.

    ``holes`` is None when the frames are the same for every consumer; otherwise it has one position per record where
    the consumer's delivery id is written (0: this record carries none). ``expiries`` is None, or the position per
    record of the 4-byte remaining lifetime in seconds.
    """

    data: bytes
    ends: Sequence[int]
    holes: Sequence[int] | None = None
    expiries: Sequence[int] | None = None


class Gap(NamedTuple):
    """Records skipped for one consumer: how many, between which sequences, and why."""

    records: int
    first_sequence: int
    last_sequence: int
    reason: str


class Dialect(Protocol):
    """A wire form in which the bytes for one subscription are the same for every consumer. Hashable, immutable."""

    @property
    def form(self) -> object:
        """Equal to ``Run.form`` when the run's bytes may be appended as received."""

    @property
    def id_bytes(self) -> int:
        """Width of the delivery id that fills a hole, big-endian."""

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        """The run in this dialect."""

    def decode(self, frame: bytes) -> Record:
        """A frame of this dialect back as a record (for selectors and patterns); sequence and times are not in it."""

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:
        """One frame for one consumer: state, retained messages, redelivery. ``delivery_id`` 0 means at most once (QoS
        0).

        ``retain`` is the flag the consumer sees. The remaining lifetime is counted from ``now``. ``gap`` is announced
        on the record where the dialect has room for it."""

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        """``frame`` with the gap announced on it, or None where the dialect has no room for such a thing."""

    def redelivered(self, frame: bytes) -> bytes:
        """``frame`` marked as sent before (MQTT DUP); the delivery id stays where it is."""


class Envelope(Protocol):
    """How deliveries are written for one consumer of a queue, from the bytes of its lane."""

    @property
    def shape(self) -> Hashable:
        """Consumers with equal shapes share what ``cut`` makes."""

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: bool = False) -> Any:
        """Take whole records of a lane apart; ``ends`` says where each ends, counted from the start of ``data``."""

    def write(self, cut: Any, start: int, stop: int, first_id: int) -> bytes:
        """The deliveries of records ``start`` … ``stop - 1`` of the cut, with ids from ``first_id`` on."""

    def ends(self, cut: Any, start: int, stop: int) -> list[int]:
        """Where each of these deliveries ends in what ``write`` returns."""
