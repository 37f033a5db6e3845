"""Objects in frames: destinations and ids, and the cache that both sides may keep of them.

    not cached: present? | type | fields
    cached:     new? | number | present? | type | fields      the first time
                not new  | number                             from then on

The number -1 keeps nothing. The client chooses the numbers of what it writes, and Headway those of what it writes, so
they are two tables. Headway remembers a client's objects in an :class:`ObjectCache`, whose bytes are limited; and it
gives a number to a consumer's id alone (server/openwire/consuming.py), for that is what differs between the deliveries
for two consumers.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from headway.core.base import ProtocolError, Reason
from headway.wire.common import BytesReader
from headway.wire.openwire.codes import Form, Type

# -- primitives --------------------------------------------------------------------------------------------------------
#
# Reads and writes the data types of OpenWire: numbers, Java's texts, optional fields.
#
# Texts are in Java's *modified* UTF-8: NUL has two bytes, and a character beyond U+FFFF is two surrogates of three
# bytes each. Most texts have neither, and are plain UTF-8.


TEXT_BYTES_MAX = 65_535
_I32, _I64 = Struct(">i"), Struct(">q")
ABSENT = b"\0"
"""An optional field that is not there."""


def malformed(text: str) -> ProtocolError:
    """Returns the error for bytes that do not parse."""
    return ProtocolError(text, reason=Reason.MALFORMED)


class OpenWireReader(BytesReader):
    """Reads the body of one frame in order."""

    __slots__ = ()
    malformed = staticmethod(malformed)

    def flag(self, what: str) -> bool:
        return self.data[self.take(1, what)] != 0

    def i32(self, what: str) -> int:
        number: int = _I32.unpack_from(self.data, self.take(4, what))[0]
        return number

    def i64(self, what: str) -> int:
        number: int = _I64.unpack_from(self.data, self.take(8, what))[0]
        return number

    def text(self, what: str) -> str | None:
        """Reads an optional text with a length of two bytes."""
        return self.utf(what) if self.data[self.take(1, what)] else None

    def utf(self, what: str) -> str:
        size = self.u16(what)
        at = self.take(size, what)
        return read_utf(self.data[at : at + size], what)

    def binary(self, what: str) -> bytes | None:
        """Reads optional bytes with a length of four bytes."""
        if not self.flag(what):
            return None
        size = self.i32(what)
        if size < 0:
            raise malformed(f"has a negative length of its {what}")
        at = self.take(size, what)
        return self.data[at : at + size]


def read_utf(raw: bytes, what: str = "text") -> str:
    """Returns a text in modified UTF-8; a surrogate without its other half becomes a question mark."""
    try:
        if b"\xed" not in raw and b"\xc0" not in raw:
            return raw.decode()
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise malformed(f"has a {what} that is no modified UTF-8") from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\ufffd", "?")


def utf(text: str) -> bytes:
    """Returns a text in modified UTF-8."""
    raw = text.encode(errors="replace")
    if b"\0" not in raw and (text.isascii() or max(text) <= "\uffff"):
        return raw
    halves = text.encode("utf-16-be", "replace")
    units = "".join(chr(halves[at] << 8 | halves[at + 1]) for at in range(0, len(halves), 2))
    return units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def i32(number: int) -> bytes:
    return _I32.pack(number)


def i64(number: int) -> bytes:
    return _I64.pack(number)


def flag(truth: bool) -> bytes:
    return b"\1" if truth else b"\0"


def short_utf(text: str) -> bytes:
    """Writes a text with its length in two bytes; what is too long is cut off."""
    raw = utf(text)
    if len(raw) > TEXT_BYTES_MAX:
        raw = utf(read_utf(raw[: TEXT_BYTES_MAX - 6].rsplit(b"\xed", 1)[0].decode(errors="ignore").encode()))
    return len(raw).to_bytes(2, "big") + raw


def optional_text(text: str | None) -> bytes:
    return ABSENT if text is None else b"\1" + short_utf(text)


def optional_binary(raw: bytes | None) -> bytes:
    return ABSENT if raw is None else b"\1" + i32(len(raw)) + raw


# -- marshalling -------------------------------------------------------------------------------------------------------


CACHE_OBJECTS = 1024
"""Objects that a client keeps by the broker's numbers, as both say in the greeting; fewer if it wants fewer."""
CACHE_ENTRIES_MAX = 16_384
CACHE_BYTES_MAX = 4 * 1024 * 1024
"""The most that the objects of one client may take up; more than any JMS client uses."""
ENTRY_BYTES = 200
REMEMBERED_BYTES_MAX = 256
ID_BYTES_MAX = 1000
"""The broker remembers thousands of a client's ids."""
_MESSAGE_ID = int(Type.MESSAGE_ID)
_DESTINATIONS = range(Type.QUEUE, Type.TEMP_TOPIC + 1)
_NUMBERS_BEHIND = {
    int(kind): numbers for kind, numbers in [
        (Type.QUEUE, 0), (Type.TOPIC, 0), (Type.TEMP_QUEUE, 0), (Type.TEMP_TOPIC, 0), (Type.CONNECTION_ID, 0),
        (Type.BROKER_ID, 0), (Type.SESSION_ID, 1), (Type.CONSUMER_ID, 2), (Type.PRODUCER_ID, 2),
    ]
}  # fmt: skip
"""How many numbers stand behind an object's text."""
NOT_KEPT = b"\1\xff\xff"
"""The bytes before an object of which nothing is to be kept."""


