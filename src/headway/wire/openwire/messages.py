"""Messages of JMS: read from a client's frames, and written into the frames for consumers.

Theory of operation. A message becomes a record: its body the payload, all else *common properties* (wire/common.py), in
which every other protocol and the queues understand it. For consumers of JMS it is written anew, from any record:

    lead: all up to the broker's number in the message's id | number, 8 bytes | rest: all after it, with the body

The number is the delivery's, or the record's sequence where nothing is acknowledged one by one. It is the only part of
a message that differs between consumers.

What JMS has and the others have not is in headers: ``JMSXGroupID`` and ``JMSXGroupSeq``, the types of properties
(maps.py), and the kind of the body in its content type.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from headway.core.base import ProtocolError
from headway.core.message import Properties
from headway.wire.codecs import queue_form
from headway.wire.common import KEPT, Address, CommonProperties
from headway.wire.dialect import Numbering
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.maps import TYPES, read_headers, write_headers
from headway.wire.openwire.marshalling import (
    ABSENT,
    REMEMBERED_BYTES_MAX,
    Destination,
    FrameReader,
    LocalTransactionId,
    MessageId,
    Object,
    ProducerId,
    flag,
    i32,
    i64,
    malformed,
    optional_binary,
    optional_text,
    read_utf,
    utf,
    write_cached,
    write_object,
)

# -- inflation ---------------------------------------------------------------------------------------------------------
#
# A compressed body is inflated in pieces, for a large one takes tens of milliseconds.


PIECE_BYTES = 128 * 1024
INPUT_BYTES = 64 * 1024
INPUTS_MAX = 4
"""Inputs of one step: there is input that inflates to nothing."""


class Inflation:
    """The inflation of one body, to ``bytes_max`` at most."""

    __slots__ = ("_at", "_bytes_max", "_inflater", "_pieces", "_raw", "begun", "bytes")

    def __init__(self, raw: bytes, bytes_max: int) -> None:
        self._raw = raw
        self._bytes_max = bytes_max
        self.begun = False
        self.start_over()

    @property
    def done(self) -> bool:
        return self._inflater.eof

    def step(self) -> int:
        """Inflates the next piece. Returns its size, or that of the input if that is more. Raises ProtocolError."""
        inflater, produced, taken, self.begun = self._inflater, 0, 0, True
        for _ in range(INPUTS_MAX):
            data = inflater.unconsumed_tail
            if not data:
                data = self._raw[self._at : self._at + INPUT_BYTES]
                self._at += len(data)
            taken += len(data)
            try:
                piece = inflater.decompress(data, PIECE_BYTES - produced)
            except zlib.error as error:
                raise malformed(f"has a body that cannot be inflated ({error})") from None
            produced += len(piece)
            self._pieces.append(piece)
            if inflater.eof or produced >= PIECE_BYTES:
                break
            if not data:
                raise self._too_large_or_short()
        self.bytes += produced
        if self.bytes > self._bytes_max:
            raise self._too_large_or_short()
        return max(produced, taken)

    def _too_large_or_short(self) -> ProtocolError:
        return malformed(f"has a body that cannot be inflated, or to more than {self._bytes_max} bytes")

    def start_over(self) -> None:
        """Gives back the memory of what is inflated, because nothing goes on for now."""
        self._at = 0
        """How much of ``_raw`` the inflater was given."""
        self._inflater = zlib.decompressobj()
        self._pieces: list[bytes] = []
        self.bytes = 0
        """Size of what is inflated."""

    def take(self) -> bytes:
        """Returns the body, which is done."""
        return b"".join(self._pieces)


# -- bodies ------------------------------------------------------------------------------------------------------------
#
# Bodies of messages: JMS's five types, and the payloads and content types that they are elsewhere.
#
# A text and bytes are plain payloads, for consumers of all protocols. The body of a map, a stream or an object is
# Java's own; it stays as it is, and its content type says what it is. A body that the client has compressed is inflated
# if it is a text or bytes; else the encoding says ``deflate``.


TEXT, BYTES = "text/plain", "application/octet-stream"
NULL_TEXT = "text/plain; jms=null"
"""A TextMessage without a text, which is not an empty one."""
_CONTENT_TYPES = {
    Type.MESSAGE: "application/x-jms-message", Type.MAP_MESSAGE: "application/x-jms-map",
    Type.STREAM_MESSAGE: "application/x-jms-stream", Type.OBJECT_MESSAGE: "application/x-java-serialized-object",
}  # fmt: skip
_KINDS = {content_type: kind for kind, content_type in _CONTENT_TYPES.items()}
DEFLATE = "deflate"
_TEXTUAL = ("text/", "application/json", "application/xml", "application/sql", "application/javascript")


class Body(NamedTuple):
    """A payload, and what it is."""

    payload: bytes
    content_type: str
    encoding: str | None = None


class Content(NamedTuple):
    """A body as JMS has it; ``raw`` None: there is none."""

    kind: Type
    raw: bytes | None
    compressed: bool = False


def inflation_of(kind: int, raw: bytes | None, bytes_max: int) -> Inflation | None:
    """Returns how a compressed body is inflated; None: it stays as it is."""
    if kind == Type.TEXT_MESSAGE and raw is not None:
        return Inflation(raw, bytes_max)
    if kind == Type.BYTES_MESSAGE and raw:
        return Inflation(raw[4:], bytes_max)
    return None


def read_inflated(kind: int, raw: bytes, inflated: bytes) -> Body:
    """Returns the payload of a message that came as ``raw``. Raises :class:`ProtocolError`."""
    if kind == Type.BYTES_MESSAGE:
        inflated = inflated[: int.from_bytes(raw[:4], "big")]  # the client deflates zeros behind it
    return read_body(kind, inflated, compressed=False)


def read_body(kind: int, raw: bytes | None, *, compressed: bool) -> Body:
    """Returns the payload of a message; a text or bytes are not compressed. Raises :class:`ProtocolError`."""
    if kind == Type.TEXT_MESSAGE:
        if raw is None:
            return Body(b"", NULL_TEXT)
        if len(raw) < 4 or int.from_bytes(raw[:4], "big") != len(raw) - 4:
            raise malformed("is a text whose length is not that of its body")
        text = raw[4:]
        if b"\xed" in text or b"\xc0" in text:
            text = read_utf(text).encode()
        return Body(text, TEXT)
    if kind == Type.BYTES_MESSAGE:
        return Body(raw or b"", BYTES)
    return Body(raw or b"", _CONTENT_TYPES[Type(kind)], DEFLATE if compressed and raw else None)


def kind_of(content_type: str | None, encoding: str | None, payload_format: int | None) -> Type:
    """Returns the type that a payload with these properties has in JMS. A text has to be UTF-8, too."""
    if content_type is None:
        return Type.TEXT_MESSAGE if payload_format == 1 else Type.BYTES_MESSAGE
    kind = _KINDS.get(content_type)
    if kind is not None:
        return kind
    textual = content_type.startswith(_TEXTUAL) or content_type.endswith(("+json", "+xml")) or payload_format == 1
    return Type.TEXT_MESSAGE if textual and not encoding else Type.BYTES_MESSAGE


def write_content(kind: Type, payload: bytes, content_type: str | None, encoding: str | None) -> Content:
    """Returns a payload as the body of a message of this type."""
    if kind is Type.TEXT_MESSAGE:
        if content_type == NULL_TEXT and not payload:
            return Content(kind, None)
        if payload.isascii() and b"\0" not in payload:
            return Content(kind, i32(len(payload)) + payload)
        try:
            raw = utf(payload.decode())
        except UnicodeDecodeError:
            return Content(Type.BYTES_MESSAGE, payload)
        return Content(kind, i32(len(raw)) + raw)
    if kind is Type.BYTES_MESSAGE:
        return Content(kind, payload or None)
    return Content(kind, payload or None, encoding == DEFLATE)


# -- messages ----------------------------------------------------------------------------------------------------------


GROUP, GROUP_SEQUENCE = "JMSXGroupID", "JMSXGroupSeq"
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
NUMBERINGS_MAX = 8
STEMS_MAX = 8
"""So many forms of a numbering's messages are remembered."""
RECENT_MAX = 1024
RECENT_BYTES_MAX = 512
SIZE_MIN = 1024
"""Bytes that the client counts for a message besides its body and properties."""
OWN_ID = "ID:headway"
"""The producer of messages that came without an id."""


