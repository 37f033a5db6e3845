"""From a client's bytes to items: commands and messages.

A frame is a length of four bytes, a type, and fields. The first frame has to be WireFormatInfo. It says what the client
can do; what both sides can (``Form``) decides how the next frames are written. Headway keeps objects if the client
does, and writes nothing tightly.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headway.core.base import ProtocolError, Reason
from headway.core.message import Run, topic_of
from headway.wire.common import Address, run_to
from headway.wire.decoder import ALL, Decoder
from headway.wire.openwire.alike import (
    ACKS_MAX,
    ALIKE_MAX,
    KEY_BYTES,
    NUMBERS_AT,
    RUN_MAX,
    Acks,
    AlikeAcks,
    AlikeMessages,
    Series,
    alike_acks,
    alike_messages,
)
from headway.wire.openwire.codes import MAGIC, VERSION_MAX, VERSION_MIN, Form, Type
from headway.wire.openwire.commands import READERS, Command, MessageAck
from headway.wire.openwire.maps import read_properties
from headway.wire.openwire.marshalling import CACHE_OBJECTS, FrameReader, ObjectCache, malformed
from headway.wire.openwire.messages import INFLATED_SHARE_BYTES, Inflation, Message, read_message

_LENGTH_AND_TYPE = Struct(">iB")
LENGTH_AND_TYPE = 5
HEAD_BYTES = 10
"""Length, type, the command's number, and whether a response is wanted."""
WIRE_FORMAT_BYTES_MAX, LOGIN_BYTES_MAX = 8 * 1024, 64 * 1024
"""The limits of the first frame, and of those up to ConnectionInfo."""
WIRE_FORMAT_SHARE_BYTES = 32
"""So many bytes of the first frame take the time of one item."""
ITEMS_AT_ONCE = 128
SHARE = 8
"""So many frames that are like those before take the time of one item."""
_OFTEN = frozenset({*range(Type.MESSAGE, Type.TEXT_MESSAGE + 1), int(Type.MESSAGE_ACK)})
"""Types of frames that are many and alike."""


class WireFormat(NamedTuple):
    """The client's first frame. ``form``: how both sides write from now on."""

    form: Form
    idle_ms: int
    """The client's connection is over after so long without a word; 0: it waits for ever."""
    objects: int
    """The client keeps so many objects that it is told by their numbers."""


class Request(NamedTuple):
    """A command. ``number`` is repeated in the response, if one is wanted."""

    number: int
    wants_response: bool
    command: Command


class Sent(NamedTuple):
    """A message."""

    number: int
    wants_response: bool
    message: Message

    @property
    def run(self) -> Run:
        """A run to where the message goes first: whether there is room for that decides when it is handled."""
        destination, payload = self.message.destination, self.message.payload
        name = destination.name.partition(",")[0].rpartition("://")[2]
        return run_to(Address(topic_of(name) if destination.is_topic else name, destination.is_topic), payload,
                      [len(payload)], [0])  # fmt: skip


Item = WireFormat | Request | Sent | Series | Acks


