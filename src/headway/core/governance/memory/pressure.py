"""Pressure: the rules for a pool whose memory or disk runs out, and for a client that takes more than its share.

Rules, in order:

1. *Memory is over the high-water mark.* The oldest chunks of the lane that holds the most leave memory, once for all
   cursors in them. These cursors are offline now. No consumer loses a record, so there is no verdict. A chunk that the
   journal has is only dropped from memory, even if the spill's disk has failed. Any other chunk is written to the
   spill's disk if the disk works and has room, and if the lane has no more than one client's share of it.
2. *One lane is over a client's share of the memory.* Its chunks leave memory even while there is room: at each tick,
   and between two ticks as soon as they are a portion that is worth a write (``Pool.ripe``).
3. *Disk is over its limit*, or one client's lag is over its share of the disk, or memory is over the mark and there is
   no disk to write to. The consumers that are furthest back in the lane that holds the most are evicted. All consumers
   in the same oldest chunk are evicted together; otherwise the chunk would not be freed. Connected ones are
   disconnected, which ends transient subscriptions. A durable subscription, or a queue without an owner, loses its next
   records as a gap, but only records that were not promised (QoS 0, not persistent, not confirmed). **Promised records
   stay**, so a durable consumer with no others is not evicted: it would free nothing, and a client that comes back to
   more than its share could never take it.
4. *Promised records that cannot leave memory* close their lane: when the lane takes up a client's share of the memory,
   or when its pool is over the mark and rules 1 to 3 can do no more. Publishers to a closed lane are not read until it
   is open again; other publishers go on. A publisher that also reads the lane is held up only by the pool, because its
   own acknowledgements may open the lane. A lane whose oldest records are not promised is not closed: a consumer is
   evicted for it, and meanwhile all publishers to the pool wait.
5. *Memory is over the limit itself*, because the disk is too slow. Publishers to this pool are not read until it has
   room again.

``to_spill``, ``to_give_up`` and ``beyond_share`` are these rules on plain figures, so the Spark lab can apply them to
recorded ones. The functions below them apply them to the broker's own lanes.

No function here visits all lanes, or all consumers of one. Lanes are found by rank (ranking.py). A chunk knows its
cursors, and a look takes some of them at a time. A lane without a late consumer rests for ``REST_S``, so a pool that
stays over its limit costs a turn next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from math import inf
from typing import Generic, NamedTuple, TypeVar

from headway.core.base import Ranking, Reason
from headway.core.consumer import Spill, Subscription
from headway.core.log import GRACE_S, SPILL_BYTES_MIN, Chunk, Cursor, Lane, Pool
from headway.core.queue import Queue, queue_behind

REST_S = GRACE_S / 4
LOOKS_MAX = 64
"""A pass ends after so many lanes without anything to do."""
SKIPS_MAX = 2048
"""A pass may skip so many lanes that hold much but have no chunk that is worth writing. A skip is cheap."""
SPILLS_MAX = 256
"""The number of lanes that are spilled in one turn."""
CURSORS_LOOKED_AT_MAX = 256
"""The number of cursors of a chunk that one look takes."""
APART_LOOKED_AT_MAX = 16
"""The number of chunks apart that one look takes."""

Holder = Subscription | Queue
"""A consumer that keeps a lane from dropping its oldest chunk; or a queue, if none of its members can be evicted."""

L = TypeVar("L")
S = TypeVar("S")


class Evictions(NamedTuple, Generic[S]):
    """Holders of one feed to evict, and the reason. ``used`` and ``limit`` are bytes of the pool."""

    holders: list[S]
    reason: Reason
    used: int
    limit: int


def to_spill(
    pool: Pool, resident: Ranking[L], now: float, looks_max: int = LOOKS_MAX, *,
    nothing_to_write: Callable[[L], bool] = lambda _: False,
) -> Iterator[tuple[L, int]]:  # fmt: skip
    """Yields lanes of the pool with the bytes that each should spill (rules 1 and 2), each lane once. The caller marks
    chunks as being spilled before it asks for the next lane. At most ``SKIPS_MAX`` lanes with nothing to write are
    skipped."""
    skips = SKIPS_MAX
    resident.wake(now)
    share_bytes = pool.share_bytes
    asked: list[L] = []
    try:
        while looks_max and (lane := resident.most(SPILL_BYTES_MIN if pool.to_spill_bytes() > 0 else share_bytes + 1)):
            if skips and nothing_to_write(lane):
                skips -= 1
                resident.forget(lane)
                asked.append(lane)
                continue
            held = resident.holds(lane)
            yield lane, max(pool.to_spill_bytes(), held - share_bytes)
            looks_max -= resident.holds(lane) == held
            resident.forget(lane)
            asked.append(lane)
    finally:
        for lane in asked:
            resident.put(lane)


def to_give_up(
    pool: Pool, in_memory: Sequence[Ranking[L]], spilled: Ranking[L], furthest_back: Callable[[L], list[S]],
    now: float, looks_max: int = LOOKS_MAX,
) -> Iterator[Evictions[S]]:  # fmt: skip
    """Yields the holders to evict now (rule 3), each time those of the lane that holds the most. The rankings of
    ``in_memory`` are gone through one after the other. The caller evicts the holders before it asks for the next."""
    if pool.disk_full:
        for found in _most_first(spilled, furthest_back, now, looks_max):
            yield Evictions(found, Reason.DISK_LIMIT, pool.disk_bytes, pool.disk_limit)
            if not pool.disk_full:
                return  # the disk has room now for chunks that should leave memory
    # Chunks should leave memory and none is being written: there is no disk, or nothing left that is worth writing.
    if pool.to_spill_bytes() > 0 and not pool.spilling_bytes:
        for found in chain.from_iterable(_most_first(lanes, furthest_back, now, looks_max) for lanes in in_memory):
            yield Evictions(found, Reason.MEMORY_LIMIT, pool.memory_bytes, pool.memory_limit)
            if pool.to_spill_bytes() <= 0:
                break


def _most_first(
    lanes: Ranking[L], furthest_back: Callable[[L], list[S]], now: float, looks_max: int
) -> Iterator[list[S]]:
    """Yields the holders furthest back in the lane that holds the most, again and again."""
    lanes.wake(now)
    while looks_max and (lane := lanes.most()):
        if found := furthest_back(lane):
            yield found
        else:
            looks_max -= 1
            lanes.rest(lane, now + REST_S)


def beyond_share(pool: Pool, lags: Iterable[tuple[int, int]], now: float, share: float) -> tuple[int, int] | None:
    """Returns (used, limit) if one client's lags are more than it may hold (AMPS calls this ClientMaxCapacity), even
    with room left in the pool.

    ``lags`` has for each lag the bytes of the lane that it holds, and the bytes that the lane has on disk. A lag
    that is over the client's share of the memory is written to disk. So the limit is a share of the disk, or a share
    of the memory if the pool cannot spill."""
    if pool.can_spill(now):
        limit = int(pool.disk_limit * share)
        used = sum(min(gating, spilled) for gating, spilled in lags)
    else:
        limit = int(pool.memory_limit * share)
        used = sum(gating for gating, _ in lags)
    return (used, limit) if used > limit else None


def spills(pool: Pool, journaled: float, now: float, lanes_max: float = SPILLS_MAX) -> list[Spill]:
    """Returns the chunks that should leave memory now, of at most ``lanes_max`` lanes; the others follow in the next
    turn. The journal has written its records up to sequence ``journaled``."""
    found: list[Spill] = []
    pool.hopeless = True
    for lane, wanted in to_spill(pool, pool.resident, now, nothing_to_write=lambda lane: lane.nothing_to_write):
        spill = spill_of(lane, wanted, journaled, now)
        if spill is not None:
            found.append(spill)
            if len(found) >= lanes_max:
                pool.hopeless = False
                break
        elif lane.stuck(now):
            lane.full = lane.over_share and not lane.spilling_bytes and not _furthest_back(lane, now)
            pool.close(lane)
        else:
            pool.hopeless = False  # consumers may still take these records
    return found


def spill_of(lane: Lane, wanted_bytes: int, journaled: float, now: float) -> Spill | None:
    """Returns about ``wanted_bytes`` of a lane, as far as they can leave memory; None if none can."""
    pool = lane.pool
    share = int(pool.disk_limit * pool.lane_share) - lane.spilled_bytes
    room = min(pool.room_bytes(now), share)

    def may_leave(chunk: Chunk) -> bool:
        nonlocal room
        if chunk.journaled and chunk.last_sequence <= journaled:
            return True
        if room < 0:
            return False
        room -= chunk.size
        return True

    chunks = lane.spillable(wanted_bytes, may_leave)
    return Spill(lane, chunks) if chunks else None


def evictions(pool: Pool, now: float) -> Iterator[Evictions[Holder]]:
    """Yields the holders to evict now; none while everything fits. Call ``spills`` first."""

    def furthest_back(lane: Lane) -> list[Holder]:
        found = _furthest_back(lane, now)
        if not found and pool.hopeless and lane.stuck(now):
            pool.close(lane)
        return found

    return to_give_up(pool, (pool.resident, pool.indexed), pool.spilled, furthest_back, now)


def _furthest_back(lane: Lane, now: float) -> list[Holder]:
    """Returns some holders that still need the oldest chunk of a lane, should have taken it by now, and can be evicted.
    If there are none, returns those of a chunk apart."""
    found: dict[Holder, None] = {}
    if _is_late(oldest := lane.first, now):
        for cursor in list(islice(oldest.cursors_here, CURSORS_LOOKED_AT_MAX)):
            cursor.step()
            if cursor.floor is oldest:
                oldest.cursors_here[cursor] = oldest.cursors_here.pop(cursor)  # to the end: others come next
                found |= dict.fromkeys(_late(cursor, oldest, now))
    for chunk in [] if found else list(islice(lane.apart, APART_LOOKED_AT_MAX)):
        lane.apart[chunk] = lane.apart.pop(chunk)
        if _is_late(chunk, now):
            for cursor in list(islice(chunk.kept_by, CURSORS_LOOKED_AT_MAX)):
                found |= dict.fromkeys(_late(cursor, chunk, now))
        if found:
            break
    return list(found)


def _is_late(chunk: Chunk, now: float) -> bool:
    return len(chunk) > 0 and chunk.time_of(0) <= now - GRACE_S


def _late(cursor: Cursor, chunk: Chunk, now: float) -> list[Holder]:
    """Returns the holders to evict, of the subscription or queue with this cursor, to free a chunk."""
    owner = cursor.owner
    if isinstance(owner, Subscription):
        return [owner] if is_late(owner, now) and gives_way(owner, now) else []
    if not isinstance(owner, Queue):
        return []
    takers = holders = owner.holders(chunk, now - GRACE_S)
    # Where others move, an eviction frees only what the member has. What waits for absent takers alone is given up.
    if takers and not owner.gives_up(now - GRACE_S):  # asked once: it looks at all members
        holders = [member for member in takers if _ends(member) or owner.unsettled.gets_back_from(member)]
    there = any(member.session.connected for member in owner.members)
    if holders or (there and not owner.nobody_selects(chunk) and (owner.promises or not takers)):
        return [*holders]
    late = owner.backlog.oldest_time() <= now - GRACE_S and owner.backlog.wants(chunk)
    return [owner] if late and not (owner.promises and owner.backlog.head_is_held) else []


def gives_way(subscription: Subscription, now: float) -> bool:
    """Tells whether an eviction of the consumer frees memory: it ends when it is disconnected, or it holds records that
    were not promised."""
    if _ends(subscription):
        return True
    cursor, queue = subscription.cursor, queue_behind(subscription)
    if queue is not None:
        return queue.unsettled.gets_back_from(subscription) or queue.gives_up(now - GRACE_S)
    if subscription.promised:
        return cursor.attached and cursor.lag_bytes > 0 and not cursor.head_is_held
    return subscription.has_more or cursor.leaves > 0


def _ends(subscription: Subscription) -> bool:
    """Tells whether the consumer ends when it is disconnected."""
    return subscription.session.connected and subscription.session.expiry_s == 0


def is_late(subscription: Subscription, now: float) -> bool:
    """Tells whether the consumer holds records that it should have taken, or acknowledged, by now."""
    unsettled = subscription.oldest_unacknowledged_s() if subscription.cursor.leaves else inf
    waiting = subscription.oldest_time() if subscription.gating_bytes else inf
    return min(unsettled, waiting) <= now - GRACE_S


def over_share(pool: Pool, subscription: Subscription, now: float) -> tuple[int, int] | None:
    """Returns (used, limit) if the consumer's client takes up more than its share and has had time to take it."""
    holdings, share = subscription.session.holdings, subscription.session.tab.shares.client
    held, on_disk = holdings.gating_bytes, holdings.disk_bytes
    if share < pool.lane_share:
        # Lanes stay in memory up to a larger share than the client's. What they have beyond it counts as if on disk.
        on_disk = max(on_disk, held - int(pool.memory_limit * share))
    over = beyond_share(pool, [(held, on_disk)], now, share)
    return over if over is not None and _had_time(subscription, now) else None


def over_share_of_user(pool: Pool, subscription: Subscription, now: float) -> tuple[int, int] | None:
    """Returns (used, limit) if all clients of the consumer's user take up more than that user may, and this one has had
    time to take it. A client that holds less than most of them is left alone."""
    session = subscription.session
    allowance = session.allowance
    if allowance.limits.pool_share == inf:
        return None
    used = allowance.gating_bytes, allowance.disk_bytes
    over = beyond_share(pool, [used], now, allowance.limits.pool_share)
    if over is None or session.holdings.gating_bytes * max(1, allowance.connections) < allowance.gating_bytes:
        return None
    return over if _had_time(subscription, now) else None


def _had_time(subscription: Subscription, now: float) -> bool:
    """Tells whether the consumer, or another of its client, should have taken what it holds by now."""
    session = subscription.session
    late = subscription in session.lagging and is_late(subscription, now)
    return late or any(is_late(other, now) for other in session.some_behind())
