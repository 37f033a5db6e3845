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

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Generic, NamedTuple, TypeVar

import msgspec

from headway.core.base import ProtocolError
from headway.core.message import TOPICS, Record, Run, routing_key_of, topic_of

# -- common ------------------------------------------------------------------------------------------------------------


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


# -- partial -----------------------------------------------------------------------------------------------------------
#
# Partial input, for every codec: keeps the start of an incomplete frame, and reads the fields of complete frames.


class Tail:
    """The received part of a frame. It is not parsed again until the frame can be complete."""

    __slots__ = ("data", "need_bytes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.need_bytes = 0
        """Least size of the complete frame."""

    @property
    def missing_bytes(self) -> int:
        return max(0, self.need_bytes - len(self.data)) if self.data else 0

    def join(self, data: bytes | bytearray | memoryview) -> bytes | None:
        """Joins the kept part and the new bytes; None: the frame is still incomplete, and the bytes are kept."""
        if self.data:
            if len(self.data) + len(data) < self.need_bytes:
                self.data += data
                return None
            return b"".join((self.data, data))
        return data if type(data) is bytes else bytes(data)

    def keep(self, data: bytes, start: int) -> None:
        """Keeps only the bytes from ``start`` on."""
        self.data = bytearray(data[start:])


class BytesReader(ABC):
    """Reads the fields of one frame in order; a field that goes beyond ``end`` is ``malformed``."""

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0, end: int | None = None) -> None:
        self.data = data
        self.pos = pos
        self.end = len(data) if end is None else end

    @staticmethod
    @abstractmethod
    def malformed(text: str) -> ProtocolError:
        """Returns the protocol's error for bytes that do not parse."""

    def take(self, size: int, what: str) -> int:
        """Skips ``size`` bytes and returns their start."""
        at = self.pos
        if at + size > self.end:
            raise self.malformed(f"ends within its {what}")
        self.pos = at + size
        return at

    def u8(self, what: str) -> int:
        return self.data[self.take(1, what)]

    def u16(self, what: str) -> int:
        at = self.take(2, what)
        return self.data[at] << 8 | self.data[at + 1]


# -- remembered --------------------------------------------------------------------------------------------------------
#
# Remembered: what was read lately of one client, so that the same is read once. It has a limit in bytes, and its owner
# counts them to the client's tab.


BYTES_MAX = 32 * 1024

Key = TypeVar("Key")
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    __slots__ = ("_bytes_max", "_known", "bytes", "get")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._known: dict[Key, Value] = {}
        self.bytes = 0
        self.get = self._known.get

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Remembers this; ``size``: the bytes that both take up, about. What is large is not remembered, and when there
        is too much, all else is forgotten."""
        if size > self._bytes_max // 4:
            return
        if self.bytes + size > self._bytes_max:
            self.clear()
        self._known[key] = value
        self.bytes += size

    def clear(self) -> None:
        self._known.clear()
        self.bytes = 0


# -- sasl --------------------------------------------------------------------------------------------------------------
#
# SASL: mechanisms of a client's login, and the response of PLAIN.


PLAIN, ANONYMOUS = "PLAIN", "ANONYMOUS"
EXTERNAL = "EXTERNAL"
"""Offered to clients whose certificate says who they are."""


class Login(NamedTuple):
    user: str
    password: bytes


def read_plain(raw: bytes, malformed: Callable[[str], ProtocolError]) -> Login:
    """Reads PLAIN (RFC 4616): authorization identity, which is ignored, user and password, separated by NUL.
    ``malformed`` makes the protocol's error for bytes that do not parse."""
    parts = raw.split(b"\0", 2)
    if len(parts) != 3:
        raise malformed("has no user and password in its response")
    try:
        return Login(parts[1].decode(), parts[2])
    except UnicodeDecodeError:
        raise malformed("has a user's name that is not UTF-8") from None


# -- opening -----------------------------------------------------------------------------------------------------------
#
# The first bytes of a connection, by which a codec knows its protocol (``Codec.opens``).


def begins(data: bytes, *words: bytes) -> bool | None:
    """Returns whether the bytes begin with one of the words; None: there are too few to tell."""
    if data.startswith(words):
        return True
    return None if any(word.startswith(data) for word in words) else False
