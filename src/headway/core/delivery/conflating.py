"""Conflating: when a consumer is given the latest record per key. What that is: consumer/conflation.py."""

from __future__ import annotations

from headway.core.consumer import Subscription
from headway.core.delivery.half_sent import free_cursor


def start_conflating(subscription: Subscription, now: float, *, upto: int = 0) -> None:
    """From now on, where there is a state to read it from. ``upto``: it has what is before, or is not to have it."""
    if subscription.conflating or subscription.conflation.state is None:
        return
    free_cursor(subscription)
    subscription.conflation.start(subscription, now, upto)


def conflate_once(subscription: Subscription) -> None:
    """Of what waits now, unless something else comes first."""
    conflation = subscription.conflation
    if conflation.state is None or subscription.backfill is not None or not subscription.cursor.lag_records:
        return
    free_cursor(subscription)
    conflation.once(subscription)
