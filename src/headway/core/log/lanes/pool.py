"""A pool is a memory budget and a disk budget, for the whole broker, for one listener or for the topics of one filter,
and the usage of both.

Water marks, as shares of the memory limit:

======= ====== ==========================================================================================
high    0.90   above it the largest lanes spill their oldest chunks to disk …
low     0.75   … until no more than this is resident
crowded 0.95   above it publishers to a lane that has fallen behind are not read …
full    1.00   … and above it no publisher is read, until the disk or a disconnect has made room
======= ====== ==========================================================================================

The memory that clients take up besides records (``Tab``) counts as well, except for the first ``CLIENTS_FREE_BYTES``,
so that a pool of one megabyte can have clients, too. It cannot be spilled. So the broker refuses requests that would
raise it above ``CLIENTS_SHARE`` of the limit.

Retained records and the routes of topics that were published to lately (``tables_bytes``) count likewise, beyond the
first ``TABLES_FREE_BYTES``. At ``TABLES_SHARE`` of the limit no more records are retained, and routes are forgotten.

A lane has *fallen behind* if a part of it is on disk, or more than ``BEHIND_SHARE`` of the limit is in memory.
Publishers to such lanes wait first, because they fill the memory. The rest is for lanes whose readers keep up, which
need it for a moment only.

So memory exceeds the limit at most by the last slice of each publisher (publishing.py). A single record that would take
up more than a slice, and a megabyte, in all of its lanes together has to fit in below the crowded mark, or waits
(``RoomWanted``). One that never would is refused. So no record of one publisher can fill the pool for all others.

A pool is *tight* if bytes above the high mark cannot leave, because they were promised and there is no disk for them,
or because they are the index of what is on disk. Then lanes with such bytes are closed, those with the most first. The
other lanes go on: they have ``RESERVE`` of the limit above the bytes that stay. Before they have used half of it, no
more lanes are closed and no consumer is evicted, which would not help (``must_evict``). The bytes that stay count up to
``STAYS_MAX`` of the limit. Otherwise a thousand lanes that close in turn would each make room for the next.

What a pool, or a lane, may be, in the order in which it gets worse:

``lane_must_spill``  one lane is far beyond the share that one client has
``must_spill``       the pool is above the high mark, or its disk is full, and no worker is at it yet
``must_evict``       it is above the high mark: where nothing can be spilled, consumers that were promised nothing are
                     disconnected, those furthest back first
``crowded``          publishers to lanes that have fallen behind wait
``hopeless``         all that can be spilled and evicted was, and the pool is still above its marks
``tight``            it is hopeless, and above the high mark
``full``             all publishers wait; of a lane: its own share is used up by records that were promised
``closed``           of a lane: it takes no more records, because its oldest was promised, has not been taken in a
                     second (``stays``), and cannot leave memory

A lane belongs to one pool. The bytes of a chunk are counted once, whatever the number of its cursors.

A topic's pool (``topic``) has only lanes: of subscriptions and queues that are entirely under its filter
(``Registry.pool_for``). It is cut out of the global pool when the configuration is read, so lanes need to count in one
pool only, and neither can take the other's room. Clients, states, routes and retained records count in the pool of
their listener, or in the global one. What a client holds in a topic's pool is not a part of its share of its
listener's: an eviction for that would free nothing there. (Rejected: a pool within a pool. Each append would count
twice, each rank of a lane would be kept twice, and a topic at its limit would still press on the others.)

Listeners that use one pool may have different shares of it for their clients (``Tab.shares``). A lane is common to all
of their clients, so it has the largest of these shares (``lane_share``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headway.core.base import Ranking, Reason, Refused, format_size

if TYPE_CHECKING:
    from headway.core.log.lanes.lane import Lane


# -- pool --------------------------------------------------------------------------------------------------------------


HIGH_WATER = 0.90
LOW_WATER = 0.75
CROWDED = 0.95
BEHIND_SHARE = 1 / 64
RESERVE = 0.10
PORTION_SHARE, PORTION_BYTES_MAX = 1 / 16, 2 * 1024 * 1024
STAYS_MAX = 2.0
STATES_SHARE = 0.5
CLIENTS_SHARE = 0.5
CLIENTS_FREE_BYTES = 16_000_000
LOGINS_SHARE = 1 / 16
"""The part of the memory of clients that only new sessions may take up. So what others ask for locks nobody out."""
TABLES_SHARE = 0.25
TABLES_FREE_BYTES = 4_000_000
DISK_RETRY_S = 30.0
GRACE_S = 1.0
"""The grace period: records younger than this are not given up, so that healthy consumers have time to take them.
Meanwhile publishers are not read, which keeps the memory in bounds."""

KNOWN_WITHIN_BYTES = 8 * 1024
"""A lane may grow this far beyond its reported size before it reports again; a small lane to twice its size."""
_SMALL_BYTES = 512


def _resident_known(lane: Lane, known: int) -> None:
    more = min(max(known, _SMALL_BYTES), KNOWN_WITHIN_BYTES)
    lane.report_above_bytes = known + lane.spilling_bytes + more if known else 0


class Shares(NamedTuple):
    """The parts of a pool that one client may take up, and all clients of one user."""

    client: float
    user: float
    connection: bool = False
    """A client that is evicted loses its connection, also if it has consumers on other channels."""


class Client(Protocol):
    """A client, as far as a pool knows it: a session, which has looked at what is held for it."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...


