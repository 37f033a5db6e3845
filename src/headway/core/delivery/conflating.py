"""Starts the conflation of a consumer, once or for good. consumer/conflation.py tells what conflation is."""

from __future__ import annotations

from headway.core.consumer import Subscription
from headway.core.delivery.half_sent import free_cursor


def start_conflating(subscription: Subscription, now: float, *, upto: int = 0) -> None:
    """Conflates the consumer from now on, if a state has what waits. Records up to ``upto`` are left out."""
    if subscription.conflating or not subscription.conflation.covers(subscription):
        return
    free_cursor(subscription)
    subscription.conflation.start(subscription, now, upto)


def conflate_once(subscription: Subscription) -> None:
    """Conflates the records that wait now, unless the consumer still reads a backfill."""
    conflation = subscription.conflation
    if not conflation.covers(subscription) or subscription.backfilling:
        return
    if not subscription.cursor.lag_records:
        return
    free_cursor(subscription)
    conflation.once(subscription)


def find_back(subscription: Subscription) -> None:
    """Gives a consumer that has left something out the latest records in the place of the deltas that wait for it."""
    if subscription.conflating:
        subscription.astray = False
        return
    free_cursor(subscription)
    subscription.conflation.once(subscription)
