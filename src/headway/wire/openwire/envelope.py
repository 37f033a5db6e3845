"""Deliveries to one consumer of queues, from the bytes of a lane of queues.

A queue's lane has records in the form of queues (``queue_form``). ``cut`` writes each as a message; a delivery then
differs between consumers by the consumer's id and by the number of the delivery, which acknowledgements repeat::

    length, head, consumer | destination, lead | number | rest, counter

Records of one numbering (wire/dialect.py) and one size are cut by columns: of all of them, each part is taken out in
one call.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import accumulate, count
from struct import Struct
from typing import NamedTuple

from headway.core.message import Record
from headway.wire.codecs import queue_form
from headway.wire.dialect import form_of
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.dialect import common_of, destination_of
from headway.wire.openwire.marshalling import (
    REMEMBERED_BYTES_MAX,
    Destination,
    MessageId,
    ProducerId,
    i32,
    i64,
    write_cached,
)
from headway.wire.openwire.messages import OWN_ID, RECENT, WrittenStem, stem_of, write_bodies, write_message

_HEAD = bytes((Type.MESSAGE_DISPATCH,)) + b"\0\0\0\0\0"
NUMBER_BYTES = 8
COUNTER_BYTES = 4
FEW = 4
"""Fewer records are cut one by one."""
_TWO_NUMBERS = Struct(">qq")


def _read_destination(address: bytes) -> Destination:
    exchange, topic = queue_form().address(address)
    return destination_of(Record(topic, b"", exchange=exchange))


_destinations_lately = lru_cache(1024)(_read_destination)


def _destination(address: bytes) -> Destination:
    """Returns the destination of records of this address, as written."""
    return _destinations_lately(address) if len(address) <= REMEMBERED_BYTES_MAX else _read_destination(address)


def _address(data: bytes, start: int) -> bytes:
    """Returns the address of the record at ``start``, as written. If its topic is too long for that, a bit in the
    weight says so, and all of it is in the properties."""
    end = start + 2 + (data[start] << 8 | data[start + 1])
    return data[start : start + queue_form().lead_bytes(data, start)] if data[end + 6] & 0x80 else data[start:end]


class Piece(NamedTuple):
    before: bytes
    """The bytes between the consumer and the delivery's number."""
    after: bytes
    unnamed: bool
    """The message came without an id: it gets one of the delivery's number."""


class NumberedCut:
    """Messages of a numbering (wire/dialect.py), with bodies of one size, as what differs between them."""

    __slots__ = ("bodies", "end", "middles", "numbers", "size", "stem")

    def __init__(
        self, stem: WrittenStem, numbers: Sequence[int], times_ms: Sequence[int], bodies: Sequence[bytes],
        counter: bytes,
    ) -> None:
        self.stem = stem
        self.numbers = numbers
        self.bodies = bodies
        body_size = i32(len(bodies[0]))
        middles = {one: stem.before_time + i64(one) + stem.behind_time + body_size for one in set(times_ms)}
        self.middles = list(map(middles.__getitem__, times_ms))
        """The bytes between the numbers and the bodies."""
        self.end = stem.behind_body + counter
        self.size = len(stem.lead) + 2 * NUMBER_BYTES + len(self.middles[0]) + len(bodies[0]) + len(self.end)
        """The size of each delivery, but for what is the consumer's own."""


Pieces = list[Piece] | NumberedCut


