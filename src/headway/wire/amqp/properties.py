"""Properties of a message: the flags and values in its content header, after the size of the body.

Rules:
- AMQP consumers get the properties as they came (``Properties.native``). The broker, and consumers of other protocols,
  use :class:`Facts`, which are equal for equal bytes.
- Only the form of properties is checked. A text that is not UTF-8, or too long for MQTT, is left out for MQTT
  consumers.
- A function that changes one property keeps the bytes of all others, and of the headers that stay the same.
- ``reply-to`` is a routing key, so its topic has the separators swapped (core/message/record.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache
from typing import NamedTuple

import msgspec

from headway.core.base import ProtocolError, Reason
from headway.core.message import NO_PROPERTIES, BadTopic, Properties, routing_key_of, topic_of, validate_topic
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.primitives import (
    SHORT_BYTES_MAX,
    AmqpReader,
    TableField,
    malformed,
    write_entries,
    write_short,
    write_table,
    write_value,
)
from headway.wire.common import EXPIRATION_MS_MAX, header_text
from headway.wire.decoder import ALL

NAMES = (
    "content-type", "content-encoding", "headers", "delivery-mode", "priority", "correlation-id", "reply-to",
    "expiration", "message-id", "timestamp", "type", "user-id", "app-id", "cluster-id",
)  # fmt: skip
"""In the order of their flags, from the highest; the two lowest flags have no property."""
_FLAGS = {name: 0x8000 >> place for place, name in enumerate(NAMES)}
_SIZES = {"headers": -4, "delivery-mode": 1, "priority": 1, "timestamp": 8}
"""Sizes in bytes; negative: the size of the length in front. All other properties are short strings."""
_NUMBERS = ("delivery-mode", "priority", "timestamp")

NONE = b"\0\0"
"""No properties at all."""
PERSISTENT = 2
TEXT_BYTES_MAX = 65_535
"""Longest text that fits into MQTT."""
CORRELATION_HEADER = "x-correlation-id"
"""Header for MQTT correlation data that is no text, or longer than a short string."""
REPLY_TOPIC = "x-headway-reply-topic"
"""Header that says that the reply address is a topic. AMQP's is a routing key, and mostly a queue's name."""


class BadExpiration(ProtocolError):
    """An expiration that is no number of milliseconds. Only the channel is closed."""

    def __init__(self, raw: bytes) -> None:
        shown = raw[:32].decode(errors="replace")
        super().__init__(f"invalid expiration {shown!r}", reason=Reason.MALFORMED, code=ReplyCode.PRECONDITION_FAILED)


class Facts(msgspec.Struct, frozen=True):
    """The properties of a message that the broker itself uses."""

    properties: Properties
    headers: dict[str, object]
    """Headers; not to be changed, for cached facts share them."""
    delivery_mode: int | None = None
    priority: int = 0
    expiration_ms: int | None = None
    reply_to: str | None = None
    user_id: str | None = None

    @property
    def qos(self) -> int:
        """QoS of the message: a persistent message is delivered at least once."""
        return int(self.delivery_mode == PERSISTENT)


class _Span(NamedTuple):
    start: int
    end: int


@lru_cache(256)
def _there(flags: int) -> tuple[tuple[str, int], ...]:
    """Returns the properties that the flags announce, and the size of each."""
    if flags & 3:
        raise malformed("has flags of properties that there are not")
    return tuple((name, _SIZES.get(name, -1)) for name, flag in _FLAGS.items() if flags & flag)


def _places(raw: bytes) -> dict[str, _Span]:
    """Returns the position of each property's value."""
    n, pos = len(raw), 2
    if n < 2:
        raise malformed("ends within its property flags")
    found: dict[str, _Span] = {}
    for name, size in _there(raw[0] << 8 | raw[1]):
        start = pos
        pos += size if size > 0 else int.from_bytes(raw[pos : pos - size], "big") - size
        if pos > n:
            raise malformed(f"ends within its {name}")
        found[name] = _Span(start, pos)
    if pos != n:
        raise malformed(f"has {n - pos} bytes behind its properties")
    return found


def read(raw: bytes, values_max: int = ALL) -> Facts:
    """Decodes properties with at most ``values_max`` values in their headers."""
    if raw == NONE:
        return Facts(Properties(native=raw), {})
    places = _places(raw)
    headers = AmqpReader(raw, places["headers"].start, None, values_max).table("headers") if "headers" in places else {}
    short = {name: raw[start + 1 : end] for name, (start, end) in places.items() if name not in _SIZES}
    numbers = {name: int.from_bytes(raw[slice(*places[name])], "big") for name in _NUMBERS if name in places}
    priority = numbers.get("priority")
    reply_to = _text(short.get("reply-to"))
    content_type = _text(short.get("content-type"))
    return Facts(
        Properties(
            content_type=None if content_type is None or "\0" in content_type else content_type,
            response_topic=reply_topic(reply_to),
            correlation_data=short.get("correlation-id"),
            user=user_texts(headers, priority),
            native=raw,
        ),
        headers,
        numbers.get("delivery-mode"),
        priority or 0,
        _milliseconds(short.get("expiration")),
        reply_to,
        _text(short.get("user-id")),
    )


