"""Observing: what somebody is told who puts on record how consumers fare (observer.py)."""

from __future__ import annotations

from typing import Protocol

from headway.core.base import Reason
from headway.core.consumer.subscription import Subscription
from headway.core.log import Chunk, Lane
from headway.core.policy import Sample, Verdict

Shares = dict[Lane, dict[Chunk, float]]
"""``Lane.held_shares`` of the lanes looked at so far; worth keeping for one sweep."""


class Observer(Protocol):
    def began(self, subscription: Subscription) -> None:
        """There is a new consumer."""
    def looked(self, subscription: Subscription, sample: Sample, now: float) -> None:
        """The governor had a look at one that lags, or did."""
    def verdict(self, verdict: Verdict, subscription: Subscription) -> None:
        """Something was decided about it."""
    def ended(self, subscription: Subscription, reason: Reason, now: float) -> None:
        """It is over."""
    def tick(self, now: float, shares: Shares) -> None:
        """The sweep is over."""
