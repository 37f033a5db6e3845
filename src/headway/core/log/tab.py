"""Tabs: what a client takes up besides records, in bytes, by what it is.

Records are shared, and leave for the disk when a pool is short of memory. What is kept for one client alone cannot
leave: its session, its subscriptions, its will, packets that have come in part, answers it does not read. So each
client has a tab, of its session or of a connection that has none yet. All tabs of a pool are summed up in the pool
(``clients_bytes``), and count in its memory.

Rules:
- What can be refused is refused before it is made (``check``): when the client has its share of what clients may take
  up, or all clients together have all of it. The client is told which, and nothing that is there already is touched.
- What cannot be refused, for it has come already, is counted (``put``), and whoever causes it is read more slowly
  (server/connections/reassembly.py).
- The amounts are what CPython's objects take up, measured and rounded up: a limit that is hit a little early does no
  harm.
"""

from __future__ import annotations

from headway.core.base import Reason, Refused, format_size
from headway.core.log.pool import Pool

SESSION_BYTES = 2500
SUBSCRIPTION_BYTES = 3500
"""With a lane of its own, the mark in the trie, and its place in the tables."""
CONSUMER_BYTES = 2000
"""Of a queue: the lane is the queue's."""
LEVEL_BYTES, WILD_LEVEL_BYTES = 80, 350
"""A level of a filter; of one with wildcards it has a node of the trie."""
SELECTOR_BYTES = 50
"""A letter of a selector."""
DELIVERY_BYTES = 400
QUEUE_BYTES = 6000

SESSION, SUBSCRIPTIONS, WILL, PARTS, ANSWERS, DECLARED, TRANSACTIONS, UNSETTLED = (
    "session", "subscriptions", "will", "part_packets", "unsent_answers", "declared", "transactions", "unsettled",
)  # fmt: skip


class Tab:
    """One client's."""

    __slots__ = ("amounts", "bytes", "closed", "pool")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.bytes = 0
        self.amounts: dict[str, int] = {}
        self.closed = False
        """Set when the client is gone; later changes count for nothing."""

    def put(self, what: str, size: int) -> None:
        """So much it is now."""
        self.add(what, size - self.amounts.get(what, 0))

    def add(self, what: str, change: int) -> None:
        """So much it is more, or less."""
        if change and not self.closed:
            now = self.amounts[what] = self.amounts.get(what, 0) + change
            if not now:
                del self.amounts[what]
            self.bytes += change
            self.pool.add_clients(change)

    def check(self, size: int) -> None:
        """Raises :class:`Refused` if there is no room for so much more."""
        pool = self.pool
        if self.bytes + size > pool.client_limit:
            most = max(self.amounts, key=lambda what: self.amounts[what], default=SESSION).replace("_", " ")
            text = (f"this client takes up {format_size(self.bytes)} besides records, most of it {most}; "
                    f"it may take up {format_size(pool.client_limit)}")  # fmt: skip
            raise Refused(Reason.CLIENT_MEMORY, text)
        if pool.clients_bytes + size > pool.clients_limit:
            text = (f"clients take up {format_size(pool.clients_bytes)} besides records, "
                    f"and all together may take up {format_size(pool.clients_limit)}")  # fmt: skip
            raise Refused(Reason.CLIENT_MEMORY, text)

    def close(self) -> None:
        """The client is gone, and all of it with it."""
        for what in list(self.amounts):
            self.put(what, 0)
        self.closed = True