class Owners:
    """Budgets of owners: what the clients of each take up, in bytes or in places. Without an owner nothing counts."""

    def __init__(self, share: float) -> None:
        self.share = share
        """The part of the budget that one owner has, unless it asks on other terms."""
        self._bytes: dict[str, int] = {}

    def add(self, owner: str, change: int) -> None:
        if owner and change:
            now = self._bytes[owner] = self._bytes.get(owner, 0) + change
            if not now:
                del self._bytes[owner]

    def has_room(self, owner: str, size: int, budget: int, share: float | None = None) -> bool:
        """Tells whether an owner may have ``size`` more."""
        return not owner or self._bytes.get(owner, 0) + size <= int(budget * (self.share if share is None else share))

    def check(self, owner: str, size: int, budget: int, share: float | None = None) -> None:
        """Raises :class:`Refused` if an owner may not have ``size`` more bytes."""
        if not self.has_room(owner, size, budget, share):
            taken, most = self._bytes.get(owner, 0), int(budget * (self.share if share is None else share))
            text = (f"sessions, subscriptions and queues of {owner} take up {format_size(taken)} besides records, and "
                    f"pool.max_user_share permits {format_size(most)}: end some, or have it raised")  # fmt: skip
            raise Refused(Reason.USER_LIMIT, text)


class RoomWanted:
    """Holds up publishers whose next record would, in all of its lanes together, take up more than a pool has left."""

    __slots__ = ("pool", "size")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.size = 0
        """The least room that one of them waits for; 0: none does."""


