"""Headers of messages: those of SEND to common properties (wire/common.py), and back for MESSAGE.

Names are those that ActiveMQ and RabbitMQ share, and both names where they differ: ``expires`` is a time,
``expiration`` a lifetime, both in milliseconds. Headers of other types are written as text.
Headers that are the frame's own are no message's.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.message import Record
from headway.wire.codecs import queue_form
from headway.wire.common import EXPIRATION_MS_MAX, Address, CommonProperties, header_text, told_headers
from headway.wire.stomp.destinations import destination_of, text_of
from headway.wire.stomp.items import Headers
from headway.wire.stomp.versions import Version, header_line

OWN = frozenset({
    "destination", "content-length", "receipt", "transaction", "message-id", "subscription", "ack", "redelivered",
})  # fmt: skip
"""Headers of a frame that do not belong to its message."""
_TEXTS = {
    "content-type": "content_type", "content-encoding": "content_encoding", "correlation-id": "correlation_id",
    "amqp-message-id": "message_id", "type": "type", "user-id": "user_id", "app-id": "app_id",
}  # fmt: skip
_KNOWN = OWN | set(_TEXTS) | {"persistent", "priority", "timestamp", "expires", "expiration", "reply-to"}
SECONDS_BELOW = 100_000_000_000
"""A timestamp below this is in seconds, as RabbitMQ has it."""


def common_of(headers: Headers, reply_to: Address | None, wall_ms: int) -> CommonProperties:
    """Returns what a SEND says of its message. ``reply_to``: its reply address, resolved. ``wall_ms``: the time now, in
    milliseconds since 1970."""
    lifetime_ms, timestamp_ms = _number(headers, "expiration"), _timestamp_ms(headers)
    expires_ms = _number(headers, "expires")
    if expires_ms:  # 0: never
        lifetime_ms = max(0, expires_ms - wall_ms)
        if timestamp_ms is None:
            timestamp_ms = expires_ms - lifetime_ms
    if lifetime_ms is not None:
        lifetime_ms = min(lifetime_ms, EXPIRATION_MS_MAX)
    priority = _number(headers, "priority")
    return CommonProperties(
        priority=None if priority is None else min(priority, 255), timestamp_ms=timestamp_ms, reply_to=reply_to,
        expiration_ms=lifetime_ms, persistent=headers.get("persistent", "").lower() == "true",
        headers={name: value for name, value in headers.items() if name not in _KNOWN},
        **{field: headers[name] for name, field in _TEXTS.items() if name in headers},
    )  # fmt: skip


def _number(headers: Headers, name: str) -> int | None:
    """Returns the value of a header; None: there is none, or it is no number from 0 on."""
    text = headers.get(name, "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def _timestamp_ms(headers: Headers) -> int | None:
    value = _number(headers, "timestamp")
    return value * 1000 if value is not None and value < SECONDS_BELOW else value


def head_of(record: Record, body_bytes: int, version: Version, redelivered: bool | None) -> bytes:
    """Returns the part of a MESSAGE's head that is the same for all consumers, with the empty line behind it.
    ``redelivered`` None: it cannot be, for its consumer acknowledges nothing."""
    lines = [header_line("destination", destination_of(record), version)]
    lines += [header_line(name, value, version) for name, value in _headers(record)]
    if redelivered is not None:
        lines.append(f"redelivered:{str(redelivered).lower()}\n")
    lines.append(f"content-length:{body_bytes}\n\n")
    return "".join(lines).encode("utf-8", "replace")


def _headers(record: Record) -> Iterator[tuple[str, str]]:
    common = queue_form().read_common(record.properties)
    for name, field in _TEXTS.items():
        text = getattr(common, field)
        if text is not None:
            yield name, text
    if common.reply_to is not None:
        yield "reply-to", text_of(common.reply_to)
    if common.persistent or record.qos:
        yield "persistent", "true"
    if common.priority is not None:
        yield "priority", str(common.priority)
    if common.timestamp_ms is not None:
        yield "timestamp", str(common.timestamp_ms)
    if common.expiration_ms is not None:
        yield "expiration", str(common.expiration_ms)
        if common.timestamp_ms is not None:
            yield "expires", str(common.timestamp_ms + common.expiration_ms)
    for name, value in told_headers(common).items():
        if isinstance(value, bytes):  # a text whose encoding nobody said
            value = value.decode("utf-8", "replace")
        text = header_text(value)
        if text is not None and name and name not in _KNOWN:
            yield name, text
