"""Messages of JMS: read from a client's frames, and written into the frames for consumers.

Theory of operation. A message becomes a record: its body the payload, all else *common properties* (wire/common.py), in
which every other protocol and the queues understand it. For consumers of JMS it is written anew, from any record:

    lead: all up to the broker's number in the message's id | number, 8 bytes | rest: all after it, with the body

The number is the delivery's, or the record's sequence where nothing is acknowledged one by one. It is the only part of
a message that differs between consumers.

What JMS has and the others have not is in headers: ``JMSXGroupID`` and ``JMSXGroupSeq``, the types of properties
(maps.py), and the kind of the body in its content type (bodies.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from headway.core.message import Properties
from headway.wire.codecs import queue_form
from headway.wire.common import KEPT, Address, CommonProperties
from headway.wire.openwire.bodies import (
    BYTES,
    TEXT,
    Body,
    inflation_of,
    kind_of,
    read_body,
    read_inflated,
    write_content,
)
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.inflation import Inflation
from headway.wire.openwire.maps import TYPES, read_headers, write_headers
from headway.wire.openwire.marshalling import (
    Destination,
    FrameReader,
    LocalTransactionId,
    MessageId,
    Object,
    ProducerId,
    write_cached,
    write_object,
)
from headway.wire.openwire.primitives import (
    ABSENT,
    flag,
    i32,
    i64,
    malformed,
    optional_binary,
    optional_text,
)

GROUP, GROUP_SEQUENCE = "JMSXGroupID", "JMSXGroupSeq"
TYPE, CORRELATION = f"{KEPT}type", f"{KEPT}correlation"
"""Headers by which selectors find the type and the correlation id."""
DESTINATION_KIND = f"{KEPT}temporary"
"""Header of a message whose replies go to a temporary destination."""
_GROUP_HEADERS = frozenset({GROUP, GROUP_SEQUENCE})
"""Headers that are no properties in JMS."""
PRIORITY = 4
"""JMS's default; other protocols say nothing then."""
TAILS_MAX, TAIL_BYTES_MAX = 16, 200
PROPERTIES_BYTES_MAX = 128 * 1024
"""A million properties would take a second to read."""
SHARE_BYTES, INFLATED_SHARE_BYTES = 512, 2048
"""So many bytes of properties, or that an inflated body has grown by, take the time of one item."""
RECENT_MAX = 2048
RECENT_BYTES_MAX = 1024
SIZE_MIN = 1024
"""Bytes that the client counts for a message besides its body and properties."""
OWN_ID = "ID:headway"
"""The producer of messages that came without an id."""


class _Recent(dict[bytes, CommonProperties]):
    """Properties of messages that came lately, by what queues and the journal keep of them: most are written for
    consumers soon, and need not be read back for that."""

    def remember(self, properties: Properties, common: CommonProperties) -> None:
        native = properties.native
        if native is not None and len(native) <= RECENT_BYTES_MAX:
            if len(self) >= RECENT_MAX:
                self.clear()
            self[native] = common

    def of(self, properties: Properties) -> CommonProperties:
        found = self.get(properties.native) if properties.native is not None else None
        return queue_form().read_common(properties) if found is None else found


RECENT = _Recent()


PENDING = {Type.TEXT_MESSAGE: Body(b"", TEXT), Type.BYTES_MESSAGE: Body(b"", BYTES)}
"""Bodies that are not inflated yet, by their kinds."""


class Pending(NamedTuple):
    """A compressed body that came as ``raw``."""

    kind: int
    raw: bytes
    inflation: Inflation


class Message(NamedTuple):
    """A message as a client sent it."""

    producer: ProducerId | None
    destination: Destination
    transaction: LocalTransactionId | None
    payload: bytes
    common: CommonProperties
    expires_ms: int
    """When it expires, in milliseconds since 1970; 0: never."""
    id: MessageId | None
    size: int
    """As the client counts it in its producer's window."""
    work: int = 0
    """The work of reading it, in items, besides itself and its body."""
    pending: Pending | None = None
    """The body, if it has to be inflated first."""

    def inflated(self) -> Message:
        """Returns it with its body, which is done. Raises :class:`ProtocolError`."""
        assert self.pending is not None
        kind, raw, inflation = self.pending
        return self._replace(payload=read_inflated(kind, raw, inflation.take()).payload, pending=None)


