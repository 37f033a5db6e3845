"""MQTT's wire forms: each encodes records as PUBLISH frames for one kind of subscription.

Rules:
- The QoS of a delivery is the lower of the record's and the subscription's. Only frames of QoS 1 and 2 have a packet
  id, and so a hole. A QoS 0 record on a QoS 1 lane is the same for all consumers.
- Positions (ends, holes, expiries) count from the start of ``EncodedRun.data``. Zeros stand there until they are filled
  in. In a frame the packet id comes before the properties, and an expiry is the first of the properties.
- MQTT 3.1.1 has no properties, so properties, expiry and gaps are left out.
- Topic aliases to clients are not used: with them, the bytes would differ per connection.
- A run whose ``form`` is the dialect's is passed on as received. A dialect that adds an identifier or offset to each
  message has a ``form`` that no run has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from math import inf

from headway.core.message import NO_PROPERTIES, EncodedRun, Gap, Properties, Record, Run, seconds_left
from headway.wire.dialect import PlainDialect, equal_pieces, gap_facts
from headway.wire.mqtt.decoder import FORMS
from headway.wire.mqtt.primitives import MqttReader, read_topic, write_frame, write_text, write_varint
from headway.wire.mqtt.properties import UserProperties, read_properties, write_message, write_user


class MqttDialect(PlainDialect, frozen=True):
    """The wire form of a subscription's messages.

    ``identifier`` is the subscription identifier; ``offsets`` adds each record's sequence as the user property *offset*
    (both version 5 only). Without ``retain_as_published`` the retain flag of live messages is cleared.
    """

    version: int
    qos: int = 0
    identifier: int | None = None
    retain_as_published: bool = False
    offsets: bool = False

    @property
    def form(self) -> object:
        if self.version == 5 and (self.identifier is not None or self.offsets):
            return "mqtt-5 with additions"
        return FORMS[self.version]

    @property
    def id_bytes(self) -> int:
        return 2

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        if run.form is not None and run.form == self.form:
            return EncodedRun(run.data, run.ends)
        qos = min(run.qos, self.qos)
        first = bytes((0x30 | qos << 1 | (run.retain and self.retain_as_published),))
        before = write_text(run.topic) + (b"\0\0" if qos else b"")
        hole_in_lead = len(before) - 2
        if type(run.ends) is range and type(run.bodies) is range and len(run.ends) > 1 and not self.offsets:
            return _alike(run, first, *next(self._leads(run, before, first_sequence)), hole_in_lead if qos else 0)
        data = run.data
        parts: list[bytes] = []
        ends: list[int] = []
        holes: list[int] = []
        expiries: list[int] = []
        at = 0
        last_size, last_lead, header, expiry_in_header = -1, b"", b"", 0
        for end, body, (lead, expiry_in_lead) in zip(
            run.ends, run.bodies, self._leads(run, before, first_sequence), strict=False
        ):
            size = end - body
            if size != last_size or lead is not last_lead:
                start = first + write_varint(len(lead) + size)
                header = start + lead
                hole_in_header = len(start) + hole_in_lead
                expiry_in_header = len(start) + expiry_in_lead
                last_size, last_lead = size, lead
            if qos:
                holes.append(at + hole_in_header)
            if expiry_in_lead:
                expiries.append(at + expiry_in_header)
            parts.append(header)
            parts.append(data[body:end])
            at += len(header) + size
            ends.append(at)
        return EncodedRun(b"".join(parts), ends, holes, expiries)

    def _leads(self, run: Run, before: bytes, first_sequence: int) -> Iterator[tuple[bytes, int]]:
        """Yields, per record, the bytes between fixed header and payload, and the expiry's position in them (0:
        none)."""
        if self.version == 4:
            return repeat((before, 0))
        expires = b"\0\0\0\0" if run.expires_s < inf else None
        block = self._block(run.properties, expires)
        if not self.offsets:
            return repeat(_lead(before, block, expires))
        return (
            _lead(before, block + _offset(sequence), expires)
            for sequence in range(first_sequence, first_sequence + len(run.ends))
        )

    def _block(self, properties: Properties, expires: bytes | None) -> bytes:
        """Returns the properties that are the same for each record of a run."""
        block = write_message(properties)
        if expires is not None:
            block = b"\x02" + expires + block
        if self.identifier is not None:
            block += b"\x0b" + write_varint(self.identifier)
        return block

    def decode(self, frame: bytes) -> Record:
        """Returns the record without the dialect's additions: identifier, offset, remaining lifetime."""
        first = frame[0]
        reader = MqttReader(frame, 1)
        reader.varint("remaining length")
        topic = read_topic(reader.binary("topic"))
        qos = first >> 1 & 3
        if qos:
            reader.u16("packet id")
        properties = NO_PROPERTIES
        if self.version == 5:
            fields = read_properties(reader, "PUBLISH")
            if self.offsets:
                fields.user = _without_offset(fields.user)
            properties = fields.message()
        return Record(topic, reader.rest(), properties, qos, bool(first & 1))

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:  # fmt: skip
        """Returns a complete frame, without holes. At QoS 0 ``delivery_id`` is not used."""
        qos = min(record.qos, self.qos) if delivery_id else 0
        first = 0x30 | qos << 1 | retain | (8 if redelivered and qos else 0)
        before = write_text(record.topic) + (delivery_id.to_bytes(2, "big") if qos else b"")
        if self.version == 4:
            return write_frame(first, before, record.payload)
        expires = None
        if record.expires_s < inf:
            expires = seconds_left(record.expires_s, now).to_bytes(4, "big")
        block = self._block(record.properties, expires)
        if self.offsets and record.sequence:  # the broker's own marks have none
            block += _offset(record.sequence)
        if gap is not None:
            block += write_user(gap_pairs(gap))
        return write_frame(first, before, write_varint(len(block)), block, record.payload)

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        """Appends the gap's four user properties. The frame grows, and its length field may, so packet id and expiry
        must be filled in before."""
        if self.version == 4:
            return None
        reader = MqttReader(frame, 1)
        reader.varint("remaining length")
        start = reader.pos
        reader.binary("topic")
        if frame[0] & 6:
            reader.u16("packet id")
        before = frame[start : reader.pos]
        size = reader.varint("property length")
        block = frame[reader.pos : reader.pos + size] + write_user(gap_pairs(gap))
        return write_frame(frame[0], before, write_varint(len(block)), block, frame[reader.pos + size :])

    def redelivered(self, frame: bytes) -> bytes:
        """Sets DUP; a frame of QoS 0 stays as it is."""
        if not frame[0] & 6:
            return frame
        return bytes((frame[0] | 8,)) + frame[1:]


    def writes_as(self, other: object, first: int) -> bool:
        return (
            type(other) is MqttDialect and (self.version, self.identifier) == (other.version, other.identifier)
            and not (self.offsets or other.offsets) and first >> 1 & 3 <= other.qos
            and (not first & 1 or other.retain_as_published)
        )  # fmt: skip