class _Recent(dict[bytes, CommonProperties]):
    """Properties of messages that came lately, by what queues and the journal keep of them: most are written for
    consumers soon, and need not be read back for that. Those of producers that say the same of all their messages are
    known by their numberings."""

    def __init__(self) -> None:
        super().__init__()
        self._numberings: list[Numbering] = []

    def note(self, numbering: Numbering) -> None:
        """Remembers a numbering."""
        if numbering not in self._numberings:
            self._numberings = [numbering, *self._numberings[: NUMBERINGS_MAX - 1]]

    def numbered(self, native: bytes) -> tuple[Numbering, int, int] | None:
        """Returns the numbering of properties, with their number and time; None: none is known."""
        for place, numbering in enumerate(self._numberings):
            found = numbering.read(native)
            if found is not None:
                if place:
                    self._numberings.remove(numbering)
                    self._numberings.insert(0, numbering)
                return numbering, *found
        return None

    def remember(self, properties: Properties, common: CommonProperties) -> None:
        native = properties.native
        if native is not None and len(native) <= RECENT_BYTES_MAX:
            if len(self) >= RECENT_MAX:
                self.clear()
            self[native] = common

    def of(self, properties: Properties) -> CommonProperties:
        native = properties.native
        if native is None:
            return queue_form().read_common(properties)
        found = self.get(native)
        if found is None and (known := self.numbered(native)) is not None:
            numbering, number, time_ms = known
            message_id = f"{numbering.stem}{number}"
            return msgspec.structs.replace(numbering.common, message_id=message_id, timestamp_ms=time_ms or None)
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
    persistent, places = r.flag("flags"), r.places
    places.append(r.pos)
    expires_ms, priority, reply_to = r.i64("expiration"), r.u8("priority"), r.nested("reply address")
    places.append(r.pos)
    timestamp_ms, type_text = r.i64("timestamp"), r.text("type")
    places.append(r.pos)
    content = r.binary("body")
    places.append(r.pos)
    marshalled = r.binary("properties")
    if marshalled and len(marshalled) > PROPERTIES_BYTES_MAX:
        raise malformed(f"has {len(marshalled)} bytes of properties (at most {PROPERTIES_BYTES_MAX})")
    compressed, user_id = _read_tail(r)
    headers = read_headers(marshalled) if marshalled else {}
    if group is not None:
        headers = {**headers, GROUP: group} | ({GROUP_SEQUENCE: group_sequence} if group_sequence else {})
    if isinstance(reply_to, Destination) and reply_to.is_temporary:
        headers = {**headers, DESTINATION_KIND: True}
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


