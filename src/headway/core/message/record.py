"""Records, runs of records, and the dialects they are written in.

Theory of operation. A publisher's bytes do not become one object per message. The codec scans the bytes of one ``recv``
and groups neighbouring messages of one topic into a :class:`Run`: one buffer, and two lists of positions. All further
work (matching, sequencing, appending, counting) is done once per run. A :class:`Record` object is made only where a
single message is needed: for a retained message, a state's entry, a will, or a selector.

Invariants:
- Records and runs are immutable once published.
- ``ends`` ascends and its last value is ``len(data)``; record *i* is ``data[ends[i-1]:ends[i]]`` (from 0 for the
  first), and its payload is ``data[bodies[i]:ends[i]]``.
- Where all records are of one size, ``ends`` may be a range with that size as its step.
- All records of a run share topic, publisher, QoS, retain flag, properties and expiry. Where a publisher numbers its
  messages, the records have properties of their own (``Run.own``), which differ in the number and the time only; then
  ``properties`` are those of the first, and as good as any for all but whoever writes records for consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate, chain
from math import ceil, inf
from operator import eq
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from headway.core.base import ConfigError, parse_duration

# -- record ------------------------------------------------------------------------------------------------------------


TEXT_BYTES_MAX = 65_535
"""The bytes of a text that every protocol can carry: MQTT's strings have a length of two bytes."""
PROPERTIES_BYTES = 200
PAIR_BYTES = 180
"""Memory of a user property besides its characters: a tuple and two strings."""
SCAN_MAX = 256
"""Entries that a search examines in one step; it yields None after a step that found nothing."""
SCAN_BYTES = 256 * 1024
"""The bytes of records at which such a step ends earlier: to select a record may be to decode all of its payload."""


class Said(Protocol):
    """The properties of a message in any protocol: ``CommonProperties`` (wire/common.py), as selectors read them."""

    @property
    def message_id(self) -> str | None: ...
    @property
    def timestamp_ms(self) -> int | None: ...
    @property
    def expiration_ms(self) -> int | None: ...
    @property
    def correlation_id(self) -> str | None: ...
    @property
    def type(self) -> str | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def user_id(self) -> str | None: ...
    @property
    def app_id(self) -> str | None: ...
    @property
    def persistent(self) -> bool: ...
    @property
    def headers(self) -> Mapping[str, object]: ...
    @property
    def reply_to(self) -> tuple[str, bool] | None:
        """The address of replies, and whether it is a topic."""


class Properties(msgspec.Struct, frozen=True, gc=False):
    """Properties that the publisher set on a message; consumers get them unaltered."""

    payload_format: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user: tuple[tuple[str, str], ...] = ()
    native: bytes | None = None
    """All properties as the publisher wrote them, for consumers of its protocol; None: the other fields have them
    all."""
    lifetime_ms: int | None = None
    """The lifetime that the publisher gave, where ``native`` does not say it."""
    moves: int = 0
    """How many queues in a row passed the record on as a dead letter, with no client having sent or rejected it in
    between. The broker alone sets it: what clients say of a record's past (``x-death``) is in ``native``."""

    def user_value(self, name: str) -> str | None:
        """Returns the value of the first user property with this name."""
        for key, value in self.user:
            if key == name:
                return value
        return None

    def check(self) -> None:
        """Raises ValueError for what some protocol cannot carry."""
        for text in (self.content_type, self.response_topic, *chain.from_iterable(self.user)):
            if text is not None and ("\0" in text or len(text.encode()) > TEXT_BYTES_MAX):
                raise ValueError(f"a text in the properties has a NUL, or more than {TEXT_BYTES_MAX} bytes")
        if len(self.correlation_data or b"") > TEXT_BYTES_MAX:
            raise ValueError(f"the correlation data has more than {TEXT_BYTES_MAX} bytes")

    @property
    def said(self) -> Said:
        """The properties of the message, those that stand in ``native`` too, with the types that its protocol has."""
        return _read_said(self)

    @property
    def headers(self) -> Mapping[str, object]:
        """The user properties with the types that their protocol has; empty where it has none."""
        return _read_headers(self.native) if self.native is not None else {}

    @property
    def size(self) -> int:
        """Approximate memory in bytes; 0 without properties."""
        if self is NO_PROPERTIES:
            return 0
        texts = (self.content_type, self.response_topic, self.correlation_data, self.native)
        user = sum(PAIR_BYTES + text_bytes(name) + text_bytes(value) for name, value in self.user)
        return PROPERTIES_BYTES + sum(text_bytes(text) for text in texts if text is not None) + user


