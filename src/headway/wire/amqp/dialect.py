"""The form in which AMQP's queues keep their records. It is the same for all consumers: no ids, no holes.

    u16 address bytes | address | u32 header bytes | header | body

The address is exchange and routing key, as short strings. The header is a content header: class, weight, size of the
body, properties. Everything before the body is the *lead*; its length depends only on address and properties. The
weight, which AMQP leaves unused, has ``Properties.moves`` here, and a bit for a topic that is too long for a routing
key: the address has its beginning, and a header all of it. Clients are sent the weight 0.

An envelope writes the deliveries for one consumer from it (envelope.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from headway.core.message import TOLD, EncodedRun, Gap, OwnProperties, Properties, Record, Run, routing_key_of, topic_of
from headway.wire.amqp.primitives import SHORT_BYTES_MAX, write_short
from headway.wire.amqp.properties import read, read_lately, with_headers, without_headers, write
from headway.wire.amqp.scan import CONTENT
from headway.wire.dialect import BareDialect, encode_by_size, equal_pieces, gap_facts

HEADER_LEAD_BYTES = len(CONTENT) + 8
"""Size of class, weight and body size, which come before the properties."""
LONG_KEY = 0x8000
"""The bit in the weight for a record whose header ``WHOLE_KEY`` was written by the broker."""
OFFSET = "x-headway-offset"
WHOLE_KEY = "x-headway-routing-key"
"""Header with the routing key of a record whose topic has more bytes than a routing key can have."""
DELIVERY_COUNT = "x-delivery-count"


class Message(NamedTuple):
    """A record of a lane. ``properties``: flags and values."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    moves: int = 0

    def record(self) -> Record:
        raw = self.properties
        facts = read_lately(raw)
        properties = msgspec.structs.replace(facts.properties, moves=self.moves) if self.moves else facts.properties
        return Record(topic_of(self.routing_key), self.body, properties, facts.qos, exchange=self.exchange)


class RecordParts(NamedTuple):
    """The parts of a record, as written."""

    address: bytes
    header: bytes
    body: bytes


def split_record(record: bytes) -> RecordParts:
    address_end = 2 + int.from_bytes(record[:2], "big")
    header_at = address_end + 4
    header_end = header_at + int.from_bytes(record[address_end:header_at], "big")
    return RecordParts(record[2:address_end], record[header_at:header_end], record[header_end:])


def lead_bytes(data: bytes, start: int) -> int:
    """Returns the size of the lead of the record at ``start``."""
    header_at = start + 6 + int.from_bytes(data[start : start + 2], "big")
    return header_at - start + int.from_bytes(data[header_at - 4 : header_at], "big")


def native_at(data: bytes, start: int) -> int:
    """Returns where the properties of the record at ``start`` begin, which end its lead."""
    return start + 6 + int.from_bytes(data[start : start + 2], "big") + HEADER_LEAD_BYTES


def address_in(lead: bytes) -> tuple[str, str]:
    """Returns exchange and topic of the record with this lead."""
    message = read_message(lead)
    return message.exchange, topic_of(message.routing_key)


def read_message(record: bytes) -> Message:
    address, header, body = split_record(record)
    key_at = 1 + address[0]
    exchange, key, properties = address[1:key_at].decode(), address[key_at + 1 :].decode(), header[HEADER_LEAD_BYTES:]
    weight = int.from_bytes(header[2:4], "big")
    if weight & LONG_KEY:
        key, properties = str(read(properties).headers[WHOLE_KEY]), without_headers(properties, {WHOLE_KEY})
    return Message(exchange, key, properties, body, weight & ~LONG_KEY)


def with_delivery_counts(data: bytes, ends: Sequence[int], count: int) -> EncodedRun:
    """Returns records of a lane with a header that says how often they came back."""
    parts: list[bytes] = []
    start = 0
    for end in ends:
        address, header, body = split_record(data[start:end])
        raw = header[HEADER_LEAD_BYTES:]
        raw = with_headers(raw, {**read(raw).headers, DELIVERY_COUNT: count})
        front = len(address).to_bytes(2, "big") + address + (HEADER_LEAD_BYTES + len(raw)).to_bytes(4, "big")
        parts.append(b"".join((front, header[:HEADER_LEAD_BYTES], raw, body)))
        start = end
    return EncodedRun.of(parts)


class Leads:
    """Leads of one address and the same properties, one per size of body."""

    __slots__ = ("_after", "_before")

    def __init__(self, exchange: str, topic: str, properties: bytes, moves: int = 0) -> None:
        key = routing_key_of(topic)
        if is_long(key):
            properties = with_headers(properties, {**read(properties).headers, WHOLE_KEY: key})
            moves |= LONG_KEY
        address = write_address(exchange, key)
        header_bytes = HEADER_LEAD_BYTES + len(properties)
        content = CONTENT[:2] + moves.to_bytes(2, "big") if moves else CONTENT
        self._before = len(address).to_bytes(2, "big") + address + header_bytes.to_bytes(4, "big") + content
        self._after = properties

    def lead(self, body_bytes: int) -> bytes:
        return self._before + body_bytes.to_bytes(8, "big") + self._after


def is_long(key: str) -> bool:
    """Tells whether a key has more bytes than AMQP allows."""
    return len(key) > SHORT_BYTES_MAX // 4 and len(key.encode()) > SHORT_BYTES_MAX


