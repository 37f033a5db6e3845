"""The form in which records of topics wait for consumers of AMQP 1.0: whole messages, without the frames around them.

    header | message annotations, properties, application properties | body

They are the same bytes for all consumers. The first annotation, ``x-opt-headway-topic``, is the topic; what else the
broker says of a record (its offset, a gap) stands beside it. An envelope puts them into transfers (envelope.py). No run
arrives in this form, so ``form`` is None.
"""

from __future__ import annotations

from headway.core.message import EncodedRun, Gap, Record, Run
from headway.wire.amqp1.items import Content
from headway.wire.amqp1.properties import (
    OFFSET,
    OPTION,
    TOPIC,
    annotated,
    header_section,
    lead_of,
    read_content,
    told_by_broker,
)
from headway.wire.amqp1.sections import Body, body_lead, split
from headway.wire.dialect import BareDialect, encode_by_size, gap_facts


class Amqp1Dialect(BareDialect, frozen=True):
    """``offsets``: records say at which offset they stand."""

    offsets: bool = False

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        header, sections, kind = lead_of(run.properties, run.qos)
        header = header_section(header)
        if self.offsets and first_sequence:  # the broker's own marks have none
            return _encode_each(run, header, sections, kind, first_sequence)
        front = header + annotated(sections, {TOPIC: run.topic})
        return encode_by_size(run, lambda size: front + body_lead(kind, size))

    def decode(self, frame: bytes) -> Record:
        """Returns the record with all properties of its publisher except its lifetime."""
        content, told, payload = parts_of(frame)
        facts = read_content(content)
        return Record(str(told.get(TOPIC, "")), payload, facts.properties, int(facts.persistent))

    def with_gap(self, frame: bytes, gap: Gap) -> bytes:
        """Adds the gap's four annotations."""
        content, told, _ = parts_of(frame)
        told |= gap_facts(OPTION, gap)
        parts = split(frame, 0, len(frame))
        before = frame[: parts.header[1]] if content.header else b""
        return before + annotated(content.lead, told) + frame[parts.lead[1] :]


def parts_of(frame: bytes) -> tuple[Content, dict[str, object], bytes]:
    """Returns a message's content without what the broker says, what the broker says, and the payload."""
    parts = split(frame, 0, len(frame))
    told, lead = told_by_broker(frame[slice(*parts.lead)])
    header = frame[slice(*parts.header)]
    return Content(lead, header, parts.body), told, frame[slice(*parts.payload)]


def _encode_each(run: Run, header: bytes, sections: bytes, kind: Body, first_sequence: int) -> EncodedRun:
    """Encodes records that have their offsets in their annotations."""
    parts: list[bytes] = []
    for number in range(len(run)):
        payload = run.payload(number)
        told = {TOPIC: run.topic, OFFSET: first_sequence + number}
        parts.append(header + annotated(sections, told) + body_lead(kind, len(payload)) + payload)
    return EncodedRun.of(parts)
