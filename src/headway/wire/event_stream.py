"""Records as server-sent events (the HTML standard, 9.2): ``id: OFFSET``, ``data: JSON``, an empty line.

The JSON of a record is that of recorded topics, without a time. An ordinary record is an event without a name. A delete
is the event ``delete``, and what tells that a key is out of focus the event ``out_of_focus``; what has only
changes is the event ``delta``. The broker's own marks
are ``snapshot_begin``, ``snapshot_end`` and ``snapshot_broken``; what they tell is their data. A gap is an event
``gap`` before the record that follows it.

JSON has no line break in it, so an event ends at the first empty line, whatever a publisher has written.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import msgspec

from headway.core.message import TOLD_KEY, EncodedRun, Gap, Properties, Record, Run, compile_key
from headway.wire.dialect import PlainDialect, event_of, mark_of

# -- json forms --------------------------------------------------------------------------------------------------------
#
# Records as JSON objects. Data that is no text is in base64, in a field whose name ends in ``_base64``.


def properties_form(said: Properties, qos: int, *, retain: bool) -> dict[str, Any]:
    """Returns the properties that are set."""
    found: dict[str, Any] = {"qos": qos, "retain": retain}
    if said.content_type is not None:
        found["content_type"] = said.content_type
    if said.response_topic is not None:
        found["response_topic"] = said.response_topic
    if said.correlation_data is not None:
        found |= text_form("correlation_data", said.correlation_data)
    if said.user:
        found["user"] = list(said.user)
    return found


def text_form(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


# -- event stream ------------------------------------------------------------------------------------------------------


END = b"\n\n"
_DATA = b"data: "
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(dict[str, Any]).decode


def event(name: str, told: dict[str, Any]) -> bytes:
    """Returns an event of the broker's own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(told))


class EventStreamDialect(PlainDialect, frozen=True):
    """The wire form of a subscription over server-sent events. ``key`` finds the key of each record."""

    key: str

    @property
    def form(self) -> object:
        return "server-sent events"

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        properties = properties_form(run.properties, run.qos, retain=False)
        name = event_of(run.properties)
        told_key = _told_key(run.properties, name)
        return EncodedRun.of([
            _frame(run.topic, key or told_key, properties, run.payload(index), first_sequence + index, name)
            for index, key in enumerate(compile_key(self.key).of_run(run))
        ])

    def decode(self, frame: bytes) -> Record:
        *_, line = (line for line in frame.split(b"\n") if line.startswith(_DATA))
        told = _decode(line[len(_DATA) :])
        said = told["properties"]
        correlation = _data("correlation_data", said) if len(said) > 2 else None
        properties = Properties(
            content_type=said.get("content_type"), response_topic=said.get("response_topic"),
            correlation_data=correlation, user=tuple((name, value) for name, value in said.get("user", ())),
        )  # fmt: skip
        return Record(told["topic"], _data("payload", told) or b"", properties, said["qos"])

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:  # fmt: skip
        before = b"" if gap is None else _gap(gap)
        if not record.sequence and (mark := mark_of(record.properties)):
            return before + event(*mark)
        properties = properties_form(record.properties, record.qos, retain=retain)
        name = event_of(record.properties)
        key = compile_key(self.key).of(record) or _told_key(record.properties, name)
        return before + _frame(record.topic, key, properties, record.payload, record.sequence, name)

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        return _gap(gap) + frame


def _told_key(properties: Properties, name: str) -> str | None:
    """Returns the key that the broker has told of a delete or of what is out of focus."""
    return properties.user_value(TOLD_KEY) if name and properties.user else None


def _frame(
    topic: str, key: str | None, properties: dict[str, Any], payload: bytes, sequence: int, name: str
) -> bytes:
    told = {"offset": sequence, "topic": topic, "key": key, "properties": properties, **text_form("payload", payload)}
    first = b"event: %b\n" % name.encode() if name else b""
    return b"%bid: %d\ndata: %b\n\n" % (first, sequence, _encode(told))


def _gap(gap: Gap) -> bytes:
    told = {"records": gap.records, "reason": str(gap.reason), "first": gap.first_sequence, "last": gap.last_sequence}
    return event("gap", told)


def _data(name: str, told: dict[str, Any]) -> bytes | None:
    if name in told:
        return str(told[name]).encode()
    return b64decode(told[f"{name}_base64"]) if f"{name}_base64" in told else None
