"""The head of a kept order: its first records, each with its place, so that pages know what crosses their ends.

It is a sorted list, with the rank of each key beside it. What changes behind it is not looked at. When too few are left
in it, the next are taken from the order; when there are too many, the last go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headway.core.log import NO_RECORD, StateEntry
from headway.core.message import Record
from headway.core.query import KeptOrder
from headway.core.selector import LAST_RANK

Key = tuple[str, str | None]
"""The topic and the key of a record."""
SPARE_RECORDS = 64
"""So many records more than pages need are taken from the order at a time."""
BEHIND = 2**62
"""The place of what is not in the head."""


class Ranked(NamedTuple):
    rank: bytes
    record: Record


class Head:
    """``needed``: so many records are there, if the order has them."""

    def __init__(self, order: KeptOrder) -> None:
        self.needed = 0
        self._order = order
        self._ranks: list[bytes] = []
        self._entries: list[StateEntry] = []
        self._rank_of: dict[Key, bytes] = {}
        self._horizon = b""
        """Up to this rank all records of the order are here."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: Key) -> bool:
        return key in self._rank_of

    def put(self, entry: StateEntry, rank: bytes | None) -> tuple[int, int]:
        """Puts a record in its place; with ``rank`` None its key is not in the order. Returns the place that the key
        had and the one that it has."""
        before = after = BEHIND
        old = self._rank_of.pop(entry.key, None)
        if old is not None:
            before = bisect_left(self._ranks, old)
            del self._ranks[before], self._entries[before]
        if rank is not None and rank <= self._horizon:
            after = bisect_left(self._ranks, rank)
            self._ranks.insert(after, rank)
            self._entries.insert(after, entry)
            self._rank_of[entry.key] = rank
        self.fill()
        return before, after

    def without_record(self, keys: Iterable[Key]) -> Iterator[StateEntry]:
        """Yields the entries of those keys whose records have left the state, and have none in their place yet."""
        for key in keys:
            if key in self._rank_of:
                entry = self._entries[bisect_left(self._ranks, self._rank_of[key])]
                if entry.record is NO_RECORD:
                    yield entry

    def fill(self) -> None:
        """Sees to it that there are as many records as are needed, and not many more."""
        most = self.needed + SPARE_RECORDS
        if self._horizon < LAST_RANK and len(self._ranks) < self.needed:
            asked = most - len(self._ranks)
            ranks, entries = self._order.behind(self._horizon, asked)
            self._ranks += ranks
            self._entries += entries
            self._rank_of.update(zip((entry.key for entry in entries), ranks, strict=True))
            self._horizon = LAST_RANK if len(ranks) < asked else ranks[-1]
        elif len(self._ranks) > 2 * most:
            for entry in self._entries[most:]:
                del self._rank_of[entry.key]
            del self._ranks[most:], self._entries[most:]
            self._horizon = self._ranks[-1]

    def beside(self, end: int) -> list[Key]:
        """Returns the keys before and behind the end of a page."""
        return self.keys(max(0, end - 1), end + 1)

    def keys(self, start: int, stop: int) -> list[Key]:
        return [entry.key for entry in self._entries[start:stop]]

    def within(self, key: Key, start: int, stop: int) -> Ranked | None:
        """Returns the record of a key if its place is from ``start`` to ``stop``, without it."""
        rank = self._rank_of.get(key)
        if rank is None:
            return None
        place = bisect_left(self._ranks, rank)
        record = self._entries[place].record
        return Ranked(rank, record) if start <= place < stop and record is not None else None

    def check(self) -> None:
        """Asserts the invariants. It visits every record."""
        assert self._ranks == sorted(self._ranks)
        assert self._rank_of == {entry.key: rank for rank, entry in zip(self._ranks, self._entries, strict=True)}
        assert self._horizon == LAST_RANK or len(self) >= self.needed
