"""Writing off drops the records of an evicted consumer."""

from __future__ import annotations

from headway.core.base import Reason
from headway.core.clients import Ending
from headway.core.consumer import REPLACED, Subscription
from headway.core.delivery import lose
from headway.core.log import GRACE_S
from headway.core.queue import queue_behind
from headway.core.routing import Registry


def write_off(
    registry: Registry, ending: Ending, subscription: Subscription, reason: Reason, now: float, *, unreadable: bool
) -> None:
    """Moves the subscription past the records that it loses, which become a gap.

    A subscription with promised records loses the records before the first of these. Any other subscription loses all
    records. If records are ``unreadable``, it loses exactly those."""
    cursor = subscription.cursor
    queue = queue_behind(subscription)
    if queue is not None:
        queue.write_off(subscription, reason, now - GRACE_S)
        return
    if subscription.promised and not unreadable:
        upto = cursor.held_number(subscription.stop)
        registry.lost(subscription.skip_to(upto, reason), reason)
        _settle_down(registry, ending, subscription, reason, now)
        return
    channel = subscription.channel
    in_flight = [(i, channel.in_flight[i]) for i in channel.ids_of(subscription)]
    stop = subscription.stop
    if unreadable:
        chunks = {cursor.chunk, *(delivery.chunk for _, delivery in in_flight)}
        bad = {chunk for chunk in chunks if chunk is not None and not chunk.readable()}
        in_flight = [(i, delivery) for i, delivery in in_flight if delivery.chunk in bad]
        stop = min(stop, cursor.chunk.first_number + len(cursor.chunk)) if cursor.chunk in bad else cursor.number
    for delivery_id, delivery in in_flight:
        lose(subscription, delivery_id)
        if delivery.chunk is not None:
            sequence = delivery.chunk.sequence_of(delivery.index)  # while its chunk is still there
            subscription.note_gap(1, sequence, sequence, reason)
        else:
            subscription.feed.lane.receipts.lost(subscription, delivery.number, delivery.number, reason)
        delivery.cursor.acknowledge(delivery.number)
    registry.lost(subscription.skip_to(stop, reason), reason)
    _settle_down(registry, ending, subscription, reason, now)


def _settle_down(
    registry: Registry, ending: Ending, subscription: Subscription, reason: Reason, now: float
) -> None:
    """Ends the subscription, or makes it wait, if its cursor has reached the end."""
    session = subscription.session
    if subscription.life is REPLACED and subscription.cursor.number >= subscription.stop:
        ending.end(subscription, reason, now)
    elif subscription in session.lagging and not subscription.has_more:
        subscription.feed.wait(subscription)
        registry.dirty[subscription.feed] = None
