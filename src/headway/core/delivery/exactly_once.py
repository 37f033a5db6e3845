"""Exactly once, also across a crash: nobody sees what the journal would not know any more.

Rules:
1. A delivery is sent once the journal has which record its id stands for; until then its frame is *held back*. So a
   client never holds an id of which the broker, started again, knows nothing.
2. A release (MQTT's PUBREL) is sent once the journal has that its client has the record, so the record is not sent to
   somebody who has forgotten that he had it.
3. An id that stands for nothing any more, and that a client may hold all the same, is *doubtful*: it is released before
   anything else is sent on the next connection, and not used before the client says that it let go of it.
4. What a client publishes exactly once is answered in the same way: it is told that a record has arrived (PUBREC), and
   that its id is free again (PUBCOMP), once the journal has it. Else an id that comes back would be taken for one that
   is still under way, and swallow the record that has it now. The same for a client that is told that nothing is known
   of it, who takes all ids for free.

Where nothing is kept, nothing of this is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.log import HELD_BACK_BYTES, NOT_DURABLE

if TYPE_CHECKING:
    from headway.core.consumer import Delivery, Subscription
    from headway.core.log import DurablePosition

EXACTLY_ONCE = 2
NOTHING = 0
"""Sequence of what an id stands for that stands for nothing that is kept."""


def exactly_once_position(subscription: Subscription) -> DurablePosition:
    """What has to know of its deliveries before they are sent; None: nothing has."""
    if subscription.request.qos != EXACTLY_ONCE or not subscription.session.durable:
        return NOT_DURABLE
    return subscription.reader.durable_position(subscription)


def stands_for(delivery: Delivery) -> tuple[DurablePosition, int]:
    """For whom it is kept, and its sequence."""
    if delivery.out_of_order is not None:
        return delivery.out_of_order.durable_position, delivery.sequence
    position = exactly_once_position(delivery.subscription)
    if not position.durable or delivery.chunk is None or delivery.cursor is None:
        return position, NOTHING
    return position, delivery.chunk.sequence_of(delivery.index)


def note_in_flight(delivery_id: int, delivery: Delivery) -> DurablePosition:
    """Put down what the id stands for, and whether the client has it. Returns who does so."""
    if delivery.subscription.request.qos != EXACTLY_ONCE:
        return NOT_DURABLE
    position, sequence = stands_for(delivery)
    position.record_in_flight(delivery.subscription.session.client, delivery_id, sequence, released=delivery.released)
    return position


def holds_back(subscription: Subscription) -> bool:
    """So much waits for the disk that it is given no more."""
    return subscription.session.held_back.size >= HELD_BACK_BYTES and exactly_once_position(subscription).durable


def write(subscription: Subscription, frames: bytes | bytearray, position: DurablePosition) -> None:
    """Send frames of a subscription; ``kept``: as soon as that has put down what was told of them."""
    session = subscription.session
    if position.durable:
        position.hold_back(session, frames)
    elif session.held_back.size and exactly_once_position(subscription).durable:
        session.held_back.add(0, frames)  # in its turn
    else:
        session.outlet.out += frames


def lose(subscription: Subscription, delivery_id: int) -> Delivery | None:
    """A delivery is in flight no longer, and its client did not settle it."""
    channel = subscription.channel
    delivery = channel.remove(delivery_id)
    if delivery is None or subscription.request.qos != EXACTLY_ONCE:
        return delivery
    channel.orphaned_ids.append(delivery_id)
    position = exactly_once_position(subscription)
    position.record_in_flight(subscription.session.client, delivery_id, NOTHING, released=True)
    return delivery
