"""Common properties (wire/common.py) to AMQP's, which queues keep, and back.

What AMQP has no property for is in headers with names of their own:

- ``timestamp_in_ms``: a time that is not of whole seconds (RabbitMQ's name for it);
- ``x-headway-reply-topic``: the reply address is a topic. AMQP's is a routing key, which is a queue's name elsewhere;
- ``x-correlation-id``: a correlation id longer than a short string.

Texts that do not fit into AMQP's short strings are headers, under the names of their properties. Reading undoes all of
this.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from headway.core.message import NO_PROPERTIES, Properties, read_said_with, routing_key_of, topic_of
from headway.wire.amqp.primitives import SHORT_BYTES_MAX, write_short, write_table
from headway.wire.amqp.properties import (
    CORRELATION_HEADER,
    PERSISTENT,
    REPLY_TOPIC,
    joined,
    property_values,
    read_lately,
    reply_topic,
    user_texts,
)
from headway.wire.common import NO_COMMON, Address, CommonProperties

TIMESTAMP_MS = "timestamp_in_ms"
MS_LARGEST = (1 << 62) - 1
"""The largest time that is told. With a lifetime it fits into the 64 bits that other protocols have for the sum."""
_TEXTS = {
    "content-type": "content_type", "content-encoding": "content_encoding", "correlation-id": "correlation_id",
    "message-id": "message_id", "type": "type", "user-id": "user_id", "app-id": "app_id",
}  # fmt: skip
"""Properties that are texts, and their fields."""
_REMEMBERED_BYTES_MAX = 512


def write_common(common: CommonProperties) -> Properties:
    headers = {name: value for name, value in common.headers.items() if len(name.encode()) <= SHORT_BYTES_MAX}
    values: dict[str, bytes] = {}
    for name, field in _TEXTS.items():
        text = getattr(common, field)
        if text is None:
            continue
        if len(text.encode()) <= SHORT_BYTES_MAX:
            values[name] = write_short(text)
        else:
            headers.setdefault(CORRELATION_HEADER if name == "correlation-id" else name, text)
    if common.reply_to is not None:
        _write_reply_to(common.reply_to, values, headers)
    if common.timestamp_ms is not None and common.timestamp_ms >= 0:
        values["timestamp"] = (common.timestamp_ms // 1000).to_bytes(8, "big")
        if common.timestamp_ms % 1000:
            headers[TIMESTAMP_MS] = common.timestamp_ms
    if common.priority is not None:
        values["priority"] = bytes((max(0, min(common.priority, 255)),))
    if common.expiration_ms is not None:
        values["expiration"] = write_short(str(max(0, common.expiration_ms)))
    if common.persistent:
        values["delivery-mode"] = bytes((PERSISTENT,))
    if headers:
        values["headers"] = write_table(headers)
    if not values:
        return NO_PROPERTIES
    reply_to, priority = values.get("reply-to"), values.get("priority")
    correlation, content_type = values.get("correlation-id"), values.get("content-type")
    return Properties(  # what reading these values would give, for less
        content_type=None if content_type is None or 0 in content_type[1:] else content_type[1:].decode(),
        response_topic=None if reply_to is None else reply_topic(reply_to[1:].decode()),
        correlation_data=None if correlation is None else correlation[1:],
        user=user_texts(headers, None if priority is None else priority[0]),
        native=joined(values),
    )


def _write_reply_to(address: Address, values: dict[str, bytes], headers: dict[str, object]) -> None:
    key = routing_key_of(address.name) if address.is_topic else address.name
    if len(key.encode()) <= SHORT_BYTES_MAX:
        values["reply-to"] = write_short(key)
        if address.is_topic:
            headers[REPLY_TOPIC] = True


def find_bytes(raw: bytes, name: str) -> bytes | None:
    """Returns a header of bytes, found by how its name is written."""
    mark = _mark(name)
    at = raw.find(mark)
    if at < 0:
        return None
    start = at + len(mark) + 4
    return raw[start : start + int.from_bytes(raw[start - 4 : start], "big")]


@lru_cache(16)
def _mark(name: str) -> bytes:
    return write_short(name) + b"x"


def read_common(properties: Properties) -> CommonProperties:
    if properties is NO_PROPERTIES:
        return NO_COMMON
    native = properties.native
    if native is None:
        return _of_texts(properties)
    return _read_lately(native) if len(native) <= _REMEMBERED_BYTES_MAX else _read(native)


def _of_texts(properties: Properties) -> CommonProperties:
    """Reads properties that came by MQTT, or that the broker made."""
    headers: dict[str, object] = {}
    for name, text in properties.user:
        headers.setdefault(name, text)
    raw, topic = properties.correlation_data, properties.response_topic
    return CommonProperties(
        content_type=properties.content_type,
        correlation_id=None if raw is None else _decoded(raw),
        reply_to=None if topic is None else Address(topic, is_topic=True),
        expiration_ms=properties.lifetime_ms,
        headers=headers,
    )


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _read(native: bytes) -> CommonProperties:
    facts, values = read_lately(native), property_values(native)
    headers = dict(facts.headers)
    texts = {field: _decoded(values[name][1:]) for name, field in _TEXTS.items() if name in values}
    long = headers.pop(CORRELATION_HEADER, None)
    if isinstance(long, str | bytes) and "correlation_id" not in texts:
        texts["correlation_id"] = long if isinstance(long, str) else _decoded(long)
    for name, field in _TEXTS.items():
        text = headers.get(name)
        if field not in texts and isinstance(text, str) and len(text.encode()) > SHORT_BYTES_MAX:
            texts[field] = text
            del headers[name]
    reply_to = None
    if facts.reply_to is not None:
        is_topic = headers.pop(REPLY_TOPIC, False) is True
        reply_to = Address(topic_of(facts.reply_to) if is_topic else facts.reply_to, is_topic)
    return CommonProperties(
        reply_to=reply_to, timestamp_ms=_timestamp_ms(values, headers), expiration_ms=facts.expiration_ms,
        priority=values["priority"][0] if "priority" in values else None, persistent=bool(facts.qos), headers=headers,
        **texts,
    )  # fmt: skip


def _timestamp_ms(values: Mapping[str, bytes], headers: dict[str, object]) -> int | None:
    if "timestamp" not in values:
        return None
    seconds, exact = int.from_bytes(values["timestamp"], "big"), headers.get(TIMESTAMP_MS)
    if isinstance(exact, int) and exact // 1000 == seconds:
        del headers[TIMESTAMP_MS]
    else:
        exact = seconds * 1000
    return exact if exact <= MS_LARGEST else None  # a time that other protocols cannot tell


_read_lately = lru_cache(256)(_read)
read_said_with(read_common, lambda native: read_lately(native).headers)