class WrittenStem(NamedTuple):
    """The parts that are the same in all messages of a numbering (wire/dialect.py), for consumers. Between them are
    the producer's number and the broker's, the time, the body with its size."""

    kind: Type
    lead: bytes
    """The bytes from the delivery's destination on."""
    before_time: bytes
    behind_time: bytes
    behind_body: bytes


def write_message(
    destination: Destination, common: CommonProperties, properties: Properties, payload: bytes, own_id: MessageId,
    form: Form, structure: bytes = ABSENT,
) -> WrittenMessage:  # fmt: skip
    """Writes a record as a message. ``own_id``: its id if its publisher gave it none. The lifetime is counted from the
    time that the publisher gave. ``structure``: an object that it carries."""
    kind = kind_of(common.content_type, common.content_encoding, properties.payload_format)
    content = write_content(kind, payload, common.content_type, common.content_encoding)
    message_id = own_id if common.message_id is None else parse_message_id(common.message_id, own_id)
    timestamp_ms = common.timestamp_ms or 0
    expires_ms = timestamp_ms + common.expiration_ms if common.expiration_ms and timestamp_ms else 0
    before_time, behind_time, behind_body = _around(common, expires_ms, form, structure, compressed=content.compressed)
    lead = _lead(content.kind, destination, message_id, form) + i64(message_id.sequence)
    rest = b"".join((before_time, i64(timestamp_ms), behind_time, optional_binary(content.raw), behind_body))
    return WrittenMessage(lead, rest)


def stem_of(numbering: Numbering, destination: Destination, form: Form) -> WrittenStem | None:
    """Returns what is the same in all messages of a numbering. None: there is more that differs."""
    known, key = numbering.written, ("openwire", form, destination)
    if key not in known:
        if len(known) >= STEMS_MAX:
            known.clear()
        known[key] = _write_stem(numbering, destination, form)
    stem: WrittenStem | None = known[key]
    return stem


