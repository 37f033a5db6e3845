"""Pressure: what happens when a pool's memory or disk runs out, or one client takes more than its share.

Rules, in order:

1. *Memory over the high-water mark*: the oldest chunks of the lane that holds the most go to disk, once for all who
   stand in them. Those cursors are offline now; nobody is told, nobody loses anything.
2. *One client's lag over its share of the memory*: its lanes' chunks go to disk even while there is room.
3. *Disk over its limit* (or one client's lag over its share of the disk, or memory over the mark and no disk to be
   had): those furthest back in the lane that holds the most are given up, all who stand in the same oldest chunk
   together, or nothing would be freed. Transient subscribers are disconnected; one that is durable keeps its session,
   and its cursor moves to the end with a gap.
4. *Memory over the limit itself*, because the disk cannot follow: publishers to this pool are not read until it can.

``to_spill``, ``to_give_up`` and ``beyond_share`` are these rules on plain figures; the Spark lab asks them of recorded
ones. The functions after them ask them of the broker's own feeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Generic, NamedTuple, Protocol, TypeVar

from headway.core.chunk import Chunk
from headway.core.effects import Spill
from headway.core.errors import Reason
from headway.core.feed import Feed
from headway.core.pool import GRACE_S, Pool
from headway.core.queue import Queue
from headway.core.subscription import Subscription

Holder = Subscription | Queue
"""Who keeps a lane from letting go of its oldest chunk; a queue only where it has no members to be given up."""


class Holds(Protocol):
    """A lane's figures."""

    @property
    def resident_bytes(self) -> int: ...
    @property
    def spilled_bytes(self) -> int: ...


L = TypeVar("L", bound=Holds)
S = TypeVar("S")


class Victims(NamedTuple, Generic[S]):
    """Consumers, and queues without any, to give up, all of one feed, and why; ``used`` and ``limit`` in bytes."""

    holders: list[S]
    reason: Reason
    used: int
    limit: int


def to_spill(pool: Pool, lanes: Iterable[L], now: float) -> Iterator[tuple[L, int]]:
    """Lanes of the pool that should write so many bytes to disk (rules 1 and 2). What one of them marks as on its way
    counts when the next is asked for."""
    if not pool.can_spill(now):
        return
    share_bytes = int(pool.memory_limit * pool.client_share)
    for lane in sorted(lanes, key=lambda lane: lane.resident_bytes, reverse=True):
        wanted = max(pool.to_spill_bytes(), lane.resident_bytes - share_bytes)
        if wanted <= 0:
            return
        yield lane, wanted


def to_give_up(pool: Pool, lanes: Iterable[L], furthest_back: Callable[[L], list[S]]) -> Iterator[Victims[S]]:
    """Whom to give up now (rule 3), each time of the lane that holds the most of those where somebody is behind. Who is
    named must have been given up before the next are asked for."""
    if pool.disk_full:
        for found in _most_first(lanes, lambda lane: lane.spilled_bytes, furthest_back):
            yield Victims(found, Reason.DISK_LIMIT, pool.disk_bytes, pool.disk_limit)
            if not pool.disk_full:
                break
    # Nothing is on its way to disk though something should be: there is no disk, or nothing left that is worth it.
    if pool.to_spill_bytes() > 0 and not pool.spilling_bytes:
        for found in _most_first(lanes, lambda lane: lane.resident_bytes, furthest_back):
            yield Victims(found, Reason.MEMORY_LIMIT, pool.memory_bytes, pool.memory_limit)
            if pool.to_spill_bytes() <= 0:
                break