class Destination(NamedTuple):
    """A queue or topic as clients name it. ``name`` may have several names with commas."""

    kind: Type
    name: str

    @property
    def is_topic(self) -> bool:
        return self.kind is Type.TOPIC or self.kind is Type.TEMP_TOPIC

    @property
    def is_temporary(self) -> bool:
        return self.kind is Type.TEMP_QUEUE or self.kind is Type.TEMP_TOPIC

    def __str__(self) -> str:
        return f"{self.kind.name.lower().replace('_', '-')}://{self.name}"


class ConnectionId(NamedTuple):
    value: str


class SessionId(NamedTuple):
    connection: str
    value: int


class ConsumerId(NamedTuple):
    connection: str
    session: int
    value: int

    def __str__(self) -> str:
        return f"{self.connection}:{self.session}:{self.value}"


class ProducerId(NamedTuple):
    connection: str
    session: int
    value: int

    def __str__(self) -> str:
        return f"{self.connection}:{self.session}:{self.value}"


class BrokerId(NamedTuple):
    value: str


class LocalTransactionId(NamedTuple):
    value: int
    connection: ConnectionId | None


class XaTransactionId(NamedTuple):
    pass


class MessageId(NamedTuple):
    """``sequence`` is the producer's; ``delivery`` is the broker's number, which comes back in acknowledgements."""

    text: str | None
    producer: ProducerId
    sequence: int
    delivery: int = 0

    def __str__(self) -> str:
        if self.text is not None:
            return self.text if self.text.startswith("ID:") else f"ID:{self.text}"
        return f"{self.producer}:{self.sequence}"


Object = (
    Destination | ConnectionId | SessionId | ConsumerId | ProducerId | BrokerId | LocalTransactionId | XaTransactionId
    | MessageId
)  # fmt: skip


class ObjectCache:
    """The objects that a client has numbered."""

    __slots__ = ("_known", "changes", "size")

    def __init__(self) -> None:
        self.size = 0
        """Bytes that the objects take up, about."""
        self.changes = 0
        """How often an object was numbered."""
        self._known: dict[int, tuple[Object | None, int]] = {}

    def get(self, number: int) -> Object | None:
        try:
            return self._known[number][0]
        except KeyError:
            raise malformed(f"names object {number}, which was never sent") from None

    def put(self, number: int, known: Object | None, size: int) -> None:
        if number >= CACHE_ENTRIES_MAX:
            raise malformed(f"numbers an object as {number} (at most {CACHE_ENTRIES_MAX - 1})")
        old = self._known.get(number)
        self.size += ENTRY_BYTES + size - (0 if old is None else ENTRY_BYTES + old[1])
        if self.size > CACHE_BYTES_MAX:
            raise malformed(f"has objects of more than {CACHE_BYTES_MAX} bytes remembered")
        self._known[number] = known, size
        self.changes += 1


