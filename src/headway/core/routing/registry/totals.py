"""Totals: what was published, delivered and left out since the start, and how many consumers there are."""

from __future__ import annotations

from collections import Counter

from headway.core.base import Reason
from headway.core.consumer import Feed, Subscription


class Totals:
    def __init__(self) -> None:
        self.published_records = 0
        self.published_bytes = 0
        self.gap_records: Counter[Reason] = Counter()
        self.unpublished_records: Counter[str] = Counter()
        """Wills, advisories and receipts that were dropped because there was no room for them, by kind."""
        self.unpublished = ""
        """The last of these."""
        self.delivered_records = 0
        self.delivered_bytes = 0
        """Totals of all subscriptions, also ended ones. Each counts as of its last ``count``."""
        self.consumers: Counter[str] = Counter()
        self.slow_consumers: Counter[str] = Counter()
        """The number of subscriptions, and of slow ones, by filter."""
        self.slow = 0
        """The number of slow subscriptions."""
        self.subscriptions = 0
        """The number of all of them."""

    def count(self, subscription: Subscription) -> None:
        """Brings the totals up to date with one subscription."""
        new = subscription.counters.add_to_total(subscription.delivered, self.gap_records)
        self.delivered_records += new.records
        self.delivered_bytes += new.bytes

    def slow_fraction(self, filter: str) -> float:
        return self.slow_consumers[filter] / max(1, self.consumers[filter])

    def count_consumers(self, filter: str, change: int) -> None:
        """Counts so many subscriptions more, or less if ``change`` is negative."""
        self.subscriptions += change
        _count(self.consumers, filter, change)

    def move(self, consumers: int, slow: int, old: Feed, new: Feed) -> None:
        """Counts so many consumers, of which so many are slow, for the feed that their queue reads now."""
        for feed, sign in ((old, -1), (new, 1)):
            self.count_consumers(feed.key.filter, sign * consumers)
            _count(self.slow_consumers, feed.key.filter, sign * slow)
            feed.slow += sign * slow

    def count_slow(self, subscription: Subscription, change: int) -> None:
        """Counts a subscription that is marked slow (1) or no longer is (-1)."""
        _count(self.slow_consumers, subscription.feed.key.filter, change)
        subscription.feed.slow += change
        self.slow += change
        if subscription.reader.queue is not None:
            subscription.reader.queue.count_slow(subscription, change)


def _count(counts: Counter[str], filter: str, change: int) -> None:
    counts[filter] += change
    if not counts[filter]:
        del counts[filter]  # clients choose filters, so there may be any number of them
