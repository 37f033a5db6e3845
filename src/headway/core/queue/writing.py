"""Writing encodes the records of a queue for the member that gets them.

A member with an envelope (AMQP) gets a batch in one ``send``, straight to its outlet. Records that the outlet does not
take are not handed out. Only the rest of a half-sent record waits in ``out``, so a stuck member holds no more than one
record. Other members (MQTT's shared subscriptions) get record by record, in their own dialect.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import count as count_from
from itertools import repeat
from typing import NamedTuple

import msgspec

from headway.core.base import Reason
from headway.core.consumer import NO_LIMIT, Delivery, Grant, Revoked, Subscription
from headway.core.delivery import cut_of, exactly_once_position, record_at, take_ids, write, write_frame
from headway.core.log import NOT_DURABLE, Chunk, Cursor
from headway.core.routing import Registry

SETTLED_WORK = 4
"""The work of a record that the client has to settle, or that is written alone, in those that are only cut."""
REWRITTEN_WORK = 24
"""The work of a record that has to be read, and written anew: about 30 microseconds."""
BYTES_PER_WORK = 2048
"""Bytes that are written in the time in which one record is cut."""


class SendResult(NamedTuple):
    """The number of records that were sent or, with a ``reason``, dropped. ``deliveries`` are those that the client has
    to settle. ``work``: what it cost, in records that are cut."""

    records: int
    deliveries: list[Delivery] = []  # noqa: RUF012  never changed
    reason: Reason | None = None
    work: int = SETTLED_WORK


def send_one(member: Subscription, cursor: Cursor, chunk: Chunk, index: int, now: float) -> SendResult:
    """Writes one record in the member's dialect."""
    session, request = member.session, member.request
    try:
        record = record_at(member.feed.lane.dialect, chunk, index)
    except OSError:
        return SendResult(1, reason=Reason.SPILL_FAILED)
    if record.expires_s <= now:
        return SendResult(1, reason=Reason.EXPIRED)
    record = msgspec.structs.replace(record, retain=record.retain and request.retain_as_published)
    delivery_id = member.channel.next_id() if min(record.qos, request.qos) else 0
    frame = write_frame(member, record, delivery_id, now)
    if frame is None:
        return SendResult(1, reason=Reason.TOO_LARGE_FOR_CLIENT)
    position = exactly_once_position(member) if delivery_id else NOT_DURABLE
    if position is not NOT_DURABLE:  # per record, and to find the sequence takes a search
        position.record_in_flight(session.client, delivery_id, chunk.sequence_of(index))
    write(member, frame, position)
    member.counters.write(1, len(frame))
    if not delivery_id:
        return SendResult(1)
    delivery = Delivery(member, now, cursor, chunk, index, chunk.first_number + index, record=record)
    member.channel.add(delivery_id, delivery)
    return SendResult(1, [delivery])


def send_batch(
    registry: Registry, member: Subscription, cursor: Cursor, chunk: Chunk, first: int, last: int, now: float, *,
    redelivered: int, opens: bool = False,
) -> SendResult:  # fmt: skip
    """Offers records ``first`` … ``last - 1`` to the member's outlet; those that are settled at once may go on in the
    next chunks. ``redelivered``: how often they came back.
    ``opens``: it is one, the first of its group that the member gets."""
    outlet, envelope, channel = member.session.outlet, member.request.envelope, member.channel
    assert envelope is not None
    try:
        shared = member.feed.reading > 1
        known = len(registry.cuts)
        rewritten = envelope.rewritten
        cut = cut_of(registry.cuts, member, chunk, first, last, shared=shared, redelivered=redelivered)
    except OSError:
        return SendResult(1, reason=Reason.SPILL_FAILED)
    if opens:
        cut = envelope.opening(cut)
    count = last - first
    if member.window.record_bytes_max < NO_LIMIT:
        count = cut.count_within(count, member.window.record_bytes_max)
        if not count:
            _end_too_small(registry, member, len(cut.pieces[0]))
            return SendResult(0, work=last - first + (envelope.rewritten - rewritten) * REWRITTEN_WORK)
    frames = envelope.write(cut, 0, count, channel.last_id + 1)
    taken = outlet.send([frames], len(frames))
    if not outlet.took(taken, len(frames), now):
        ends = envelope.ends(cut, 0, count)
        count = bisect_right(ends, taken)
        if taken > (ends[count - 1] if count else 0):
            outlet.out += frames[taken : ends[count]]
            taken = ends[count]
            count += 1
    first_id = take_ids(member, cut, count)
    member.counters.write(count, taken)
    work = taken // BYTES_PER_WORK + (envelope.rewritten - rewritten) * REWRITTEN_WORK
    if not shared or len(registry.cuts) > known:
        work += last - first  # another consumer's cut costs nothing
    if not member.request.qos:
        return SendResult(count, work=work)
    deliveries = deliveries_of(member, cursor, chunk, first, count, now)
    channel.add_all(first_id, deliveries, member.window, chunk, first)
    return SendResult(count, deliveries, work=work + SETTLED_WORK * count)


def _end_too_small(registry: Registry, member: Subscription, size: int) -> None:
    """Ends a consumer that does not take records as large as the next one, which stays in the queue for others. Until
    its client is told, it gets no more."""
    window = member.window
    assert isinstance(window, Grant)
    window.use_up()
    text = larger_than(size, window.record_bytes_max)
    registry.effects.append(Revoked(member, text, Reason.TOO_LARGE_FOR_CLIENT))


def larger_than(size: int, most: int) -> str:
    return (f"the next message has {size:,} bytes, and this receiver takes {most:,} at most; it stays in the queue: "
            "begin to consume again with a larger limit, or none")  # fmt: skip


def deliveries_of(
    member: Subscription, cursor: Cursor, chunk: Chunk, first: int, count: int, now: float
) -> list[Delivery]:
    """Makes the deliveries of neighbours, from record ``first`` of the chunk on."""
    places, numbers = range(first, first + count), count_from(chunk.first_number + first)
    return list(map(Delivery, repeat(member), repeat(now), repeat(cursor), repeat(chunk), places, numbers))


def resend(member: Subscription, delivery_id: int, now: float) -> bool:
    """Sends a record in flight to the same member again, with a new id. Returns False if the record cannot be read."""
    channel, envelope, outlet = member.channel, member.request.envelope, member.session.outlet
    delivery = channel.in_flight[delivery_id]
    chunk, index = delivery.chunk, delivery.index
    if envelope is None or chunk is None:
        return False
    try:
        data = chunk.read(chunk.record_start(index), chunk.ends[index])
    except OSError:
        return False
    cut = envelope.cut(data, [len(data)], redelivered=max(1, delivery.returns))
    channel.remove(delivery_id)
    again = take_ids(member, cut, 1)
    channel.add(again, delivery)
    delivery.sent_s = now
    frames = envelope.write(cut, 0, 1, again)
    outlet.out += frames
    member.counters.write(1, len(frames))
    return True