REMEMBERED_BYTES_MAX = 256
"""Properties up to this size are cached when read."""
_cached = lru_cache(1024)(read)


def read_lately(raw: bytes) -> Facts:
    """Decodes properties that may have been decoded a moment ago."""
    return _cached(raw) if len(raw) <= REMEMBERED_BYTES_MAX else read(raw)


def _text(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def reply_topic(key: str | None) -> str | None:
    """Returns the topic of a routing key; None: there is no valid one."""
    if key is None:
        return None
    try:
        return validate_topic(topic_of(key))
    except BadTopic:
        return None


def _milliseconds(raw: bytes | None) -> int | None:
    if raw is None:
        return None
    if not raw.isdigit():
        raise BadExpiration(raw)
    return min(int(raw), EXPIRATION_MS_MAX)


def user_texts(headers: Mapping[str, object], priority: int | None) -> tuple[tuple[str, str], ...]:
    """Returns headers, and the priority, as MQTT's user properties."""
    user = tuple(
        (name, text) for name, value in headers.items()
        if name != REPLY_TOPIC and (text := _user_text(name, value)) is not None
    )  # fmt: skip
    return user if priority is None or "priority" in headers else (*user, ("priority", str(priority)))


def _user_text(name: str, value: object) -> str | None:
    """Returns a header as the text of an MQTT user property; None: it has no text, or none that fits."""
    text = header_text(value)
    if text is None:
        return None
    return None if "\0" in name or "\0" in text or len(text.encode()) > TEXT_BYTES_MAX else text


# -- writing -----------------------------------------------------------------------------------------------------------


def write(properties: Properties, qos: int) -> bytes:
    """Writes the properties of a message of another protocol; texts too long for a short string become headers."""
    if properties is NO_PROPERTIES and not qos:
        return NONE
    headers: dict[str, object] = {}
    for name, text in properties.user:  # names may repeat in user properties, but not in a table
        if len(name.encode()) <= SHORT_BYTES_MAX:
            headers.setdefault(name, text)
    values: dict[str, bytes] = {}
    if _fits(properties.content_type):
        values["content-type"] = write_short(properties.content_type or "")
    elif properties.content_type is not None:
        headers.setdefault("content-type", properties.content_type)
    correlation = properties.correlation_data
    if correlation is not None and len(correlation) <= SHORT_BYTES_MAX and _text(correlation) is not None:
        values["correlation-id"] = write_short(correlation)
    elif correlation is not None:
        headers.setdefault(CORRELATION_HEADER, correlation)
    if _fits(properties.response_topic):
        values["reply-to"] = write_short(routing_key_of(properties.response_topic or ""))
        headers[REPLY_TOPIC] = True
    elif properties.response_topic is not None:
        headers.setdefault("reply-to", routing_key_of(properties.response_topic))
    if properties.lifetime_ms is not None:
        values["expiration"] = write_short(str(properties.lifetime_ms))
    if headers:
        values["headers"] = write_table(headers)
    if qos:
        values["delivery-mode"] = PERSISTENT.to_bytes(1, "big")
    return joined(values)


def _fits(text: str | None) -> bool:
    return text is not None and len(text.encode()) <= SHORT_BYTES_MAX


def with_headers(raw: bytes, headers: Mapping[str, object]) -> bytes:
    """Replaces the headers. Unchanged values keep their bytes, and so their AMQP types, which Python lacks."""
    values, known = property_values(raw), header_fields(raw)
    entries: dict[str, bytes] = {}
    for name, value in headers.items():
        entry = known.get(name)
        if entry is not None and entry.value == value and type(entry.value) is type(value):
            entries[name] = raw[entry.start : entry.end]
        else:
            entries[name] = write_value(value)
    values["headers"] = write_entries(entries)
    return joined(values)


def header_fields(raw: bytes) -> dict[str, TableField]:
    """Returns the headers, each with its place in ``raw``."""
    places = _places(raw)
    fields = AmqpReader(raw, places["headers"].start, None, ALL).entries("headers") if "headers" in places else []
    return {field.name: field for field in fields}


def without_headers(raw: bytes, names: Set[str]) -> bytes:
    return with_headers(raw, {name: value for name, value in read(raw).headers.items() if name not in names})


def with_reply_to(raw: bytes, text: str) -> bytes:
    return joined({**property_values(raw), "reply-to": write_short(text)})


def property_values(raw: bytes) -> dict[str, bytes]:
    """Returns the encoded value of each property."""
    return _values(raw, _places(raw))


def _values(raw: bytes, places: dict[str, _Span]) -> dict[str, bytes]:
    return {name: raw[start:end] for name, (start, end) in places.items()}


def joined(values: dict[str, bytes]) -> bytes:
    """Returns properties from the encoded value of each."""
    flags = sum(_FLAGS[name] for name in values)
    return flags.to_bytes(2, "big") + b"".join([values[name] for name in NAMES if name in values])