def text_bytes(text: str | bytes) -> int:
    """Returns the memory of a text's characters: one that is not ASCII makes all others larger, up to four bytes. It is
    that of a copy, because Python keeps a text's UTF-8 beside it once that was asked for, and counts it."""
    return len(text) if text.isascii() or isinstance(text, bytes) else (text + " ").__sizeof__()


NO_PROPERTIES = Properties()
_read_said: Callable[[Properties], Said]
_read_headers: Callable[[bytes], Mapping[str, object]]


def read_said_with(said: Callable[[Properties], Said], headers: Callable[[bytes], Mapping[str, object]]) -> None:
    """Has properties read by the codec whose bytes ``native`` is. It says so when it is loaded, for the core knows no
    codec."""
    global _read_said, _read_headers
    _read_said, _read_headers = said, headers


TOPICS = "amq.topic"
"""The exchange that stands for the topics themselves: its routing keys are topics."""
_SWAP = str.maketrans("./", "/.")


def topic_of(routing_key: str) -> str:
    """Returns the topic of a routing key. "." and "/" are swapped, so the mapping can be undone."""
    return routing_key.translate(_SWAP)


def routing_key_of(topic: str) -> str:
    """Returns the routing key of a topic."""
    return topic.translate(_SWAP)


LIFETIME_MAX_S = 0xFFFF_FFFF
"""The longest lifetime that a frame of MQTT can tell. Other protocols know longer ones."""
TURN_S = 0.1
"""So much less may be told: a turn's clock stands where the turn began, before the record came. A lifetime never grows
(MQTT 5, 3.3.2.3.3)."""


def seconds_left(expires_s: float, now: float) -> int:
    """Returns the remaining lifetime in whole seconds, rounded up; 0: it is over."""
    left = expires_s - now
    return min(max(1, ceil(left - TURN_S)), LIFETIME_MAX_S) if left > 0 else 0


class Record(msgspec.Struct, frozen=True):
    """One immutable message. Times are seconds on the broker's monotonic clock."""

    topic: str
    """Topic; that of the routing key, where the record was published to an exchange (``topic_of``)."""
    payload: bytes
    properties: Properties = NO_PROPERTIES
    qos: int = 0
    retain: bool = False
    sequence: int = 0
    time_s: float = 0.0
    expires_s: float = inf
    publisher: int = 0
    exchange: str = TOPICS

    @property
    def size(self) -> int:
        """Memory in bytes, without the object itself."""
        return text_bytes(self.topic) + len(self.payload) + self.properties.size

    def run(self) -> Run:
        """This record as a run of one."""
        return Run(
            self.topic, self.payload, [len(self.payload)], [0], None, self.qos, self.retain, self.properties,
            self.expires_s, self.exchange,
        )


class Durability(IntEnum):
    """The broker's promise for a record, until all durable consumers have it."""

    TRANSIENT = 0
    """Not confirmed to its publisher: it may be dropped to make room, and is then counted in a gap."""
    ACCEPTED = 1
    """Confirmed to its publisher: it stays, in memory or on the spill disk."""
    JOURNALED = 2
    """Written to the journal, or about to be."""


TRANSIENT, ACCEPTED, JOURNALED = Durability
"""Globals, because they are looked up for each run."""


class OwnProperties(Protocol):
    """The properties of each record of a run, where they differ."""

    def of(self, index: int) -> Properties:
        """Returns those of one record."""

    def natives(self) -> Sequence[bytes]:
        """Returns those of all records as queues keep them (``Properties.native``)."""

    def part(self, start: int, stop: int) -> OwnProperties:
        """Returns those of records ``start`` … ``stop - 1``."""


