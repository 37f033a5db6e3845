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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headway.core.effects import Spill
from headway.core.errors import Reason
from headway.core.feed import Feed
from headway.core.lane import Lane
from headway.core.pool import GRACE_S, Pool
from headway.core.subscription import Subscription


class Victims(NamedTuple):
    """Consumers to give up, all of one feed, and why; ``used`` and ``limit`` in bytes."""

    subscriptions: list[Subscription]
    reason: Reason
    used: int
    limit: int


def spills(pool: Pool, feeds: Iterable[Feed], now: float) -> list[Spill]:
    """Chunks that should leave memory now (rules 1 and 2)."""
    if not pool.can_spill(now):
        return []
    found: list[Spill] = []
    mine = sorted((f for f in feeds if f.key.pool is pool), key=lambda f: f.lane.resident_bytes, reverse=True)
    share_bytes = int(pool.memory_limit * pool.client_share)
    for feed in mine:
        lane = feed.lane
        over = lane.resident_bytes - share_bytes
        wanted = max(pool.to_spill_bytes(), over if over > 0 else 0)
        if wanted <= 0:
            break
        chunks = lane.spillable(wanted)
        if chunks:
            found.append(Spill(lane, chunks))
    return found


def victims(pool: Pool, feeds: Iterable[Feed], now: float) -> Victims | None:
    """Whom to give up now (rule 3); None while everything fits. To be asked after ``spills``."""
    mine = [feed for feed in feeds if feed.key.pool is pool]
    if pool.disk_full:
        back = _furthest_back(mine, lambda lane: lane.spilled_bytes, now)
        if back:
            return Victims(back, Reason.DISK_LIMIT, pool.disk_bytes, pool.disk_limit)
    # Nothing is on its way to disk though something should be: there is no disk, or nothing left that is worth it.
    if pool.to_spill_bytes() > 0 and not pool.spilling_bytes:
        back = _furthest_back(mine, lambda lane: lane.resident_bytes, now)
        if back:
            return Victims(back, Reason.MEMORY_LIMIT, pool.memory_bytes, pool.memory_limit)
    return None


def _furthest_back(feeds: list[Feed], holds: Callable[[Lane], int], now: float) -> list[Subscription]:
    """All who still need the oldest chunk of the lane that holds the most (of those where somebody is behind)."""
    for feed in sorted(feeds, key=lambda feed: holds(feed.lane), reverse=True):
        if not holds(feed.lane):
            break
        oldest = feed.lane.first
        if feed.share is not None:
            back = feed.share.holders(oldest, now - GRACE_S)
        else:
            back = [s for s in feed.subscriptions if s.cursor.floor is oldest and is_late(s, now)]
        if back:
            return back
    return []


def is_late(subscription: Subscription, now: float) -> bool:
    """It holds what came, or what it was sent, long enough ago to have been taken, or acknowledged."""
    unsettled = subscription.session.oldest_unacknowledged_s() if subscription.cursor.unacknowledged else None
    waiting = subscription.cursor.oldest_time() if subscription.gating_bytes else None
    return any(since is not None and since <= now - GRACE_S for since in (unsettled, waiting))


def over_share(pool: Pool, subscription: Subscription, now: float) -> tuple[int, int] | None:
    """(used, limit) when one client's lag is more than it may hold, even with room left (AMPS ClientMaxCapacity).

    Up to its share of the memory a lag may be resident and is then written to disk; so it is the disk that counts, or,
    where nothing can be written, the memory."""
    lagging = subscription.session.lagging
    if pool.can_spill(now):
        limit = int(pool.disk_limit * pool.client_share)
        used = sum(min(other.gating_bytes, other.feed.lane.spilled_bytes) for other in lagging)
    else:
        limit = int(pool.memory_limit * pool.client_share)
        used = sum(other.gating_bytes for other in lagging)
    return (used, limit) if used > limit and any(is_late(other, now) for other in lagging) else None
