"""Pressure: what happens when a pool's memory or disk runs out, or one client takes more than its share.

Rules, in order:

1. *Memory over the high-water mark*: the oldest chunks of the lane that holds the most go to disk, once for all who
   stand in them. Those cursors are offline now; nobody is told, nobody loses anything. What the journal has needs no
   room: it is only forgotten, whatever becomes of the spill's disk. What it has not is written to the spill's disk, as
   long as that can be written, has room, and the lane has no more than one client's share of it.
2. *One lane over a client's share of the memory*: its chunks go to disk even while there is room.
3. *Disk over its limit* (or one client's lag over its share of the disk, or memory over the mark and no disk to be
   had): those furthest back in the lane that holds the most are given up, all who stand in the same oldest chunk
   together, or nothing would be freed. All who are connected are disconnected, and transient subscriptions end with
   that. A durable subscription, or a queue that is nobody's alone, loses what comes next for it only as far as nobody
   was promised it (QoS 0, not persistent, not confirmed), as a gap. **What was promised stays.**
4. *What stays, and cannot leave memory*, closes its lane: when the lane takes up a client's share of the memory, or
   when its pool is over the mark and there is nothing left to be done by 1 to 3. Whoever publishes to a closed lane is
   not read until it is open again; nobody else is held up. Who reads the lane itself is held up only by the pool: its
   own acknowledgements may be what it takes to open it. A lane whose oldest records nobody was promised is not closed:
   somebody is given up for it, and meanwhile all who publish to the pool wait.
5. *Memory over the limit itself*, because the disk cannot follow: publishers to this pool are not read until it can.

``to_spill``, ``to_give_up`` and ``beyond_share`` are these rules on plain figures; the Spark lab asks them of recorded
ones. The functions after them ask them of the broker's own lanes.

Nothing here is asked of all lanes, or of all who read one. Lanes are found by their rank (ranking.py); who stands in a
lane's oldest chunk is known by the chunk, and is looked at some at a time. A lane where nobody is late yet rests for
``REST_S``, so that a pool that stays over its limit costs a turn next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

from headway.core.base import Ranking, Reason
from headway.core.consumer import Spill, Subscription
from headway.core.log import GRACE_S, SPILL_BYTES_MIN, Chunk, Cursor, Lane, Pool
from headway.core.queue import Queue, queue_of

REST_S = GRACE_S / 4
LOOKS_MAX = 64
"""Lanes looked at in vain before it is enough for this time."""
SKIPS_MAX = 2048
"""Lanes passed over that hold much, and nothing that is worth writing: each a look at its last chunk."""
SPILLS_MAX = 256
"""Lanes of which something is sent to disk at once."""
STANDING_MAX = 256
"""Of those who stand in a chunk, so many are looked at at once."""

Holder = Subscription | Queue
"""Who keeps a lane from letting go of its oldest chunk; a queue only where it has no members to be given up."""

L = TypeVar("L")
S = TypeVar("S")


class Evictions(NamedTuple, Generic[S]):
    """Consumers, and queues without any, to give up, all of one feed, and why; ``used`` and ``limit`` in bytes."""

    holders: list[S]
    reason: Reason
    used: int
    limit: int


def to_spill(
    pool: Pool, resident: Ranking[L], now: float, looks_max: int = LOOKS_MAX, *,
    nothing_to_write: Callable[[L], bool] = lambda _: False,
) -> Iterator[tuple[L, int]]:  # fmt: skip
    """Lanes of the pool that should send so many bytes to disk (rules 1 and 2), each once. What one of them marks as
    on its way counts when the next is asked for. Those that have nothing to write are passed over, so many of them."""
    skips = SKIPS_MAX
    resident.wake(now)
    share_bytes = int(pool.memory_limit * pool.client_share)
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
    """Whom to give up now (rule 3), each time of the lane that holds the most of those where somebody is behind:
    ``in_memory`` by the first ranking, then by the next. Who is named must have been given up before the next are asked
    for."""
    if pool.disk_full:
        for found in _most_first(spilled, furthest_back, now, looks_max):
            yield Evictions(found, Reason.DISK_LIMIT, pool.disk_bytes, pool.disk_limit)
            if not pool.disk_full:
                return  # what should leave memory has room now
    # Nothing is on its way to disk though something should be: there is no disk, or nothing left that is worth it.
    if pool.to_spill_bytes() > 0 and not pool.spilling_bytes:
        for found in chain.from_iterable(_most_first(lanes, furthest_back, now, looks_max) for lanes in in_memory):
            yield Evictions(found, Reason.MEMORY_LIMIT, pool.memory_bytes, pool.memory_limit)
            if pool.to_spill_bytes() <= 0:
                break


def _most_first(
    lanes: Ranking[L], furthest_back: Callable[[L], list[S]], now: float, looks_max: int
) -> Iterator[list[S]]:
    """Those furthest back in the lane that holds the most, again and again."""
    lanes.wake(now)
    while looks_max and (lane := lanes.most()):
        if found := furthest_back(lane):
            yield found
        else:
            looks_max -= 1
            lanes.rest(lane, now + REST_S)


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


def spills(pool: Pool, journaled: float, now: float, lanes_max: float = SPILLS_MAX) -> list[Spill]:
    """Chunks that should leave memory now; of so many lanes, the others at the next turn. The journal has what it was
    given up to sequence ``journaled``."""
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
            pool.hopeless = False  # it may be taken yet
    return found


def spill_of(lane: Lane, wanted_bytes: int, journaled: float, now: float) -> Spill | None:
    """About so much of a lane, as far as it can leave memory; None: nothing can."""
    pool = lane.pool
    share = int(pool.disk_limit * pool.client_share) - lane.spilled_bytes
    room = min(pool.room_bytes(now), share)

    def may_leave(chunk: Chunk) -> bool:
        nonlocal room
        if chunk.kept and chunk.last_sequence <= journaled:
            return True
        if room < 0:
            return False
        room -= chunk.size
        return True

    chunks = lane.spillable(wanted_bytes, may_leave)
    return Spill(lane, chunks) if chunks else None


def evictions(pool: Pool, now: float) -> Iterator[Evictions[Holder]]:
    """Whom to give up now; nobody while everything fits. To be asked after ``spills``."""

    def furthest_back(lane: Lane) -> list[Holder]:
        found = _furthest_back(lane, now)
        if not found and pool.hopeless and lane.stuck(now):
            pool.close(lane)
        return found

    return to_give_up(pool, (pool.resident, pool.indexed), pool.spilled, furthest_back, now)


def _furthest_back(lane: Lane, now: float) -> list[Holder]:
    """Those who still need the oldest chunk of a lane, should have taken it by now, and can be given up; not always all
    at once."""
    oldest = lane.first
    if not len(oldest) or oldest.time_of(0) > now - GRACE_S:
        return []
    found: dict[Holder, None] = {}
    for cursor in list(islice(oldest.standing, STANDING_MAX)):
        cursor.step()
        if cursor.floor is oldest:
            oldest.standing[cursor] = oldest.standing.pop(cursor)  # to the back: next time others are looked at
            found |= dict.fromkeys(_late(cursor, oldest, now))
    return list(found)


def _late(cursor: Cursor, chunk: Chunk, now: float) -> list[Holder]:
    """Who is given up, that stands there by this cursor, for a chunk to be let go of."""
    owner = cursor.owner
    if isinstance(owner, Subscription):
        return [owner] if is_late(owner, now) and gives_way(owner) else []
    if not isinstance(owner, Queue):
        return []
    holders = owner.holders(chunk, now - GRACE_S)
    if owner.promises:
        holders = [member for member in holders if gives_way(member)]
    if holders or any(member.session.outlet is not None for member in owner.members):
        return [*holders]
    waiting = owner.backlog.oldest_time()
    late = waiting is not None and waiting <= now - GRACE_S and owner.backlog.wants(chunk)
    return [owner] if late and not (owner.promises and owner.backlog.head_is_held) else []


def gives_way(subscription: Subscription) -> bool:
    """Something would be freed if it were given up: it is connected; or it holds something, and nobody was promised
    what comes next for it."""
    if subscription.session.outlet is not None:
        return True
    cursor, shared = subscription.cursor, subscription.reader.queue
    if shared is not None:
        queue = queue_of(shared)
        return queue.gets_back_from(subscription) or (not queue.promises and queue.backlog.has_more)
    if subscription.promised:
        return subscription.has_more and not (cursor.unacknowledged or cursor.head_is_held)
    return subscription.has_more or bool(cursor.unacknowledged)


def is_late(subscription: Subscription, now: float) -> bool:
    """It holds what came, or what it was sent, long enough ago to have been taken, or acknowledged."""
    unsettled = subscription.oldest_unacknowledged_s() if subscription.cursor.unacknowledged else None
    waiting = subscription.oldest_time() if subscription.gating_bytes else None
    return any(since is not None and since <= now - GRACE_S for since in (unsettled, waiting))


def over_share(pool: Pool, subscription: Subscription, now: float) -> tuple[int, int] | None:
    """(used, limit) when the consumer's client takes up more than its share and has had the time to take it."""
    session = subscription.session
    over = beyond_share(pool, [(session.holdings.gating_bytes, session.holdings.disk_bytes)], now)
    if over is None:
        return None
    late = subscription in session.lagging and is_late(subscription, now)
    return over if late or any(is_late(other, now) for other in session.some_behind()) else None
