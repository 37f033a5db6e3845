"""The watchlist: the consumers that the governor looks at, and how late its looks have been.

A consumer is watched from when it falls behind until it has caught up and all its rules have stepped back.
"""

from __future__ import annotations

from itertools import islice

from headway.core.consumer import Subscription
from headway.core.routing import Registry

LOOKS_MAX = 256


class Watchlist:
    def __init__(self, registry: Registry) -> None:
        self._watched = registry.watched
        self.late_s = 0.0
        """Seconds by which sweeps came too late, summed since the start. They are the broker's own fault, so they are
        taken off the clocks of rules (``PolicyState.keep_up``)."""

    def add(self, subscription: Subscription) -> None:
        if subscription not in self._watched:
            self._watched[subscription] = None
            subscription.case.state.late_s = self.late_s

    def remove(self, subscription: Subscription) -> None:
        self._watched.pop(subscription, None)

    def first(self) -> list[Subscription]:
        """The consumers whose last look was longest ago, ``LOOKS_MAX`` at most."""
        return list(islice(self._watched, LOOKS_MAX))

    def move_to_end(self, subscription: Subscription) -> None:
        self._watched[subscription] = self._watched.pop(subscription)
