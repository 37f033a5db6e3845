"""Conflation: a consumer that is given the latest record per key, from the state, and when it is and no longer is."""

from __future__ import annotations

from headway.core.consumer import Subscription
from headway.core.delivery.half_sent import free_cursor


def start_conflating(subscription: Subscription, now: float) -> None:
    """From now on the latest record per key. What the cursor stood on is free at once."""
    if subscription.conflating or subscription.state is None or subscription.queue is not None:
        return
    free_cursor(subscription)
    cursor = subscription.cursor
    behind = cursor.number < cursor.lane.count
    subscription.conflated_upto = seen_upto(subscription)
    oldest = cursor.oldest_time()
    subscription.current_s = now if oldest is None else oldest
    cursor.detach()
    subscription.conflating = True
    subscription.conflate_due = behind
    subscription.skips.clear()


def seen_upto(subscription: Subscription) -> int:
    """Sequence of the last record the cursor has passed."""
    cursor = subscription.cursor
    cursor.step()
    chunk = cursor.chunk
    if chunk is None:
        return subscription.conflated_upto
    index = cursor.number - chunk.first_number
    if index >= len(chunk):
        return cursor.lane.last_sequence
    return chunk.sequence_of(index) - 1


def stop_conflating(subscription: Subscription) -> None:
    """Back to every record, from the end of what was conflated."""
    if not subscription.conflating or subscription.request.options.conflate_s is not None:
        return
    subscription.next_pass()
    subscription.conflating = False
    subscription.cursor.attach()