def read_message(r: FrameReader, kind: int, bytes_max: int) -> Message:
    """Reads what stands after the command's number and whether it wants a response.
    Raises :class:`ProtocolError`."""
    producer, destination, transaction = r.cached("producer"), r.cached("destination"), r.cached("transaction")
    r.cached("original destination")
    message_id = r.nested("id")
    r.cached("original transaction")
    if not isinstance(destination, Destination):
        raise malformed("has no destination")
    if transaction is not None and not isinstance(transaction, LocalTransactionId):
        raise malformed("belongs to a distributed transaction, and there are none")
    group, group_sequence, correlation = r.text("group"), r.i32("group"), r.text("correlation id")
    persistent, expires_ms, priority = r.flag("flags"), r.i64("expiration"), r.u8("priority")
    reply_to, timestamp_ms, type_text = r.nested("reply address"), r.i64("timestamp"), r.text("type")
    content, marshalled = r.binary("body"), r.binary("properties")
    if marshalled and len(marshalled) > PROPERTIES_BYTES_MAX:
        raise malformed(f"has {len(marshalled)} bytes of properties (at most {PROPERTIES_BYTES_MAX})")
    compressed, user_id = _read_tail(r)
    headers = read_headers(marshalled) if marshalled else {}
    if group is not None:
        headers = {**headers, GROUP: group} | ({GROUP_SEQUENCE: group_sequence} if group_sequence else {})
    if isinstance(reply_to, Destination) and reply_to.is_temporary:
        headers = {**headers, DESTINATION_KIND: True}
    if type_text is not None or correlation is not None:
        headers = {**headers, **_selectable(type_text, correlation)}
    inflation = inflation_of(kind, content, bytes_max) if compressed else None
    body = PENDING[Type(kind)] if inflation is not None else read_body(kind, content, compressed=compressed)
    lifetime_ms = max(1, expires_ms - timestamp_ms) if expires_ms > 0 and timestamp_ms > 0 else None
    common = CommonProperties(
        content_type=body.content_type, content_encoding=body.encoding, correlation_id=correlation,
        reply_to=address_of(reply_to), message_id=str(message_id) if isinstance(message_id, MessageId) else None,
        timestamp_ms=timestamp_ms or None, type=type_text, priority=priority if priority != PRIORITY else None,
        expiration_ms=lifetime_ms, user_id=user_id, persistent=persistent, headers=headers,
    )  # fmt: skip
    return Message(
        producer if isinstance(producer, ProducerId) else None, destination, transaction, body.payload, common,
        expires_ms, message_id if isinstance(message_id, MessageId) else None,
        SIZE_MIN + len(marshalled or b"") + len(content or b""),
        len(marshalled or b"") // SHARE_BYTES, None if inflation is None else Pending(kind, content or b"", inflation),
    )  # fmt: skip


def _read_tail(r: FrameReader) -> tuple[bool, str | None]:
    """Reads what stands behind a message's properties: whether its body is compressed, and its user's id. All else is
    of brokers. Most messages of a client have the same bytes there, which are read once."""
    tail = r.data[r.pos : r.end]
    known = r.tails.get(tail)
    if known is not None:
        return known
    structure = r.nested("structure")
    defines = r.cache is not None and r.data[r.pos : r.pos + 1] == b"\1"
    r.cached("consumer")
    compressed = r.flag("flags")
    r.i32("redelivery counter")
    r.objects("path of brokers")
    r.i64("arrival")
    found = compressed, r.text("user id")
    if structure is None and not defines and len(tail) <= TAIL_BYTES_MAX:
        if len(r.tails) >= TAILS_MAX:
            r.tails.clear()
        r.tails[tail] = found
    return found


def _selectable(type_text: str | None, correlation: str | None) -> dict[str, object]:
    """Returns headers that selectors of consumers read."""
    found = {TYPE: type_text, CORRELATION: correlation}
    return {name: text for name, text in found.items() if text is not None}


def address_of(reply_to: Object | None) -> Address | None:
    if not isinstance(reply_to, Destination) or not reply_to.name:
        return None
    if reply_to.is_topic:
        return Address(reply_to.name.translate(_SWAP), is_topic=True)
    return Address(reply_to.name)


