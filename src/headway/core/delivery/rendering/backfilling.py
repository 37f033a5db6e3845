"""Backfilling writes records that come from no lane: retained ones, snapshots, conflated records, older ones.

Each is encoded for its consumer.
"""

from __future__ import annotations

import msgspec

from headway.core.base import Reason
from headway.core.consumer import Backfill, Delivery, Subscription
from headway.core.delivery.frames import address, note_in_flight, write
from headway.core.delivery.rendering.batch import (
    BATCH_RECORDS,
    Losses,
    encoded_steps_of,
    out_of_credit,
    steps_of,
    takes_more,
)
from headway.core.log import NO_PROGRESS, NO_RECEIPTS, NOT_DURABLE, DurablePosition
from headway.core.message import SCAN_MAX, Record


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
