"""Destinations, as clients of ActiveMQ and of RabbitMQ write them.

| written | is |
|---|---|
| ``/queue/NAME`` | a queue, which is made if there is none |
| ``/topic/NAME`` | a topic; for subscribers with wildcards |
| ``/exchange/NAME/KEY`` | an exchange and a routing key; for subscribers a queue of their own that is bound to it |
| ``/amq/queue/NAME`` | a queue that another one has made |
| ``/temp-queue/NAME``, ``/temp-topic/NAME`` | the client's own, by its own name for it |
| ``/reply-queue/NAME``, ``/remote-temp-queue/NAME``, … | another client's temporary queue, as a reply address says it |

``%`` begins an escaped byte, as in a URL. A composite destination has commas between its parts; a part without a prefix
is of the kind of the first. ``queue://`` and ``topic://`` may stand for ``/queue/`` and ``/topic/``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from headway.core.message import Record, Run, routing_key_of, topic_of
from headway.wire.common import Address, address_of
from headway.wire.stomp.versions import BAD_DESTINATION, UNKNOWN_DESTINATION, StompFault

PARTS_MAX = 100
NAME_BYTES_MAX = 255
"""As in AMQP: the limit of all names but those of topics."""
REMEMBERED_CHARS_MAX = 200
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


class Kind(StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"
    EXCHANGE = "exchange"
    KNOWN_QUEUE = "amq/queue"
    TEMP_QUEUE = "temp-queue"
    TEMP_TOPIC = "temp-topic"
    REPLY_QUEUE = "reply-queue"
    REPLY_TOPIC = "reply-topic"


_PREFIXES = {f"/{kind}/": kind for kind in Kind} | {
    "queue://": Kind.QUEUE, "topic://": Kind.TOPIC, "temp-queue://": Kind.TEMP_QUEUE, "temp-topic://": Kind.TEMP_TOPIC,
    "/remote-temp-queue/": Kind.REPLY_QUEUE, "/remote-temp-topic/": Kind.REPLY_TOPIC,
}  # fmt: skip
_LONGEST = max(map(len, _PREFIXES))


_TOPICS = (Kind.TOPIC, Kind.REPLY_TOPIC)


class Destination(NamedTuple):
    kind: Kind
    name: str
    key: str = ""
    """Routing key, of an exchange."""


def destinations_of(text: str) -> tuple[Destination, ...]:
    """Returns the parts of a destination. Raises :class:`StompFault`."""
    return _read_lately(text) if len(text) <= REMEMBERED_CHARS_MAX else _read(text)


def _read(text: str) -> tuple[Destination, ...]:
    count = text.count(",") + 1
    if count > PARTS_MAX:
        raise StompFault(BAD_DESTINATION, f"a destination has {count} parts (at most {PARTS_MAX})")
    found: list[Destination] = []
    kind: Kind | None = None
    for part in text.split(","):
        prefix = _prefix_of(part)
        if prefix:
            kind = _PREFIXES[prefix]
        if kind is None:
            raise _unknown(text)
        name, key = _unquoted(part[len(prefix) :], text), ""
        if kind is Kind.EXCHANGE:
            name, _, key = part[len(prefix) :].partition("/")
            name, key = _unquoted(name, text), _unquoted(key, text)
        if not name:
            raise _bad(part, kind, part[len(prefix) - 1 :] if prefix else part)
        if kind not in _TOPICS and max(len(name.encode()), len(key.encode())) > NAME_BYTES_MAX:
            raise StompFault(BAD_DESTINATION, f"the name of a {kind} has {NAME_BYTES_MAX} bytes at most")
        found.append(Destination(kind, name, key))
    return tuple(found)


_read_lately = lru_cache(1024)(_read)


def _prefix_of(part: str) -> str:
    """Returns the prefix that says what kind of destination this is; empty: it has none."""
    if not part.startswith("/") and "://" not in part[:_LONGEST]:
        return ""
    return next((one for one in _PREFIXES if part.startswith(one)), "")


def _unknown(text: str) -> StompFault:
    kind = next((one for one in Kind if text == f"/{one}"), None)
    if kind is not None:
        return _bad(text, kind, "")
    kinds = ", ".join(f"/{one}/" for one in Kind)
    return StompFault(UNKNOWN_DESTINATION, f"'{text[:100]}' is not a valid destination: it begins with one of {kinds}")


def _bad(text: str, kind: Kind | None, name: str) -> StompFault:
    return StompFault(BAD_DESTINATION, f"'{name[:100]}' is not a valid {kind or text} destination")


def _unquoted(text: str, whole: str) -> str:
    if "%" not in text:
        return text
    raw = _PERCENT.sub(lambda found: bytes((int(found[1], 16),)), text.encode())
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise StompFault(BAD_DESTINATION, f"'{whole[:100]}' has escaped bytes that are not UTF-8") from None


def plain_run(found: tuple[Destination, ...], data: bytes, ends: Sequence[int], bodies: Sequence[int]) -> Run:
    """Returns a run for the first of these destinations, as far as it alone says where that is; else for no exchange
    that there is."""
    kind, name, key = found[0]
    match kind:
        case Kind.QUEUE | Kind.KNOWN_QUEUE | Kind.REPLY_QUEUE:
            return Run(topic_of(name), data, ends, bodies, exchange="")
        case Kind.TOPIC | Kind.REPLY_TOPIC:
            return Run(topic_of(name), data, ends, bodies)
        case Kind.EXCHANGE:
            return Run(topic_of(key), data, ends, bodies, exchange=name)
    return Run(name, data, ends, bodies, exchange="\0")


def text_of(address: Address) -> str:
    """Returns an address as a destination. One of a temporary queue is a reply address."""
    if address.is_topic:
        return f"/topic/{_quoted(routing_key_of(address.name))}"
    prefix = "/reply-queue/" if address.name.startswith("amq.") else "/queue/"
    return prefix + _quoted(address.name)


def destination_of(record: Record) -> str:
    """Returns where a record was sent to."""
    address = address_of(record)
    if address is None:
        key = routing_key_of(record.topic)
        return f"/exchange/{_quoted(record.exchange)}" + (f"/{_quoted(key)}" if key else "")
    return text_of(address)


def _quoted(name: str) -> str:
    """Escapes what would be read as something else."""
    return name.replace("%", "%25").replace(",", "%2C")
