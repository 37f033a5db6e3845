"""Properties of a message: AMQP 1.0's sections to common properties (wire/common.py), and back.

Rules:
- Consumers of AMQP 1.0 get a publisher's sections as they came: annotations, properties and application properties.
  For that the bare lead goes along in one header, ``SECTIONS``: the kind of the body, the size of the header's fields,
  these, and the lead. Consumers of other protocols get what has a counterpart with them; types that they lack are
  texts.
- A message of another protocol has its sections made here, once for equal properties.
- What the broker says of a record (its topic, offset, gap) is in message annotations, ``x-opt-headway-…``, in front
  of those of the publisher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from headway.core.base import ProtocolError
from headway.core.message import TOLD, BadTopic, Properties, topic_of, validate_topic
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.items import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Body,
    Content,
    Parts,
    split,
)
from headway.wire.amqp1.values import Described, Raw, Symbol, Uuid, malformed, read, skip
from headway.wire.codecs import queue_form
from headway.wire.common import KEPT, Address, CommonProperties, told_headers

# -- addresses ---------------------------------------------------------------------------------------------------------
#
# Addresses, as their forms say what is meant. What a plain name means is found out by the broker's side.
#
# | Form | Means | |---|---| | ``queue://NAME``, ``/queues/NAME``, ``/queue/NAME`` | the queue | | ``topic://NAME``,
# ``/topics/NAME``, ``/topic/NAME`` | the topic; dots stand between words, or slashes | | ``/exchanges/EXCHANGE/KEY``,
# ``/exchange/EXCHANGE/KEY`` | an exchange and a routing key | | ``EXCHANGE/KEY``, where EXCHANGE begins with ``amq.`` |
# the same, as Qpid writes it | | anything else | plain |
#
# Behind ``/queues/``, ``/exchanges/`` and ``/topics/`` names are percent-encoded, as RabbitMQ 4 has them.


_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


class Kind(Enum):
    QUEUE = "queue"
    TOPIC = "topic"
    EXCHANGE = "exchange"
    PLAIN = "plain"


class Named(NamedTuple):
    """``key``: the routing key, or binding key; of an exchange only."""

    kind: Kind
    name: str
    key: str = ""


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    raw = _PERCENT.sub(lambda found: bytes((int(found[1], 16),)), text.encode())
    return raw.decode(errors="replace")


_PREFIXES = {
    "queue://": (Kind.QUEUE, False), "topic://": (Kind.TOPIC, False),
    "/queues/": (Kind.QUEUE, True), "/topics/": (Kind.TOPIC, True), "/exchanges/": (Kind.EXCHANGE, True),
    "/queue/": (Kind.QUEUE, False), "/topic/": (Kind.TOPIC, False), "/exchange/": (Kind.EXCHANGE, False),
    "/amq/queue/": (Kind.QUEUE, False),
}  # fmt: skip
"""Kinds by prefixes, and whether what follows is percent-encoded."""


def read_address(text: str) -> Named:
    for prefix, (kind, encoded) in _PREFIXES.items():
        if text.startswith(prefix):
            return _named(kind, text[len(prefix) :], encoded=encoded)
    if text.startswith("amq.") and "/" in text:
        return _named(Kind.EXCHANGE, text)
    return Named(Kind.PLAIN, text)


def _named(kind: Kind, rest: str, *, encoded: bool = False) -> Named:
    name, _, key = rest.partition("/") if kind is Kind.EXCHANGE else (rest, "", "")
    return Named(kind, _decoded(name), _decoded(key)) if encoded else Named(kind, name, key)


# -- properties --------------------------------------------------------------------------------------------------------


SECTIONS = f"{KEPT}sections"
OPTION = "x-opt-headway-"
TOPIC, OFFSET = f"{OPTION}topic", f"{OPTION}offset"
GROUP, GROUP_SEQUENCE = "JMSXGroupID", "JMSXGroupSeq"
MS_MAX = 0xFFFF_FFFF
REMEMBERED_BYTES_MAX = 512
"""Contents up to this size are cached when they are read or written."""
_HEADER, _ANNOTATIONS, _PROPERTIES = b"\0\x53\x70", b"\0\x53\x72", b"\0\x53\x73"


class Facts(NamedTuple):
    """The properties of a message that the broker itself uses. ``headers``: those that exchanges route by."""

    properties: Properties
    headers: dict[str, object]
    persistent: bool
    ttl_ms: int | None
    to: str | None
    subject: str | None
    user_id: str | None


class Lead(NamedTuple):
    """The bytes that stand before a body on the wire, and the kind of the body."""

    header: bytes
    sections: bytes
    body: Body


# -- reading -----------------------------------------------------------------------------------------------------------


def _sections(lead: bytes) -> dict[int, Any]:
    """Returns the values of the sections in a bare lead."""
    pos, end = 0, len(lead)
    found: dict[int, Any] = {}
    while pos < end:
        section, pos = read(lead, pos, end)
        assert isinstance(section, Described)
        said = section.descriptor
        found[_WORDS.get(said, 0) if isinstance(said, str) else said if isinstance(said, int) else 0] = section.value
    return found


_WORDS = {
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS, "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
}  # fmt: skip
_FIELDS = 13


def _list(value: Any, size: int, what: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise malformed(f"has {what} that are no list")
    found = list(value or ())
    if len(found) > size:
        raise malformed(f"has {what} with {len(found)} fields (at most {size})")
    return found + [None] * (size - len(found))


def _map(value: Any, what: str) -> dict[Any, Any]:
    if value is not None and not isinstance(value, dict):
        raise malformed(f"has {what} that are no map")
    return value or {}


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case Uuid():
            return value.text
        case bytes():
            return value.decode("latin-1")
    return str(value)


def _plain(value: Any) -> Any:
    """Returns a value in a type that headers have; ``_plain`` itself: there is none."""
    match value:
        case Uuid():
            return value.text
        case Raw() | Described():
            return _plain
        case Symbol():
            return str(value)
        case bytes():
            return bytearray(value)
        case int() if not -(1 << 63) <= value < 1 << 63:
            return str(value)
        case list():
            return [one for one in map(_plain, value) if one is not _plain]
        case dict():
            return {str(name): one for name, inner in value.items() if (one := _plain(inner)) is not _plain}
    return value


def _headers(values: Mapping[Any, Any]) -> dict[str, object]:
    return {str(name): one for name, value in values.items() if (one := _plain(value)) is not _plain}


def reply_address(text: str | None) -> Address | None:
    """Returns where replies go, as far as the form of the address tells: a plain one means a queue."""
    if not text:
        return None
    kind, name, key = read_address(text)
    if kind is Kind.TOPIC:
        try:
            return Address(validate_topic(name if "/" in name else topic_of(name)), is_topic=True)
        except BadTopic:
            return None
    if kind is Kind.EXCHANGE:
        return Address(topic_of(key), is_topic=True) if name == "amq.topic" else Address(key) if not name else None
    return Address(name)


def read_content(content: Content) -> Facts:
    """Reads what a message says beside its body. Equal contents are read once. Raises ProtocolError."""
    return _read_lately(content) if len(content.lead) <= REMEMBERED_BYTES_MAX else _read(content)


def _read(content: Content) -> Facts:
    durable, priority, ttl, *_ = _list(read(content.header, 0, len(content.header))[0] if content.header else None, 5,
                                       "a header")  # fmt: skip
    lead = content.lead
    sections = _sections(lead)
    annotations = _map(sections.get(MESSAGE_ANNOTATIONS), "message annotations")
    fields = _list(sections.get(PROPERTIES), _FIELDS, "properties")
    message_id, user_id, to, subject, reply_to, correlation_id, kind, encoding, _, created, group, number, _ = fields
    headers = _headers(_map(sections.get(APPLICATION_PROPERTIES), "application properties"))
    for name, value in annotations.items():
        if isinstance(name, str) and name.startswith(OPTION) and (one := _plain(value)) is not _plain:
            headers.setdefault(f"x-headway-{name.removeprefix(OPTION)}", one)
    if group is not None:
        headers.setdefault(GROUP, str(group))
        headers.setdefault(GROUP_SEQUENCE, number if isinstance(number, int) else 0)
    routed = dict(headers)
    common = CommonProperties(
        content_type=_text(kind), content_encoding=_text(encoding), correlation_id=_text(correlation_id),
        reply_to=reply_address(_text(reply_to)), message_id=_text(message_id),
        timestamp_ms=int(created.timestamp() * 1000) if isinstance(created, datetime) else None,
        type=_text(subject), priority=priority if type(priority) is int else None,
        expiration_ms=ttl if type(ttl) is int else None, user_id=_text(user_id), persistent=durable is True,
        headers=headers,
    )  # fmt: skip
    if lead or content.body is not Body.DATA:
        fixed = _write_header(common, common.persistent)
        headers[SECTIONS] = bytearray((content.body, len(fixed))) + fixed + lead
    return Facts(
        queue_form().write_common(common), routed, durable is True, common.expiration_ms, _text(to), _text(subject),
        common.user_id,
    )


_read_lately = lru_cache(256)(_read)


# -- writing -----------------------------------------------------------------------------------------------------------


def lead_of(properties: Properties, qos: int) -> Lead:
    """Returns what stands before the body of a message with these properties. Equal ones are written once."""
    told = tuple((name, text) for name, text in properties.user if name.startswith(TOLD))
    native = properties.native
    size = properties.size if native is None else len(native)
    write = _lead_lately if size <= REMEMBERED_BYTES_MAX else _lead_of
    return write(properties, bool(qos), told)


def _lead_of(properties: Properties, durable: bool, told: tuple[tuple[str, str], ...]) -> Lead:
    form, native = queue_form(), properties.native
    lead = None if native is None else kept_lead(form.find_bytes(native, SECTIONS))
    if lead is None:
        common = form.read_common(properties)
        header = _write_header(common, durable or common.persistent)
        lead = Lead(header, _write_sections(common), Body.DATA)
    if told:
        lead = lead._replace(sections=annotated(lead.sections, {f"x-opt-{name}": text for name, text in told}))
    return lead


def kept_lead(kept: bytes | None) -> Lead | None:
    """Returns what a message of AMQP 1.0 kept; None: nothing, or something that somebody else wrote."""
    if kept is None or len(kept) < 2 or kept[0] > Body.SECTIONS or len(kept) < 2 + kept[1]:
        return None
    header, sections = kept[2 : 2 + kept[1]], kept[2 + kept[1] :]
    try:
        if not _is_header(header) or split(sections, 0, len(sections)) != _bare(len(sections)):
            return None
    except ProtocolError:
        return None
    return Lead(header, sections, Body(kept[0]))


def _is_header(fields: bytes) -> bool:
    """Tells whether these are the three first fields of a header, or none."""
    pos = 0
    for _ in range(3 if fields else 0):
        pos = skip(fields, pos, len(fields))
    return pos == len(fields)


def _bare(end: int) -> Parts:
    """Returns the parts of a message that is a bare lead of this size and nothing else."""
    return Parts((0, 0), (0, end), Body.NULL, (end, end))


_lead_lately = lru_cache(256)(_lead_of)


def _write_header(common: CommonProperties, durable: bool) -> bytes:
    """Returns the fields of a header but for its counts."""
    parts = [
        writing.TRUE if durable else writing.NULL,
        writing.NULL if common.priority is None else writing.ubyte(common.priority),
        writing.NULL if common.expiration_ms is None else writing.uint(min(common.expiration_ms, MS_MAX)),
    ]
    return b"".join(parts) if parts != [writing.NULL] * 3 else b""


_BLANK = writing.NULL * 3


def header_section(fields: bytes, returns: int = 0) -> bytes:
    """Returns a header section; ``returns``: how often delivering the message has failed before."""
    if not returns:
        return _HEADER + bytes((0xC0, len(fields) + 1, 3)) + fields if fields else b""
    fields = (fields or _BLANK) + writing.NULL + writing.uint(returns)
    return _HEADER + bytes((0xC0, len(fields) + 1, 5)) + fields


def address_text(address: Address) -> str:
    if address.is_topic:
        return f"topic://{address.name}"
    return address.name if read_address(address.name).kind is Kind.PLAIN else f"queue://{address.name}"


def _write_sections(common: CommonProperties) -> bytes:
    """Writes properties and application properties of a message of another protocol."""
    nothing, headers = writing.NULL, dict(told_headers(common))
    group, number = headers.pop(GROUP, None), headers.pop(GROUP_SEQUENCE, None)
    fields = [
        _optional(common.message_id, writing.string),
        _optional(common.user_id, lambda text: writing.binary(text.encode())),
        nothing,
        _optional(common.type, writing.string),
        _optional(common.reply_to, lambda to: writing.string(address_text(to))),
        _optional(common.correlation_id, writing.string),
        _optional(common.content_type, writing.symbol),
        _optional(common.content_encoding, writing.symbol),
        nothing,
        nothing if common.timestamp_ms is None else b"\x83" + common.timestamp_ms.to_bytes(8, "big", signed=True),
        writing.string(group) if isinstance(group, str) else nothing,
        writing.uint(number) if type(number) is int and 0 <= number <= MS_MAX and group is not None else nothing,
    ]
    if common.app_id is not None:
        headers.setdefault("app-id", common.app_id)
    found = b""
    if fields != [nothing] * len(fields):
        found = _PROPERTIES + writing.list_of(fields)
    pairs = [
        (writing.string(name), writing.value(value)) for name, value in headers.items()
        if name != SECTIONS and not name.startswith(TOLD) and not isinstance(value, list | tuple | Mapping)
    ]  # fmt: skip
    if pairs:
        found += b"\0\x53\x74" + writing.map_of(pairs)
    return found


def _optional(value: Any, write: Any) -> bytes:
    return writing.NULL if value is None else write(value)


def annotated(sections: bytes, values: Mapping[str, object]) -> bytes:
    """Returns a bare lead with these message annotations in front of its own."""
    parts = [part for name, value in values.items() for part in (writing.symbol(name), _annotation(value))]
    own_count, own, rest = 0, b"", sections
    if sections.startswith(_ANNOTATIONS):
        own_count, own, rest = _map_items(sections, len(_ANNOTATIONS))
    return _ANNOTATIONS + writing.compound(0xC1, len(parts) + own_count, b"".join((*parts, own))) + rest


def _annotation(value: object) -> bytes:
    return b"\x81" + value.to_bytes(8, "big") if type(value) is int else writing.value(value)


def _map_items(sections: bytes, at: int) -> tuple[int, bytes, bytes]:
    """Returns the number of items of the map at ``at``, their bytes, and what is behind it."""
    size = 4 if sections[at] & 0x10 else 1
    begin = at + 1 + size
    stop = begin + int.from_bytes(sections[at + 1 : begin], "big")
    return int.from_bytes(sections[begin : begin + size], "big"), sections[begin + size : stop], sections[stop:]


def told_by_broker(sections: bytes) -> tuple[dict[str, object], bytes]:
    """Returns what the broker has said in the annotations of a lead, and the lead without that."""
    if not sections.startswith(_ANNOTATIONS):
        return {}, sections
    count, raw, rest = _map_items(sections, len(_ANNOTATIONS))
    told: dict[str, object] = {}
    pos = taken = 0
    while pos < len(raw):
        name, at = read(raw, pos, len(raw))
        if not (isinstance(name, Symbol) and _is_told(name)) or name in told:
            break
        told[str(name)], pos = read(raw, at, len(raw))
        taken += 2
    if taken == count:
        return told, rest
    left = raw[pos:]
    head = b"\xd1" + (len(left) + 4).to_bytes(4, "big") + (count - taken).to_bytes(4, "big")
    return told, _ANNOTATIONS + head + left + rest


def _is_told(name: str) -> bool:
    return name in (TOPIC, OFFSET) or name.startswith(f"{OPTION}gap-")
