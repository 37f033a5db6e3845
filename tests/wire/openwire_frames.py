"""Frames of OpenWire as a client writes them, by hand: loosely, with or without a cache."""

from __future__ import annotations

from collections.abc import Mapping
from struct import pack

NO, YES = b"\0", b"\1"
MAGIC = b"ActiveMQ"


def text(value: str | None) -> bytes:
    return NO if value is None else YES + pack(">H", len(value.encode())) + value.encode()


def frame(kind: int, *fields: bytes, number: int = 1, wants_response: bool = True) -> bytes:
    body = b"".join((bytes((kind,)), pack(">i?", number, wants_response), *fields))
    return pack(">i", len(body)) + body


def wire_format(version: int = 12, known: Mapping[str, bytes] | None = None) -> bytes:
    entries = {"CacheEnabled": b"\1\0", "MaxInactivityDuration": b"\6" + pack(">q", 30_000), **(known or {})}
    table = pack(">i", len(entries)) + b"".join(
        pack(">H", len(name)) + name.encode() + value for name, value in entries.items()
    )
    body = b"\1" + MAGIC + pack(">i", version) + YES + pack(">i", len(table)) + table
    return pack(">i", len(body)) + body


CACHED = {"CacheEnabled": b"\1\1"}


def queue(name: str) -> bytes:
    return YES + b"\x64" + text(name)


def topic(name: str) -> bytes:
    return YES + b"\x65" + text(name)


def consumer_id(connection: str = "ID:c", session: int = 1, value: int = 2) -> bytes:
    return YES + b"\x7a" + text(connection) + pack(">qq", session, value)


def producer_id(connection: str = "ID:c", session: int = 1, value: int = 2) -> bytes:
    return YES + b"\x7b" + text(connection) + pack(">qq", value, session)


def connection_id(value: str = "ID:c") -> bytes:
    return YES + b"\x78" + text(value)


def message_id(sequence: int, delivery: int = 0, producer: bytes | None = None) -> bytes:
    return YES + b"\x6e" + NO + (producer or producer_id()) + pack(">qq", sequence, delivery)


def message(
    kind: int, destination: bytes, content: bytes | None, properties: bytes | None = None, *, producer: bytes = NO,
    expires_ms: int = 0, timestamp_ms: int = 0, compressed: bool = False, transaction: bytes = NO, number: int = 1,
    sequence: int = 7, wants_response: bool = True, group: str | None = None, group_sequence: int = 0,
    correlation: str = "c", persistent: bool = True, priority: int = 4, reply_to: bytes = NO,
    type_text: str | None = None, user: str | None = None,
) -> bytes:  # fmt: skip
    return frame(
        kind, producer, destination, transaction, NO, message_id(sequence), NO, text(group), pack(">i", group_sequence),
        text(correlation), pack(">?", persistent), pack(">q", expires_ms), bytes((priority,)), reply_to,
        pack(">q", timestamp_ms), text(type_text), _binary(content), _binary(properties), NO, NO,
        pack(">?", compressed), pack(">i", 0), NO, pack(">q", 0), text(user), NO, NO, NO, pack(">qq", 0, 0), NO,
        number=number,
        wants_response=wants_response,
    )  # fmt: skip


def _binary(raw: bytes | None) -> bytes:
    return NO if raw is None else YES + pack(">i", len(raw)) + raw


def consumer_info(
    consumer: bytes, destination: bytes, *, prefetch: int = 1000, selector: str | None = None,
    subscription: str | None = None,
) -> bytes:  # fmt: skip
    return frame(
        5, consumer, NO, destination, pack(">ii", prefetch, 0), YES, text(selector), NO,
        text(subscription), NO, NO, NO, b"\0", NO, NO, NO, NO, NO, NO,
    )  # fmt: skip


def ack(consumer: bytes, kind: int, first: bytes, last: bytes, count: int, destination: bytes = NO) -> bytes:
    return frame(22, destination, NO, consumer, bytes((kind,)), first, last, pack(">i", count), NO,
                 wants_response=False)  # fmt: skip


def destination_info(destination: bytes, operation: int = 0) -> bytes:
    return frame(8, connection_id(), destination, bytes((operation,)), pack(">q", 0), NO)


def connection_info(client: str = "me", user: str = "alice", *, reconnects: bool = True) -> bytes:
    return frame(3, connection_id(), text(client), text("pw"), text(user), NO, NO, NO, NO, NO,
                 YES if reconnects else NO, NO)  # fmt: skip
