"""The form in which consumers of topics get records: MessageDispatch, whole and ready to be sent.

    length | 21 | command | consumer | destination | message: lead, sequence, rest | redelivery counter

A consumer's id is different on each connection, but its *number* is the same for the first consumer of each (and the
second, …), where the client keeps objects (marshalling.py). So a hundred connections with one consumer each are sent
the same bytes. A consumer whose client keeps nothing has a lane of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat
from operator import add
from struct import Struct
from typing import NamedTuple

import msgspec

from headway.core.message import TOLD, TOPICS, EncodedRun, Gap, Properties, Record, Run, routing_key_of, topic_of
from headway.wire.codecs import queue_form
from headway.wire.common import CommonProperties, address_of
from headway.wire.dialect import Numbered, PlainDialect, gap_facts
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.marshalling import (
    ABSENT,
    Destination,
    FrameReader,
    MessageId,
    ObjectCache,
    ProducerId,
    i32,
    i64,
    write_cached,
)
from headway.wire.openwire.messages import (
    OWN_ID,
    RECENT,
    WrittenStem,
    read_message,
    stem_of,
    write_bodies,
    write_message,
)
from headway.wire.openwire.replies import FOLLOWED, write_structure

OWN_PRODUCER = ProducerId(OWN_ID, 0, 0)
OFFSET = "x-headway-offset"
RETAINED = "ActiveMQ.Retained"
_HEAD = bytes((Type.MESSAGE_DISPATCH,)) + b"\0\0\0\0\0"
_BODY_BYTES_MAX = 2**31 - 1
_TWO_NUMBERS = Struct(">qq")


class _Parts(NamedTuple):
    """A frame of the dialect, taken apart."""

    destination: Destination
    common: CommonProperties
    payload: bytes
    sequence: int


class OpenWireDialect(PlainDialect, frozen=True):
    """``consumer``: the consumer's id, or its number, as it is written. ``wire``: the connection's form."""

    consumer: bytes
    wire: Form = Form()
    offsets: bool = False
    shown_as: str = ""
    """The topic that all records seem to be of; empty: each is of its own."""

    @property
    def reads_own(self) -> bool:
        return True

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        own, known = run.own, None
        if isinstance(own, Numbered):
            known = own
        elif run.properties.native is not None and (found := RECENT.numbered(run.properties.native)) is not None:
            known = Numbered(found[0], found[1:2], found[2:])
        if known is not None and (encoded := self._encode_numbered(run, known, first_sequence)) is not None:
            return encoded
        common, destination = common_of(run), destination_of(run)
        sequences = range(first_sequence, first_sequence + len(run)) if first_sequence else repeat(0, len(run))
        frames = []
        for index, sequence in enumerate(sequences):
            if own is not None:
                common = common_of(run.record(index, 0, 0.0))
            frames.append(self._frame(destination, common, run.properties, run.payload(index), sequence))
        return EncodedRun.of(frames)

    def _encode_numbered(self, run: Run, own: Numbered, first_sequence: int) -> EncodedRun | None:
        """Encodes messages of a numbering. None: there is more that differs. What is the same for all consumers is
        written once, for all lanes: those without a cache have a lane each."""
        destination = Destination(Type.TOPIC, self.shown_as) if self.shown_as else destination_of(run)
        if self.offsets or destination.name in FOLLOWED:
            return None
        stem = stem_of(own.numbering, destination, self.wire)
        key = (self.wire, destination, first_sequence)
        if key not in own.written:
            own.written[key] = None
            if stem is not None and not _is_told(run.properties):
                own.written[key] = _rests_of(stem, run, own, first_sequence)
        rests: Sequence[bytes] | None = own.written[key]
        if rests is None or stem is None:
            return None
        opening, count, size = b"".join((_HEAD, self.consumer, stem.lead)), len(rests), len(rests[0])
        sizes = list(map(len, rests))
        if sizes.count(size) == count:
            whole = 4 + len(opening) + size
            frames = (i32(whole - 4) + opening).join((b"", *rests))
            return EncodedRun(frames, range(whole, count * whole + 1, whole))
        parts = [opening] * (3 * count)
        parts[::3] = [i32(len(opening) + size) for size in sizes]
        parts[2::3] = rests
        return EncodedRun(b"".join(parts), list(accumulate(map(add, sizes, repeat(4 + len(opening))))))

    def _frame(
        self, destination: Destination, common: CommonProperties, properties: Properties, payload: bytes,
        sequence: int, told: Mapping[str, object] | None = None, again: int = 0,
    ) -> bytes:  # fmt: skip
        if self.shown_as:
            destination = Destination(Type.TOPIC, self.shown_as)
        if self.offsets and sequence:
            told = {OFFSET: sequence, **(told or {})}
        if _is_told(properties):  # else they are among the headers
            said = {name: text for name, text in properties.user if name.startswith(TOLD)}
            told = {**said, **(told or {})} if said else told
        if told:
            common = msgspec.structs.replace(common, headers={**common.headers, **told})
        own_id, structure = MessageId(None, OWN_PRODUCER, sequence), ABSENT
        if destination.name in FOLLOWED and destination.kind is Type.TOPIC:
            structure = write_structure(payload, self.wire)
        lead, rest = write_message(destination, common, properties, payload, own_id, self.wire, structure)
        body = b"".join((
            _HEAD, self.consumer, write_cached(destination, self.wire), lead, i64(sequence), rest, i32(again),
        ))  # fmt: skip
        return i32(len(body)) + body

    def decode(self, frame: bytes) -> Record:
        destination, common, payload, _ = self._parts(frame)
        properties = queue_form().write_common(common)
        topic, exchange = topic_of(destination.name), TOPICS if destination.is_topic else ""
        return Record(topic, payload, properties, int(common.persistent), exchange=exchange)

    def _parts(self, frame: bytes) -> _Parts:
        cache = ObjectCache() if self.wire.cached else None
        r = FrameReader(frame, 4 + len(_HEAD) + len(self.consumer), len(frame), self.wire.version, cache)
        r.cached("destination")
        r.u8("message")
        kind = r.u8("message")
        r.take(5, "message")
        message = read_message(r, kind, _BODY_BYTES_MAX)
        common, sequence = message.common, 0 if message.id is None else message.id.delivery
        if message.id is not None and message.id.text is None and message.id.producer == OWN_PRODUCER:
            common = msgspec.structs.replace(common, message_id=None)
        told = {name for name in common.headers if name in (OFFSET, RETAINED)}
        if told:
            left = {name: value for name, value in common.headers.items() if name not in told}
            common = msgspec.structs.replace(common, headers=left)
        return _Parts(message.destination, common, message.payload, sequence)

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:  # fmt: skip
        told: dict[str, object] = {RETAINED: True} if retain else {}
        if gap is not None:
            told |= gap_facts("x-headway-", gap)
        return self._frame(
            destination_of(record), common_of(record), record.properties, record.payload, record.sequence, told,
            int(redelivered),
        )

    def with_gap(self, frame: bytes, gap: Gap) -> bytes:
        destination, common, payload, sequence = self._parts(frame)
        properties = queue_form().write_common(common)
        return self._frame(destination, common, properties, payload, sequence, gap_facts("x-headway-", gap))

    def redelivered(self, frame: bytes) -> bytes:
        return frame[:-4] + i32(1)


def _rests_of(stem: WrittenStem, run: Run, own: Numbered, first_sequence: int) -> Sequence[bytes] | None:
    """Writes messages of a numbering from their numbers on. None: a body is not of the type that they have."""
    data, count = run.data, len(run.ends)
    bodies = write_bodies(stem.kind, [data[body:end] for body, end in zip(run.bodies, run.ends, strict=True)])
    if bodies is None:
        return None
    times = {time_ms: stem.before_time + i64(time_ms) + stem.behind_time for time_ms in set(own.times_ms)}
    sizes = {size: i32(size) for size in set(map(len, bodies))}
    numbers = range(first_sequence, first_sequence + count) if first_sequence else repeat(0, count)
    end = stem.behind_body + b"\0\0\0\0"
    return [
        b"".join((both, times[time_ms], sizes[len(body)], body, end))
        for both, time_ms, body in zip(map(_TWO_NUMBERS.pack, own.numbers, numbers), own.times_ms, bodies, strict=True)
    ]


def _is_told(properties: Properties) -> bool:
    """Tells whether the broker may have said something of a record that is not among its headers."""
    return properties.native is not None and any(name.startswith(TOLD) for name, _ in properties.user)


def common_of(record: Run | Record) -> CommonProperties:
    """Returns what a record says of itself. Some protocols tell only by its QoS that it is to be kept."""
    common = RECENT.of(record.properties)
    return common if common.persistent or not record.qos else msgspec.structs.replace(common, persistent=True)


def destination_of(record: Run | Record) -> Destination:
    """Returns what JMS's consumers see as the destination; that of an exchange of AMQP is a topic of its key."""
    address = address_of(record)
    if address is None or address.is_topic:
        return Destination(Type.TOPIC, routing_key_of(record.topic))
    return Destination(Type.QUEUE, address.name)
