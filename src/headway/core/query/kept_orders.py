"""The kept orders of all queries: one per distinct state, filter, selector and order, shared by whoever asks.

An order is made when somebody first asks for a page of it, and ends when nobody has asked for ``WANTED_S`` and no live
page follows it, when its state does, or when it or its pool has no room. A query whose order is not kept looks at every
key, and is as exact.

An order counts for the client that had it made. Where there are as many as there may be, or they leave less memory than
a client's fair share, an order of the client that has the most gives way: the one that was not asked for the longest.
An order that live pages follow gives way to nobody, so one client has only some of these, and all together leave some
for queries. So nobody keeps others from theirs.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from operator import attrgetter

from headway.core.base import Reason, Refused
from headway.core.log import Pool, State
from headway.core.query.kept_order import KeptOrder, RankOf
from headway.core.routing import Registry
from headway.core.selector import cost_of

ORDERS_MAX = 16
DECLARED = ""
"""Stands for the configuration, where an order counts for the client that had it made."""
FOLLOWED_MAX = 12
FOLLOWED_PER_CLIENT = 4
"""So many orders are followed by live pages at most: all together, and those that one client had made."""
WANTED_S = 60.0
POOL_SHARE = 0.25
"""The share of the memory for clients that the kept orders of one pool may take up."""
KEEP_UP_RECORDS = 128
"""The number of changes that one step puts into one order."""

OrderName = tuple[State, str, str | None, str]
"""The state, the filter, the selector and the order."""


class KeptOrders:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._orders: dict[OrderName, KeptOrder] = {}
        self._turn = 0
        """The order that is brought up to date next, counted from the first."""

    def __len__(self) -> int:
        return len(self._orders)

    def wanted(self, name: OrderName, rank_of: RankOf, now: float, client: str = "") -> KeptOrder | None:
        """Returns the order of this name, which is made for this ``client`` if there is none; None if there is no room
        for it."""
        self.tidy(now)
        order = self._orders.get(name)
        if order is None:
            state, pool = name[0], name[0].pool
            if pool.strained or pool.clients_bytes > pool.clients_limit // 2 or not self._make_room(pool, client, now):
                return None
            order = KeptOrder(state, rank_of, self._room_bytes(pool), client, cost_of(name[2]))
        order.wanted_s = max(order.wanted_s, now)
        self._orders[name] = order
        return order

    def followed(self, name: OrderName, rank_of: RankOf, client: str = DECLARED, owner: str = "") -> KeptOrder:
        """Returns the order of this name, as ``wanted``, for a live page that this ``client`` is the first to ask for.
        It is kept as long as it is followed, and not for a while. Raises :class:`Refused` if there is no room for it.
        """
        text = f"there is no room for one more order of a state; one client has {FOLLOWED_PER_CLIENT} at most"
        refusal = Refused(Reason.CLIENT_MEMORY, f"{text}: ask again later, or for pages of the same order")
        known = self._orders.get(name)
        if client != DECLARED and (known is None or not known.followers):
            others = [order for order in self._orders.values() if order.followers and order.client != DECLARED]
            counts = Counter(order.client for order in others)
            if len(others) >= FOLLOWED_MAX or counts[client] >= FOLLOWED_PER_CLIENT:
                raise refusal
            share = self._registry.queue_owners.share
            if owner and sum(order.owner == owner for order in others) >= int(FOLLOWED_MAX * share):
                text = (f"pool.max_user_share permits {owner} {int(FOLLOWED_MAX * share)} of the {FOLLOWED_MAX} orders "
                        "of live pages: end some, or ask for pages of an order that others have")  # fmt: skip
                raise Refused(Reason.USER_LIMIT, text)
        order = self.wanted(name, rank_of, -inf, client)
        if order is None:
            raise refusal
        if not order.followers:
            order.client, order.owner = client, owner
        return order

    def _room_bytes(self, pool: Pool) -> int:
        return max(0, int(pool.clients_limit * POOL_SHARE) - sum(order.bytes for order in self._of(pool)))

    def _of(self, pool: Pool) -> list[KeptOrder]:
        return [order for order in self._orders.values() if order.state.pool is pool]

    def _make_room(self, pool: Pool, client: str, now: float) -> bool:
        """Ends orders of clients that have more than this one would have. Returns whether there is room for one more.
        """
        while len(self._orders) >= ORDERS_MAX:
            counts = Counter(order.client for order in self._orders.values())
            if not self._gives_way(list(self._orders.values()), counts, counts[client] + 1, now):
                return False
        while True:
            sizes = Counter[str]()
            for order in self._of(pool):
                sizes[order.client] += order.bytes
            share = int(pool.clients_limit * POOL_SHARE) // len(sizes.keys() | {client})
            if self._room_bytes(pool) >= share or not self._gives_way(self._of(pool), sizes, share, now):
                return True

    def _gives_way(self, orders: list[KeptOrder], held: Counter[str], share: int, now: float) -> bool:
        """Ends one of these orders, of the client that holds the most. Returns False if nobody holds more than the
        ``share``."""
        for client, most in held.most_common():
            if most > share:
                free = [order for order in orders if order.client == client and not order.followers]
                if free:
                    min(free, key=attrgetter("wanted_s")).end("the orders of another client have its place")
                    self.tidy(now)
                    return True
        return False

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
            elif not order.followers and now - order.wanted_s > WANTED_S:
                order.end("nobody asks for it any more")
            if order.gone:
                del self._orders[name]
                self._registry.deferred.begin(order.forget(), now)