class Pool:
    """Limits and usage in bytes. ``disk_limit`` 0 means that nothing may be spilled."""

    def __init__(self, name: str, memory_limit: int, disk_limit: int, client_share: float = 0.5,
                 clients_free_bytes: int = CLIENTS_FREE_BYTES, user_share: float = 0.5,
                 connection: bool = False, topic: str = "", biggest_client_first: bool = False) -> None:  # fmt: skip
        self.name = name
        self.topic = topic
        """The filter whose lanes the pool is for; empty: it is that of a listener, or the global one."""
        self.memory_limit = memory_limit
        self.disk_limit = disk_limit
        self.client_share = client_share
        self.lane_share = client_share
        """The part of memory, and of disk, that one lane may take up."""
        self.ends_connections = connection
        self.biggest_client_first = biggest_client_first
        """Whether the client that holds the most gives way, and not who is furthest back in the fullest lane."""
        self.clients_free_bytes = clients_free_bytes
        self.owners = Owners(user_share)
        self.appended_bytes = 0
        """Bytes that the pool's lanes have got since memory was last relieved."""
        self.coming_bytes = 0
        """Bytes that are on their way into lanes and already count."""
        self.memory_bytes = 0
        """The sum of resident chunks, the indexes of spilled chunks, state, and the counted memory of clients and
        tables."""
        self.clients_bytes = 0
        """The memory of clients besides records. Above ``clients_free_bytes`` it is a part of ``memory_bytes``."""
        self.groups_bytes = 0
        """The part of it that the groups of kept aggregates take up."""
        self.tables_bytes = 0
        """The memory of retained records and routes. Above ``TABLES_FREE_BYTES`` it is a part of ``memory_bytes``."""
        self.state_bytes = 0
        """The part of ``memory_bytes`` that is state."""
        self.spilling_bytes = 0
        """The part of ``memory_bytes`` that a worker is writing at this moment."""
        self.disk_bytes = 0
        self.memory_peak_bytes = 0
        self.disk_peak_bytes = 0
        self.disk_broken_until_s = 0.0
        """No chunk is spilled before this time, because a write failed."""
        self.disk_error = ""
        """The error of the last failed write."""
        self.hopeless = False
        """Set when all possible spills and evictions were done and the pool is still above its marks."""
        self.wanted = RoomWanted(self)
        self.closed: dict[Lane, int] = {}
        """The lanes that are closed or may be, with their memory when they were last looked at."""
        self.closed_bytes = 0
        """The sum of ``closed``."""
        self.resident: Ranking[Lane] = Ranking(lambda lane: lane.unspilled_bytes, told=_resident_known)
        self.spilled: Ranking[Lane] = Ranking(lambda lane: lane.spilled_bytes)
        """The pool's lanes, by their bytes in memory (``resident``) and on disk (``spilled``)."""
        self.indexed: Ranking[Lane] = Ranking(lambda lane: lane.index_bytes)
        """The pool's lanes, by the indexes of their spilled chunks. The index of small records is as large as they are.
        """

        self.clients: Ranking[Client] = Ranking(lambda client: client.memory_bytes)
        self.clients_on_disk: Ranking[Client] = Ranking(lambda client: client.disk_bytes)
        """The clients that lag, by all that each of them holds in memory and on disk, as of its last look. A chunk that
        several clients keep from being freed is held by each of them."""

    def add_memory(self, size: int) -> None:
        self.memory_bytes += size
        if self.memory_bytes > self.memory_peak_bytes:
            self.memory_peak_bytes = self.memory_bytes

    def add_disk(self, size: int) -> None:
        self.disk_bytes += size
        if self.disk_bytes > self.disk_peak_bytes:
            self.disk_peak_bytes = self.disk_bytes

    def add_state(self, size: int) -> None:
        self.state_bytes += size
        assert self.state_bytes >= 0
        self.add_memory(size)

    def add_clients(self, size: int) -> None:
        before = self.clients_counted_bytes
        self.clients_bytes += size
        assert self.clients_bytes >= 0
        self.add_memory(self.clients_counted_bytes - before)

    @property
    def clients_counted_bytes(self) -> int:
        return max(0, self.clients_bytes - self.clients_free_bytes)

    def add_tables(self, size: int) -> None:
        before = self.tables_counted_bytes
        self.tables_bytes += size
        assert self.tables_bytes >= 0
        self.add_memory(self.tables_counted_bytes - before)

    @property
    def tables_counted_bytes(self) -> int:
        return max(0, self.tables_bytes - TABLES_FREE_BYTES)

    @property
    def tables_limit(self) -> int:
        """The limit of the memory of retained records and routes."""
        return TABLES_FREE_BYTES + int(self.memory_limit * TABLES_SHARE)

    @property
    def clients_limit(self) -> int:
        """The limit of all clients' memory besides records."""
        return self.clients_free_bytes + int(self.memory_limit * CLIENTS_SHARE)

    @property
    def shares(self) -> Shares:
        return Shares(self.client_share, self.owners.share, self.ends_connections)

    @property
    def states_full(self) -> bool:
        """Tells whether the states of this pool take up more memory than all states may."""
        others = self.clients_counted_bytes + self.tables_counted_bytes
        return self.state_bytes > (self.memory_limit - others) * STATES_SHARE

    def close(self, lane: Lane) -> None:
        """Notes that the lane is closed, or may be, with its present memory."""
        self.open(lane)
        self.closed[lane] = lane.memory_bytes
        self.closed_bytes += lane.memory_bytes

    def open(self, lane: Lane) -> None:
        self.closed_bytes -= self.closed.pop(lane, 0)
        assert self.closed_bytes >= 0

    def to_spill_bytes(self) -> int:
        """Returns how many more bytes should be spilled now; 0 below the high mark."""
        unspilled = self.memory_bytes - self.spilling_bytes
        if unspilled <= self.memory_limit * HIGH_WATER:
            return 0
        return unspilled - int(self.memory_limit * LOW_WATER)

    def to_make_room_bytes(self) -> int:
        """Returns how many more bytes should be spilled now: those above the marks, and those in the way of publishers
        that wait for room."""
        wanted = self.wanted.size
        over = self.memory_bytes - self.spilling_bytes + wanted - int(self.memory_limit * CROWDED) if wanted else 0
        return max(self.to_spill_bytes(), over)

    def fits(self, size: int) -> bool:
        """Tells whether so many bytes fit in at once, and leave the rest of the memory to other publishers."""
        return self.memory_bytes + size <= self.memory_limit * CROWDED

    def makes_room(self, size: int, now: float) -> bool:
        """Tells whether so many bytes will fit in, because enough of what is there can leave memory."""
        limit = int(self.memory_limit * CROWDED)
        if self.state_bytes + self.clients_counted_bytes + self.tables_counted_bytes + size > limit:
            return False
        relieved = self.spilling_bytes > 0 or self.to_spill_bytes() > 0  # consumers are evicted if nothing else helps
        return relieved or self.room_bytes(now) >= self.memory_bytes + size - limit

    @property
    def share_bytes(self) -> int:
        """The memory that one lane may take up."""
        return int(self.memory_limit * self.lane_share)

    @property
    def portion_bytes(self) -> int:
        """A lane that is beyond its share by more than this does not wait for the next tick. Smaller writes would not
        be worth their cost: before and after each, the writer's thread and the loop wait for each other."""
        return min(int(self.share_bytes * PORTION_SHARE), PORTION_BYTES_MAX)

    @property
    def lane_must_spill(self) -> bool:
        """Tells whether a lane has grown so far beyond its share that it has to be spilled."""
        portion = self.portion_bytes
        return self.appended_bytes > portion and self.resident.most(self.share_bytes + portion + 1) is not None

    @property
    def must_spill(self) -> bool:
        """Tells whether bytes have to leave memory or disk and no worker is at it yet. For a hopeless pool
        the next tick is soon enough to try again."""
        return not self.hopeless and (self.disk_bytes > self.disk_limit or self.to_spill_bytes() > 0)

    @property
    def tight(self) -> bool:
        """Tells whether bytes have to leave memory and cannot."""
        return self.hopeless and self.to_spill_bytes() > 0

    def disk_broken(self, now: float) -> bool:
        """Tells whether the pool has a disk and a write to it failed a moment ago."""
        return self.disk_limit > 0 and now < self.disk_broken_until_s

    def can_spill(self, now: float) -> bool:
        return self.disk_limit > 0 and now >= self.disk_broken_until_s

    def room_bytes(self, now: float) -> int:
        """Returns how many bytes may still be spilled; less than 0 if none."""
        return self.disk_limit - self.disk_bytes - self.spilling_bytes if self.can_spill(now) else -1

    @property
    def _stays_bytes(self) -> float:
        """The bytes that cannot leave while lanes are closed, as far as they count; 0 if none is."""
        if not self.closed_bytes:
            return 0
        stays = self.closed_bytes + self.state_bytes + self.clients_counted_bytes + self.tables_counted_bytes
        return min(stays, self.memory_limit * STAYS_MAX)

    @property
    def must_evict(self) -> bool:
        """Tells whether so many bytes have to leave that consumers are evicted, or their lanes closed."""
        most = max(self.memory_limit * HIGH_WATER, self._stays_bytes + self.memory_limit * RESERVE / 2)
        return self.memory_bytes - self.spilling_bytes > most

    @property
    def full(self) -> bool:
        """Tells whether no publisher may publish into the pool."""
        over = self.memory_bytes > self.memory_limit
        return over and self.memory_bytes > self._stays_bytes + self.memory_limit * RESERVE

    @property
    def crowded(self) -> bool:
        """Tells whether publishers to lanes that have fallen behind have to wait."""
        return self.memory_bytes > self.memory_limit * CROWDED and (self.full or not self.closed_bytes)

    def expect(self, size: int) -> None:
        """Counts bytes that are on their way into a lane."""
        self.coming_bytes += size
        self.add_memory(size)

    def came(self, size: int) -> None:
        """Notes that such bytes are in the lane now, which counts them, or will not come."""
        self.coming_bytes -= size
        self.memory_bytes -= size

    def full_for(self, lane: Lane) -> bool:
        """Tells whether publishers to this lane have to wait."""
        if self.full:
            return True
        behind = lane.spilled_bytes > 0 or lane.memory_bytes > self.memory_limit * BEHIND_SHARE
        return behind and self.crowded

    @property
    def disk_full(self) -> bool:
        return self.disk_bytes > self.disk_limit

    def check(self, lanes: Collection[Lane]) -> None:
        """Asserts that the counts add up. ``lanes`` are all lanes of the pool."""
        counts = (self.clients_bytes, self.tables_bytes, self.state_bytes, self.spilling_bytes, self.disk_bytes)
        assert min(*counts, self.closed_bytes) >= 0, "no count is negative"
        tables = self.clients_counted_bytes + self.tables_counted_bytes
        memory = self.state_bytes + tables + self.coming_bytes + sum(lane.memory_bytes for lane in lanes)
        assert self.memory_bytes == memory, f"{self.memory_bytes} bytes counted, {memory} there"
        disk = sum(lane.spilled_bytes for lane in lanes)
        assert self.disk_bytes == disk, f"{self.disk_bytes} bytes on disk counted, {disk} there"
        assert self.spilling_bytes == sum(lane.spilling_bytes for lane in lanes)
        assert self.closed_bytes == sum(self.closed.values())
        assert self.memory_bytes <= self.memory_peak_bytes
        assert self.disk_bytes <= self.disk_peak_bytes
        for lane in lanes:
            assert lane.pool is self
            memory_known, disk_known = self.resident.known(lane), self.spilled.known(lane)
            if memory_known is not None:
                most = memory_known + KNOWN_WITHIN_BYTES if memory_known else 0
                assert lane.unspilled_bytes <= most, "a lane holds more than its pool knows"
            assert disk_known is None or lane.spilled_bytes <= disk_known, "a lane spilled more than its pool knows"


