"""A kept order: the records of a state that match, in an order, so that a page of them needs no look at the others.

Theory of operation. The order follows the state as a reader does, by a pass (log/state.py): a publisher's update costs
nothing, and whoever wants a page has the changes since the last one put in first. A key that changed ten times in
between is put in once. Nobody takes the older record out: its entry is empty since it left the state, whether it was
updated, deleted or evicted. Empty entries are left out of pages, and while changes come, those of one block after the
other are removed. So they are a small part of the order.

The order is a list of blocks of some hundred ranks (selector/ordering.py) with their entries. To put one in is two
binary searches and two short moves of memory. A sorted container of a library would hold a tuple per record, which is
nearly twice the memory, and would have to be told of each record that leaves.

A kept order is charged to the pool of its state, as memory of clients.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import inf
from typing import Protocol

from headway.core.base import WorkSteps
from headway.core.log import NO_RECORD, State, StateEntry
from headway.core.message import Record

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
        before = self.bytes
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
        self.state.pool.add_clients(self.bytes - before)
        if self.bytes > self.bytes_max:
            self.end("it takes up too much memory")
        return len(entries) * self.cost

    def is_current(self, upto: int) -> bool:
        """Tells whether all changes up to this sequence are in their places."""
        return self._pass.upto >= upto and self._pass.at_end

    def page(self, skip: int, top: int) -> list[Record]:
        """Returns records of the order as it is now: ``top`` at most, after ``skip`` others."""
        before, at = self.bytes, 0
        found: list[Record] = []
        while at < len(self._blocks) and len(found) < top:
            if not self._tidy(at):
                continue  # the block was empty, and is no more
            entries = self._blocks[at].entries
            if skip < len(entries):
                found += [entry.record for entry in entries[skip : skip + top - len(found)]]
            skip = max(0, skip - len(entries))
            at += 1
        self.state.pool.add_clients(self.bytes - before)
        return found

    def behind(self, rank: bytes, most: int) -> tuple[list[bytes], list[StateEntry]]:
        """Returns the records behind a rank, with their ranks: ``most`` at most."""
        before, at = self.bytes, bisect_right(self._firsts, rank) - 1
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
        self.state.pool.add_clients(self.bytes - before)
        return ranks, entries

    def end(self, why: str) -> None:
        """Ends the order. ``forget`` then frees its memory."""
        if not self.gone:
            self.gone = why
            self._pass.close()
            self.state.pool.add_clients(-self.bytes)
            self.bytes = 0

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
