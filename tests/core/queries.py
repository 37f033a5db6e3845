"""Queries of a state as it is now."""

from __future__ import annotations

from headway.core.log import Tab
from headway.core.query import KeptOrder, KeptOrders, OrderName, Present, StateQuery, StateRequest, begin_query
from headway.core.query.kept_order import RankOf
from headway.core.routing import Registry


class Unordered(Present):
    """A state of which no order is kept."""

    def __init__(self, registry: Registry, filter: str) -> None:
        super().__init__(registry, filter, KeptOrders(registry))

    def order(self, name: OrderName, rank_of: RankOf) -> KeptOrder | None:
        return None


def scan(request: StateRequest, registry: Registry, tab: Tab | None = None) -> StateQuery:
    """Begins a query that reads the whole state."""
    moment = Unordered(registry, request.filter)
    return begin_query(request, moment, tab or Tab(moment.state.pool))


def ask(
    request: StateRequest, registry: Registry, orders: KeptOrders, now: float = 0.0, client: str = "",
    tab: Tab | None = None,
) -> StateQuery:  # fmt: skip
    """Begins a query that may have its order kept."""
    moment = Present(registry, request.filter, orders, now, client)
    return begin_query(request, moment, tab or Tab(moment.state.pool))