# -- tab ---------------------------------------------------------------------------------------------------------------
#
# A tab counts the memory that one client takes up besides records, in bytes and by kind.
#
# Records are shared, and are spilled when a pool is short of memory. The rest cannot be spilled: a client's session,
# its subscriptions, its will, partial packets, and answers that it does not read. So each session has a tab, and so has
# a connection without a session. A pool sums up all of its tabs (``clients_bytes``) as a part of its memory.
#
# Rules:
# - A request that needs memory is refused in advance (``check``) if the client has used up its share, or if all clients
#   together have used up theirs. The error says which. Objects that exist already stay.
# - All of it is counted to the client's *owner* as well: the user, or the address where names are not checked
#   (``Owners``). One owner has a share of the budget; else a few clients would use it up for all.
# - The last ``LOGINS_SHARE`` of the budget is for new sessions. One that leaves nothing behind is let in even if its
#   owner's share is used up: what its client then asks for is refused, and it is told why.
# - Bytes that have arrived already cannot be refused. They are counted (``put``), and their sender is read more slowly
#   (server/connections/reassembly.py).
# - The amounts are the measured sizes of CPython's objects, rounded up. A limit that is hit a little early does no
# harm.


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
"""A delivery in flight, or a row of deliveries that were sent together (consumer/channel.py)."""
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

    def has_room(self, size: int) -> bool:
        """Tells whether ``check`` of so many bytes passes."""
        pool, most = self.pool, self.pool.clients_limit
        return (
            self.bytes + size <= self.limit and pool.clients_bytes + size <= int(most * (1 - LOGINS_SHARE))
            and pool.owners.has_room(self.owner, size, most, self.shares.user)
        )  # fmt: skip

    def close(self) -> None:
        """Removes all amounts, because the client is gone."""
        for what in list(self.amounts):
            self.put(what, 0)
        self.closed = True