class FrameReader(OpenWireReader):
    """Reads one frame, with the objects in it. ``cache`` None: the client has no cache. ``places``: where the parts are
    that differ between frames of one kind (alike.py)."""

    __slots__ = ("cache", "places", "tails", "version")

    def __init__(self, data: bytes, pos: int, end: int, version: int, cache: ObjectCache | None,
                 tails: dict[bytes, tuple[bool, str | None]] | None = None) -> None:  # fmt: skip
        super().__init__(data, pos, end)
        self.version = version
        self.cache = cache
        self.places: list[int] = []
        self.tails: dict[bytes, tuple[bool, str | None]] = {} if tails is None else tails
        """Ends of messages that were read lately (messages.py)."""

    def cached(self, what: str) -> Object | None:
        if self.cache is None:
            return self.nested(what)
        data, pos = self.data, self.take(3, what)
        number, at = data[pos + 1] << 8 | data[pos + 2], self.pos
        if not data[pos]:
            return self.cache.get(number)
        found = self.nested(what)
        if number != 0xFFFF:
            self.cache.put(number, found, self.pos - at)
        return found

    def nested(self, what: str) -> Object | None:
        if not self.data[self.take(1, what)]:
            return None
        kind = self.u8(what)
        if kind == _MESSAGE_ID:
            return self._message_id(what)
        numbers = _NUMBERS_BEHIND.get(kind)
        if numbers is not None:  # a text, and some numbers
            start = self.pos
            named = self.data[self.take(1, what)]
            text_bytes = self.u16(what) if named else 0
            if text_bytes > ID_BYTES_MAX and kind not in _DESTINATIONS:
                raise malformed(f"has an id of {text_bytes} bytes as its {what} (at most {ID_BYTES_MAX})")
            self.take(text_bytes + 8 * numbers, what)
            raw = self.data[start : self.pos]
            return _known(kind, raw) if len(raw) <= REMEMBERED_BYTES_MAX else _read_object(kind, raw)
        match kind:
            case Type.LOCAL_TRANSACTION_ID:
                value, of = self.i64(what), self.cached(what)
                return LocalTransactionId(value, of if isinstance(of, ConnectionId) else None)
            case Type.XA_TRANSACTION_ID:
                self.i32(what)
                self.binary(what)
                self.binary(what)
                return XaTransactionId()
        raise malformed(f"has an object of the unknown type {kind} as its {what}")

    def _message_id(self, what: str) -> MessageId:
        text = self.text(what) if self.version >= 10 else None
        producer = self.cached(what)
        if not isinstance(producer, ProducerId):
            raise malformed(f"has no producer in its {what}")
        self.places.append(self.pos)
        return MessageId(text, producer, self.i64(what), self.i64(what))

    def objects(self, what: str) -> None:
        """Reads an optional array of objects, which only other brokers send, and forgets it."""
        if self.flag(what):
            for _ in range(self.u16(what)):
                self.nested(what)


def _read_object(kind: int, raw: bytes) -> Object:
    """Reads an object that is a text and some numbers."""
    r = OpenWireReader(raw)
    text = r.text("name") or ""
    match kind:
        case Type.CONSUMER_ID:
            return ConsumerId(text, r.i64("number"), r.i64("number"))
        case Type.PRODUCER_ID:
            value = r.i64("number")
            return ProducerId(text, r.i64("number"), value)
        case Type.SESSION_ID:
            return SessionId(text, r.i64("number"))
        case Type.CONNECTION_ID:
            return ConnectionId(text)
        case Type.BROKER_ID:
            return BrokerId(text)
    return Destination(Type(kind), text)


_known = lru_cache(4096)(_read_object)


def write_object(known: Object) -> bytes:
    """Writes an object that has no cached objects within: all but ids of transactions and messages."""
    match known:
        case Destination(kind, name):
            return bytes((1, kind)) + optional_text(name)
        case ConsumerId(connection, session, value):
            return bytes((1, Type.CONSUMER_ID)) + optional_text(connection) + i64(session) + i64(value)
        case ProducerId(connection, session, value):
            return bytes((1, Type.PRODUCER_ID)) + optional_text(connection) + i64(value) + i64(session)
        case ConnectionId(text):
            return bytes((1, Type.CONNECTION_ID)) + optional_text(text)
        case BrokerId(text):
            return bytes((1, Type.BROKER_ID)) + optional_text(text)
    raise AssertionError(f"the broker sends no {known!r}")


def _write_cached(known: Object | None, form: Form) -> bytes:
    raw = ABSENT if known is None else write_object(known)
    return NOT_KEPT + raw if form.cached else raw


_written_lately = lru_cache(512, typed=True)(_write_cached)


def write_cached(known: Object | None, form: Form) -> bytes:
    """Writes an object where a cached one may stand, whole and to be kept by nobody."""
    if type(known) is Destination and len(known.name) > REMEMBERED_BYTES_MAX:  # ids are short (ID_BYTES_MAX)
        return _write_cached(known, form)
    return _written_lately(known, form)


def write_numbered(known: Object, number: int) -> bytes:
    """Writes an object that the client is to keep under this number."""
    return b"\1" + number.to_bytes(2, "big") + write_object(known)


def write_number(number: int) -> bytes:
    """Writes an object that the client has kept."""
    return b"\0" + number.to_bytes(2, "big")
