"""Exactly once, also across a crash: a client sees no delivery state that the journal might lose.

Rules:
1. A delivery's frame is *held back* until the journal has the delivery id with its record. So a client never holds an
   id that the broker does not know after a restart.
2. A release (MQTT's PUBREL) is held back until the journal has that the client received the record. So the record is
   not sent again to a client that has finished with its id.
3. An id is *orphaned* if it has no record any more and the client may still hold it. The broker releases it first on
   the next connection, and does not use it again before the client has confirmed the release.
4. The broker answers a client's own exactly-once publishes in the same way: PUBREC and PUBCOMP are held back until the
   journal has the arrival or the release of the id. Otherwise a restarted broker would take a new record with this id
   for a duplicate and drop it. A CONNACK without a session is held back, too, because the client then takes all ids for
   free.

For sessions and subscriptions that are not durable none of this is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.log import HELD_BACK_BYTES, NOT_DURABLE

if TYPE_CHECKING:
    from headway.core.consumer import Delivery, Subscription
    from headway.core.log import DurablePosition

EXACTLY_ONCE = 2
NO_RECORD = 0
"""The sequence of an id without a durable record."""


def exactly_once_position(subscription: Subscription) -> DurablePosition:
    """Returns the durable position that notes the deliveries before they are sent; the null position if they need not
    be noted."""
    if subscription.request.qos != EXACTLY_ONCE or not subscription.session.durable:
        return NOT_DURABLE
    return subscription.reader.durable_position(subscription)


def durable_record(delivery: Delivery) -> tuple[DurablePosition, int]:
    """Returns the durable position of a delivery's record, and the record's sequence."""
    position = exactly_once_position(delivery.subscription)
    if delivery.chunk is not None:
        return position, delivery.chunk.sequence_of(delivery.index) if position.durable else NO_RECORD
    noted = delivery.cursor.durable_position
    return (noted, delivery.number) if noted.durable else (position, NO_RECORD)


def note_in_flight(delivery_id: int, delivery: Delivery) -> DurablePosition:
    """Notes the record of a delivery id, and whether the client has it. Returns the position that noted it."""
    if delivery.subscription.request.qos != EXACTLY_ONCE:
        return NOT_DURABLE
    position, sequence = durable_record(delivery)
    position.record_in_flight(delivery.subscription.session.client, delivery_id, sequence, released=delivery.released)
    return position


def holds_back(subscription: Subscription) -> bool:
    """Tells whether too much of the client's data is held back for one more delivery."""
    return subscription.session.held_back.size >= HELD_BACK_BYTES and exactly_once_position(subscription).durable


def write(subscription: Subscription, frames: bytes | bytearray, position: DurablePosition) -> None:
    """Sends frames of a subscription. With a durable ``position`` they are held back until the journal has its notes.
    """
    session = subscription.session
    if position.durable:
        position.hold_back(session, frames)
    elif session.held_back.size and exactly_once_position(subscription).durable:
        session.held_back.add(0, frames)  # they keep their order behind the frames that are held back
    else:
        session.outlet.out += frames


def lose(subscription: Subscription, delivery_id: int) -> Delivery | None:
    """Removes a delivery that its client did not settle. Its id is orphaned."""
    channel = subscription.channel
    delivery = channel.remove(delivery_id)
    if delivery is None or subscription.request.qos != EXACTLY_ONCE:
        return delivery
    channel.orphaned_ids[delivery_id] = None
    position = exactly_once_position(subscription)
    position.record_in_flight(subscription.session.client, delivery_id, NO_RECORD, released=True)
    return delivery