class OpenWireEnvelope:
    """Writes the deliveries for one consumer. ``consumer``: its id, or its number, as it is written; ``producer``: the
    name in ids of messages that have none."""

    __slots__ = ("_consumer", "_own", "_wire", "rewritten", "shape")

    def __init__(self, consumer: bytes, producer: str, wire: Form) -> None:
        self._consumer = consumer
        self._own = ProducerId(f"{OWN_ID}:{producer}", 0, 0)
        self._wire = wire
        self.rewritten = 0
        self.shape: Hashable = (producer, wire)

    # -- for all consumers of a shape -------------------------------------------------------------------------------

    def cut(self, data: bytes | memoryview, ends: Sequence[int], *, redelivered: int = 0) -> Pieces:
        raw, counter = bytes(data), i32(redelivered)
        return self._cut_numbered(raw, ends, counter) or self._cut_each(raw, ends, counter)

    def _cut_numbered(self, data: bytes, ends: Sequence[int], counter: bytes) -> NumberedCut | None:
        """Cuts records of one size and one numbering. None: they are not, or are too few."""
        records, size = len(ends), ends[0]
        if records < FEW or ends[-1] != records * size:
            return None
        form = queue_form()
        native_at, body_at = form.native_at(data, 0), form.lead_bytes(data, 0)
        native = data[native_at:body_at]
        known = RECENT.numbered(native) if body_at < size else None
        if known is None:
            return None
        numbering = known[0]
        stem = stem_of(numbering, _destination(_address(data, 0)), self._wire)
        if stem is None:
            return None
        pieces, at = "", 0
        for start, end in numbering.spans(native):
            pieces += f"{native_at + start - at}s{end - start}s"
            at = native_at + end
        columns = list(zip(*form_of(f"{pieces}{body_at - at}s{size - body_at}s").iter_unpack(data), strict=True))
        if any(column.count(column[0]) != records for column in columns[:-1:2]):  # a lead says how large its body is
            return None
        values, bodies = numbering.values(columns[1:-2:2]), write_bodies(stem.kind, columns[-1])
        if values is None or bodies is None or len(set(map(len, bodies))) > 1:
            return None
        return NumberedCut(stem, *values, bodies, counter)

    def _cut_each(self, data: bytes, ends: Sequence[int], counter: bytes) -> list[Piece]:
        pieces, start = list[Piece](), 0
        decode = queue_form().dialect.decode
        for end in ends:
            piece = self._known_piece(data, start, end, counter)
            if piece is None:
                piece = self._piece(decode(data[start:end]), counter)
                self.rewritten += 1
            pieces.append(piece)
            start = end
        return pieces

    def _known_piece(self, data: bytes, start: int, end: int, counter: bytes) -> Piece | None:
        """Writes a record of a numbering. None: it is of none, or there is more that differs."""
        form = queue_form()
        native_at, body_at = form.native_at(data, start), start + form.lead_bytes(data, start)
        known = RECENT.numbered(data[native_at:body_at])
        if known is None:
            return None
        numbering, number, time_ms = known
        stem = stem_of(numbering, _destination(_address(data, start)), self._wire)
        bodies = None if stem is None else write_bodies(stem.kind, (data[body_at:end],))
        if stem is None or bodies is None:
            return None
        one = NumberedCut(stem, (number,), (time_ms,), bodies, counter)
        return Piece(stem.lead + i64(number), one.middles[0] + bodies[0] + one.end, False)

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

    # -- for each consumer ------------------------------------------------------------------------------------------

    def write(self, cut: Pieces, start: int, stop: int, first_id: int) -> bytes:
        consumer = _HEAD + self._consumer
        if type(cut) is NumberedCut:
            lead = i32(len(consumer) + cut.size) + consumer + cut.stem.lead
            parts = [lead] * (5 * (stop - start))
            parts[1::5] = map(_TWO_NUMBERS.pack, cut.numbers[start:stop], count(first_id))
            parts[2::5] = cut.middles[start:stop]
            parts[3::5] = cut.bodies[start:stop]
            parts[4::5] = [cut.end] * (stop - start)
            return b"".join(parts)
        assert type(cut) is list
        parts, own = [], len(consumer) + NUMBER_BYTES
        for number, (before, after, unnamed) in enumerate(cut[start:stop], first_id):
            told = i64(number)
            if unnamed:  # the sequence in the message's id, which ends what stands before
                before = before[:-NUMBER_BYTES] + told
            parts += (i32(own + len(before) + len(after)), consumer, before, told, after)
        return b"".join(parts)

    def ends(self, cut: Pieces, start: int, stop: int) -> list[int]:
        own = 4 + len(_HEAD) + len(self._consumer)
        if type(cut) is NumberedCut:
            return list(range(own + cut.size, (stop - start) * (own + cut.size) + 1, own + cut.size))
        assert type(cut) is list
        return list(accumulate(own + NUMBER_BYTES + len(before) + len(after) for before, after, _ in cut[start:stop]))
