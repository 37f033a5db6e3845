"""Omissions are the records of its lane that a consumer is not sent, each for a reason."""

from __future__ import annotations

from headway.core.base import Reason
from headway.core.consumer import Subscription
from headway.core.delivery.frames import marked
from headway.core.log import Chunk


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