class Run:
    """Consecutive records of one topic from one publisher."""

    __slots__ = (
        "bodies", "confirmed", "data", "ends", "exchange", "expires_s", "form", "headers", "journaled", "origin",
        "own", "properties", "publisher", "qos", "receipt", "retain", "topic",
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
        expires_s: float = inf,
        exchange: str = TOPICS,
        headers: Mapping[str, object] | None = None,
    ) -> None:
        self.topic = topic
        self.data = data
        self.ends = ends
        self.bodies = bodies
        self.form = form
        """Wire form of the whole frames in ``data``, to be compared with ``Dialect.form``. None: other bytes may stand
        between the payloads, so only ``bodies`` and ``ends`` locate them."""
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_s = expires_s
        self.exchange = exchange
        """Exchange that the run was published to."""
        self.headers = headers
        """Headers that an exchange may route by."""
        self.own: OwnProperties | None = None
        """The properties of each record, where they differ."""
        self.publisher = 0
        self.journaled = False
        """Set if the run is in the journal, or will be with this turn's commit."""
        self.confirmed = False
        """Set if the publisher gets a confirm even at QoS 0."""
        self.origin = ""
        """The writer, batch and row that the run comes from (writers.py); empty if it has no writer."""
        self.receipt: ReceiptRequest | None = None
        """The publisher's request for a receipt. Such a run has one record."""

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
        """Returns record ``index`` as an object; ``first_sequence`` is the sequence of record 0."""
        properties = self.properties if self.own is None else self.own.of(index)
        return Record(
            self.topic, self.payload(index), properties, self.qos, self.retain, first_sequence + index, now,
            self.expires_s, self.publisher, self.exchange,
        )


class EncodedRun(NamedTuple):
    """A run written in a dialect.

    ``holes`` is empty when the frames are the same for every consumer. Otherwise it has, for each record, the position
    of the consumer's delivery id (0: the record carries none). ``expiries`` is empty, or has for each record the
    position of the remaining lifetime: 4 bytes, in seconds.
    """

    data: bytes
    ends: Sequence[int]
    holes: Sequence[int] = ()
    expiries: Sequence[int] = ()

    @classmethod
    def of(cls, frames: Sequence[bytes]) -> Self:
        """Joins the frames of the records, which are the same for every consumer."""
        return cls(b"".join(frames), list(accumulate(map(len, frames))))


class Gap(NamedTuple):
    """Records skipped for one consumer: how many, between which sequences, and why."""

    records: int
    first_sequence: int
    last_sequence: int
    reason: str


class Dialect(Protocol):
    """A wire form whose bytes are the same for every consumer of a subscription. Hashable, immutable."""

    @property
    def form(self) -> object:
        """Equal to ``Run.form`` when the run's bytes may be appended as received."""

    @property
    def id_bytes(self) -> int:
        """Width of a hole's delivery id, which is big-endian."""

    @property
    def bare(self) -> bool:
        """Records in this form go into an envelope for each consumer; they cannot be sent as they are."""

    @property
    def reads_own(self) -> bool:
        """Whether ``encode`` takes runs whose records have properties of their own."""

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        """Encodes a run in this dialect."""

    def decode(self, frame: bytes) -> Record:
        """Decodes a frame of this dialect to a record, for selectors and patterns; without sequence and times."""

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:
        """Encodes one frame for one consumer: of a state, a retained message, or a redelivery.

        ``delivery_id`` 0 means at most once (QoS 0). ``retain`` is the flag that the consumer sees. The remaining
        lifetime is counted from ``now``. ``gap`` is announced on the record if the dialect has room for it."""

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        """Returns ``frame`` with the gap announced on it; None if the dialect cannot announce gaps."""

    def redelivered(self, frame: bytes) -> bytes:
        """Returns ``frame`` marked as sent before (MQTT DUP); the delivery id stays where it is."""

    def writes_as(self, other: Dialect, first: int) -> bool:
        """Tells whether another dialect would write a record as this one has, but for the delivery id. ``first``: the
        first byte of its frame."""