def _alike(run: Run, first: bytes, lead: bytes, expiry_in_lead: int, hole_in_lead: int) -> EncodedRun:
    """Encodes records of one size whose frames differ in nothing but payload. ``expiry_in_lead`` and ``hole_in_lead``:
    positions in the lead; 0: it has none."""
    count, begin = len(run.ends), run.bodies[0]
    size = run.ends[0] - begin
    start = first + write_varint(len(lead) + size)
    header = start + lead
    frame = len(header) + size

    def places(at: int) -> Sequence[int]:
        return range(len(start) + at, count * frame, frame) if at else ()

    payloads = equal_pieces(run.data, begin, size, run.ends[1] - run.ends[0], count)
    ends = range(frame, count * frame + 1, frame)
    return EncodedRun(header + header.join(payloads), ends, places(hole_in_lead), places(expiry_in_lead))


def _lead(before: bytes, block: bytes, expires: bytes | None) -> tuple[bytes, int]:
    start = before + write_varint(len(block))
    return start + block, len(start) + 1 if expires is not None else 0


_OFFSET_NAME = "offset"


def _offset(sequence: int) -> bytes:
    return write_user(((_OFFSET_NAME, str(sequence)),))


def _without_offset(user: UserProperties) -> UserProperties:
    """Removes the dialect's offset, which comes after any that the publisher set."""
    for index in range(len(user) - 1, -1, -1):
        if user[index][0] == _OFFSET_NAME:
            return user[:index] + user[index + 1 :]
    return user


def gap_pairs(gap: Gap) -> tuple[tuple[str, str], ...]:
    """Returns the user properties that announce a gap."""
    return tuple((name, str(fact)) for name, fact in gap_facts("", gap).items())
