"""An observer is told of consumers (telemetry/observer.py). The null observer ignores it: telemetry is off."""

from __future__ import annotations

from typing import Final, Protocol

from headway.core.base import Reason
from headway.core.consumer.feed import Feed
from headway.core.consumer.subscription import Subscription
from headway.core.log import Chunk, Lane
from headway.core.policy import Policy, Sample, Verdict

Shares = dict[Lane, tuple[dict[Chunk, float], dict[object, float]]]
"""``Lane.held_shares`` and ``apart_shares`` of the lanes looked at so far; a cache for one sweep."""


class Observer(Protocol):
    def began(self, subscription: Subscription) -> None:
        """Called for each new consumer."""
    def moved(self, old: Feed, new: Feed, consumers: int) -> None:
        """Called when so many consumers, members of a queue, read another feed than before."""
    def looked(self, subscription: Subscription, sample: Sample, now: float) -> None:
        """Called after each look of the governor at a watched consumer."""
    def verdict(self, verdict: Verdict, subscription: Subscription) -> None:
        """Called for each verdict."""
    def trial_verdict(self, verdict: Verdict, subscription: Subscription, policy: Policy) -> None:
        """Called for each verdict of a trial. ``policy``: the trial's."""
    def ended(self, subscription: Subscription, reason: Reason, now: float) -> None:
        """Called when a consumer ends."""
    def tick(self, now: float, shares: Shares) -> None:
        """Called at the end of each sweep."""


class NullObserver:
    __slots__ = ()

    def began(self, subscription: Subscription) -> None:
        pass

    def moved(self, old: Feed, new: Feed, consumers: int) -> None:
        pass

    def looked(self, subscription: Subscription, sample: Sample, now: float) -> None:
        pass

    def verdict(self, verdict: Verdict, subscription: Subscription) -> None:
        pass

    def trial_verdict(self, verdict: Verdict, subscription: Subscription, policy: Policy) -> None:
        pass

    def ended(self, subscription: Subscription, reason: Reason, now: float) -> None:
        pass

    def tick(self, now: float, shares: Shares) -> None:
        pass


NO_OBSERVER: Final = NullObserver()
"""The only null observer."""