class Envelope(Protocol):
    """Writes the deliveries for one consumer, from the bytes of a lane whose dialect is ``bare``."""

    @property
    def shape(self) -> Hashable:
        """Consumers with equal shapes share the result of ``cut``."""

    @property
    def rewritten(self) -> int:
        """How many records ``cut`` had to read, and to write anew, so far."""

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: int = 0) -> Any:
        """Splits whole records of a lane; ``ends`` has the end of each, counted from the start of ``data``.
        ``redelivered``: how often they were handed out before."""

    def opening(self, cut: Any) -> Any:
        """Returns the cut of one record, as the first of its message group that the consumer gets."""

    def write(self, cut: Any, start: int, stop: int, first_id: int) -> bytes:
        """Returns the deliveries of records ``start`` … ``stop - 1`` of the cut, with ids from ``first_id`` on."""

    def ends(self, cut: Any, start: int, stop: int) -> list[int]:
        """Returns the end of each delivery in the bytes that ``write`` returns."""


# -- receipt request ---------------------------------------------------------------------------------------------------
#
# A receipt request: a publisher asks what became of one record. Each protocol has its own way to carry the request.
#
# A request that cannot be understood has a ``fault``. The record is published all the same, and the publisher is told
# the fault instead of the figures.


DEFAULT_WAIT_S = 30.0
WAIT_MAX_S = 3600.0
"""The longest time; a request for more gets this."""
_PLAIN = {"", "true", "yes", "on"}
_TAKES = "it takes a duration such as 30s, or true"


class ReceiptRequest(msgspec.Struct, frozen=True):
    wait_s: float = DEFAULT_WAIT_S
    """The receipt is given after this time, even if consumers have not settled the record by then."""
    reply_to: str = ""
    """The topic of the receipt; empty: the receipt is an advisory."""
    exchange: str | None = None
    """The exchange that the receipt is published to, under the routing key of ``reply_to``; None: to the topic."""
    correlation: bytes | None = None
    """Sent back with the receipt."""
    fault: str = ""

    @property
    def size(self) -> int:
        """Memory in bytes, without the object itself."""
        return len(self.reply_to) + len(self.correlation or b"") + len(self.fault)


def receipt_request(
    value: object, *, reply_to: str = "", exchange: str | None = None, correlation: bytes | None = None
) -> ReceiptRequest:
    """Returns the request that a property with this value makes."""
    wait_s, fault = DEFAULT_WAIT_S, ""
    if isinstance(value, str) and value.strip().lower() not in _PLAIN:
        try:
            wait_s = min(parse_duration(value), WAIT_MAX_S)
            if not wait_s:
                fault = f"receipt={value[:40]!r}: a receipt needs some time; {_TAKES}"
        except ConfigError as error:
            fault = f"receipt={value[:40]!r}: {error}; {_TAKES}"
    elif not isinstance(value, str) and value is not True:
        fault = f"receipt is of the type {type(value).__name__}; {_TAKES}, as text"
    if exchange is None and reply_to.startswith("$"):
        reply_to, fault = "", "topics that start with $ are the broker's own, so no receipt can be sent there"
    return ReceiptRequest(wait_s, reply_to, exchange, correlation, fault)


# -- trace context -----------------------------------------------------------------------------------------------------
#
# Trace context: a record says which trace it belongs to, by the property ``traceparent`` (W3C Trace Context).
#
# The broker reads it, and never writes it: consumers get it as it came.


TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
STATE_CHARS_MAX = 512
"""A longer ``tracestate`` is not repeated in spans."""
_LENGTH = 55
_FLAGS_AT = 54
"""The digit with the flag *sampled*, its lowest bit."""
_SAMPLED = frozenset("13579bdf")
_HEX = frozenset("0123456789abcdef")


class TraceContext(NamedTuple):
    trace_id: int
    span_id: int
    """The span of the publisher."""
    flags: int
    state: str = ""
    """The ``tracestate`` of the record."""


def sampled_context(run: Run) -> TraceContext | None:
    """Returns the trace context of a run; None if its trace is not sampled, or it has none that can be understood."""
    found = _value(run, TRACEPARENT)
    if found is None or found[_FLAGS_AT : _FLAGS_AT + 1] not in _SAMPLED:
        return None  # the cheapest look comes first: most are not sampled
    context = parse_traceparent(found)
    if context is None:
        return None
    state = _value(run, TRACESTATE)
    return context._replace(state=state) if state and len(state) <= STATE_CHARS_MAX else context