_SWAP = str.maketrans("./", "/.")


# -- writing -----------------------------------------------------------------------------------------------------------


class WrittenMessage(NamedTuple):
    """A message for consumers: the broker's number goes in between."""

    lead: bytes
    rest: bytes


def write_message(
    destination: Destination, common: CommonProperties, properties: Properties, payload: bytes, own_id: MessageId,
    form: Form, structure: bytes = ABSENT,
) -> WrittenMessage:  # fmt: skip
    """Writes a record as a message. ``own_id``: its id if its publisher gave it none. The lifetime is counted from the
    time that the publisher gave. ``structure``: an object that it carries."""
    kind = kind_of(common.content_type, common.content_encoding, properties.payload_format)
    content = write_content(kind, payload, common.content_type, common.content_encoding)
    headers = common.headers
    group, group_sequence, temporary = headers.get(GROUP), headers.get(GROUP_SEQUENCE), DESTINATION_KIND in headers
    kept = [name for name in headers if (name.startswith(KEPT) and name != TYPES) or name in _GROUP_HEADERS]
    if kept:
        headers = {name: value for name, value in headers.items() if name not in kept}
    message_id = own_id if common.message_id is None else parse_message_id(common.message_id, own_id)
    timestamp_ms = common.timestamp_ms or 0
    expires_ms = timestamp_ms + common.expiration_ms if common.expiration_ms and timestamp_ms else 0
    nothing = write_cached(None, form)
    lead = b"".join((
        bytes((1, content.kind)), b"\0\0\0\0\0", write_cached(message_id.producer, form),
        write_cached(destination, form), nothing, nothing, b"\1", _id_lead(message_id, form),
    ))  # fmt: skip
    rest = b"".join((
        nothing,
        optional_text(None if group is None else str(group)),
        i32(group_sequence) if isinstance(group_sequence, int) and abs(group_sequence) < 2**31 else i32(0),
        optional_text(common.correlation_id), flag(common.persistent), i64(expires_ms),
        bytes((min(9, PRIORITY if common.priority is None else common.priority),)),
        _reply_to(common.reply_to, temporary), i64(timestamp_ms), optional_text(common.type),
        optional_binary(content.raw), optional_binary(write_headers(headers)), structure, nothing,
        flag(content.compressed), b"\0\0\0\0" b"\0" b"\0\0\0\0\0\0\0\0",
        optional_text(common.user_id), b"\0\0\0" b"\0\0\0\0\0\0\0\0" b"\0\0\0\0\0\0\0\0",
        b"\0" if form.version >= 10 else b"",
    ))  # fmt: skip
    return WrittenMessage(lead, rest)


def _id_lead(message_id: MessageId, form: Form) -> bytes:
    """Writes an id up to the broker's number, which ends it."""
    text = optional_text(message_id.text) if form.version >= 10 else b""
    kind = bytes((Type.MESSAGE_ID,))
    return kind + text + write_cached(message_id.producer, form) + i64(message_id.sequence)


def parse_message_id(text: str, own_id: MessageId) -> MessageId:
    """Returns the id whose text this is, as the sender's client sees it; an id of another kind keeps its text."""
    of, _, sequence = text.rpartition(":")
    producer = _producer(of)
    if producer is not None and _is_number(sequence):
        return MessageId(None, producer, int(sequence))
    return own_id._replace(text=text)


def _is_number(text: str) -> bool:
    """Tells whether this is how Java writes a number of 64 bits that is not negative."""
    return text.isascii() and text.isdigit() and len(text) < 19 and (text[0] != "0" or text == "0")


@lru_cache(1024)
def _producer(text: str) -> ProducerId | None:
    connection, *numbers = text.rsplit(":", 2)
    if len(numbers) != 2 or not all(map(_is_number, numbers)):
        return None
    return ProducerId(connection, int(numbers[0]), int(numbers[1]))


def _reply_to(address: Address | None, temporary: bool) -> bytes:
    if address is None:
        return b"\0"
    if address.is_topic:
        return write_object(Destination(Type.TEMP_TOPIC if temporary else Type.TOPIC, address.name.translate(_SWAP)))
    return write_object(Destination(Type.TEMP_QUEUE if temporary else Type.QUEUE, address.name))
