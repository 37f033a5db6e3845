"""Rendering writes records that cannot go from the lane to the outlet as they are.

There are three kinds. A frame may have bytes for this consumer only (a delivery id, a gap, a remaining lifetime). A
record may have to be left out (omission.py). A record may come from no lane (backfilling.py, redelivery.py). Each call
renders one bounded batch into ``outlet.out`` and moves the cursor. The outlet must be empty before the next call, so a
consumer never has more than one batch of its own.

Frames with delivery ids are copied a batch at a time, and only the ids are written into the copy.
"""

from __future__ import annotations

from array import array
from math import ceil

from headway.core.consumer import EVERY_RECORD, Delivery, Row, Session, Subscription
from headway.core.delivery.frames import Cuts, address, address_each, exactly_once_position, holds_back, write
from headway.core.delivery.rendering.backfilling import render_backfill
from headway.core.delivery.rendering.batch import Losses, end_of_batch, out_of_credit, steps_of
from headway.core.delivery.rendering.omission import why_left_out
from headway.core.log import NOT_DURABLE, Chunk, DurablePosition

LARGE_BYTES = 64 * 1024
"""A record that is larger than this is not copied for each consumer."""
LIFETIME_MAX_S = 0xFFFF_FFFF
"""The longest lifetime that fits into a record. Other protocols know longer ones."""
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
    channel, cursor, width = subscription.session.channel, subscription.cursor, subscription.dialect.id_bytes
    holes, begin, count = chunk.holes[first:last], chunk.record_start(first), last - first
    if 0 in holes or not (first_id := channel.take_row(count)):
        return False
    start, step = holes[0] - begin, holes[1] - holes[0] if count > 1 else 0
    if count > 1 and width == 2 and holes == array(holes.typecode, range(holes[0], holes[0] + count * step, step)):
        stop = start + (count - 1) * step + 1
        piece[start:stop:step] = HIGH[first_id : first_id + count]
        piece[start + 1 : stop + 1 : step] = LOW[first_id : first_id + count]
    else:
        for delivery_id, hole in enumerate(holes, first_id):
            piece[hole - begin : hole - begin + width] = delivery_id.to_bytes(width, "big")
    number = chunk.first_number + first
    cursor.sent(number, chunk, count)
    row = Row(first_id, count, subscription, now, cursor, chunk, first, number)
    if channel.in_flight_bytes.counts:
        channel.add_all(first_id, row.deliveries(), subscription.window, chunk, first)
    else:
        channel.add_row(row)
    return True


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
            left = max(1, ceil(chunk.run_expires[chunk.run_of(index)] - now))
            piece[at - begin : at - begin + 4] = min(left, LIFETIME_MAX_S).to_bytes(4, "big")
