"""Placeholder: stands in for the consumers of a durable queue that has none.

Policies judge it like any consumer; it gets no records.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.consumer import ENDED, QueueMember, Skip, Subscription
from headway.core.log import Cursor
from headway.core.queue.backlog import QueuePort
from headway.core.routing import Registry


class Placeholder:
    """The placeholder of one queue, while there is one."""

    def __init__(self, queue: QueuePort, registry: Registry, on_lag: Callable[[Subscription, float], None]) -> None:
        self.make: Callable[[float], Subscription | None] = lambda now: None
        """Makes the placeholder of a durable queue; other queues get none."""
        self.here: tuple[Subscription, ...] = ()
        """The placeholder; empty: there is none."""
        self._queue = queue
        self._registry = registry
        self._on_lag = on_lag

    def miss(self, cursor: Cursor, skips: list[Skip], now: float) -> None:
        """Has policies look at the placeholder, because records wait and there is no consumer."""
        if not self.here and (made := self.make(now)) is not None:
            made.reader, made.cursor, made.skips = QueueMember(self._queue, self._queue.backlog), cursor, skips
            self.here = (made,)
        for placeholder in self.here:
            self._on_lag(placeholder, now)

    def dismiss(self) -> None:
        """Removes the placeholder."""
        removed, self.here = self.here, ()
        for placeholder in removed:
            placeholder.become(ENDED)
            self._registry.watched.pop(placeholder, None)
            if placeholder.case.slow:
                self._registry.totals.count_slow(placeholder, -1)
            self._registry.ready_queues[self._queue] = None

    def close(self) -> None:
        """Removes the placeholder for good."""
        self.make = lambda now: None
        self.dismiss()
        del self._queue
