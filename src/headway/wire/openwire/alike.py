"""Frames that are alike: most messages and acknowledgements of a client differ from those before in a few numbers only.

The first of them is read field by field, and the places of these numbers are noted. The next ones are compared with it
as bytes; what is between the numbers has to be the same. After a few of one size, many of that size are compared at
once (wire/dialect.py).

    message: length, type, command | flag, producer, … id | numbers | … | expiration | … | time | … | size, body | rest
    ack:     length, type, command | flag, …, first id | numbers | … last id | numbers | count, no cause

Rules:
- What a frame says stays the same only as long as the client's objects keep their numbers: if one is numbered anew, all
  that is known is forgotten.
- Messages in transactions, to composite destinations, that expire, that name a user, or whose body is compressed or
  missing are read field by field, each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from headway.core.message import Run, topic_of
from headway.wire.codecs import queue_form
from headway.wire.common import Address, CommonProperties, run_to
from headway.wire.dialect import Numbered, Numbering, form_of, same_frames, same_rows
from headway.wire.openwire.codes import AckType, Type
from headway.wire.openwire.commands import MessageAck
from headway.wire.openwire.marshalling import ConsumerId, Destination, ProducerId, i32
from headway.wire.openwire.messages import SIZE_MIN, Message

NUMBERS_AT = 9
"""Where the part of a frame begins that is compared: behind its length, its type and its command's number."""
KEY_BYTES = 7
"""So many bytes of it, the flag and the first two objects, find what is known."""
ALIKE_MAX = 8
"""So many kinds of frames are known of a client."""
PART_BYTES_MAX = 1024
"""Frames with more besides their bodies are not remembered: no pool counts what is."""
ALONE = 4
"""So many are compared one by one before many are at once."""
RUN_MAX = 512
ACKS_MAX = 1024
_TEXT = int(Type.TEXT_MESSAGE)
_SIZE_AND_TYPE_BYTES = 5
_NEVER = bytes(8)
"""The expiration of a message that does not expire."""


class Acks(NamedTuple):
    """Acknowledgements of one message each, of one consumer, outside of transactions: neighbours that want no
    response."""

    consumer: ConsumerId
    kind: int
    ids: list[int]
    """The broker's numbers of the messages."""


class Series(NamedTuple):
    """Messages of one producer to one destination, outside of transactions. If a response is wanted, it is one."""

    number: int
    wants_response: bool
    producer: ProducerId | None
    destination: Destination
    common: CommonProperties
    """The properties without ids and times."""
    size: int
    """As the client counts them in its producer's window."""
    run: Run
    """A run to the destination, with properties of their own."""
    own: Numbered
    """These properties, also if it is one message."""


