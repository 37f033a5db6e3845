"""Pools: the bytes that all consumers hold under one candidate, and the consumers that the broker's rules evict.

Theory of operation. What a lane holds is what its furthest consumer is back: the others' lags are part of it. So memory
and disk follow from the consumers' lags, bucket by bucket, through ``core.pool.Pool`` and the rules of
``core.pressure``, asked of model lanes. Who is given up is gone from there on; nothing is kept for it any more.

A model, so: a chunk goes to disk as soon as it should; what is kept in memory about chunks on disk, and states of
conflating consumers, are not counted; a lag of less than a chunk is nothing; within a bucket all lags are at their
highest at once. There is one pool: those of single listeners are not told apart. What waits for a group or a queue
keeps its lane's bytes, but is nobody's: its members are given up for what they have not settled, which is not counted
here, so they never are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

from headway.core.base import Ranking, Reason
from headway.core.governance import Givers, Ranked, beyond_share, to_give_up, to_spill
from headway.core.log import CHUNK_BYTES, GRACE_S, HIGH_WATER, SPILL_BYTES_MIN, Pool
from headway.core.message import parse_shared_filter
from headway.pipeline.lab.replays.base import GATES, OFFLINE

EVICTIONS_MAX = 10_000
"""The most evictions in one bucket; more would mean that evictions free nothing."""


class Holding(NamedTuple):
    """A consumer in one bucket."""

    number: int
    """The bucket's number."""
    client: str
    filter: str
    subscription: int
    begin_s: float
    """The time when its trace began."""
    lane: str
    durable: bool
    lag_bytes: int
    oldest_s: float
    end_bytes: int
    flags: int

    @property
    def shared(self) -> bool:
        """Tells whether others of its group or queue may get what waits for it."""
        return self.filter.startswith("$queue/") or parse_shared_filter(self.filter) is not None


class Level(NamedTuple):
    """The memory held in one bucket."""

    number: int
    memory_bytes: int
    disk_bytes: int
    gates_ms: float
    """The time for which a consumer held back the publishers of its lane, added up over lanes."""
    full_ms: float
    """The time for which all publishers were held back because the memory was full."""


class Eviction(NamedTuple):
    """A consumer that pressure gave up."""

    number: int
    client: str
    filter: str
    subscription: int
    reason: Reason
    lag_bytes: int


@dataclass(slots=True, eq=False)
class _Consumer:
    """A consumer that holds part of a lane at the moment."""

    lane: _Lane
    holding: Holding
    shared: bool = False
    """Records wait for its group or queue, not for it alone."""
    position: int = 0
    moved_to: int = 0
    """The position to which a durable one was moved when it was given up; it holds nothing before it."""

    @property
    def lag_bytes(self) -> int:
        return self.lane.end - self.position

    @property
    def disk_bytes(self) -> int:
        """The part of it that is on disk: the oldest."""
        return max(0, self.lag_bytes - self.lane.resident_bytes)


