"""The hot loops of the AMQP decoder: find the end of a run of messages, and of a batch of acknowledgements.

An ack frame has 21 bytes, and a busy consumer sends one per message.

Rules of runs. A message is a ``basic.publish`` frame, a content header frame and, unless it is empty, one body frame; a
message with more body frames is not part of a run. Messages of one run have publish frames and properties that are
equal byte for byte; their bodies may differ in size. The scan raises no errors: it stops at the first message that does
not fit, and the decoder parses that one again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from pamqp import base

from headway.core.message import Run
from headway.wire.amqp.codes import Version
from headway.wire.dialect import PIECES_MAX, same_frames

# -- items -------------------------------------------------------------------------------------------------------------
#
# Items that the decoder finds in a client's bytes.


class Opening(NamedTuple):
    """The first eight bytes. ``version`` None: they ask for an unknown version, and nothing more is decoded."""

    version: Version | None


class Method(NamedTuple):
    """A method other than ``basic.publish`` and ``basic.ack``. The values of its arguments are not checked."""

    channel: int
    command: base.Frame


class Access(NamedTuple):
    """``access.request`` of 0-8 and 0-9; every client gets ticket 1."""

    channel: int


class Heartbeat(NamedTuple):
    pass


class Address(msgspec.Struct, frozen=True):
    """The arguments of a ``basic.publish``. ``topic`` is the topic of its routing key."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    topic: str


class AckBatch(NamedTuple):
    """Neighbouring ``basic.ack`` of one channel, all single or all ``multiple``; tags in the order in which they
    came."""

    channel: int
    tags: tuple[int, ...]
    multiple: bool


class PublishedRun(NamedTuple):
    """Messages that differ only in their bodies. ``properties`` are flags and values as they came, not parsed; of the
    run only topic and exchange are set."""

    channel: int
    address: Address
    properties: bytes
    run: Run


class Oversize(NamedTuple):
    """A message that is larger than allowed; its body is skipped. The channel is to be closed with 311."""

    channel: int
    address: Address
    size: int


Item = Opening | Method | Access | Heartbeat | AckBatch | PublishedRun | Oversize


# -- scan --------------------------------------------------------------------------------------------------------------


FRAME_END = b"\xce"
FRAME_OVERHEAD = 8
"""Bytes of a frame's header and end."""
CONTENT = b"\x00\x3c\x00\x00"
"""Start of a content header of class basic: class id and weight."""
BODY_SIZE_AT = 7 + 4
"""Position of the 8-byte body size in a header frame."""
PROPERTIES_AT = BODY_SIZE_AT + 8
HEADER_BYTES_MIN = PROPERTIES_AT + 2 + 1
"""Size of a header frame without properties; it has their flags."""
ACK = 60 << 16 | 80
ACK_FRAME_BYTES = 21
_ACK_HEADER_BYTES = 7 + 4
_ACK_FLAG_AT = _ACK_HEADER_BYTES + 8
_ACK_TAG = f"{_ACK_HEADER_BYTES}xQ2x"


class Whole(NamedTuple):
    """A complete message, as positions in the data."""

    publish_end: int
    header_end: int
    payload: int
    payload_end: int
    end: int


def find_whole(
    data: bytes, start: int, publish_end: int, payload_bytes_max: int, frame_bytes_max: int
) -> Whole | None:
    """Returns the message whose publish frame is ``data[start:publish_end]``; None: it is incomplete, or cannot be in a
    run."""
    n = len(data)
    if publish_end + 7 > n or data[publish_end] != 2 or not _same_channel(data, start, publish_end):
        return None
    header_bytes = FRAME_OVERHEAD + int.from_bytes(data[publish_end + 3 : publish_end + 7], "big")
    header_end = publish_end + header_bytes
    if header_end > n or not HEADER_BYTES_MIN <= header_bytes <= frame_bytes_max:
        return None
    if data[header_end - 1] != FRAME_END[0] or not data.startswith(CONTENT, publish_end + 7):
        return None
    size_at = publish_end + BODY_SIZE_AT
    size = int.from_bytes(data[size_at : size_at + 8], "big")
    if size > payload_bytes_max:
        return None
    if not size:
        return Whole(publish_end, header_end, header_end, header_end, header_end)
    payload = header_end + 7
    end = payload + size + 1
    if end > n or data[header_end] != 3 or not _same_channel(data, start, header_end):
        return None
    if int.from_bytes(data[header_end + 3 : payload], "big") != size or data[end - 1] != FRAME_END[0]:
        return None
    return Whole(publish_end, header_end, payload, end - 1, end)


def _same_channel(data: bytes, frame: int, other: int) -> bool:
    return data[frame + 1 : frame + 3] == data[other + 1 : other + 3]


