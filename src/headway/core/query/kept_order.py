"""A kept order: the records of a state that match, in an order, so that a page of them needs no look at the others.

Theory of operation. The order follows the state as a reader does, by a pass (log/states.py): a publisher's update costs
nothing, and whoever wants a page has the changes since the last one put in first. A key that changed ten times in
between is put in once. Nobody takes the older record out: its entry is empty since it left the state, whether it was
updated, deleted or evicted. Empty entries are left out of pages, and while changes come, those of one block after the
other are removed. So they are a small part of the order.

The order is a list of blocks of some hundred ranks (selector/selector.py) with their entries. To put one in is two
binary searches and two short moves of memory. A sorted container of a library would hold a tuple per record, which is
nearly twice the memory, and would have to be told of each record that leaves.

A kept order is charged to the pool of its state, as memory of clients.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from math import inf
from operator import attrgetter
from typing import Protocol

from headway.core.base import Reason, Refused, WorkSteps
from headway.core.log import NO_RECORD, Pool, State, StateEntry
from headway.core.message import Record
from headway.core.routing import Registry
from headway.core.selector import cost_of

# -- kept order --------------------------------------------------------------------------------------------------------


BLOCK_MAX = 1024
"""A block with more records than this is divided."""
RECORD_BYTES = 90
"""The memory of a record's place beside the characters of its rank: 50, measured with tracemalloc, and more for those
that wait to be removed."""
TIDY_RECORDS = 128
"""With so many changes one block is looked through."""
FORGET_BLOCKS = 8
"""The number of blocks that one step frees when the order is gone."""
FORGET_WORK = 64
"""The work that such a step counts for."""

RankOf = Callable[[Record], bytes | None]
"""Returns a record's rank; None if it does not match."""


class Follower(Protocol):
    """Is told of each change that is put into an order."""

    def put(self, entry: StateEntry, rank: bytes | None) -> None:
        """Is told of a record's rank; None if it is not in the order."""


class _Block:
    __slots__ = ("entries", "ranks")

    def __init__(self, ranks: list[bytes], entries: list[StateEntry]) -> None:
        self.ranks = ranks
        self.entries = entries


