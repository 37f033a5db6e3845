"""The watchlist is the consumers that the governor looks at, and the lateness of its looks.

A consumer is watched from the time it falls behind until it has caught up and all its rules have stepped back.
"""

from __future__ import annotations

from itertools import islice

from headway.core.consumer import Subscription
from headway.core.queue import queue_behind
from headway.core.routing import Registry

LOOKS_MAX = 256


class Watchlist:
    def __init__(self, registry: Registry) -> None:
        self._watched = registry.watched
        self.late_s = 0.0
        """The sum of seconds by which sweeps came too late. The broker caused them, so they are taken off the clocks of
        rules (``PolicyState.keep_up``)."""

    def add(self, subscription: Subscription) -> None:
        if subscription not in self._watched:
            self._watched[subscription] = None
            subscription.case.state.late_s = self.late_s

    def remove(self, subscription: Subscription) -> None:
        """Takes a consumer off the list. One of a queue gets onto it again when records wait that nobody can take."""
        self._watched.pop(subscription, None)
        if (queue := queue_behind(subscription)) is not None:
            queue.members.not_watched(subscription)

    def first(self) -> list[Subscription]:
        """Returns the consumers whose last look was longest ago, ``LOOKS_MAX`` at most."""
        return list(islice(self._watched, LOOKS_MAX))

    def move_to_end(self, subscription: Subscription) -> None:
        self._watched[subscription] = self._watched.pop(subscription)
