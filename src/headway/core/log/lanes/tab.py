"""A tab counts the memory that one client takes up besides records, in bytes and by kind.

Records are shared, and are spilled when a pool is short of memory. The rest cannot be spilled: a client's session, its
subscriptions, its will, partial packets, and answers that it does not read. So each session has a tab, and so has a
connection without a session. A pool sums up all of its tabs (``clients_bytes``) as a part of its memory.

Rules:
- A request that needs memory is refused in advance (``check``) if the client has used up its share, or if all clients
  together have used up theirs. The error says which. Objects that exist already stay.
- All of it is counted to the client's *owner* as well: the user, or the address where names are not checked
  (``Owners``). One owner has a share of the budget; else a few clients would use it up for all.
- The last ``LOGINS_SHARE`` of the budget is for new sessions. One that leaves nothing behind is let in even if its
  owner's share is used up: what its client then asks for is refused, and it is told why.
- Bytes that have arrived already cannot be refused. They are counted (``put``), and their sender is read more slowly
  (server/connections/reassembly.py).
- The amounts are the measured sizes of CPython's objects, rounded up. A limit that is hit a little early does no harm.
"""

from __future__ import annotations

from headway.core.base import Reason, Refused, format_size
from headway.core.log.lanes.pool import LOGINS_SHARE, Pool, Shares

SESSION_BYTES = 2500
SUBSCRIPTION_BYTES = 4700
"""A subscription with a lane of its own, the mark in the trie, and the entries in the tables."""
CONSUMER_BYTES = 2000
"""A consumer of a queue; the lane is the queue's."""
LEVEL_BYTES, WILD_LEVEL_BYTES = 80, 600
"""A level of a filter. In a filter with wildcards each level has a node of the trie."""
SELECT_BYTES = 50
"""A character of the fields that are wanted of records."""
DELIVERY_BYTES = 400
QUEUE_BYTES = 6000
"""A queue, or the group of a shared subscription, which is one."""
RECEIPT_BYTES = 2000
RECEIPT_READER_BYTES = 150
"""A reader that the record of a receipt is owed to."""

SESSION, SUBSCRIPTIONS, WILL, PARTS, ANSWERS, DECLARED, TRANSACTIONS, UNSETTLED, RECEIPTS, RIGHTS, QUERIES = (
    "session", "subscriptions", "will", "part_packets", "unsent_answers", "declared", "transactions", "unsettled",
    "receipts", "rights", "queries",
)  # fmt: skip
REMEMBERED, CHANNELS = "remembered", "channels"
"""The memory of a decoder for earlier packets, and channels of AMQP."""


class Tab:
    """The tab of one client."""

    __slots__ = ("amounts", "bytes", "closed", "other_shares", "owner", "pool")

    def __init__(self, pool: Pool, owner: str = "", other_shares: Shares | None = None) -> None:
        self.pool = pool
        self.other_shares = other_shares
        """The shares of the client's listener, if they are not the pool's."""
        self.owner = owner
        """The owner that it counts to as well; empty: none."""
        self.bytes = 0
        self.amounts: dict[str, int] = {}
        self.closed = False
        """Set when the client is gone. Later changes are ignored."""

    def put(self, what: str, size: int) -> None:
        """Sets the amount of this kind."""
        self.add(what, size - self.amounts.get(what, 0))

    def add(self, what: str, change: int) -> None:
        """Raises or lowers the amount of this kind."""
        if change and not self.closed:
            now = self.amounts[what] = self.amounts.get(what, 0) + change
            if not now:
                del self.amounts[what]
            self.bytes += change
            self.pool.add_clients(change)
            self.pool.owners.add(self.owner, change)

    def charge(self, owner: str) -> None:
        """Counts to another owner, or to none."""
        owners = self.pool.owners
        owners.add(self.owner, -self.bytes)
        owners.add(owner, self.bytes)
        self.owner = owner

    @property
    def shares(self) -> Shares:
        """The client's share of the pool, and its owner's."""
        return self.other_shares or self.pool.shares

    @property
    def limit(self) -> int:
        """The limit of the client's memory besides records."""
        return int(self.pool.clients_limit * self.shares.client)

    def check(self, size: int, *, login: bool = False) -> None:
        """Raises :class:`Refused` if there is no room for ``size`` more bytes. ``login``: they are a new session's."""
        pool = self.pool
        if self.bytes + size > self.limit:
            most = max(self.amounts, key=lambda what: self.amounts[what], default=SESSION).replace("_", " ")
            text = (f"this client takes up {format_size(self.bytes)} besides records, most of it {most}; "
                    f"it may take up {format_size(self.limit)}")  # fmt: skip
            raise Refused(Reason.CLIENT_MEMORY, text)
        pool.owners.check(self.owner, size, pool.clients_limit, self.shares.user)
        limit = pool.clients_limit if login else int(pool.clients_limit * (1 - LOGINS_SHARE))
        if pool.clients_bytes + size > limit:
            text = (f"clients take up {format_size(pool.clients_bytes)} besides records, "
                    f"and all together may take up {format_size(limit)}")  # fmt: skip
            raise Refused(Reason.CLIENT_MEMORY, text)

    def close(self) -> None:
        """Removes all amounts, because the client is gone."""
        for what in list(self.amounts):
            self.put(what, 0)
        self.closed = True