class AlikeMessages:
    """Reads messages that are like one which was read."""

    __slots__ = (
        "_behind_id", "_behind_time", "_common", "_destination", "_form", "_head", "_head_bytes", "_kind",
        "_marshalled_bytes", "_middle", "_numberings", "_producer", "_rest", "_stem", "_text", "_wants_response",
    )  # fmt: skip

    def __init__(self, data: bytes, pos: int, end: int, places: list[int], message: Message) -> None:
        ids_at, expires_at, time_at, body_at, body_end = places
        self._kind = data[pos + 4]
        self._text = self._kind == _TEXT
        self._wants_response = data[pos + NUMBERS_AT] != 0
        self._head = data[pos + NUMBERS_AT : ids_at]
        self._behind_id = data[ids_at + 16 : expires_at]
        self._middle = data[expires_at + 8 : time_at]
        self._behind_time = data[time_at + 8 : body_at + 1]
        self._rest = data[body_end:end]
        self._form = Struct(
            f">iBi{len(self._head)}sqq{len(self._behind_id)}sq{len(self._middle)}sq{len(self._behind_time)}si"
        )
        assert message.id is not None
        self._producer, self._destination = message.producer, message.destination
        self._stem = f"{message.id.producer}:"
        self._common = msgspec.structs.replace(message.common, message_id=None, timestamp_ms=None)
        self._marshalled_bytes = message.size - SIZE_MIN - (body_end - body_at - 5)
        self._numberings: dict[int, Numbering | None] = {}

    def read(self, data: bytes, pos: int, bytes_max: int, most: int) -> tuple[Series, int] | None:
        """Returns the messages from ``pos`` on that are alike, up to ``most``, and where they end; None: the first is
        not."""
        form, n = self._form, len(data)
        unpack, lead = form.unpack_from, form.size
        head, behind_id, middle, behind_time, rest = (
            self._head, self._behind_id, self._middle, self._behind_time, self._rest
        )
        own_bytes, kind, text, first = lead + len(rest) - 4, self._kind, self._text, pos
        numbers, times_ms, bodies, ends = list[int](), list[int](), list[int](), list[int]()
        numbering: Numbering | None = None
        command = frame_bytes = 0
        alone, even = ALONE, True
        if self._wants_response:
            most = 1
        while len(numbers) < most and n - pos >= lead:
            size, its_kind, command, its_head, number, _, one, expires, two, time_ms, three, body_bytes = unpack(
                data, pos
            )
            if (
                its_head != head or one != behind_id or three != behind_time or two != middle or its_kind != kind
                or expires or number < 0 or body_bytes <= 0 or size != own_bytes + body_bytes or size > bytes_max
            ):
                break
            body_at = pos + lead
            end = body_at + body_bytes
            if n < end + len(rest) or not data.startswith(rest, end):
                break
            if text and not _is_text(data, body_at, end):
                break
            if numbering is None:
                numbering = self._numbering(number, time_ms)
            if numbering is None or not numbering.fits(time_ms):
                break
            numbers.append(number)
            times_ms.append(time_ms)
            bodies.append(body_at + 4 * text - first)
            ends.append(end - first)
            pos = end + len(rest)
            even = even and frame_bytes in (0, size + 4)
            frame_bytes = size + 4
            alone -= 1
            if not alone:
                alone, many = ALONE, min(most - len(numbers), (n - pos) // frame_bytes)
                for columns in self._many(data, first, pos, frame_bytes, body_bytes, many, numbering):
                    for known, more in zip((numbers, times_ms, bodies, ends), columns, strict=True):
                        known += more
                    pos = first + ends[-1] + len(rest)
                at = pos - frame_bytes
                command = int.from_bytes(data[at + 5 : at + NUMBERS_AT], "big", signed=True)
        if not numbers or numbering is None:
            return None
        run = self._run(data[first : first + ends[-1]], ends, bodies, frame_bytes if even else 0)
        own, count = Numbered(numbering, numbers, times_ms), len(numbers)
        run.properties, run.own = own.of(0), own if count > 1 else None
        sizes = count * (SIZE_MIN + self._marshalled_bytes) + pos - first - count * (own_bytes + 4)
        return Series(
            command, self._wants_response, self._producer, self._destination, self._common, sizes, run, own
        ), pos

    def _run(self, data: bytes, ends: Sequence[int], bodies: Sequence[int], step: int) -> Run:
        """Returns a run, without properties. ``step``: the size of each message; 0: they have different ones."""
        name, is_topic = self._destination.name, self._destination.is_topic
        if step:
            ends, bodies = range(ends[0], len(data) + 1, step), range(bodies[0], len(data), step)
        run = run_to(Address(topic_of(name) if is_topic else name, is_topic), data, ends, bodies)
        run.qos = int(self._common.persistent)
        return run

    def _many(
        self, data: bytes, first: int, pos: int, frame_bytes: int, body_bytes: int, most: int, numbering: Numbering
    ) -> Iterator[tuple[Sequence[int], Sequence[int], range, range]]:
        """Yields the numbers, the times and the places of messages from ``pos`` on that are like that before, and of
        its size; of many at once. Ends at the latest where one is not. The bodies begin and end at these places, from
        ``first`` on."""
        lead = data[pos - frame_bytes : pos - frame_bytes + _SIZE_AND_TYPE_BYTES]
        most = min(most, (same_frames(data, lead, pos, frame_bytes) - pos) // frame_bytes)
        between, behind = self._behind_id + _NEVER + self._middle, self._behind_time + i32(body_bytes)
        body, rest_bytes = f"{body_bytes}x", len(self._rest)
        if self._text:
            body_bytes -= 4
            behind += i32(body_bytes)
            body = f"{body_bytes}s"
        parts = f">9x{len(self._head)}sq8x{len(between)}sq{len(behind)}s{body}{rest_bytes}s"
        wanted: dict[int, object] = {0: self._head, 2: between, 4: behind, -1: self._rest}
        for columns in same_rows(form_of(parts), data, pos, most, wanted):
            numbers, times_ms = columns[1], columns[3]
            if min(numbers) < 0 or not all(map(numbering.fits, set(times_ms))):
                return
            if self._text:
                bodies = b"".join(columns[5])
                if b"\xed" in bodies or b"\xc0" in bodies:
                    return
            at = pos - first + frame_bytes - rest_bytes
            pos += len(numbers) * frame_bytes
            yield (
                numbers, times_ms, range(at - body_bytes, pos - first, frame_bytes),
                range(at, pos - first + 1, frame_bytes),
            )

    def _numbering(self, number: int, time_ms: int) -> Numbering | None:
        """Returns the numbering of messages with times like this one; there are three kinds."""
        if time_ms < 0:
            return None
        kind = 0 if not time_ms else 1 + (time_ms % 1000 == 0)
        if kind not in self._numberings:
            message_id = f"{self._stem}{number}"
            common = msgspec.structs.replace(self._common, message_id=message_id, timestamp_ms=time_ms or None)
            native = queue_form().write_common(common).native
            self._numberings[kind] = None if native is None else queue_form().numbering(native)
        return self._numberings[kind]


def _is_text(data: bytes, start: int, end: int) -> bool:
    """Tells whether a body is a text with its size before it, in UTF-8 and not as Java has it."""
    if end - start <= 4 or int.from_bytes(data[start : start + 4], "big") != end - start - 4:
        return False
    return data.find(b"\xed", start + 4, end) < 0 and data.find(b"\xc0", start + 4, end) < 0


class AlikeAcks:
    """Reads acknowledgements that are like one which was read."""

    __slots__ = ("_ack", "_between", "_form", "_head", "_lead", "_rest")

    def __init__(self, data: bytes, pos: int, end: int, places: list[int], ack: MessageAck) -> None:
        first_at, last_at = places
        self._ack = ack
        self._lead = data[pos : pos + _SIZE_AND_TYPE_BYTES]
        self._head = data[pos + NUMBERS_AT : first_at]
        self._between = data[first_at + 16 : last_at]
        self._rest = data[last_at + 16 : end]
        self._form = Struct(f">5s4x{len(self._head)}s8xq{len(self._between)}s8xq{len(self._rest)}s")

    def read(self, data: bytes, pos: int, most: int) -> tuple[Acks, int] | None:
        """Returns the acknowledgements from ``pos`` on that are alike, up to ``most``, and where they end; None: the
        first is not."""
        its_lead, its_head, its_between, its_rest = self._lead, self._head, self._between, self._rest
        ids, bytes_ = list[int](), self._form.size
        stop = pos + min(most, (len(data) - pos) // bytes_) * bytes_
        for lead, head, first, between, last, rest in self._form.iter_unpack(memoryview(data)[pos:stop]):
            if first != last or between != its_between or head != its_head or rest != its_rest or lead != its_lead:
                break
            ids.append(last)
        pos += len(ids) * bytes_
        return (Acks(self._ack.consumer, self._ack.kind, ids), pos) if ids else None


def alike_messages(
    data: bytes, pos: int, end: int, places: list[int], message: Message
) -> AlikeMessages | None:
    """Returns a reader of messages that are like this one; None: it is to be read field by field."""
    name = message.destination.name
    plain = name and "," not in name and "://" not in name
    if (
        not plain or len(places) != 5 or message.transaction is not None or message.pending is not None
        or message.expires_ms or message.common.user_id or message.id is None or message.id.text is not None
        or not message.payload or end - pos - len(message.payload) > PART_BYTES_MAX
    ):
        return None
    return AlikeMessages(data, pos, end, places, message)


def alike_acks(data: bytes, pos: int, end: int, places: list[int], ack: MessageAck) -> AlikeAcks | None:
    """Returns a reader of acknowledgements that are like this one; None: it is to be read field by field."""
    alone = ack.messages == 1 and ack.first == ack.last and len(places) == 2 and not ack.cause
    settles = ack.kind in (AckType.STANDARD, AckType.INDIVIDUAL)
    if not alone or not settles or ack.transaction is not None or data[pos + NUMBERS_AT] or end - pos > PART_BYTES_MAX:
        return None
    return AlikeAcks(data, pos, end, places, ack)
