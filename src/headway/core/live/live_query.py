"""A live query: a part of a state, or figures of it, that its subscribers see as a small state of its own.

Theory of operation. What subscribers are told (records that enter and change, and what leaves) is worked out once for
all who ask for the same, at the end of a turn, from what has changed since the last. It goes into a *shown* state, and
into a lane for each dialect. From there on a subscriber is one as of any topic: a snapshot of the shown state between
marks, then the lane. One that falls behind reads the shown state in the place of the lane; so it gets at most what
there is to see, however far it was behind, and no lane grows for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import NamedTuple

import msgspec

from headway.core.base import WorkSteps
from headway.core.consumer import Feed
from headway.core.delivery import ListedRecords, MarkedSnapshot
from headway.core.log import NO_RECORD, Pool, State, StateEntry
from headway.core.message import EVENT, OUT_OF_FOCUS, TOLD_KEY, KeyExtractor, Properties, Record, Run
from headway.core.permission import Rights
from headway.core.query import KeptOrder
from headway.core.routing import Registry
from headway.core.selector import LAST_RANK

# -- head --------------------------------------------------------------------------------------------------------------
#
# The head of a kept order: its first records, each with its place, so that pages know what crosses their ends.
#
# It is a sorted list, with the rank of each key beside it. What changes behind it is not looked at. When too few are
# left in it, the next are taken from the order; when there are too many, the last go.


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


# -- live query --------------------------------------------------------------------------------------------------------


DELETES_MAX = 256
"""So many keys that have left are kept for subscribers that are behind. One that is further behind gets all anew."""
BEGIN_WORK, LISTED_A_UNIT = 16, 8
"""The work of showing it to one more subscriber; and how many records are put in order in the time of one unit, for the
first who comes after a change."""
SHOWN_BYTES_MAX = 2**40
"""There is no limit: what may be shown is limited elsewhere."""


class Told(NamedTuple):
    """One thing that subscribers are told: a record, or that a key has left."""

    record: Record
    left: bool = False


def told_key(key: str | None) -> tuple[tuple[str, str], ...]:
    """Returns the user property that tells a record's key; none if it has no key."""
    return () if key is None else ((TOLD_KEY, key),)


def left(topic: str, key: str | None, why: str, last: Record) -> Told:
    """Tells that a key has left; ``last`` is the last record that subscribers have of it."""
    properties = Properties(user=((EVENT, OUT_OF_FOCUS), *told_key(key), ("headway-why", why)))
    return Told(Record(topic, b"", properties, last.qos, time_s=last.time_s, publisher=last.publisher), left=True)


class Progress:
    """How far changes are worked out: up to a sequence, and when that was looked at last."""

    __slots__ = ("sequence", "time_s")

    def __init__(self) -> None:
        self.sequence, self.time_s = 0, 0.0


class ShownKey(KeyExtractor):
    """The key of what is shown: that of the records, or what is told of a key that has left."""

    def __init__(self, of: KeyExtractor) -> None:
        super().__init__(of.text)
        self._of = of

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        if not payload and properties.user_value(EVENT) == OUT_OF_FOCUS:
            return properties.user_value(TOLD_KEY)
        return self._of.find(topic, properties, payload)

    def of_run(self, run: Run) -> list[str | None]:
        return [
            self.find(run.topic, run.properties, run.data[body:end])
            for body, end in zip(run.bodies, run.ends, strict=True)
        ]


