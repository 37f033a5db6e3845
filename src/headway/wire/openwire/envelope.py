"""Deliveries to one consumer of queues, from the bytes of a lane of queues.

A queue's lane has records in the form of queues (``queue_form``). ``cut`` writes each as a message; a delivery then
differs between consumers by the consumer's id and by the number of the delivery, which acknowledgements repeat::

    length, head, consumer | destination, lead | number | rest, counter
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from headway.core.message import Record
from headway.wire.codecs import queue_form
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.dialect import common_of, destination_of
from headway.wire.openwire.marshalling import Destination, MessageId, ProducerId, write_cached
from headway.wire.openwire.messages import OWN_ID, RECENT, stem_of, write_bodies, write_message
from headway.wire.openwire.primitives import i32, i64

_HEAD = bytes((Type.MESSAGE_DISPATCH,)) + b"\0\0\0\0\0"
NUMBER_BYTES = 8
COUNTER_BYTES = 4


@lru_cache(1024)
def _destination(address: bytes) -> Destination:
    """Returns the destination of records of this address, as written."""
    exchange, topic = queue_form().address(address)
    return destination_of(Record(topic, b"", exchange=exchange))


class Piece(NamedTuple):
    before: bytes
    """The bytes between the consumer and the delivery's number."""
    after: bytes
    unnamed: bool
    """The message came without an id: it gets one of the delivery's number."""


class OpenWireEnvelope:
    """Writes the deliveries for one consumer. ``consumer``: its id, or its number, as it is written; ``producer``: the
    name in ids of messages that have none."""

    __slots__ = ("_consumer", "_own", "_wire", "shape")

    def __init__(self, consumer: bytes, producer: str, wire: Form) -> None:
        self._consumer = consumer
        self._own = ProducerId(f"{OWN_ID}:{producer}", 0, 0)
        self._wire = wire
        self.shape: Hashable = (producer, wire)

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: int = 0) -> list[Piece]:
        raw, pieces, start = bytes(data), list[Piece](), 0
        decode, counter = queue_form().dialect.decode, i32(redelivered)
        for end in ends:
            piece = self._known_piece(raw, start, end, counter)
            pieces.append(self._piece(decode(raw[start:end]), counter) if piece is None else piece)
            start = end
        return pieces

    def _known_piece(self, data: bytes, start: int, end: int, counter: bytes) -> Piece | None:
        """Writes a record like those that came lately. None: it is not, or there is more that differs."""
        form = queue_form()
        native_at, body_at = form.native_at(data, start), start + form.lead_bytes(data, start)
        known = RECENT.numbered(data[native_at:body_at])
        if known is None:
            return None
        numbering, number, time_ms = known
        address = data[start : start + 2 + (data[start] << 8 | data[start + 1])]
        stem = stem_of(numbering, _destination(address), self._wire)
        bodies = None if stem is None else write_bodies(stem.kind, (data[body_at:end],))
        if stem is None or bodies is None:
            return None
        _, lead, before_time, behind_time, behind_body = stem
        (body,) = bodies
        after = b"".join((before_time, i64(time_ms), behind_time, i32(len(body)), body, behind_body, counter))
        return Piece(lead + i64(number), after, False)

    def _piece(self, record: Record, counter: bytes) -> Piece:
        common, destination = common_of(record), destination_of(record)
        unnamed = common.message_id is None
        own_id = MessageId(None, self._own, 0)
        lead, rest = write_message(destination, common, record.properties, record.payload, own_id, self._wire)
        return Piece(write_cached(destination, self._wire) + lead, rest + counter, unnamed)

    def opening(self, cut: list[Piece]) -> list[Piece]:
        """Sets JMSXGroupFirstForConsumer, which ends the message from version 10 on."""
        (piece,) = cut
        if self._wire.version < 10:
            return cut
        return [piece._replace(after=piece.after[: -COUNTER_BYTES - 1] + b"\1" + piece.after[-COUNTER_BYTES:])]

    def write(self, cut: list[Piece], start: int, stop: int, first_id: int) -> bytes:
        parts: list[bytes] = []
        consumer, own = _HEAD + self._consumer, len(_HEAD) + len(self._consumer) + NUMBER_BYTES
        for number, (before, after, unnamed) in enumerate(cut[start:stop], first_id):
            told = i64(number)
            if unnamed:  # the sequence in the message's id, which ends what stands before
                before = before[:-NUMBER_BYTES] + told
            parts += (i32(own + len(before) + len(after)), consumer, before, told, after)
        return b"".join(parts)

    def ends(self, cut: list[Piece], start: int, stop: int) -> list[int]:
        own = 4 + len(_HEAD) + len(self._consumer) + NUMBER_BYTES
        return list(accumulate(own + len(before) + len(after) for before, after, _ in cut[start:stop]))
