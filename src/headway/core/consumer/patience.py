"""Patience is for how long a client may hold a delivery without being slow: it asks for it, or a message does."""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import NamedTuple

from headway.core.consumer.delivery import Delivery
from headway.core.consumer.subscription import OLDEST_LOOKED_AT, Subscription


class Due(NamedTuple):
    """A delivery that is to be settled by then, with all patience for it."""

    at_s: float
    patience_s: float


def patience_for(subscription: Subscription, delivery: Delivery) -> float:
    """Returns the patience for this delivery: what the client asked for, or the message, if that is more."""
    return max(subscription.patience_s, min(delivery.patience_s, subscription.case.policy.patience_max_s))


def is_patient(subscription: Subscription) -> bool:
    """Tells whether its client, or a message that it was sent, asked for patience."""
    return subscription.job_patience or subscription.patience_s > 0


def due_of(subscription: Subscription) -> Due | None:
    """Returns when the first of its unacknowledged deliveries is due; None if there is none."""
    patience_s = subscription.patience_s
    if not subscription.job_patience:
        oldest_s = subscription.oldest_unacknowledged_s()
        return Due(oldest_s + patience_s, patience_s) if oldest_s < inf else None
    some = islice(subscription.channel.in_flight.values(), OLDEST_LOOKED_AT)
    theirs = [(one.sent_s, patience_for(subscription, one)) for one in some if one.subscription is subscription]
    return min((Due(sent_s + patient_s, patient_s) for sent_s, patient_s in theirs), default=None)
