"""Rendering: records that cannot go from the lane to the outlet as they are."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress

import msgspec

from headway.core.base import Reason
from headway.core.consumer import EVERY_RECORD, GIVEN_UP, Backfill, Delivery, Row, Session, Subscription
from headway.core.delivery.frames import (
    Cuts,
    address,
    address_each,
    exactly_once_position,
    holds_back,
    lose,
    marked,
    note_in_flight,
    record_at,
    write,
)
from headway.core.log import HELD_BACK_BYTES, NO_PROGRESS, NO_RECEIPTS, NOT_DURABLE, Chunk, DurablePosition
from headway.core.message import SCAN_MAX, Record, seconds_left

# -- batch -------------------------------------------------------------------------------------------------------------
#
# A batch is what one call renders for a consumer, and what it costs: steps of a turn (fanout.py).


BATCH_BYTES = 64 * 1024
BATCH_RECORDS = 512
"""The largest batch of records that are written one by one."""
WRITTEN_A_STEP = 8
"""Records that are written, or looked at, one by one in the time of one step."""
ENCODED_A_STEP = 2
"""Records of a backfill, each encoded for one consumer, or records that are put into an envelope, in that time."""
Losses = Callable[[dict[int, int], Reason], None]
"""Is told of records that were left out, by their publishers, and why."""


def takes_more(session: Session) -> bool:
    """Tells whether the batch in the outlet has room for another record, and what is held back, too."""
    size, most = len(session.outlet.out), min(BATCH_BYTES, session.outlet.room_bytes)
    return (not size or size < most) and session.held_back.size < HELD_BACK_BYTES


def end_of_batch(chunk: Chunk, first: int) -> int:
    """Returns the first record of the chunk that is not in the batch that record ``first`` begins."""
    return max(first + 1, bisect_right(chunk.ends, chunk.record_start(first) + BATCH_BYTES))


def steps_of(records: int) -> int:
    return 1 + records // WRITTEN_A_STEP


def encoded_steps_of(records: int) -> int:
    return 1 + records // ENCODED_A_STEP


def out_of_credit(session: Session, now: float) -> bool:
    """Tells whether the client permits no more deliveries; notes since when."""
    channel = session.channel
    if channel.left > 0:
        return False
    channel.in_flight_bytes.wait()
    if channel.exhausted_since_s is None:
        channel.exhausted_since_s = now
    return True


# -- omission ----------------------------------------------------------------------------------------------------------
#
# Omissions are the records of its lane that a consumer is not sent, each for a reason.


def why_left_out(subscription: Subscription, chunk: Chunk, index: int, now: float) -> Reason | None:
    """Returns the reason why record ``index`` is left out; None if it is sent."""
    reason = drop_reason(subscription, chunk, index)
    if reason is None and chunk.size_of(index) > subscription.record_bytes_max:
        reason = Reason.TOO_LARGE_FOR_CLIENT
    expired = chunk.soonest_s <= now and chunk.run_expires[chunk.run_of(index)] <= now
    return Reason.EXPIRED if reason is None and expired else reason


def drop_reason(subscription: Subscription, chunk: Chunk, index: int) -> Reason | None:
    """Returns the reason of the skip that record ``index`` is in, or was left out by; None if there is none."""
    if subscription.left_out.has(chunk, index):
        return Reason.DISCARDED
    number = chunk.first_number + index
    skips = subscription.skips
    while skips and skips[0].stop <= number:
        skips.pop(0)
    for skip in skips:
        test = skip.predicate
        if skip.first <= number < skip.stop and (test is None or marked(subscription, chunk, test, index)[index]):
            return skip.reason
    return None


# -- backfilling -------------------------------------------------------------------------------------------------------
#
# Backfilling writes records that come from no lane: retained ones, snapshots, conflated records, older ones.
#
# Each is encoded for its consumer.


def render_backfill(subscription: Subscription, now: float, lost: Losses) -> int:
    session, backfill = subscription.session, subscription.backfills[0]
    out, shape = session.outlet.out, subscription.feed.shape
    records = steps = 0
    if backfill.done:
        subscription.end_backfill()
        return 1
    while records < BATCH_RECORDS and takes_more(session):
        if (subscription.request.qos and out_of_credit(session, now)) or subscription.out_of_room(now):
            backfill.wrote(records, session.outlet)
            return encoded_steps_of(records) if out else 0
        try:
            record = next(backfill.records)
        except StopIteration:
            backfill.done = True
            if not records:
                subscription.end_backfill()
            break
        if record is None:
            selector = subscription.feed.selector
            steps = steps_of(SCAN_MAX * (1 if selector is None else selector.cost))
            break
        records += 1
        if shape is not None:
            record = shape.whole(record)
        before = subscription.counters.written_bytes
        reason = None
        if record.expires_s <= now:
            reason = Reason.EXPIRED
        elif not _append_record(subscription, record, now, backfill):
            reason = Reason.TOO_LARGE_FOR_CLIENT
        if reason is not None:
            subscription.note_gap(1, record.sequence, record.sequence, reason)
            lost({record.publisher: 1}, reason)
        if backfill.out_of_order is not NO_PROGRESS:  # per record: this test costs less than a call that does nothing
            backfill.out_of_order.advance_past(record.sequence)
        if not backfill.retained and record.sequence > backfill.since:
            if subscription.feed.focus is not None and not record.payload:
                continue  # that a key is out of focus may be told here of one that the lane did not tell of
            # The conflating cursor has passed this record in the lane; here it is delivered.
            subscription.conflation.settle(subscription, subscription.counters.written_bytes - before)
            subscription.conflation.sent_s = record.time_s
    backfill.wrote(records, session.outlet)
    return steps + encoded_steps_of(records)


def _append_record(subscription: Subscription, record: Record, now: float, backfill: Backfill) -> bool:
    """Writes one record that is not from the subscription's lane into the outlet. Returns False if the record is too
    large for the client."""
    session = subscription.session
    retain = backfill.retained or (record.retain and subscription.request.retain_as_published)
    if record.retain != retain:
        record = msgspec.structs.replace(record, retain=retain)
    delivery_id = session.channel.next_id() if min(record.qos, subscription.request.qos) else 0
    frame = write_frame(subscription, record, delivery_id, now)
    if frame is None:
        return False
    position: DurablePosition = NOT_DURABLE
    if delivery_id:
        delivery = Delivery(subscription, now, backfill.out_of_order, number=record.sequence, record=record)
        backfill.out_of_order.sent(record.sequence)
        session.channel.add(delivery_id, delivery)
        position = note_in_flight(delivery_id, delivery)
    frame = address(subscription, frame)
    write(subscription, frame, position)
    subscription.counters.write(1, len(frame))
    receipts = subscription.feed.lane.receipts
    if receipts is not NO_RECEIPTS and not backfill.retained:  # per record, as above
        receipts.sent(subscription, record.sequence, delivery_id)
    return True


def write_frame(subscription: Subscription, record: Record, delivery_id: int, now: float) -> bytes | None:
    """Encodes the record for this consumer; None if it is too large for the client. A gap is announced on this record,
    or on a later one that has room for it."""
    limit, dialect = subscription.record_bytes_max, subscription.dialect
    if subscription.gap is not None:
        frame = dialect.encode_record(record, delivery_id, now=now, retain=record.retain, gap=subscription.gap)
        if len(frame) <= limit:
            subscription.gap = None
            return frame
    frame = dialect.encode_record(record, delivery_id, now=now, retain=record.retain)
    return frame if len(frame) <= limit else None


# -- redelivery --------------------------------------------------------------------------------------------------------
#
# Redelivery sends the unacknowledged deliveries of a client again when it is back.


def replay(session: Session, now: float, lost: Losses) -> int:
    """Sends the unacknowledged deliveries of a returning client again, oldest first: one batch, as far as its window
    allows, which may be smaller than before. Returns the steps that it took; 0 if nothing can be sent now."""
    out, channel, records = session.outlet.out, session.channel, 0
    while channel.replay and takes_more(session):
        if channel.left + len(channel.replay) <= 0 or records >= BATCH_RECORDS:
            break
        records += 1
        delivery_id = channel.replay.pop()
        delivery = channel.get(delivery_id)
        if delivery is None or delivery.released:
            continue
        subscription = delivery.subscription
        try:
            record = delivery_record(delivery)
        except OSError:
            _write_off(session, delivery_id, Reason.SPILL_FAILED, lost, now)
            continue
        frame = subscription.dialect.encode_record(record, delivery_id, now=now, retain=record.retain, redelivered=True)
        if len(frame) > session.max_packet_bytes:
            _write_off(session, delivery_id, Reason.TOO_LARGE_FOR_CLIENT, lost, now)
            continue
        write(subscription, frame, note_in_flight(delivery_id, delivery))
        delivery.sent_s = now
    return steps_of(records) if out or not channel.replay or records >= BATCH_RECORDS else 0


def delivery_record(delivery: Delivery) -> Record:
    """Returns a delivery's record, with the retain flag as it was sent. Raises OSError if it is on a disk that fails.
    """
    if delivery.record is not None:
        return delivery.record
    if delivery.chunk is None:
        raise OSError("its disk failed")
    return record_at(delivery.subscription.feed.lane.dialect, delivery.chunk, delivery.index)


def set_free(subscription: Subscription) -> None:
    """Detaches the unacknowledged deliveries of a subscription that ends from their lane. Each takes its record along,
    so that it can be sent again to a client that comes back."""
    in_flight = subscription.channel.in_flight
    for delivery_id in subscription.channel.ids_of(subscription):
        leave_lane(in_flight[delivery_id])


def leave_lane(delivery: Delivery) -> None:
    """Detaches a delivery from its lane. It takes its record along."""
    if delivery.chunk is not None:  # else it is from a backfill, whose progress goes on
        with suppress(OSError):  # the disk failed: this record cannot be sent again
            delivery.record = delivery_record(delivery)
        delivery.leave_lane()


def _write_off(session: Session, delivery_id: int, reason: Reason, lost: Losses, now: float) -> None:
    """Removes a delivery that cannot be sent again, and notes a gap."""
    delivery = session.channel.in_flight[delivery_id]
    chunk, record, queue = delivery.chunk, delivery.record, delivery.subscription.reader.queue
    if queue is not None and chunk is not None:
        lose(delivery.subscription, delivery_id)
        queue.lose(delivery, reason, now)
        return
    if record is not None:
        delivery.subscription.note_gap(1, record.sequence, record.sequence, reason)
        lost({record.publisher: 1}, reason)
    elif chunk is not None:
        sequence = chunk.sequence_of(delivery.index)
        delivery.subscription.note_gap(1, sequence, sequence, reason)
        lost({chunk.run_publisher[chunk.run_of(delivery.index)]: 1}, reason)
    lose(delivery.subscription, delivery_id)
    delivery.cursor.acknowledge(delivery.number)  # last, because it may drop the chunk


# -- rendering ---------------------------------------------------------------------------------------------------------
#
# Rendering writes records that cannot go from the lane to the outlet as they are.
#
# There are three kinds. A frame may have bytes for this consumer only (a delivery id, a gap, a remaining lifetime). A
# record may have to be left out. A record may come from no lane. Each
# call renders one bounded batch into ``outlet.out`` and moves the cursor. The outlet must be empty before the next
# call, so a consumer never has more than one batch of its own.
#
# Frames with delivery ids are copied a batch at a time, and only the ids are written into the copy.


LARGE_BYTES = 64 * 1024
"""A record that is larger than this is not copied for each consumer."""
COPIES_A_STEP = 32
"""Records whose ids are written into a copy in the time of one step (fanout.py)."""
ROW_MIN = 4
"""So many records are worth a row. Fewer are one behind other rows, which would have to become objects otherwise."""
HIGH, LOW = bytes(number >> 8 for number in range(1 << 16)), bytes(range(256)) * 256
"""The first and second bytes of all ids of two bytes. Those of ids in a row are a slice."""


def render(subscription: Subscription, now: float, lost: Losses, cuts: Cuts) -> int:
    """Renders the next batch for this consumer. Returns the steps that it took; 0 if nothing can be sent now: the
    consumer is caught up or has no credit, or too much is held back."""
    if holds_back(subscription):
        return 0
    conflation = subscription.conflation
    if conflation.mode is not EVERY_RECORD:
        subscription.session.outlet.freshen()
        conflation.go_on(subscription)
    if subscription.backfills:
        return render_backfill(subscription, now, lost)
    if conflation.mode is not EVERY_RECORD:
        return 0
    subscription.pass_left_out()  # whether or not there is credit: nothing of it waits
    if not subscription.has_more:
        return 0
    return _render_lane(subscription, now, lost, cuts)


def _render_lane(subscription: Subscription, now: float, lost: Losses, cuts: Cuts) -> int:
    """Handles one batch of records: leaves all of them out, or copies all of them with this consumer's ids. Returns the
    steps that it took; 0 if there is no credit."""
    cursor, session = subscription.cursor, subscription.session
    chunk = cursor.chunk
    first = chunk.index_at(cursor.position)
    begin = chunk.record_start(first)
    last = end_of_batch(chunk, first)
    if chunk.holes:
        last = max(first + 1, _as_credit_allows(session, chunk.holes, first, last))
        if session.channel.in_flight_bytes.counts:
            last = session.channel.in_flight_bytes.permits(chunk.ends, first, last)
    if subscription.out_of_room(now):
        return 0
    last = min(last, first + subscription.room)
    picky = bool(subscription.skips or subscription.left_out.records)
    picky = picky or chunk.soonest_s <= now or chunk.largest > subscription.record_bytes_max
    if picky:
        reason = why_left_out(subscription, chunk, first, now)
        upto = first + 1
        while upto < last and why_left_out(subscription, chunk, upto, now) == reason:
            upto += 1
        last = upto
        if reason is not None:
            lost(subscription.skip_to(chunk.first_number + last, reason), reason)
            return steps_of(last - first)
    if subscription.gap is not None:
        last = first + 1
    elif cursor.lane.bare:
        frames = address_each(cuts, subscription, chunk, first, last)
        write(subscription, frames, NOT_DURABLE)
        cursor.advance(chunk.ends[last - 1] - begin)
        return 1
    if not _copy(subscription, chunk, first, last, now):
        return 0
    return steps_of(last - first) if picky else 1 + (last - first) // COPIES_A_STEP


def _as_credit_allows(session: Session, holes: array[int], first: int, last: int) -> int:
    """Returns the first of records ``first`` … ``last - 1`` for which there is no credit; ``last`` if there is for all.
    """
    left = session.channel.left
    if left >= last - first:
        return last
    for index in range(first, last):
        if holes[index]:
            if left <= 0:
                return index
            left -= 1
    return last


def _copy(subscription: Subscription, chunk: Chunk, first: int, last: int, now: float) -> bool:
    """Copies records ``first`` … ``last - 1``, and writes this consumer's ids into the copy. Returns False without a
    copy if there is no credit for the first record. There is credit for all others."""
    session, cursor, dialect = subscription.session, subscription.cursor, subscription.dialect
    if chunk.holes and chunk.holes[first] and out_of_credit(session, now):
        return False
    position: DurablePosition = NOT_DURABLE
    exactly_once = exactly_once_position(subscription)
    begin = chunk.record_start(first)
    if exactly_once is NOT_DURABLE and _is_large(subscription, chunk, first):
        _begin_large(subscription, chunk, first, now)
        return True
    piece = bytearray(chunk.read(begin, chunk.ends[last - 1]))
    holes, width = chunk.holes, dialect.id_bytes
    at_once = exactly_once is NOT_DURABLE and (last - first >= ROW_MIN or session.channel.has_rows)
    if holes and not (at_once and _number_in_a_row(piece, subscription, chunk, first, last, now)):
        for index in range(first, last):
            hole = holes[index]
            if not hole:
                continue
            delivery_id = session.channel.next_id()
            piece[hole - begin : hole - begin + width] = delivery_id.to_bytes(width, "big")
            number = chunk.first_number + index
            cursor.sent(number, chunk)
            session.channel.add(delivery_id, Delivery(subscription, now, cursor, chunk, index, number))
            if exactly_once is not NOT_DURABLE:  # per record, and to find the sequence takes a search
                position = exactly_once
                exactly_once.record_in_flight(session.client, delivery_id, chunk.sequence_of(index))
    size = len(piece)
    if chunk.expiries:
        _age(piece, chunk, first, last, begin, now)
    frames: bytes | bytearray = piece
    if subscription.gap is not None:
        announced = dialect.with_gap(bytes(piece), subscription.gap)
        if announced is None:  # this dialect cannot announce gaps
            subscription.gap = None
        elif len(announced) <= subscription.record_bytes_max:
            frames = announced
            subscription.gap = None
    if cursor.lane.bare:
        frames = address(subscription, bytes(frames))
    write(subscription, frames, position)
    cursor.advance(size)
    return True


def _number_in_a_row(piece: bytearray, subscription: Subscription, chunk: Chunk, first: int, last: int,
                     now: float) -> bool:
    """Writes consecutive ids into a copy of records, all of which need one, and notes them as sent. Returns False if
    that is not possible: some need none, or the ids behind the last are not all free."""
    channel, cursor = subscription.session.channel, subscription.cursor
    holes, count = chunk.holes[first:last], last - first
    if 0 in holes or not (first_id := channel.take_row(count)):
        return False
    _write_ids(piece, _places(holes, chunk.record_start(first)), first_id, subscription.dialect.id_bytes)
    number = chunk.first_number + first
    cursor.sent(number, chunk, count)
    row = Row(first_id, count, subscription, now, cursor, chunk, first, number)
    if channel.in_flight_bytes.counts:
        channel.add_all(first_id, row.deliveries(), subscription.window, chunk, first)
    else:
        channel.add_row(row)
    return True


def _places(holes: array[int], begin: int) -> range | list[int]:
    """Returns where the ids of records stand in a copy that begins at ``begin``; a range, if that is evenly."""
    count, start = len(holes), holes[0] - begin
    step = holes[1] - holes[0] if count > 1 else 1
    if holes == array(holes.typecode, range(holes[0], holes[0] + count * step, step)):
        return range(start, start + (count - 1) * step + 1, step)
    return [hole - begin for hole in holes]


def _write_ids(piece: bytearray, places: range | list[int], first_id: int, width: int) -> None:
    """Writes consecutive ids to these places, in two columns if they are of two bytes and stand evenly."""
    if width == 2 and type(places) is range:
        stop, step, last_id = places.stop, places.step, first_id + len(places)
        piece[places.start : stop : step] = HIGH[first_id:last_id]
        piece[places.start + 1 : stop + 1 : step] = LOW[first_id:last_id]
    else:
        for delivery_id, place in enumerate(places, first_id):
            piece[place : place + width] = delivery_id.to_bytes(width, "big")


def copy_numbered(chunk: Chunk, first: int, piece: bytes | bytearray | memoryview, count: int, first_id: int, width: int
                  ) -> bytearray:
    """Returns a copy of ``count`` records, from record ``first`` of the chunk on, with consecutive ids. All of them
    need one. ``piece``: their bytes."""
    frames = bytearray(piece)
    _write_ids(frames, _places(chunk.holes[first : first + count], chunk.record_start(first)), first_id, width)
    return frames


# -- copied ------------------------------------------------------------------------------------------------------------
#
# Copied records wait for many consumers at one position: only their delivery ids differ, or not even these (a remaining
# lifetime is the same for all). They are taken from the chunk once, and numbered for each consumer, which catches up
# without having lagged. What needs more than that is rendered as above.


class Copied:
    """The records at the end of a lane, from one position on."""

    __slots__ = ("_chunk", "_first", "_first_id", "_frames", "_number", "_places", "_width", "count", "size")

    def __init__(self, subscription: Subscription, chunk: Chunk, first: int, begin: int, size: int, now: float) -> None:
        self._chunk, self._first = chunk, first
        self._number = chunk.first_number + first
        self.count, self.size = len(chunk) - first, size
        self._frames = bytearray(memoryview(chunk.data)[begin : begin + size])
        if chunk.expiries:
            _age(self._frames, chunk, first, len(chunk), begin, now)
        self._places = _places(chunk.holes[first:], begin) if chunk.holes else ()
        self._width = subscription.dialect.id_bytes
        self._first_id = 0
        """The first of the ids that stand in the frames now."""

    def fits(self, subscription: Subscription) -> bool:
        """Tells whether the consumer can be sent all of it at once."""
        session, channel = subscription.session, subscription.session.channel
        if session.rest or session.half_sent is not None or session.life is GIVEN_UP or channel.replay:
            return False
        if not self._places:
            return not subscription.request.qos
        return (
            subscription.window is channel and not channel.in_flight_bytes.counts and channel.left >= self.count
            and exactly_once_position(subscription) is NOT_DURABLE
        )  # fmt: skip

    def number(self, subscription: Subscription, now: float) -> bytearray | None:
        """Returns the frames for a consumer, and notes them as sent; None: the ids behind its last are not all free.
        The next call changes them."""
        if not self._places:
            return self._frames
        channel, cursor = subscription.session.channel, subscription.cursor
        first_id = channel.take_row(self.count)
        if not first_id:
            return None
        if first_id != self._first_id:  # consumers that came together have the same ids
            _write_ids(self._frames, self._places, first_id, self._width)
            self._first_id = first_id
        cursor.sent(self._number, self._chunk, self.count)
        row = Row(first_id, self.count, subscription, now, cursor, self._chunk, self._first, self._number)
        channel.add_row(row)
        return self._frames


def copied_from(subscription: Subscription, now: float) -> Copied | None:
    """Returns the records from the cursor on to the end of its lane, if they can be copied for many consumers."""
    cursor = subscription.cursor
    chunk = cursor.chunk
    begin = cursor.position - chunk.start
    size = chunk.stop - cursor.position
    if chunk.next is not None or chunk.spill is not None or cursor.lane.bare or not 0 < size <= BATCH_BYTES:
        return None
    first = chunk.index_at(cursor.position)
    if chunk.record_start(first) != begin or chunk.soonest_s <= now or 0 in chunk.holes[first:]:
        return None
    return Copied(subscription, chunk, first, begin, size, now)


def _is_large(subscription: Subscription, chunk: Chunk, index: int) -> bool:
    """Tells whether the record is larger than a batch and differs for this consumer by its delivery id only."""
    large = chunk.ends[index] - chunk.record_start(index) > LARGE_BYTES
    alone = chunk.holes and chunk.holes[index] and not chunk.expiries and subscription.gap is None
    return bool(large and alone) and not subscription.session.held_back.size


def _begin_large(subscription: Subscription, chunk: Chunk, index: int, now: float) -> None:
    """Begins a large record: copies only the bytes up to the delivery id. From there on the record is half sent, like
    any other. So a thousand consumers that are stuck in a record of a megabyte share its memory."""
    session, cursor, width = subscription.session, subscription.cursor, subscription.dialect.id_bytes
    begin, hole = chunk.record_start(index), chunk.holes[index]
    head = chunk.read(begin, hole)
    delivery_id = session.channel.next_id()
    number = chunk.first_number + index
    cursor.sent(number, chunk)
    session.channel.add(delivery_id, Delivery(subscription, now, cursor, chunk, index, number))
    session.rest = bytes(head) + delivery_id.to_bytes(width, "big")
    session.half_sent = subscription
    cursor.advance(hole + width - begin)


def _age(piece: bytearray, chunk: Chunk, first: int, last: int, begin: int, now: float) -> None:
    """Writes the remaining lifetime into each record that has one."""
    for index in range(first, last):
        at = chunk.expiries[index]
        if at:
            left = max(1, seconds_left(chunk.run_expires[chunk.run_of(index)], now))
            piece[at - begin : at - begin + 4] = left.to_bytes(4, "big")
