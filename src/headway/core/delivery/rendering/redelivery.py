"""Redelivery sends the unacknowledged deliveries of a client again when it is back."""

from __future__ import annotations

from headway.core.base import Reason
from headway.core.consumer import Delivery, Session
from headway.core.delivery.frames import lose, note_in_flight, record_at, write
from headway.core.delivery.rendering.batch import BATCH_RECORDS, Losses, steps_of, takes_more
from headway.core.message import Record


def replay(session: Session, now: float, lost: Losses) -> int:
    """Sends the unacknowledged deliveries of a returning client again, oldest first: one batch, as far as its window
    allows, which may be smaller than before. Returns the steps that it took; 0 if nothing can be sent now."""
    out, channel, records = session.outlet.out, session.channel, 0
    while channel.replay and takes_more(session):
        if channel.left + len(channel.replay) <= 0 or records >= BATCH_RECORDS:
            break
        records += 1
        delivery_id = channel.replay.pop()
        delivery = channel.in_flight.get(delivery_id)
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