class OpenWireDecoder(Decoder[Item]):
    """``packet_bytes_max`` is the limit of a frame behind ConnectionInfo."""

    __slots__ = (
        "_alike", "_alike_since", "_cache", "_greeted", "_named", "_pending", "_tails", "form", "may_inflate",
        "packet_bytes_max",
    )  # fmt: skip

    def __init__(self, packet_bytes_max: int) -> None:
        super().__init__()
        self.packet_bytes_max = packet_bytes_max
        self.form = Form()
        self._greeted = False
        self._named = False
        """Whether ConnectionInfo has come."""
        self._cache: ObjectCache | None = None
        self._tails: dict[bytes, tuple[bool, str | None]] = {}
        self._alike: dict[tuple[int, bytes], AlikeMessages | AlikeAcks] = {}
        """Readers of frames that are like those that came lately, by their types and first bytes."""
        self._alike_since = 0
        """The changes of the client's objects by then."""
        self.may_inflate = True
        """Whether a large body may begin to be inflated."""
        self._pending: tuple[int, Sent, Inflation] | None = None
        """The message whose body is being inflated, and the size of its frame, which is at the decoder's position."""

    @property
    def inflated_bytes(self) -> int:
        """Bytes held of a body that is not inflated to its end."""
        return 0 if self._pending is None else self._pending[2].bytes

    def deflate(self) -> None:
        """Drops what is inflated of a body; that begins anew later."""
        if self._pending is not None:
            self._pending[2].start_over()

    @property
    def cache_bytes(self) -> int:
        """Bytes of the objects that the client has numbered."""
        return 0 if self._cache is None else self._cache.size

    def feed(self, data: bytes | bytearray | memoryview, items_max: int = ALL) -> list[Item]:
        """Returns no more than a turn has time for, if there is a limit at all: an item here is a whole message."""
        return super().feed(data, items_max if items_max == ALL else min(items_max, ITEMS_AT_ONCE))

    def _scan(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        n = len(data)
        try:
            while n - pos >= LENGTH_AND_TYPE and len(items) + self.extra_work < items_max:
                if self._pending is not None:
                    size, sent, inflation = self._pending
                    if not self._inflate(inflation, items_max - len(items)):
                        return pos
                    self._pending = None
                    items.append(sent._replace(message=sent.message.inflated()))
                    self.packets += 1
                    pos += size
                    continue
                size, kind = _LENGTH_AND_TYPE.unpack_from(data, pos)
                if not self._greeted:
                    self._check_first(data, pos, size, kind)
                limit = self.packet_bytes_max if self._named else min(LOGIN_BYTES_MAX, self.packet_bytes_max)
                if not 1 <= size <= limit:
                    self._refuse_size(size, limit)
                if kind in _OFTEN and self._greeted:
                    after = self._read_alike(data, pos, kind, items, items_max)
                    if after > pos:
                        pos = after
                        continue
                end = pos + 4 + size
                if end > n:
                    self.tail.need_bytes = end - pos
                    return pos
                item = self._frame(data, pos, end, kind) if self._greeted else self._wire_format(data, pos, end)
                if type(item) is Sent and item.message.pending is not None:
                    self._pending = end - pos, item, item.message.pending.inflation
                    continue
                items.append(item)
                self.packets += 1
                pos = end
        except ProtocolError as error:
            self.error = ProtocolError(f"{_name(data[pos + 4])} {error}", reason=error.reason)
            return n
        self.tail.need_bytes = LENGTH_AND_TYPE
        return pos

    def _read_alike(self, data: bytes, pos: int, kind: int, items: list[Item], items_max: int) -> int:
        """Reads frames like one that came lately. Returns the position behind them."""
        cache, known = self._cache, self._alike
        if cache is not None and cache.changes != self._alike_since:
            known.clear()
            self._alike_since = cache.changes
        alike = known.get((kind, data[pos + NUMBERS_AT : pos + NUMBERS_AT + KEY_BYTES]))
        left = SHARE * (items_max - len(items) - self.extra_work)
        if type(alike) is AlikeAcks:
            acks = alike.read(data, pos, min(left, ACKS_MAX))
            if acks is None:
                return pos
            items.append(acks[0])
            self._count(len(acks[0].ids))
            return acks[1]
        if alike is None:
            return pos
        assert type(alike) is AlikeMessages
        found = alike.read(data, pos, self.packet_bytes_max, min(left, RUN_MAX))
        if found is None:
            return pos
        items.append(found[0])
        self._count(len(found[0].run))
        return found[1]

    def _count(self, frames: int) -> None:
        self.packets += frames
        self.extra_work += (frames - 1) // SHARE

    def _note_alike(self, data: bytes, pos: int, end: int, places: list[int], found: Message | Command) -> None:
        """Remembers what frames like this one are."""
        alike: AlikeMessages | AlikeAcks | None = None
        if isinstance(found, Message):
            alike = alike_messages(data, pos, end, places, found)
        elif isinstance(found, MessageAck):
            alike = alike_acks(data, pos, end, places, found)
        if alike is not None:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            if self._cache is not None and self._cache.changes != self._alike_since:
                self._alike.clear()
                self._alike_since = self._cache.changes
            self._alike[data[pos + 4], data[pos + NUMBERS_AT : pos + NUMBERS_AT + KEY_BYTES]] = alike

    def _inflate(self, inflation: Inflation, items_max: int) -> bool:
        """Inflates a body as far as the time of so many items goes. Returns whether it is done."""
        if not inflation.begun:
            self.extra_work += 1 + inflation.step() // INFLATED_SHARE_BYTES  # most end here
        while not inflation.done:
            if not self.may_inflate:
                inflation.start_over()
                self.extra_work = max(self.extra_work, items_max)  # the rest waits
            if self.extra_work >= items_max:
                return False
            self.extra_work += inflation.step() // INFLATED_SHARE_BYTES
        return True

    def _check_first(self, data: bytes, pos: int, size: int, kind: int) -> None:
        if size < 1:
            self._refuse_size(size, 0)  # what follows is not of this frame, and need not have come
        if kind != Type.WIRE_FORMAT_INFO or not MAGIC.startswith(data[pos + 5 : pos + 13]):
            raise malformed("is the first frame, which has to be WireFormatInfo")
        if size > WIRE_FORMAT_BYTES_MAX:
            raise malformed(f"has {size} bytes (at most {WIRE_FORMAT_BYTES_MAX})")

    def _refuse_size(self, size: int, limit: int) -> None:
        if size < 1:
            raise malformed(f"has a length of {size}")
        text = f"has {size} bytes (at most {limit}{'' if self._named else ' before the login'})"
        raise ProtocolError(text, reason=Reason.PACKET_TOO_LARGE)

    def _wire_format(self, data: bytes, pos: int, end: int) -> WireFormat:
        r = FrameReader(data, pos + 13, end, VERSION_MAX, None)
        version = r.i32("version")
        if version < VERSION_MIN:
            raise malformed(f"wants version {version}, and the oldest that is spoken here is {VERSION_MIN}")
        known = read_properties(r.binary("properties"))
        self.extra_work += (end - pos) // WIRE_FORMAT_SHARE_BYTES

        def number(name: str) -> int:
            value = known.get(name)
            return value if type(value) is int else 0

        self._greeted = True
        self.form = Form(min(version, VERSION_MAX), known.get("CacheEnabled") is True)
        if self.form.cached:
            self._cache = ObjectCache()
        objects = min(CACHE_OBJECTS, max(0, number("CacheSize"))) if "CacheSize" in known else CACHE_OBJECTS
        return WireFormat(self.form, max(0, number("MaxInactivityDuration")), objects * self.form.cached)

    def _frame(self, data: bytes, pos: int, end: int, kind: int) -> Item:
        if end - pos < HEAD_BYTES:
            raise malformed("ends before its fields")
        number, wants_response = int.from_bytes(data[pos + 5 : pos + 9], "big", signed=True), data[pos + 9] != 0
        r = FrameReader(data, pos + HEAD_BYTES, end, self.form.version, self._cache, self._tails)
        if Type.MESSAGE <= kind <= Type.TEXT_MESSAGE:
            message = read_message(r, kind, self.packet_bytes_max if self._named else LOGIN_BYTES_MAX)
            self.extra_work += message.work
            self._note_alike(data, pos, end, r.places, message)
            return Sent(number, wants_response, message)
        read = READERS.get(kind)  # type: ignore[call-overload]
        if read is None:
            raise malformed("is nothing for a client to send here")
        command = read(r)
        self._named = self._named or kind == Type.CONNECTION_INFO
        if kind == Type.MESSAGE_ACK:
            self._note_alike(data, pos, end, r.places, command)
        return Request(number, wants_response, command)


def _name(kind: int) -> str:
    try:
        return f"{Type(kind).name.title().replace('_', '')} ({kind})"
    except ValueError:
        return f"a frame of the unknown type {kind}"
