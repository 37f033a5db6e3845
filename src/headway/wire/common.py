"""Common properties: what a message says of itself in every protocol that has queues, bound to none of them.

Rules:
- A protocol without a form of its own in the broker turns its messages' properties into these, and ``queue_form()``
  (codecs.py) makes the core's ``Properties`` from them. For its consumers it reads them back from any ``Properties``.
  So a message that was sent by any protocol arrives by any other with its properties and headers.
- Values that are None were not said. Header values are plain: text, truth, number, bytes (``bytearray``), a time, None,
  and lists and mappings of these. Names of headers may have 255 bytes at most; longer ones are left out.
- Headers that begin with ``KEPT`` are one protocol's own: consumers of others do not see them, except those that read
  the form of queues as it is.
- A publisher's lifetime is told as it was said: the broker itself counts it in ``Run.expires_s``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

import msgspec

from headway.core.message import TOPICS, Record, Run, routing_key_of, topic_of


class Address(NamedTuple):
    """Where messages are sent to: a queue by its plain name, or a topic in the broker's form, with slashes."""

    name: str
    is_topic: bool = False


class CommonProperties(msgspec.Struct, frozen=True):
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    """Correlation data that is no text is read as Latin-1."""
    reply_to: Address | None = None
    message_id: str | None = None
    timestamp_ms: int | None = None
    """Milliseconds since 1970."""
    type: str | None = None
    priority: int | None = None
    expiration_ms: int | None = None
    """The lifetime that the publisher gave."""
    user_id: str | None = None
    app_id: str | None = None
    persistent: bool = False
    headers: Mapping[str, object] = {}
    """Not to be changed: equal properties share them."""


NO_COMMON = CommonProperties()
VALUES_MAX = 4096
"""The most that one packet may list: user properties, filters, or the values of a table with all that is nested in it.
Packets are read whole, so this is what may be read between two looks at other clients."""


EXPIRATION_MS_MAX = 2**53
"""A longer lifetime, some 285,000 years, counts as this one, which can still be added to a time in any protocol."""
KEPT = "x-headway-kept-"
"""Prefix of headers in which a protocol keeps, for its own consumers, what no other has a word for."""


def told_headers(common: CommonProperties) -> Mapping[str, object]:
    """Returns the headers without those that protocols keep for themselves."""
    headers = common.headers
    if any(name.startswith(KEPT) for name in headers):
        return {name: value for name, value in headers.items() if not name.startswith(KEPT)}
    return headers


def header_text(value: object) -> str | None:
    """Returns a header as a text, for protocols that have no others; None: it has none (bytes, lists, mappings)."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat()
    return None


def address_of(record: Record | Run) -> Address | None:
    """Returns where a record was sent to; None: to an exchange of AMQP, which has no address elsewhere."""
    if record.exchange == TOPICS:
        return Address(record.topic, is_topic=True)
    return None if record.exchange else Address(routing_key_of(record.topic))


def run_to(address: Address, data: bytes, ends: Sequence[int], bodies: Sequence[int]) -> Run:
    """Returns a run of records for an address, without properties."""
    if address.is_topic:
        return Run(address.name, data, ends, bodies)
    return Run(topic_of(address.name), data, ends, bodies, exchange="")
