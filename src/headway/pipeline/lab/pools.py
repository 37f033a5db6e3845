"""Pools: what all consumers together hold under one candidate, and whom the broker's own pressure rules give up.

Theory of operation. What a lane holds is what its furthest consumer is back: the others' lags are part of it. So memory
and disk follow from the consumers' lags, bucket by bucket, through ``core.pool.Pool`` and the rules of
``core.pressure``, asked of model lanes. Who is given up is gone from there on; nothing is kept for it any more.

A model, so: a chunk goes to disk as soon as it should; what is kept in memory about chunks on disk, and states of
conflating consumers, are not counted; a lag of less than a chunk is nothing; within a bucket all lags are at their
highest at once. There is one pool: those of single listeners are not told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from headway.core.chunk import CHUNK_BYTES
from headway.core.errors import Reason
from headway.core.lane import SPILL_BYTES_MIN
from headway.core.pool import GRACE_S, HIGH_WATER, Pool
from headway.core.pressure import beyond_share, to_give_up, to_spill
from headway.pipeline.lab.base import GATES, OFFLINE

SACRIFICES_MAX = 10_000
"""More rounds of giving up than this in one bucket would mean that giving up frees nothing."""


class Holding(NamedTuple):
    """A consumer in one bucket."""

    number: int
    """Of the bucket."""
    client: str
    filter: str
    subscription: int
    begin_s: float
    """When its stay began."""
    lane: str
    durable: bool
    lag_bytes: int
    oldest_s: float
    end_bytes: int
    flags: int


class Level(NamedTuple):
    """What was held in one bucket."""

    number: int
    memory_bytes: int
    disk_bytes: int
    gates_ms: float
    """For how long a consumer held back the publishers of its lane, added up over lanes."""
    full_ms: float
    """For how long all publishers were held back because the memory was full."""


class Sacrifice(NamedTuple):
    """A consumer that pressure gave up."""

    number: int
    client: str
    filter: str
    subscription: int
    reason: Reason
    lag_bytes: int


class _Consumer:
    __slots__ = ("holding", "lane", "moved_to", "position")

    def __init__(self, lane: _Lane, holding: Holding) -> None:
        self.lane = lane
        self.holding = holding
        self.position = 0
        self.moved_to = 0
        """A durable one that was given up: it holds nothing from before there."""


class _Lane:
    """A lane's figures; positions count from when somebody first lagged there."""

    __slots__ = ("consumers", "end", "first", "spilled_upto")

    def __init__(self) -> None:
        self.end = 0
        self.first = 0
        self.spilled_upto = 0
        self.consumers: dict[int, _Consumer] = {}

    def trim(self) -> None:
        """Let go of what nobody stands in any more."""
        self.first = min((consumer.position for consumer in self.consumers.values()), default=self.end)

    @property
    def resident_bytes(self) -> int:
        return self.end - max(self.first, min(self.spilled_upto, self.end))

    @property
    def spilled_bytes(self) -> int:
        return max(0, min(self.spilled_upto, self.end) - self.first)

    def spill(self, wanted_bytes: int) -> None:
        """The oldest resident chunks, up to so many bytes, are on disk."""
        start = max(self.first, self.spilled_upto)
        chunks = -(-wanted_bytes // CHUNK_BYTES)
        stop = min(self.end, start + chunks * CHUNK_BYTES)
        if stop < self.end or self.end - start >= SPILL_BYTES_MIN:
            self.spilled_upto = max(self.spilled_upto, stop)

    def take(self, holdings: Iterable[Holding]) -> None:
        """Go on to the next bucket, with those that hold something in it."""
        now = {holding.subscription: holding for holding in holdings}
        before, self.consumers = self.consumers, {}
        stayed = [key for key in now if key in before]
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
            consumer = before.get(key) or _Consumer(self, holding)
            consumer.holding = holding
            consumer.position = max(self.end - holding.lag_bytes, consumer.moved_to)
            self.consumers[key] = consumer
        self.trim()


class PoolReplay:
    """One candidate's pool in one run."""

    def __init__(self, pool: Pool, bucket_s: float) -> None:
        self._pool = pool
        self._bucket_s = bucket_s
        self._lanes: dict[str, _Lane] = {}
        self._gone: dict[str, float] = {}
        """Clients whose connection pressure ended, and when: stays from before are over."""
        self.sacrifices: list[Sacrifice] = []

    def step(self, number: int, holdings: Iterable[Holding]) -> Level:
        """One bucket, with all who hold something in it."""
        pool = self._pool
        now = (number + 1) * self._bucket_s
        by_lane: dict[str, list[Holding]] = {}
        for holding in holdings:
            if holding.begin_s > self._gone.get(holding.client, -1.0) or holding.durable:
                by_lane.setdefault(holding.lane, []).append(holding)
        for name in set(self._lanes) | set(by_lane):
            self._lanes.setdefault(name, _Lane()).take(by_lane.get(name, ()))
            if name not in by_lane:
                del self._lanes[name]
        for lane in self._lanes.values():
            if pool.can_spill(now) and any(c.holding.flags & OFFLINE for c in lane.consumers.values()):
                lane.spill(lane.end - lane.first)
        self._count()
        before = pool.memory_bytes
        for lane, wanted in to_spill(pool, self._lanes.values(), now):
            lane.spill(wanted)
            self._count()
        self._relieve(number, now)
        crossed = min(before, int(pool.memory_limit * HIGH_WATER))
        gated = sum(any(c.holding.flags & GATES for c in lane.consumers.values()) for lane in self._lanes.values())
        bucket_ms = self._bucket_s * 1000
        memory = max(pool.memory_bytes, crossed)
        return Level(number, memory, pool.disk_bytes, gated * bucket_ms, pool.full * bucket_ms)

    def _count(self) -> None:
        self._pool.memory_bytes = sum(lane.resident_bytes for lane in self._lanes.values())
        self._pool.disk_bytes = sum(lane.spilled_bytes for lane in self._lanes.values())

    def _relieve(self, number: int, now: float) -> None:
        """Whoever stands in the way while the pool is over its limits, then clients over their share."""
        pool = self._pool
        for _ in range(SACRIFICES_MAX):
            doomed = to_give_up(pool, self._lanes.values(), lambda lane: _furthest_back(lane, now))
            if doomed is None:
                break
            for consumer in doomed.subscriptions:
                self._give_up(consumer, doomed.reason, number)
        by_client: dict[str, list[_Consumer]] = {}
        for lane in self._lanes.values():
            for consumer in lane.consumers.values():
                by_client.setdefault(consumer.holding.client, []).append(consumer)
        # The broker comes to them in any order; who holds most goes first here, and the rest may then be within theirs.
        for consumers in sorted(by_client.values(), key=lambda them: -sum(c.lane.end - c.position for c in them)):
            lags = [(c.lane.end - c.position, c.lane.spilled_bytes) for c in consumers]
            over = beyond_share(pool, lags, now)
            if over is not None and any(_late(consumer, now) for consumer in consumers):
                self._give_up(max(consumers, key=lambda c: c.lane.end - c.position), Reason.CLIENT_SHARE, number)

    def _give_up(self, consumer: _Consumer, reason: Reason, number: int) -> None:
        holding = consumer.holding
        size = consumer.lane.end - consumer.position
        self.sacrifices.append(
            Sacrifice(number, holding.client, holding.filter, holding.subscription, reason, size)
        )
        if holding.durable:  # it keeps its session, and its cursor moves to the end
            consumer.position = consumer.moved_to = consumer.lane.end
            consumer.lane.trim()
        else:
            self._gone[holding.client] = number * self._bucket_s
            for lane in self._lanes.values():
                theirs = [key for key, other in lane.consumers.items() if other.holding.client == holding.client]
                for key in theirs:
                    del lane.consumers[key]
                if theirs:
                    lane.trim()
        self._count()


def _late(consumer: _Consumer, now: float) -> bool:
    return consumer.position < consumer.lane.end and consumer.holding.oldest_s <= now - GRACE_S


def _furthest_back(lane: _Lane, now: float) -> list[_Consumer]:
    """All who stand in the oldest chunk and should have taken it by now."""
    oldest = lane.first // CHUNK_BYTES
    return [c for c in lane.consumers.values() if c.position // CHUNK_BYTES == oldest and _late(c, now)]


def replay_pool(pool: Pool, bucket_s: float, holdings: Iterable[Holding]) -> Iterator[Level | Sacrifice]:
    """Levels, and who is given up. ``holdings``: of one candidate and run, in order of time."""
    replay = PoolReplay(pool, bucket_s)
    last: int | None = None
    for number, part in groupby(holdings, key=lambda holding: holding.number):
        if last is not None and number > last + 1:
            yield replay.step(last + 1, ())
        yield replay.step(number, part)
        yield from replay.sacrifices
        replay.sacrifices.clear()
        last = number
    if last is not None:
        yield replay.step(last + 1, ())