def _write_stem(numbering: Numbering, destination: Destination, form: Form) -> WrittenStem | None:
    common, producer = numbering.common, _producer(numbering.stem.removesuffix(":"))
    if producer is None or common.expiration_ms:
        return None
    kind = kind_of(common.content_type, common.content_encoding, None)
    compressed = write_content(kind, b"-", common.content_type, common.content_encoding).compressed
    before_time, behind_time, behind_body = _around(common, 0, form, ABSENT, compressed=compressed)
    lead = write_cached(destination, form) + _lead(kind, destination, MessageId(None, producer, 0), form)
    return WrittenStem(kind, lead, before_time, behind_time + b"\1", behind_body)


def write_bodies(kind: Type, payloads: Sequence[bytes]) -> Sequence[bytes] | None:
    """Returns payloads as bodies of messages of this type. None: one of them is no body of that type, or none."""
    if not all(payloads):
        return None
    if kind is not Type.TEXT_MESSAGE:
        return payloads
    if not all(payload.isascii() and b"\0" not in payload for payload in payloads):
        contents = [write_content(kind, payload, None, None) for payload in payloads]
        return [raw or b"" for _, raw, _ in contents] if all(one.kind is kind for one in contents) else None
    return [i32(len(payload)) + payload for payload in payloads]


def _lead(kind: Type, destination: Destination, message_id: MessageId, form: Form) -> bytes:
    """Writes a message up to the producer's number."""
    nothing = write_cached(None, form)
    return b"".join((
        bytes((1, kind)), b"\0\0\0\0\0", write_cached(message_id.producer, form),
        write_cached(destination, form), nothing, nothing, b"\1", _id_lead(message_id, form),
    ))  # fmt: skip


def _around(
    common: CommonProperties, expires_ms: int, form: Form, structure: bytes, *, compressed: bool
) -> tuple[bytes, bytes, bytes]:
    """Writes what stands between the message's numbers and its time, between this and the body, and behind that."""
    headers, nothing = common.headers, write_cached(None, form)
    group, group_sequence, temporary = headers.get(GROUP), headers.get(GROUP_SEQUENCE), DESTINATION_KIND in headers
    kept = [name for name in headers if (name.startswith(KEPT) and name != TYPES) or name in _GROUP_HEADERS]
    if kept:
        headers = {name: value for name, value in headers.items() if name not in kept}
    before_time = b"".join((
        nothing,
        optional_text(None if group is None else str(group)),
        i32(group_sequence) if isinstance(group_sequence, int) and abs(group_sequence) < 2**31 else i32(0),
        optional_text(common.correlation_id), flag(common.persistent), i64(expires_ms),
        bytes((min(9, PRIORITY if common.priority is None else common.priority),)),
        _reply_to(common.reply_to, temporary),
    ))  # fmt: skip
    behind_body = b"".join((
        optional_binary(write_headers(headers)), structure, nothing,
        flag(compressed), b"\0\0\0\0" b"\0" b"\0\0\0\0\0\0\0\0",
        optional_text(common.user_id), b"\0\0\0" b"\0\0\0\0\0\0\0\0" b"\0\0\0\0\0\0\0\0",
        b"\0" if form.version >= 10 else b"",
    ))  # fmt: skip
    return before_time, optional_text(common.type), behind_body


def _id_lead(message_id: MessageId, form: Form) -> bytes:
    """Writes an id up to its two numbers, which end it."""
    text = optional_text(message_id.text) if form.version >= 10 else b""
    return bytes((Type.MESSAGE_ID,)) + text + write_cached(message_id.producer, form)


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


def _read_producer(text: str) -> ProducerId | None:
    connection, *numbers = text.rsplit(":", 2)
    if len(numbers) != 2 or not all(map(_is_number, numbers)):
        return None
    return ProducerId(connection, int(numbers[0]), int(numbers[1]))


_producers_lately = lru_cache(1024)(_read_producer)


def _producer(text: str) -> ProducerId | None:
    return _producers_lately(text) if len(text) <= REMEMBERED_BYTES_MAX else _read_producer(text)


def _reply_to(address: Address | None, temporary: bool) -> bytes:
    if address is None:
        return b"\0"
    if address.is_topic:
        return write_object(Destination(Type.TEMP_TOPIC if temporary else Type.TOPIC, address.name.translate(_SWAP)))
    return write_object(Destination(Type.TEMP_QUEUE if temporary else Type.QUEUE, address.name))