def extend_run(
    data: bytes, start: int, first: Whole, payload_bytes_max: int
) -> tuple[int, Sequence[int], Sequence[int]]:
    """Extends the run that begins with the message ``data[start:first.end]``. A body of more than
    ``payload_bytes_max`` ends it.

    Returns the end of the run in ``data``, and the ends and starts of the payloads, counted from ``start``: as ranges
    if all have one size.
    """
    n = len(data)
    startswith = data.startswith
    lead = data[start : first.publish_end + BODY_SIZE_AT]
    properties = data[first.publish_end + BODY_SIZE_AT + 8 : first.header_end]
    body_lead = b"\x03" + data[start + 1 : start + 3]
    overhead = first.header_end - start
    ends: list[int] = []
    bodies: list[int] = []
    pieces = 1
    at, payload, payload_end, end = start, first.payload, first.payload_end, first.end
    while True:
        # The message data[at:end] is known to fit, and so do the next ones of the same size and header.
        size = end - at
        header = data[at:payload]
        pos = end
        if end + size <= n and startswith(header, end):
            pos = same_frames(data, header, end, size, FRAME_END)
        if pieces == PIECES_MAX or pos + overhead > n or not startswith(lead, pos):
            break
        size_at = pos + len(lead)
        length = int.from_bytes(data[size_at : size_at + 8], "big")
        next_payload = pos + overhead + (7 if length else 0)
        next_end = next_payload + length + (1 if length else 0)
        if next_end > n or length > payload_bytes_max or not startswith(properties, size_at + 8):
            break
        if length and (
            not startswith(body_lead, pos + overhead)
            or data[next_payload - 4 : next_payload] != data[size_at + 4 : size_at + 8]
            or data[next_end - 1] != FRAME_END[0]
        ):
            break
        if pos == end:
            ends.append(payload_end - start)
            bodies.append(payload - start)
        else:
            ends += range(payload_end - start, payload_end - start + pos - end + 1, size)
            bodies += range(payload - start, payload - start + pos - end + 1, size)
        pieces += 1
        at, payload, payload_end, end = pos, next_payload, next_payload + length, next_end
    last_ends = range(payload_end - start, payload_end - start + pos - end + 1, size)
    last_bodies = range(payload - start, payload - start + pos - end + 1, size)
    if not ends:
        return pos, last_ends, last_bodies
    return pos, [*ends, *last_ends], [*bodies, *last_bodies]


def read_acks(data: bytes, pos: int, channel: int) -> tuple[int, AckBatch]:
    """Reads the acks from ``pos`` on, the first of which is complete. Returns their end, and the acks."""
    flag = pos + _ACK_FLAG_AT
    header, trailer = data[pos : pos + _ACK_HEADER_BYTES], data[flag : flag + 2]
    stop = pos + ACK_FRAME_BYTES
    if data.startswith(header, stop):
        stop = same_frames(data, header, stop, ACK_FRAME_BYTES, trailer)
    count = (stop - pos) // ACK_FRAME_BYTES
    tags = struct.Struct(">" + _ACK_TAG * count).unpack_from(data, pos)
    return stop, AckBatch(channel, tags, bool(data[flag] & 1))


# -- content -----------------------------------------------------------------------------------------------------------
#
# The content of a message on one channel: a header frame, and body frames of at most so many bytes.


class Content:
    """Writes contents in frames of at most ``frame_bytes_max`` bytes; 0: no limit."""

    __slots__ = ("_body", "_header", "most")

    def __init__(self, channel: int, frame_bytes_max: int) -> None:
        number = channel.to_bytes(2, "big")
        self._header = b"\x02" + number
        self._body = b"\x03" + number
        self.most = frame_bytes_max - FRAME_OVERHEAD if frame_bytes_max else 0xFFFF_FFFF
        """The largest part of a body that fits into a frame."""

    def header_lead(self, header_bytes: int) -> bytes:
        """Returns the bytes before a header."""
        return self._header + header_bytes.to_bytes(4, "big")

    def header(self, header: bytes) -> bytes:
        """Returns the header frame. ``header``: class, weight, size of the body, properties."""
        return self.header_lead(len(header)) + header + FRAME_END

    def body_lead(self, body_bytes: int) -> bytes:
        """Returns the bytes before a body that fits into one frame."""
        return self._body + body_bytes.to_bytes(4, "big")

    def body(self, body: bytes) -> bytes:
        """Returns the body in as many frames as it needs; an empty body needs none."""
        most = self.most
        if len(body) <= most:
            return self.body_lead(len(body)) + body + FRAME_END if body else b""
        parts = [body[at : at + most] for at in range(0, len(body), most)]
        return b"".join([b"".join((self.body_lead(len(part)), part, FRAME_END)) for part in parts])