def write_address(exchange: str, key: str) -> bytes:
    """Writes an address. A topic may be longer than a routing key can be; such a key is cut off."""
    raw = key.encode()
    if len(raw) > SHORT_BYTES_MAX:
        raw = raw[:SHORT_BYTES_MAX].decode(errors="ignore").encode()
    return write_short(exchange) + write_short(raw)


def properties_of(properties: Properties, qos: int) -> bytes:
    """Returns the properties as their publisher wrote them; those of other protocols are written anew."""
    return write(properties, qos) if properties.native is None else properties.native


class AmqpDialect(BareDialect, frozen=True):
    """The form of queues, and of consumers of topics (``topics``), whose records say with ``offsets`` at which offset
    they stand. No run arrives in this form, so ``form`` is None."""

    topics: bool = False
    offsets: bool = False

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        if run.own is not None:
            return self._encode_own(run, run.own, first_sequence)
        raw = self._properties_of(run)
        if self.offsets and first_sequence:  # the broker's own marks have none
            return _encode_each(run, raw, first_sequence)
        return encode_by_size(run, Leads(run.exchange, run.topic, raw, run.properties.moves).lead)

    @property
    def reads_own(self) -> bool:
        return not self.offsets

    def _encode_own(self, run: Run, own: OwnProperties, first_sequence: int) -> EncodedRun:
        """Encodes records that have properties of their own."""
        key = routing_key_of(run.topic)
        if is_long(key):
            frames = [self.encode(_alone(run, own, index), first_sequence + index).data for index in range(len(run))]
            return EncodedRun.of([bytes(frame) for frame in frames])
        address = write_address(run.exchange, key)
        told = self._told(run.properties)
        front, natives = len(address).to_bytes(2, "big") + address, own.natives()
        if told:
            natives = [with_headers(native, {**read(native).headers, **told}) for native in natives]
        lead_bytes, bodies = len(front) + 4 + HEADER_LEAD_BYTES, _bodies_of(run)
        sizes = set(map(len, natives)), set(map(len, bodies))
        if all(len(some) == 1 for some in sizes):
            (size,), (body,) = sizes
            parts = [_lead_of_own(front, size, body)] * (3 * len(bodies))
            parts[1::3], parts[2::3] = natives, bodies
            whole = lead_bytes + size + body
            return EncodedRun(b"".join(parts), range(whole, len(bodies) * whole + 1, whole))
        shapes = list(zip(map(len, natives), map(len, bodies), strict=True))
        leads = {(size, body): _lead_of_own(front, size, body) for size, body in set(shapes)}
        parts = [b""] * (3 * len(bodies))
        parts[::3] = map(leads.__getitem__, shapes)
        parts[1::3], parts[2::3] = natives, bodies
        return EncodedRun(b"".join(parts), list(accumulate(lead_bytes + size + body for size, body in shapes)))

    def _properties_of(self, run: Run) -> bytes:
        """Returns the properties. Consumers of topics are told by headers what the broker says of a record (a delete, a
        mark), whoever wrote it."""
        raw, told = properties_of(run.properties, run.qos), self._told(run.properties)
        return with_headers(raw, {**read(raw).headers, **told}) if told else raw

    def _told(self, properties: Properties) -> dict[str, str]:
        """Returns the headers by which consumers of topics are told what the broker says of a record."""
        if not self.topics or properties.native is None or not properties.user:
            return {}
        return {name: text for name, text in properties.user if name.startswith(TOLD)}

    def decode(self, frame: bytes) -> Record:
        """Returns the record with all properties of its publisher except its lifetime."""
        message = read_message(frame)
        if self.offsets:
            message = message._replace(properties=without_headers(message.properties, {OFFSET}))
        return message.record()

    def with_gap(self, frame: bytes, gap: Gap) -> bytes:
        """Adds the gap's four headers."""
        message = read_message(frame)
        headers = {**read(message.properties).headers, **gap_facts("x-headway-", gap)}
        properties = with_headers(message.properties, headers)
        leads = Leads(message.exchange, topic_of(message.routing_key), properties)
        return leads.lead(len(message.body)) + message.body


def _alone(run: Run, own: OwnProperties, index: int) -> Run:
    body = run.payload(index)
    return Run(
        run.topic, body, [len(body)], [0], None, run.qos, run.retain, own.of(index), run.expires_s, run.exchange
    )


def _lead_of_own(front: bytes, size: int, body_bytes: int) -> bytes:
    """Returns what stands before the properties, of this size, and the body. ``front``: the address."""
    return b"".join((front, (HEADER_LEAD_BYTES + size).to_bytes(4, "big"), CONTENT, body_bytes.to_bytes(8, "big")))


def _bodies_of(run: Run) -> Sequence[bytes]:
    data, ends, bodies = run.data, run.ends, run.bodies
    if isinstance(ends, range) and isinstance(bodies, range):
        return equal_pieces(data, bodies[0], ends[0] - bodies[0], ends.step, len(ends))
    return [data[body:end] for body, end in zip(bodies, ends, strict=True)]


def _encode_each(run: Run, raw: bytes, first_sequence: int) -> EncodedRun:
    """Encodes records that have their offsets in their headers, and so leads of their own."""
    headers = read(raw).headers
    parts: list[bytes] = []
    for number in range(len(run)):
        properties = with_headers(raw, {**headers, OFFSET: first_sequence + number})
        body = run.payload(number)
        parts.append(Leads(run.exchange, run.topic, properties).lead(len(body)) + body)
    return EncodedRun.of(parts)