def parse_traceparent(text: str) -> TraceContext | None:
    """Returns None if the text is no trace context. One of a later version is read as far as this version goes."""
    later = text[:2] != "00"
    if len(text) < _LENGTH or (len(text) > _LENGTH and not (later and text[_LENGTH] == "-")):
        return None
    parts = text[:_LENGTH].split("-")
    if [len(part) for part in parts] != [2, 32, 16, 2] or not all(map(_HEX.issuperset, parts)) or parts[0] == "ff":
        return None
    trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    return TraceContext(trace_id, span_id, flags) if trace_id and span_id else None


def _value(run: Run, name: str) -> str | None:
    """Returns the text of a header, or of a user property, of this name."""
    if run.headers:
        value = run.headers.get(name)
        if isinstance(value, bytes):
            return value.decode("ascii", "replace")
        if isinstance(value, str):
            return value
    return run.properties.user_value(name) if run.properties.user else None


# -- deletes -----------------------------------------------------------------------------------------------------------
#
# Deletes: records that take their key out of the state of their topic.
#
# A record is a delete if it says so with the user property ``delete``, or if it has no payload and a key (keys.py). Its
# subscribers are told with marks, which are written before the record goes into the journal and the lanes.


TOLD = "headway-"
"""The names of the broker's own user properties begin so."""
EVENT = "headway-event"
OUT_OF_FOCUS = "out_of_focus"
"""An event: the key of the record does not match any more."""
"""The user property with which the broker tells what a record is, if it is not an ordinary one."""
DELETE = "delete"
_NO = frozenset({"false", "0", "no", "off"})


def says_delete(properties: Properties) -> bool:
    """Tells whether a record with these properties is a delete, with or without a payload."""
    if not properties.user:
        return False
    return properties.user_value(EVENT) == DELETE or says(properties, DELETE)


def says(properties: Properties, name: str) -> bool:
    """Tells whether a user property is there and has any value but ``false``, ``no``, ``off``, ``0``."""
    said = properties.user_value(name)
    return said is not None and said.lower() not in _NO


def is_delete(record: Record, key: str | None) -> bool:
    """Tells whether a record with this key is a delete."""
    return (not record.payload and key is not None) or says_delete(record.properties)


def may_delete(run: Run) -> bool:
    """Tells whether there may be a delete among the records of a run."""
    return any(map(eq, run.bodies, run.ends)) or says_delete(run.properties)


# -- job patience ------------------------------------------------------------------------------------------------------
#
# Job patience: a message says for how long its job may take, whoever gets it from a queue.


JOB_PATIENCE = "x-headway-patience"
"""The name of the header, or of the user property."""
DURATION_CHARS_MAX = 64


def job_patience_s(properties: Properties) -> float:
    """Returns the patience that a message asks for, in seconds; 0 if it asks for none, or not in a way that can be
    understood."""
    value = properties.user_value(JOB_PATIENCE) if properties.user else None
    if value is None or len(value) > DURATION_CHARS_MAX:
        return 0.0
    try:
        return parse_patience(value)
    except ConfigError:
        return 0.0


@lru_cache(256)
def parse_patience(value: str) -> float:
    """Raises ConfigError."""
    return parse_duration(value)


# -- message groups ----------------------------------------------------------------------------------------------------
#
# Message groups: a message says by two properties that it is one of a group, which one consumer of a queue gets.


GROUP = "JMSXGroupID"
"""The name of the property that names the group, in all protocols; those of JMS have it as a field."""
GROUP_SEQUENCE = "JMSXGroupSeq"
"""The name of the property that numbers the messages of a group; a negative number closes the group."""


def group_of(properties: Properties) -> tuple[str, bool]:
    """Returns the group of a message, and whether the message closes it; an empty one: it is in no group."""
    group = properties.user_value(GROUP) if properties.user else None
    if not group:
        return "", False
    return group, (properties.user_value(GROUP_SEQUENCE) or "").startswith("-")