class KeptOrder:
    def __init__(self, state: State, rank_of: RankOf, bytes_max: int, client: str = "", cost: int = 1) -> None:
        self.state = state
        self.client = client
        """The client that it was made for."""
        self.owner = ""
        """The user, or the address, whose client was the first to follow it."""
        self.bytes = 0
        self._counted_bytes = 0
        """So many of them are counted in the pool."""
        self.bytes_max = bytes_max
        self.gone = ""
        """The reason why this order is no more; empty: it is there."""
        self.followers: list[Follower] = []
        """Those who need this order as long as it is there, beside queries."""
        self.wanted_s = -inf
        """The time at which somebody last asked for a page."""
        self._rank_of = rank_of
        self.cost = cost
        """The work of a look at a record; 1 for a few terms of a selector."""
        self._pass = state.read(0, 0)
        self._blocks = [_Block([], [])]
        self._firsts = [b""]
        """The rank from which on records belong to each block."""
        self._built = False
        """Every record of the state was looked at once."""
        self._untidied = 0
        """The changes since the last block was tidied."""
        self._tidy_at = 0

    def catch_up(self, upto: int, most: int) -> int:
        """Puts in changes up to the sequence ``upto``, ``most`` of them at most, or fewer if the selector has many
        terms. Returns how many it looked at; with many terms, a look counts for more."""
        if self.gone:
            return 0
        if upto > self._pass.upto:
            self._pass.extend(upto)
        entries = self._pass.take(max(1, most // self.cost))
        for entry in entries:
            rank = None if entry.deleted else self._rank_of(entry.record)
            if rank is not None:
                self._put(rank, entry)
            for follower in self.followers:
                follower.put(entry, rank)
        self._untidied += len(entries) if self._built else 0
        while self._untidied >= TIDY_RECORDS:
            self._untidied -= TIDY_RECORDS
            self._tidy_at = (self._tidy_at + 1) % len(self._blocks)
            self._tidy(self._tidy_at)
        self._built = self._built or self._pass.at_end
        self._count()
        if self.bytes > self.bytes_max:
            self.end("it takes up too much memory")
        return len(entries) * self.cost

    def is_current(self, upto: int) -> bool:
        """Tells whether all changes up to this sequence are in their places."""
        return self._pass.upto >= upto and self._pass.at_end

    def page(self, skip: int, top: int) -> list[Record]:
        """Returns records of the order as it is now: ``top`` at most, after ``skip`` others."""
        at = 0
        found: list[Record] = []
        while at < len(self._blocks) and len(found) < top:
            if not self._tidy(at):
                continue  # the block was empty, and is no more
            entries = self._blocks[at].entries
            if skip < len(entries):
                found += [entry.record for entry in entries[skip : skip + top - len(found)]]
            skip = max(0, skip - len(entries))
            at += 1
        self._count()
        return found

    def behind(self, rank: bytes, most: int) -> tuple[list[bytes], list[StateEntry]]:
        """Returns the records behind a rank, with their ranks: ``most`` at most."""
        at = bisect_right(self._firsts, rank) - 1
        ranks: list[bytes] = []
        entries: list[StateEntry] = []
        while at < len(self._blocks) and len(ranks) < most:
            if not self._tidy(at):
                continue  # the block was empty, and is no more
            block = self._blocks[at]
            place = bisect_right(block.ranks, rank)
            stop = place + most - len(ranks)
            ranks += block.ranks[place:stop]
            entries += block.entries[place:stop]
            at += 1
        self._count()
        return ranks, entries

    def end(self, why: str) -> None:
        """Ends the order. ``forget`` then frees its memory."""
        if not self.gone:
            self.gone = why
            self._pass.close()
            self._count()

    def _count(self) -> None:
        """Counts its bytes in the pool. A follower may look at it, and so tidy it, while it catches up; it may even end
        it. What is gone takes up nothing."""
        if self.gone:
            self.bytes = 0
        self.state.pool.add_clients(self.bytes - self._counted_bytes)
        self._counted_bytes = self.bytes

    def forget(self) -> WorkSteps:
        """Frees the memory of an order that is gone, in steps."""
        assert self.gone
        while self._blocks:
            del self._blocks[-FORGET_BLOCKS:]
            yield FORGET_WORK

    def _put(self, rank: bytes, entry: StateEntry) -> None:
        at = bisect_right(self._firsts, rank) - 1
        block = self._blocks[at]
        place = bisect_left(block.ranks, rank)
        block.ranks.insert(place, rank)
        block.entries.insert(place, entry)
        self.bytes += RECORD_BYTES + len(rank)
        if len(block.ranks) > BLOCK_MAX:
            half = len(block.ranks) // 2
            self._blocks.insert(at + 1, _Block(block.ranks[half:], block.entries[half:]))
            self._firsts.insert(at + 1, block.ranks[half])
            del block.ranks[half:], block.entries[half:]

    def _tidy(self, at: int) -> bool:
        """Removes the records of a block that have left the state. Returns False if no block is left there."""
        block = self._blocks[at]
        live = [place for place, entry in enumerate(block.entries) if entry.record is not NO_RECORD]
        if len(live) < len(block.entries):
            ranks = [block.ranks[place] for place in live]
            self.bytes -= RECORD_BYTES * (len(block.ranks) - len(ranks)) + sum(map(len, block.ranks))
            self.bytes += sum(map(len, ranks))
            block.ranks, block.entries = ranks, [block.entries[place] for place in live]
        if block.ranks or len(self._blocks) == 1:
            return True
        del self._blocks[at], self._firsts[at]
        self._firsts[0] = b""
        return False

    def check(self) -> None:
        """Asserts the invariants. It visits every record."""
        ranks = [rank for block in self._blocks for rank in block.ranks]
        assert ranks == sorted(ranks)
        assert self.bytes == sum(RECORD_BYTES + len(rank) for rank in ranks)
        for first, block in zip(self._firsts, self._blocks, strict=True):
            assert len(block.ranks) == len(block.entries) <= BLOCK_MAX
            assert not block.ranks or first <= block.ranks[0]


# -- kept orders -------------------------------------------------------------------------------------------------------
#
# The kept orders of all queries: one per distinct state, filter, selector and order, shared by whoever asks.
#
# An order is made when somebody first asks for a page of it, and ends when nobody has asked for ``WANTED_S`` and no
# live page follows it, when its state does, or when it or its pool has no room. A query whose order is not kept looks
# at every key, and is as exact.
#
# An order counts for the client that had it made. Where there are as many as there may be, or they leave less memory
# than a client's fair share, an order of the client that has the most gives way: the one that was not asked for the
# longest. An order that live pages follow gives way to nobody, so one client has only some of these, and all together
# leave some for queries. So nobody keeps others from theirs.


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
            short = pool.must_spill or pool.clients_bytes > pool.clients_limit // 2
            if short or not self._make_room(pool, client, now):
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
