"""Deliveries to one link of AMQP 1.0, from the bytes of a lane: of topics, or of queues.

A delivery is one transfer, or several where the client takes only small frames. Only its first fields differ between
links; the message behind them is the same::

    frame header, transfer, handle | delivery id | delivery tag | settled | message
    `---------- own -------------'                                `- equal -' (a piece)

Theory of operation. ``cut`` gets the messages of a batch, once for all links that want the same (``shape``). Those of
topics are in the lane; those of a queue are made from the records of its lane, whose form is not AMQP 1.0's: what comes
before the payload is made once for equal properties, and found again by the bytes in front of the payload. ``write``
does the work that is left per link.

- If all messages of a cut have one size, ``write`` joins them with the bytes between two of them as the separator, and
  then fills in the ids by columns: the last byte of all ids is one slice with the frame size as its step, and so is the
  last but one. The tag of an unsettled delivery is its id, so it is filled in the same way.
- Else parts of each delivery are joined.
- Links at the same position with the same numbers get the same bytes: the last bytes written are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import accumulate

from headway.core.message import TOPICS, EncodedRun, Gap, Record, Run
from headway.wire.amqp1.items import Body, Content, body_lead, split
from headway.wire.amqp1.properties import (
    OFFSET,
    OPTION,
    SECTIONS,
    TOPIC,
    annotated,
    header_section,
    kept_lead,
    lead_of,
    read_content,
    told_by_broker,
)
from headway.wire.amqp1.values import uint
from headway.wire.codecs import queue_form
from headway.wire.dialect import BareDialect, Cut, encode_by_size, equal_pieces, gap_facts

# -- envelope ----------------------------------------------------------------------------------------------------------


FEW = 8
"""Fewer deliveries are joined from parts, for columns take time to set up."""
IDS = 1 << 16
"""Ids in a row that differ only in their last two bytes, from a multiple of this number on."""
_LAST_BYTES = bytes(range(256)) * 258
_LAST_BUT_ONE = b"".join(bytes((value,)) * 256 for value in range(256))
"""The last but one byte of n, at index n."""
_ID_MASK = 0xFFFF_FFFF
_TAG = b"\xa0\x04"
_NO_TAG = b"\xa0\x00"
_UNSETTLED, _SETTLED = b"\x43\x42", b"\x43\x41"
"""The message format, 0, and whether the delivery is settled."""
_MORE = b"\x41"


class Amqp1Envelope:
    """Writes the deliveries for one link. ``decode`` reads the records of a queue's lane; None: the lane has messages.
    ``frame_bytes_max``: the largest frame that the client takes."""

    __slots__ = ("_between", "_decode", "_own", "_room", "_settled", "_tail", "frame_bytes_max", "rewritten", "shape")

    def __init__(self, channel: int, handle: int, frame_bytes_max: int, *, settled: bool,
                 decode: Callable[[bytes], Record] | None) -> None:
        self.shape: tuple[object, ...] = ("1.0", decode is None)
        self.frame_bytes_max = frame_bytes_max
        self.rewritten = 0
        self._decode = decode
        self._settled = settled
        fields = uint(handle)
        tag_bytes = len(_NO_TAG) if settled else len(_TAG) + 4
        list_bytes = 1 + len(fields) + 5 + tag_bytes + 2
        self._own = b"\x02\0" + channel.to_bytes(2, "big") + b"\0\x53\x14\xc0" + bytes((list_bytes, 5)) + fields
        """Everything between the size of a frame and the delivery id, whose constructor follows."""
        self._between = _SETTLED if settled else _UNSETTLED
        self._tail = b"\x02\0" + channel.to_bytes(2, "big") + b"\0\x53\x14\xc0"
        self._room = frame_bytes_max - self._before_bytes

    @property
    def _before_bytes(self) -> int:
        """The bytes of a frame before its message."""
        return 4 + len(self._own) + 5 + (len(_NO_TAG) if self._settled else len(_TAG) + 4) + 2

    # -- for all links ----------------------------------------------------------------------------------------------

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: int = 0) -> Cut:
        data = bytes(data)
        if self._decode is not None:
            messages, rewritten = _messages(data, ends, self._decode, redelivered)
            self.rewritten += rewritten
            return _cut(messages)
        size, count = ends[0], len(ends)
        if ends[-1] == size * count and all(end == size * number for number, end in enumerate(ends, 1)):
            return Cut(equal_pieces(data, 0, size, size, count), size)
        return _cut([data[start:end] for start, end in zip((0, *ends), ends, strict=False)])

    # -- for each link ----------------------------------------------------------------------------------------------

    def opening(self, cut: Cut) -> Cut:
        return cut  # nothing is said of groups

    def write(self, cut: Cut, start: int, stop: int, first_id: int) -> bytes:
        whom = (self._own, self._between, self.frame_bytes_max, start, stop, first_id)
        known = cut.written(whom)
        if known is not None:
            return known
        if not cut.size or cut.size > self._room or stop - start < FEW:
            frames = self._join(cut, start, stop, (first_id - 1) & _ID_MASK)
        else:
            frames = self._fill_in(cut, start, stop, (first_id - 1) & _ID_MASK)
        return cut.keep(whom, frames)

    def frames_of(self, cut: Cut, count: int) -> int:
        """Returns how many frames the first ``count`` deliveries of a cut have."""
        if cut.size and cut.size <= self._room:
            return count
        return sum(self._count(len(piece)) for piece in cut.pieces[:count])

    def ends(self, cut: Cut, start: int, stop: int) -> list[int]:
        before, room = self._before_bytes, self._room
        if cut.size and cut.size <= room:
            size = before + cut.size
            return list(range(size, (stop - start) * size + 1, size))
        return list(accumulate(self._size_of(len(piece)) for piece in cut.pieces[start:stop]))

    def _size_of(self, size: int) -> int:
        if size <= self._room:
            return self._before_bytes + size
        return self._before_bytes + 1 + size + len(self._next_lead(0, more=False)) * (self._count(size) - 1)

    def _count(self, size: int) -> int:
        """Returns how many frames a message of this size has."""
        if size <= self._room:
            return 1
        left, room = size - (self._room - 1), self.frame_bytes_max - len(self._next_lead(0, more=False))
        return 1 + -(-left // room)

    def _fill_in(self, cut: Cut, start: int, stop: int, first: int) -> bytes:
        """Joins messages of one size, and fills in the ids."""
        high, low = divmod(first, IDS)
        count = stop - start
        if low + count > IDS:
            middle = start + IDS - low
            rest = ((high + 1) * IDS) & _ID_MASK
            return self._fill_in(cut, start, middle, first) + self._fill_in(cut, middle, stop, rest)
        lead = self._lead(cut.size, first)
        frames = BytesIO(lead.join((b"", *cut.pieces[start:stop])))
        size, id_end = len(lead) + cut.size, 4 + len(self._own) + 5
        places = [id_end] if self._settled else [id_end, id_end + len(_TAG) + 4]
        # BytesIO.getvalue returns the buffer itself, not a copy.
        with frames.getbuffer() as view:
            for end in places:
                view[end - 1 :: size] = _LAST_BYTES[low & 0xFF : (low & 0xFF) + count]
                if low >> 8 != (low + count - 1) >> 8:
                    view[end - 2 :: size] = _LAST_BUT_ONE[low : low + count]
        return frames.getvalue()

    def _lead(self, size: int, number: int) -> bytes:
        """Returns the bytes of a frame before its message."""
        raw = number.to_bytes(4, "big")
        tag = _NO_TAG if self._settled else _TAG + raw
        total = (self._before_bytes + size).to_bytes(4, "big")
        return b"".join((total, self._own, b"\x70", raw, tag, self._between))

    def _join(self, cut: Cut, start: int, stop: int, first: int) -> bytes:
        parts: list[bytes] = []
        for number, piece in enumerate(cut.pieces[start:stop], first):
            if len(piece) <= self._room:
                parts += (self._lead(len(piece), number & _ID_MASK), piece)
            else:
                parts += self._in_frames(piece, number & _ID_MASK)
        return b"".join(parts)

    def _in_frames(self, piece: bytes, number: int) -> list[bytes]:
        """Returns the frames of a message that does not fit into one."""
        at = self._room - 1
        lead = bytearray(self._lead(at + 1, number))
        lead[4 + 8] += 1  # the list has one byte more, and one field
        lead[4 + 9] += 1
        parts = [bytes(lead), _MORE, piece[:at]]
        room = self.frame_bytes_max - len(self._next_lead(0, more=False))
        while at < len(piece):
            some = piece[at : at + room]
            at += len(some)
            parts += (self._next_lead(len(some), more=at < len(piece)), some)
        return parts

    def _next_lead(self, size: int, *, more: bool) -> bytes:
        """Returns the bytes of a later frame of a message before its part of it."""
        handle = self._own[10:]
        fields = handle + b"\x40\x40\x40\x40" + (b"\x41" if more else b"\x42")
        head = self._tail + bytes((1 + len(fields), 6)) + fields
        return (4 + len(head) + size).to_bytes(4, "big") + head


def _cut(pieces: Sequence[bytes]) -> Cut:
    size = len(pieces[0])
    return Cut(pieces, size if all(len(piece) == size for piece in pieces) else 0)


# -- records of queues -------------------------------------------------------------------------------------------------


def _messages(
    data: bytes, ends: Sequence[int], decode: Callable[[bytes], Record], returns: int
) -> tuple[list[bytes], int]:
    """Returns the messages of a queue's records, and how many leads were read for them. Records of one size with an
    equal lead have equal properties."""
    lead_bytes = queue_form().lead_bytes
    known: dict[int, tuple[bytes, bytes]] = {}
    found: list[bytes] = []
    start = rewritten = 0
    for end in ends:
        lead = known.get(end - start)
        if lead is None or not data.startswith(lead[0], start):
            raw = data[start : start + lead_bytes(data, start)]
            rewritten += 1
            lead = known[end - start] = raw, _front(raw, end - start - len(raw), decode, returns)
        found.append(lead[1] + data[start + len(lead[0]) : end])
        start = end
    return found, rewritten


def _front(raw: bytes, payload_bytes: int, decode: Callable[[bytes], Record], returns: int) -> bytes:
    """Returns everything in front of the payload, from the lead of a record. What AMQP 1.0 kept is not read anew."""
    form = queue_form()
    lead = kept_lead(form.find_bytes(raw, SECTIONS))
    if lead is None:
        record = decode(raw)
        lead = lead_of(record.properties, record.qos)
    exchange, topic = form.address(raw)
    sections = annotated(lead.sections, {TOPIC: topic}) if exchange == TOPICS else lead.sections
    return header_section(lead.header, returns) + sections + body_lead(lead.body, payload_bytes)


# -- dialect -----------------------------------------------------------------------------------------------------------
#
# The form in which records of topics wait for consumers of AMQP 1.0: whole messages, without the frames around them.
#
#     header | message annotations, properties, application properties | body
#
# They are the same bytes for all consumers. The first annotation, ``x-opt-headway-topic``, is the topic; what else the
# broker says of a record (its offset, a gap) stands beside it. An envelope puts them into transfers. No
# run arrives in this form, so ``form`` is None.


class Amqp1Dialect(BareDialect, frozen=True):
    """``offsets``: records say at which offset they stand."""

    offsets: bool = False

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        header, sections, kind = lead_of(run.properties, run.qos)
        header = header_section(header)
        if self.offsets and first_sequence:  # the broker's own marks have none
            return _encode_each(run, header, sections, kind, first_sequence)
        front = header + annotated(sections, {TOPIC: run.topic})
        return encode_by_size(run, lambda size: front + body_lead(kind, size))

    def decode(self, frame: bytes) -> Record:
        """Returns the record with all properties of its publisher except its lifetime."""
        content, told, payload = parts_of(frame)
        facts = read_content(content)
        return Record(str(told.get(TOPIC, "")), payload, facts.properties, int(facts.persistent))

    def with_gap(self, frame: bytes, gap: Gap) -> bytes:
        """Adds the gap's four annotations."""
        content, told, _ = parts_of(frame)
        told |= gap_facts(OPTION, gap)
        parts = split(frame, 0, len(frame))
        before = frame[: parts.header[1]] if content.header else b""
        return before + annotated(content.lead, told) + frame[parts.lead[1] :]


def parts_of(frame: bytes) -> tuple[Content, dict[str, object], bytes]:
    """Returns a message's content without what the broker says, what the broker says, and the payload."""
    parts = split(frame, 0, len(frame))
    told, lead = told_by_broker(frame[slice(*parts.lead)])
    header = frame[slice(*parts.header)]
    return Content(lead, header, parts.body), told, frame[slice(*parts.payload)]


def _encode_each(run: Run, header: bytes, sections: bytes, kind: Body, first_sequence: int) -> EncodedRun:
    """Encodes records that have their offsets in their annotations."""
    parts: list[bytes] = []
    for number in range(len(run)):
        payload = run.payload(number)
        told = {TOPIC: run.topic, OFFSET: first_sequence + number}
        parts.append(header + annotated(sections, told) + body_lead(kind, len(payload)) + payload)
    return EncodedRun.of(parts)