class LiveQuery(ABC):
    """``source``: the state that it is of. ``over`` is called when the last subscriber has gone."""

    def __init__(
        self, source: State, key: KeyExtractor, every_s: float, registry: Registry, over: Callable[[LiveQuery], None]
    ) -> None:
        self.source = source
        self.shown = State(source.filter, ShownKey(key), Pool("", SHOWN_BYTES_MAX, 0), declared=True)
        self.shown.deletes_max = DELETES_MAX
        self.owner = ""
        """The user, or the address, whose client was the first to ask for it."""
        self.feeds: dict[Feed, None] = {}
        self.progress = Progress()
        self.ready = False
        """Set when it has looked at all of its state."""
        self.broken = ""
        """The reason why it cannot go on; empty: it goes on."""
        self._every_s = every_s
        self._due_s = self._told_s = 0.0
        """No change is told before this time, and when changes were told last."""
        self._told_sequence = 0
        self._registry = registry
        self._over = over
        self._waiting: list[Callable[[float], None]] = []
        self._listed: list[Record] = []
        """The records that are shown, in their order, for all who come until they change; empty: nobody has come."""

    @property
    def held_bytes(self) -> int:
        """Returns the memory of what it shows, about."""
        return self.shown.bytes

    @property
    def held_share(self) -> float:
        return self.held_bytes / max(1, sum(len(feed.subscriptions) for feed in self.feeds))

    def when_ready(self, begin: Callable[[float], None], now: float) -> None:
        """Calls ``begin`` as soon as there is something to show, maybe at once."""
        self._waiting.append(begin)
        if self.ready:
            self._registry.deferred.begin(self._begin_waiting(), now)

    def told_upto(self, last_sequence: int, now: float) -> tuple[int, float] | None:
        if not self.ready:
            return None
        sequence, time_s = self.progress.sequence, self.progress.time_s
        if self.has_changed:
            sequence, time_s = self._told_sequence, self._told_s
        return (last_sequence, 0.0) if sequence >= last_sequence else (sequence, max(0.0, now - time_s))

    def leave(self, feed: Feed) -> None:
        self.feeds.pop(feed, None)
        if not self.feeds:
            self._over(self)

    def snapshot(self, filter: str, rights: Rights) -> MarkedSnapshot:
        self.shown.evicted_records = self.source.evicted_records
        if not self._listed:
            found = [self.shown.get(*key) for key in self._keys_in_order()]
            self._listed = [record for record in found if record is not None]
        records = ListedRecords(self._listed, self._registry.sequence, self.shown.record_bytes)
        # The keys that it shows are among those that the client asked for and may read; the evicted are of the source.
        return MarkedSnapshot(self.shown, records, filter, tells_evicted=rights.sees(self.source.filter))

    def turn(self, now: float, most: int) -> int:
        """Tells what has changed, if it is time; a query of many records tells about ``most`` of them, and the rest in
        the next turns. The changes are worked out up to the last record. Returns how many records it told, each to
        the subscribers of each dialect."""
        feeds = max(1, len(self.feeds))
        most = max(1, most // feeds)
        told: list[Record] = []
        if not self.ready:
            told = self._show(self._changes(most))
            if not self.has_changed:
                self.ready = True
                for feed in self.feeds:
                    feed.lane.last_sequence = self._registry.sequence
                self._registry.deferred.begin(self._begin_waiting(), now)
        elif self.is_due(now):
            told = self._show(self._changes(most))
            for feed in self.feeds if told else ():
                self._append(feed, told, now)
            if not self.has_changed:
                self._due_s = now + self._every_s
        if not self.has_changed:
            self._told_sequence, self._told_s = self._registry.sequence, now
        self._listed = []
        return len(told) * feeds

    def is_due(self, now: float) -> bool:
        """Tells whether there may be something to tell now."""
        return self.has_changed and (not self.ready or now >= self._due_s)

    def _begin_waiting(self) -> WorkSteps:
        """Shows it to those who have waited for it, some in each turn."""
        waiting, self._waiting = self._waiting, []
        for begin in waiting:
            lists = not self._listed
            begin(self._registry.deferred.now)
            yield BEGIN_WORK + lists * len(self.shown) // LISTED_A_UNIT

    def _show(self, told: Iterable[Told]) -> list[Record]:
        """Numbers what is told, and puts it into the shown state."""
        registry, numbered = self._registry, list[Record]()
        for record, has_left in told:
            registry.sequence += 1
            record = msgspec.structs.replace(record, sequence=registry.sequence, retain=False, expires_s=inf)
            self.shown.put(record, deletes=has_left)
            numbered.append(record)
        return numbered

    def _append(self, feed: Feed, told: list[Record], now: float) -> None:
        for record in told:
            run = record.run()
            run.publisher = record.publisher
            feed.lane.append(run, feed.key.dialect.encode(run, record.sequence), record.sequence, now)
        self._registry.dirty[feed] = None

    @property
    @abstractmethod
    def has_changed(self) -> bool:
        """Tells whether there may be changes that are not told yet."""

    @abstractmethod
    def _changes(self, most: int) -> Iterable[Told]:
        """Yields what is to be told, in the order in which it is to be seen. It may end after ``most`` that have
        changed."""

    @abstractmethod
    def _keys_in_order(self) -> list[Key]:
        """Returns the keys of the records that are shown, in their order."""