def _most_first(
    lanes: Iterable[L], holds: Callable[[L], int], furthest_back: Callable[[L], list[S]]
) -> Iterator[list[S]]:
    """Those furthest back in the lane that holds the most, again and again. Giving up makes lanes smaller only, so one
    whose figure on the heap is out of date goes down in it, and none has to be looked at before its turn."""
    heap = [(-holds(lane), number, lane) for number, lane in enumerate(lanes)]
    heapify(heap)
    while heap:
        known, number, lane = heap[0]
        held = holds(lane)
        if held < -known:
            heapreplace(heap, (-held, number, lane))
        elif held and (found := furthest_back(lane)):
            yield found
        else:
            heappop(heap)


def beyond_share(pool: Pool, lags: Iterable[tuple[int, int]], now: float) -> tuple[int, int] | None:
    """(used, limit) when one client's lags are more than it may hold, even with room left (AMPS ClientMaxCapacity).

    ``lags``: bytes each keeps from being let go of, and bytes its lane has on disk. Up to its share of the memory a lag
    may be resident and is then written to disk; so it is the disk that counts, or, where nothing can be written, the
    memory."""
    if pool.can_spill(now):
        limit = int(pool.disk_limit * pool.client_share)
        used = sum(min(gating, spilled) for gating, spilled in lags)
    else:
        limit = int(pool.memory_limit * pool.client_share)
        used = sum(gating for gating, _ in lags)
    return (used, limit) if used > limit else None


def spills(pool: Pool, feeds: Iterable[Feed], now: float) -> list[Spill]:
    """Chunks that should leave memory now."""
    found: list[Spill] = []
    mine = {feed.lane: feed for feed in feeds if feed.key.pool is pool}
    for lane, wanted in to_spill(pool, mine, now):
        chunks = lane.spillable(wanted)
        if chunks:
            found.append(Spill(lane, chunks))
            if chunks[-1].next is lane.tail:
                mine[lane].step_on()
    return found


def victims(pool: Pool, feeds: Iterable[Feed], now: float) -> Iterator[Victims[Holder]]:
    """Whom to give up now; nobody while everything fits. To be asked after ``spills``."""
    mine = {feed.lane: feed for feed in feeds if feed.key.pool is pool}
    return to_give_up(pool, mine, lambda lane: _furthest_back(mine[lane], now))


def _furthest_back(feed: Feed, now: float) -> list[Holder]:
    """All who still need the oldest chunk of a lane and should have taken it by now."""
    oldest = feed.lane.first
    if feed.queues:
        return [holder for queue in feed.queues for holder in _holding(queue, oldest, now)]
    return [*late_for(feed, oldest, now)]


def _holding(queue: Queue, oldest: Chunk, now: float) -> list[Holder]:
    holders = queue.holders(oldest, now - GRACE_S)
    if queue.members or holders:
        return [*holders]
    waiting = queue.backlog.oldest_time()
    return [queue] if waiting is not None and waiting <= now - GRACE_S and queue.backlog.wants(oldest) else []


def late_for(feed: Feed, chunk: Chunk, now: float) -> list[Subscription]:
    """Who should have taken a chunk by now that can go nowhere."""
    if feed.queues:
        return [member for queue in feed.queues for member in queue.holders(chunk, now - GRACE_S)]
    return [s for s in feed.subscriptions if s.cursor.floor is chunk and is_late(s, now)]


def is_late(subscription: Subscription, now: float) -> bool:
    """It holds what came, or what it was sent, long enough ago to have been taken, or acknowledged."""
    unsettled = subscription.oldest_unacknowledged_s() if subscription.cursor.unacknowledged else None
    waiting = subscription.oldest_time() if subscription.gating_bytes else None
    return any(since is not None and since <= now - GRACE_S for since in (unsettled, waiting))


def over_share(pool: Pool, subscription: Subscription, now: float) -> tuple[int, int] | None:
    """(used, limit) when the consumer's client takes up more than its share and has had the time to take it."""
    lagging = list(subscription.session.behind())
    over = beyond_share(pool, ((other.gating_bytes, other.feed.lane.spilled_bytes) for other in lagging), now)
    return over if over is not None and any(is_late(other, now) for other in lagging) else None
