"""A state as it is now. A query asks it for the same as a past one (past.py)."""

from __future__ import annotations

from headway.core.base import WorkSteps
from headway.core.log import State
from headway.core.message import covers
from headway.core.query.kept_order import KeptOrder, RankOf
from headway.core.query.kept_orders import KeptOrders, OrderName
from headway.core.routing import Registry


class NoState(Exception):
    """There is no state that covers a filter."""


class Present:
    """The state of a filter for a query of this ``client``, who asks at the time ``now``. Raises :class:`NoState`."""

    since = held_bytes = 0

    def __init__(
        self, registry: Registry, filter: str, orders: KeptOrders, now: float = 0.0, client: str = ""
    ) -> None:
        self.state = state_of(registry, filter)
        self._registry = registry
        self._orders = orders
        self._now = now
        self._client = client

    @property
    def as_of(self) -> int:
        return self._registry.sequence

    @property
    def is_kept(self) -> bool:
        return self.state in self._registry.router.states

    def order(self, name: OrderName, rank_of: RankOf) -> KeptOrder | None:
        """Returns a kept order of the state; None if there is no room for it."""
        return self._orders.wanted(name, rank_of, self._now, self._client)

    def close(self) -> WorkSteps:
        return iter(())


def state_of(registry: Registry, filter: str) -> State:
    """Returns the state of the configuration that has all records of a filter. Raises :class:`NoState`."""
    for state in registry.router.states:
        if state.declared and covers(state.filter, filter):
            return state
    raise NoState(f"{filter} has no state: no keyed [[topic]] covers it")
