"""The kept orders of all queries: one per distinct state, filter, selector and order, shared by whoever asks.

An order is made when somebody first asks for a page of it, and ends when nobody has asked for ``WANTED_S`` and no live
page follows it, when its state does, or when it or its pool has no room. A query whose order is not kept looks at every
key, and is as exact.
"""

from __future__ import annotations

from headway.core.log import Pool, State
from headway.core.query.kept_order import KeptOrder, RankOf
from headway.core.routing import Registry

ORDERS_MAX = 16
WANTED_S = 60.0
POOL_SHARE = 0.25
"""The share of the memory for clients that the kept orders of one pool may take up."""
KEEP_UP_RECORDS = 128
"""The number of changes that one step puts into one order."""

Name = tuple[State, str, str | None, str]
"""The state, the filter, the selector and the order."""


class KeptOrders:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._orders: dict[Name, KeptOrder] = {}
        self._turn = 0
        """The order that is brought up to date next, counted from the first."""

    def __len__(self) -> int:
        return len(self._orders)

    def wanted(self, name: Name, rank_of: RankOf, now: float) -> KeptOrder | None:
        """Returns the order of this name, which is made if there is none; None if there is no room for it."""
        self.tidy(now)
        order = self._orders.get(name)
        if order is None:
            state, pool = name[0], name[0].pool
            if len(self._orders) >= ORDERS_MAX or pool.strained or pool.clients_bytes > pool.clients_limit // 2:
                return None
            order = KeptOrder(state, rank_of, self._room_bytes(pool))
        order.wanted_s = max(order.wanted_s, now)
        self._orders[name] = order
        return order

    def _room_bytes(self, pool: Pool) -> int:
        held = sum(order.bytes for order in self._orders.values() if order.state.pool is pool)
        return max(0, int(pool.clients_limit * POOL_SHARE) - held)

    def keep_up(self, now: float) -> bool:
        """Puts some changes into one order, in turn. Returns whether there are more, in any of them."""
        self.tidy(now)
        upto = self._registry.sequence
        behind = [order for order in self._orders.values() if not order.is_current(upto)]
        if behind:
            self._turn = (self._turn + 1) % len(behind)
            behind[self._turn].catch_up(upto, KEEP_UP_RECORDS)
        return bool(behind)

    def tidy(self, now: float) -> None:
        """Ends the orders that are wanted no more, or have no room."""
        for name, order in list(self._orders.items()):
            if order.state not in self._registry.router.states:
                order.end("its state is not kept any more")
            elif order.state.pool.crowded:
                order.end("the pool needs its memory")
            elif order.follower is None and now - order.wanted_s > WANTED_S:
                order.end("nobody asks for it any more")
            if order.gone:
                del self._orders[name]
                self._registry.deferred.begin(order.forget(), now)