@dataclass(slots=True, eq=False)
class _Lane:
    """A lane's figures; positions count from when somebody first lagged there. What becomes of them is carried over to
    the pool's as it happens: nothing is ever added up over all lanes."""

    _pool: Pool
    end: int = 0
    first: int = 0
    spilled_upto: int = 0
    resident_bytes: int = 0
    spilled_bytes: int = 0
    consumers: dict[int, _Consumer] = field(default_factory=dict)

    def trim(self) -> None:
        """Drops the part that nobody stands in any more."""
        self.first = min((consumer.position for consumer in self.consumers.values()), default=self.end)
        self._settle()

    def _settle(self) -> None:
        resident = self.end - max(self.first, min(self.spilled_upto, self.end))
        spilled = max(0, min(self.spilled_upto, self.end) - self.first)
        self._pool.memory_bytes += resident - self.resident_bytes
        self._pool.disk_bytes += spilled - self.spilled_bytes
        self.resident_bytes, self.spilled_bytes = resident, spilled

    def spill(self, wanted_bytes: int) -> None:
        """The oldest resident chunks, up to so many bytes, are on disk."""
        start = max(self.first, self.spilled_upto)
        chunks = -(-wanted_bytes // CHUNK_BYTES)
        stop = min(self.end, start + chunks * CHUNK_BYTES)
        if stop < self.end or self.end - start >= SPILL_BYTES_MIN:
            self.spilled_upto = max(self.spilled_upto, stop)
            self._settle()

    def take(self, now: Mapping[int, Holding]) -> tuple[list[_Consumer], list[_Consumer]]:
        """Goes on to the next bucket, with those that hold something in it, by subscription. Tells who came and who
        went."""
        before, self.consumers = self.consumers, {}
        stayed, fresh = [key for key in now if key in before], [key for key in now if key not in before]
        if stayed:
            self.end += max(0, *(now[key].end_bytes - before[key].holding.end_bytes for key in stayed))
        else:
            self.end = self.spilled_upto = 0
        missing = max((holding.lag_bytes for holding in now.values()), default=0) - self.end
        if missing > 0:  # it held more, before anybody was seen to stand in it
            self.end += missing
            self.spilled_upto += missing if self.spilled_upto else 0
            for key in stayed:
                before[key].moved_to += missing
        for key, holding in now.items():
            consumer = before.pop(key, None) or _Consumer(self, holding, holding.shared)
            consumer.holding = holding
            consumer.position = max(self.end - holding.lag_bytes, consumer.moved_to)
            self.consumers[key] = consumer
        self.trim()
        return [self.consumers[key] for key in fresh], list(before.values())


class PoolReplay:
    """One candidate's pool in one run."""

    def __init__(self, pool: Pool, bucket_s: float) -> None:
        self._pool = pool
        self._bucket_s = bucket_s
        self._lanes: dict[str, _Lane] = {}
        self._clients: dict[str, dict[int, _Consumer]] = {}
        """Holders by client and subscription, in the order in which they fell behind."""
        self._gone: dict[str, float] = {}
        """Clients whose connection pressure ended, and when: traces from before are over."""
        self.evictions: list[Eviction] = []

    def step(self, number: int, holdings: Iterable[Holding]) -> Level:
        """Replays one bucket, with all consumers that hold something in it."""
        pool = self._pool
        now = (number + 1) * self._bucket_s
        self._take(holdings)
        if pool.can_spill(now):
            for lane in self._lanes.values():
                if any(consumer.holding.flags & OFFLINE for consumer in lane.consumers.values()):
                    lane.spill(lane.end - lane.first)
        before = pool.memory_bytes
        if pool.can_spill(now):
            clients = Ranking(self._memory_of, list(self._clients))
            for lane, wanted in to_spill(pool, _by_memory(self._lanes.values()), clients, self._lanes_of, now):
                lane.spill(wanted)
        self._relieve(number, now)
        crossed = min(before, int(pool.memory_limit * HIGH_WATER))
        gated = sum(any(c.holding.flags & GATES for c in lane.consumers.values()) for lane in self._lanes.values())
        bucket_ms = self._bucket_s * 1000
        memory = max(pool.memory_bytes, crossed)
        return Level(number, memory, pool.disk_bytes, gated * bucket_ms, pool.full * bucket_ms)

    def _take(self, holdings: Iterable[Holding]) -> None:
        by_lane: dict[str, dict[int, Holding]] = {name: {} for name in self._lanes}
        for holding in holdings:
            if holding.begin_s > self._gone.get(holding.client, -1.0) or holding.durable:
                by_lane.setdefault(holding.lane, {})[holding.subscription] = holding
        for name, held in by_lane.items():
            lane = self._lanes.get(name) or self._lanes.setdefault(name, _Lane(self._pool))
            came, went = lane.take(held)
            for consumer in went:
                self._forget(consumer)
            for consumer in came:
                holding = consumer.holding
                self._clients.setdefault(holding.client, {})[holding.subscription] = consumer
            if not held:
                del self._lanes[name]

    def _forget(self, consumer: _Consumer) -> None:
        theirs = self._clients[consumer.holding.client]
        del theirs[consumer.holding.subscription]
        if not theirs:
            del self._clients[consumer.holding.client]

    def _relieve(self, number: int, now: float) -> None:
        """Gives up the furthest behind while the pool is over its limits, then clients over their share."""
        pool = self._pool
        lanes = self._lanes.values()
        clients = list(self._clients)
        by_disk = Ranking(lambda lane: lane.spilled_bytes, lanes if pool.disk_full else ())
        on_disk = Ranked((by_disk,), Ranking(self._disk_of, clients if pool.disk_full else ()))
        in_memory = Ranked((_by_memory(lanes),), Ranking(self._memory_of, clients))
        givers: Givers[_Lane, str, _Consumer] = Givers(
            lambda lane: _furthest_back(lane, now), lambda client: self._biggest_of(client, now)
        )
        evictions = to_give_up(pool, in_memory, on_disk, givers, now, len(lanes))
        for eviction in islice(evictions, EVICTIONS_MAX):
            self._give_up(eviction.holders, eviction.reason, number)
        for consumers in [list(them.values()) for them in self._clients.values()]:
            consumers = [consumer for consumer in consumers if not consumer.shared]
            lags = [(consumer.lag_bytes, consumer.disk_bytes) for consumer in consumers]
            over = beyond_share(pool, lags, now, pool.client_share)
            if over is not None and any(_late(consumer, now) for consumer in consumers):
                self._give_up([max(consumers, key=lambda consumer: consumer.lag_bytes)], Reason.CLIENT_SHARE, number)

    def _own(self, client: str) -> list[_Consumer]:
        """Returns its consumers that hold something for it alone."""
        return [consumer for consumer in self._clients.get(client, {}).values() if not consumer.shared]

    def _memory_of(self, client: str) -> int:
        return sum(consumer.lag_bytes - consumer.disk_bytes for consumer in self._own(client))

    def _disk_of(self, client: str) -> int:
        return sum(consumer.disk_bytes for consumer in self._own(client))

    def _lanes_of(self, client: str) -> list[_Lane]:
        lanes = {consumer.lane: None for consumer in self._own(client)}
        return sorted(lanes, key=lambda lane: lane.resident_bytes, reverse=True)

    def _biggest_of(self, client: str, now: float) -> list[_Consumer]:
        """Returns its consumer that holds the most, if most of what it holds is late."""
        own = self._own(client)
        late = [consumer for consumer in own if _late(consumer, now)]
        if not late or 2 * sum(one.lag_bytes for one in late) < sum(one.lag_bytes for one in own):
            return []
        return [max(late, key=lambda consumer: consumer.lag_bytes)]

    def _give_up(self, consumers: Iterable[_Consumer], reason: Reason, number: int) -> None:
        """All of them, before their lanes let go of anything."""
        trimmed: dict[_Lane, None] = {}
        for consumer in consumers:
            holding, lane = consumer.holding, consumer.lane
            if holding.subscription not in lane.consumers:
                continue  # it went with its client
            self.evictions.append(
                Eviction(number, holding.client, holding.filter, holding.subscription, reason, consumer.lag_bytes)
            )
            if holding.durable:  # it keeps its session, and its cursor moves to the end
                consumer.position = consumer.moved_to = lane.end
                trimmed[lane] = None
                continue
            self._gone[holding.client] = number * self._bucket_s
            for other in self._clients.pop(holding.client).values():
                del other.lane.consumers[other.holding.subscription]
                trimmed[other.lane] = None
        for lane in trimmed:
            lane.trim()


def _by_memory(lanes: Iterable[_Lane]) -> Ranking[_Lane]:
    return Ranking(lambda lane: lane.resident_bytes, lanes)


def _late(consumer: _Consumer, now: float) -> bool:
    return consumer.position < consumer.lane.end and consumer.holding.oldest_s <= now - GRACE_S


def _furthest_back(lane: _Lane, now: float) -> list[_Consumer]:
    """Returns the consumers that stand in the oldest chunk and should have taken it by now."""
    oldest = lane.first // CHUNK_BYTES
    here = [c for c in lane.consumers.values() if c.position // CHUNK_BYTES == oldest and _late(c, now)]
    return [consumer for consumer in here if not consumer.shared]


def replay_pool(
    pool: Pool, bucket_s: float, buckets: int, holdings: Iterable[Holding]
) -> Iterator[Level | Eviction]:
    """Yields levels, and the consumers that are given up. ``holdings``: of one candidate and run, which has so many
    buckets, in order of time."""
    replay = PoolReplay(pool, bucket_s)
    last: int | None = None
    for number, part in groupby(holdings, key=lambda holding: holding.number):
        if last is not None and number > last + 1:
            yield replay.step(last + 1, ())
        yield replay.step(number, part)
        yield from replay.evictions
        replay.evictions.clear()
        last = number
    if last is not None and last + 1 < buckets:
        yield replay.step(last + 1, ())
