"""Memory: what leaves it, and who gives way, when it or the disk runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from headway.core.allowance import UNLIMITED
from headway.core.base import Ranking, Reason, format_count, format_size
from headway.core.clients import Ending
from headway.core.consumer import Session, Spill, Subscription
from headway.core.governance.moves import Cutter, write_off
from headway.core.governance.watching import VerdictLog, Watchlist, observe, with_peer
from headway.core.log import CHUNK_BYTES, GRACE_S, SPILL_BYTES_MIN, Chunk, Client, Cursor, Lane, Pool
from headway.core.policy import ActionKind, Reading, judge_pressure
from headway.core.queue import Queue, queue_behind, queue_of
from headway.core.routing import Registry

# -- pressure ----------------------------------------------------------------------------------------------------------
#
# Pressure: the rules for a pool whose memory or disk runs out, and for a client that takes more than its share.
#
# Rules, in order:
#
# 1. *Memory is over the high-water mark.* The oldest chunks of the lane that holds the most leave memory, once for all
#    cursors in them; or of one client's lanes, if it holds more in all of them together. These cursors are offline now.
#    No consumer loses a record, so there is no verdict. A chunk that the journal has is only dropped from memory, even
#    if
#    the spill's disk has failed. Any other chunk is written to the spill's disk if the disk works and has room, and if
#    the lane has no more than one client's share of it.
# 2. *One lane is over a client's share of the memory*, or one client is with all of its lanes together. Their chunks
#    leave memory even while there is room: at each tick, and those of a lane between two ticks as soon as they are a
#    portion that is worth a write (``Pool.lane_must_spill``).
# 3. *Disk is over its limit*, or one client's lag is over its share of the disk, or memory is over the mark and there
# is
#    no disk to write to. If one client holds more in all its lanes together than any lane holds, it is evicted: its
#    consumer that holds the most. Otherwise the consumers that are furthest back in the lane that holds the most are
#    evicted, all in the same oldest chunk together; otherwise the chunk would not be freed. Connected ones are
#    disconnected, which ends transient subscriptions. A durable subscription, or a queue without an owner, loses its
#    next
#    records as a gap, but only records that were not promised (QoS 0, not persistent, not confirmed). **Promised
#    records
#    stay**, so a durable consumer with no others is not evicted: it would free nothing, and a client that comes back to
#    more than its share could never take it. With ``biggest_client_first`` it is always the client that holds the most,
#    one after the other, though the records that several share are freed only when the last of them has gone.
# 4. *Promised records that cannot leave memory*, or whose index cannot, close their lane: when the lane takes up a
#    client's share of the memory, or when its pool is over the mark and rules 1 to 3 can do no more. What stays raises
#    the mark, so nobody gives way to bytes that stay anyhow. Publishers to a closed lane are not read until it is open
#    again; other publishers go on. A publisher that also reads the lane is held up only by the pool, because its own
#    acknowledgements may open the lane. A lane whose oldest records are not promised is not closed: a consumer is
#    evicted
#    for it, and meanwhile all publishers to the pool wait.
# 5. *Memory is over the limit itself*, because the disk is too slow. Publishers to this pool are not read until it has
#    room again.
#
# ``to_spill``, ``to_give_up`` and ``beyond_share`` are these rules on plain figures, so the Spark lab can apply them to
# recorded ones. The functions below them apply them to the broker's own lanes.
#
# No function here visits all lanes, or all consumers of one. Lanes and clients are found by rank (tables.py). A chunk
# knows its cursors, and a look takes some of them at a time. A lane without a late consumer rests for ``REST_S``, so a
# pool that stays over its limit costs a turn next to nothing.


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
CLIENTS_LOOKED_AT_MAX = 16
"""The number of clients that are looked at for what they should spill in one turn."""
SUBSCRIPTIONS_LOOKED_AT_MAX = 64
"""The number of a client's subscriptions that one look takes."""
MORE_BYTES = CHUNK_BYTES
"""A client holds more than a lane if it is more by this. What each client takes up besides records is usually less, so
consumers of one lane are evicted together."""

Holder = Subscription | Queue
"""A consumer that keeps a lane from dropping its oldest chunk; or a queue, if none of its members can be evicted."""

L = TypeVar("L")
S = TypeVar("S")
C = TypeVar("C")


class Evictions(NamedTuple, Generic[S]):
    """Holders of one lane, or of one client, to evict, and the reason. ``used`` and ``limit`` are bytes of the pool."""

    holders: list[S]
    by_client: bool
    reason: Reason
    used: int
    limit: int


class Ranked(NamedTuple, Generic[L, C]):
    """Rankings of lanes, which are gone through one after the other, and of clients."""

    lanes: Sequence[Ranking[L]]
    clients: Ranking[C]


class Givers(NamedTuple, Generic[L, C, S]):
    """Functions that return the holders of a lane, or of a client, that can be evicted now; if none can, it rests.
    """

    furthest_back: Callable[[L], list[S]]
    of_client: Callable[[C], list[S]]


def to_spill(
    pool: Pool, resident: Ranking[L], clients: Ranking[C], lanes_of: Callable[[C], list[L]], now: float,
    looks_max: int = LOOKS_MAX, *, nothing_to_write: Callable[[L], bool] = lambda _: False,
) -> Iterator[tuple[L, int]]:  # fmt: skip
    """Yields lanes of the pool with the bytes that each should spill (rules 1 and 2). ``lanes_of`` looks at a client
    and returns its lanes. The caller marks chunks as being spilled before it asks for the next lane. At most
    ``SKIPS_MAX`` lanes with nothing to write are skipped."""
    skips, clients_left = SKIPS_MAX, CLIENTS_LOOKED_AT_MAX
    resident.wake(now)
    clients.wake(now)
    share_bytes = pool.share_bytes
    asked: list[L] = []
    asked_clients: list[C] = []
    try:
        while looks_max:
            least = SPILL_BYTES_MIN if pool.to_make_room_bytes() > 0 else share_bytes + 1
            lane = resident.most(least)
            more = _more_than(pool, least if lane is None else resident.holds(lane), least)
            if clients_left and (client := clients.most(more)):
                clients_left -= 1
                lanes = lanes_of(client)
                over = clients.holds(client) - share_bytes
                for one in lanes if clients.holds(client) >= more else ():
                    held = resident.holds(one)
                    if (wanted := max(pool.to_make_room_bytes(), over)) <= 0:
                        break
                    if held >= SPILL_BYTES_MIN and not nothing_to_write(one):
                        yield one, wanted
                        over -= held - resident.holds(one)
                clients.forget(client)
                asked_clients.append(client)
                continue
            if lane is None:
                break
            if skips and nothing_to_write(lane):
                skips -= 1
                resident.forget(lane)
                asked.append(lane)
                continue
            held = resident.holds(lane)
            yield lane, max(pool.to_make_room_bytes(), held - share_bytes)
            looks_max -= resident.holds(lane) == held
            resident.forget(lane)
            asked.append(lane)
    finally:
        for lane in asked:
            resident.put(lane)
        for client in asked_clients:
            clients.put(client)


def to_give_up(
    pool: Pool, in_memory: Ranked[L, C], on_disk: Ranked[L, C], givers: Givers[L, C, S], now: float,
    looks_max: int = LOOKS_MAX,
) -> Iterator[Evictions[S]]:  # fmt: skip
    """Yields the holders to evict now (rule 3), each time those of the client or lane that holds the most. The caller
    evicts the holders before it asks for the next."""
    if pool.disk_full:
        for found, by_client in _most_first(pool, on_disk, givers, now, looks_max, lambda: pool.disk_full):
            yield Evictions(found, by_client, Reason.DISK_LIMIT, pool.disk_bytes, pool.disk_limit)
        if not pool.disk_full:
            return  # the disk has room now for chunks that should leave memory
    # Chunks should leave memory and none is being written: there is no disk, or nothing left that is worth writing.
    if not pool.spilling_bytes:
        for found, by_client in _most_first(pool, in_memory, givers, now, looks_max, lambda: pool.must_evict):
            yield Evictions(found, by_client, Reason.MEMORY_LIMIT, pool.memory_bytes, pool.memory_limit)


def _more_than(pool: Pool, lane_bytes: int, least: int = 1) -> int:
    """Returns how much a client has to hold to come before the lane that holds the most."""
    return least if pool.biggest_client_first else lane_bytes + MORE_BYTES


def _most_first(
    pool: Pool, ranked: Ranked[L, C], givers: Givers[L, C, S], now: float, looks_max: int, goes_on: Callable[[], bool]
) -> Iterator[tuple[list[S], bool]]:
    """Yields the holders of the client that holds the most, or those furthest back in the lane that does, and whether
    it is the client; as long as somebody has to give way. A lane counts by its figure in one of the rankings."""
    clients = ranked.clients
    clients.wake(now)
    for lanes in ranked.lanes:
        lanes.wake(now)
    while looks_max and goes_on() and (fullest := _fullest(ranked.lanes)):
        lanes, lane = fullest
        more = _more_than(pool, lanes.holds(lane))
        client = clients.most(more)
        found = givers.furthest_back(lane) if client is None else givers.of_client(client)
        if client is not None and clients.holds(client) < more:
            looks_max -= 1  # it holds less than it did at its last look
        elif found:
            yield found, client is not None
        else:
            looks_max -= 1
            if client is None:
                lanes.rest(lane, now + REST_S)
            else:
                clients.rest(client, now + REST_S)


def _fullest(rankings: Sequence[Ranking[L]]) -> tuple[Ranking[L], L] | None:
    """Returns the lane with the largest figure in any of the rankings, and that ranking."""
    found = [(lanes, lane) for lanes in rankings if (lane := lanes.most()) is not None]
    return max(found, key=lambda one: one[0].holds(one[1]), default=None)


def beyond_share(pool: Pool, lags: Iterable[tuple[int, int]], now: float, share: float) -> tuple[int, int] | None:
    """Returns (used, limit) if one client's lags are more than it may hold (AMPS calls this ClientMaxCapacity), even
    with room left in the pool.

    ``lags`` has for each lag the bytes of the lane that it holds, and how many of these are on disk. A lag that is over
    the client's share of the memory is written to disk. So the limit is a share of the disk, or a share of the memory
    if the pool cannot spill."""
    if pool.can_spill(now):
        limit = int(pool.disk_limit * share)
        used = sum(on_disk for _, on_disk in lags)
    else:
        limit = int(pool.memory_limit * share)
        used = sum(gating for gating, _ in lags)
    return (used, limit) if used > limit else None


def spills(pool: Pool, journaled: float, now: float, lanes_max: float = SPILLS_MAX) -> list[Spill]:
    """Returns the chunks that should leave memory now, of at most ``lanes_max`` lanes; the others follow in the next
    turn. The journal has written its records up to sequence ``journaled``."""
    found: list[Spill] = []
    pool.hopeless = True
    _close_for_index(pool, now)
    nothing_to_write = attrgetter("nothing_to_write")
    for lane, wanted in to_spill(
        pool, pool.resident, pool.clients, _lanes_of, now, nothing_to_write=nothing_to_write
    ):  # fmt: skip
        spill = spill_of(lane, wanted, journaled, now)
        if spill is not None:
            found.append(spill)
            if len(found) >= lanes_max:
                pool.hopeless = False
                break
        elif lane.stuck(now):
            lane.full = lane.over_share and not lane.spilling_bytes and not _furthest_back(lane, now)
            if lane.full:
                pool.close(lane)
        else:
            pool.hopeless = False  # consumers may still take these records
    return found


def _close_for_index(pool: Pool, now: float) -> None:
    """Closes the lane whose index takes up the most, if that is more than a client's share of the memory."""
    pool.indexed.wake(now)
    lane = pool.indexed.most(pool.share_bytes + 1)
    if lane is not None and lane.stays(now) and not _furthest_back(lane, now):
        lane.full = True
        pool.close(lane)
        pool.indexed.rest(lane, now + REST_S)


def _lanes_of(client: Client) -> list[Lane]:
    """Looks at a client. Returns its lanes, those with the most in memory first."""
    lanes = {one.feed.lane: None for one in _look_at(client)}
    return sorted(lanes, key=attrgetter("unspilled_bytes"), reverse=True)


def _look_at(client: Client) -> list[Subscription]:
    """Looks at some of a client's consumers, and returns them. Those in a topic's pool take up no room in the client's.
    """
    assert isinstance(client, Session)
    some = client.some_behind(SUBSCRIPTIONS_LOOKED_AT_MAX)
    behind = [one for one in some if not one.feed.key.pool.topic]
    client.look_at(*behind)
    return behind


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
        if not found and lane.stays(now):
            pool.close(lane)  # for this look; whether it stays closed is seen at its end
        return found

    in_memory = Ranked((pool.resident, pool.indexed), pool.clients)
    on_disk = Ranked((pool.spilled,), pool.clients_on_disk)
    return to_give_up(pool, in_memory, on_disk, Givers(furthest_back, lambda client: _of_client(client, now)), now)


def _of_client(client: Client, now: float) -> list[Holder]:
    """Looks at a client. Returns its consumer that holds the most, if most of what it holds is late and would be freed;
    or else nothing. Of a client that has ended, returns all that have still to end."""
    behind = _look_at(client)
    if behind and behind[0].session.ended:
        return [*behind]
    late = [one for one in behind if is_late(one, now) and gives_way(one, now)]
    if 2 * sum(one.gating_bytes for one in late) < sum(one.gating_bytes for one in behind):
        return []
    return [max(late, key=attrgetter("gating_bytes"))] if late else []


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


# -- relief ------------------------------------------------------------------------------------------------------------
#
# Relief makes room when a pool, or one client's share of it, is over its limit.
#
# The rules find the lanes to spill and the consumers to evict. ``Relief`` spills and evicts them, and opens lanes and
# pools again. An eviction disconnects a connected consumer. An absent consumer loses its next records instead
# (``moves.py``). In both cases there is a verdict.


CLOSED_LOOKS_MAX = 1024
"""The number of closed lanes of a pool that one turn looks at."""
EVICTIONS_MAX = 256
"""The number of oldest chunks for which one turn evicts holders."""
UNSENT_BYTES = 32 * 1024
"""A client with fewer unsent bytes than this is not evicted for them."""


class Relief:
    def __init__(
        self, registry: Registry, ending: Ending, watchlist: Watchlist, verdicts: VerdictLog, cutter: Cutter
    ) -> None:
        self._registry = registry
        self._ending = ending
        self._watchlist = watchlist
        self._verdicts = verdicts
        self._cutter = cutter
        self._pools = registry.distinct_pools()
        self._unreadable: dict[Subscription, str] = {}
        """Consumers whose records could not be read from disk, with the error. They are cut in the next turn."""

    def disk_failed(self, subscription: Subscription, error: OSError) -> None:
        """Remembers that a consumer's records could not be read from disk."""
        self._unreadable[subscription] = why_unreadable(error)

    def relieve(self, now: float) -> None:
        """Makes room in each pool that is over its limit, by the rules above."""
        while self._unreadable and self._cutter.cuts_left > 0:
            subscription = next(iter(self._unreadable))
            self.evict_unreadable(subscription, self._unreadable.pop(subscription), now)
        for pool in self._pools:
            pool.appended_bytes = 0
            self._registry.effects.extend(spills(pool, self._registry.journaled, now))
            for some in islice(evictions(pool, now), EVICTIONS_MAX):
                evicted = self._evict_all(some, now)
                pool.hopeless = False
                if not evicted or self._cutter.cuts_left <= 0:
                    break
            pool.hopeless = pool.hopeless and (pool.disk_full or pool.to_spill_bytes() > 0)
            self._open(pool, now)

    def go_on(self, now: float) -> None:
        """Lets publishers go on after a write. More leaves memory once it is worth a write, or at the next tick."""
        if any(pool.must_spill or pool.lane_must_spill for pool in self._pools):
            self.relieve(now)
            return
        for pool in self._pools:
            self._open(pool, now)

    def _open(self, pool: Pool, now: float) -> None:
        """Lets publishers go on where lanes, or the pool, have room again."""
        for lane in list(islice(pool.closed, CLOSED_LOOKS_MAX)):
            pool.close(lane)  # moves it to the back, with what it holds now
            if not lane.closed(now):
                pool.open(lane)
                self._registry.backpressure.resume(lane, now)
        if not pool.crowded:
            self._registry.backpressure.resume(pool, now)
        wanted = pool.wanted
        if wanted.size and (pool.fits(wanted.size) or not pool.makes_room(wanted.size, now)):
            wanted.size = 0
            self._registry.backpressure.resume(wanted, now)

    # -- shares -----------------------------------------------------------------------------------------------------

    def enforce_shares(self, subscription: Subscription, now: float) -> bool:
        """Evicts the consumer if its client takes up more than one client may. Returns whether it does."""
        return self._over_share(subscription, now) or self._holds_unsent(subscription, now)

    def _over_share(self, subscription: Subscription, now: float) -> bool:
        """Evicts the consumer of a client that holds more of lanes than its share, even with room in the pool."""
        if subscription.feed.key.pool.topic:
            return False  # what it holds there is no part of the share, so to evict it would free nothing
        pool, allowance = subscription.session.pool, UNLIMITED
        over = over_share(pool, subscription, now)
        if over is None:
            over, allowance = over_share_of_user(pool, subscription, now), subscription.session.allowance
        if over is None or not gives_way(subscription, now):
            return False
        used, limit = over
        why = f"it holds more than one client's share of the pool ({format_size(used)} of {format_size(limit)})"
        if allowance is not UNLIMITED:
            why = (f"the clients of user {allowance.user} hold more of the pool than {allowance.limits.name} permits "
                   f"({format_size(used)} of {format_size(limit)})")  # fmt: skip
            allowance.evicted()
        reading = Reading("pool_share", used / max(1, limit), ">", 1.0)
        why += f"; its client holds {_in_all(subscription.session)}"
        self.evict(subscription, Reason.CLIENT_SHARE, why, (reading,), now)
        return True

    def _holds_unsent(self, subscription: Subscription, now: float) -> bool:
        """Evicts the consumer of a client that does not read the bytes that were written for it alone, while all
        clients together are over their limit. These bytes are in no lane, so no lane counts them."""
        session, pool = subscription.session, subscription.session.pool
        unsent = session.count_unsent()
        if unsent < UNSENT_BYTES or pool.clients_bytes <= pool.clients_limit:
            return False
        if session.outlet.blocked_s(now) < GRACE_S:
            return False
        taken, limit = format_size(pool.clients_bytes), format_size(pool.clients_limit)
        why = (f"clients take up {taken} of {limit} besides records, "
               f"and it has not taken {format_size(unsent)} that are written for it alone")  # fmt: skip
        self.evict(subscription, Reason.CLIENT_MEMORY, why, (), now)
        return True

    # -- evictions --------------------------------------------------------------------------------------------------

    def _evict_all(self, evictions: Evictions[Holder], now: float) -> bool:
        """Evicts all holders. Returns False if this turn has no work left for all of them."""
        what = "disk" if evictions.reason is Reason.DISK_LIMIT else "memory"
        amounts = f"{format_size(evictions.used)} of {format_size(evictions.limit)}"
        reading = Reading("pool_share", evictions.used / max(1, evictions.limit), ">", 1.0)
        for holder in evictions.holders:
            if self._cutter.cuts_left <= 0:
                return False
            if isinstance(holder, Queue):
                if not holder.give_up_chunk(holder.feed.lane.first, evictions.reason):
                    return False
            else:
                held = _in_all(holder.session)
                why = f"it is furthest back (its client holds {held})"
                if evictions.by_client:
                    why = f"its client holds more than any other: {held}"
                why = f"{what} is over its limit ({amounts}) and {why}"
                self.evict(holder, evictions.reason, why, (reading,), now)
        return True

    def evict_unreadable(self, subscription: Subscription, why: str, now: float) -> None:
        """Evicts a consumer because its records cannot be read from disk."""
        self.evict(subscription, Reason.SPILL_FAILED, why, (), now, unreadable=True)

    def evict(
        self, subscription: Subscription, reason: Reason, why: str, readings: tuple[Reading, ...], now: float, *,
        unreadable: bool = False,
    ) -> None:  # fmt: skip
        """Evicts a consumer: records a verdict, disconnects it if it is connected, and writes off the records that it
        holds."""
        session = subscription.session
        departed = _departed(subscription)
        if subscription.ended and not departed:
            return
        if subscription.gone and not departed:
            self._ending.end(subscription, Reason.SUBSCRIPTION_ENDED, now)  # deferred work would end it later
            return
        pool = subscription.feed.key.pool
        if pool.disk_broken(now) and reason in (Reason.MEMORY_LIMIT, Reason.CLIENT_SHARE):
            reason, why = Reason.SPILL_FAILED, f"{why}; nothing can be written to disk ({pool.disk_error})"
        sample = with_peer(observe(self._registry, subscription, now, {}), subscription)
        durable = session.expiry_s > 0
        action = ActionKind.DISCARD if durable and not session.connected else ActionKind.DISCONNECT
        verdict = judge_pressure(
            reason, action, why, sample, number=self._verdicts.book.next_number(), now=now,
            wall_s=now + self._registry.wall_offset_s, client=session.client, filter=subscription.filter,
            listener=session.listener, readings=readings,
        )  # fmt: skip
        self._verdicts.record(subscription, verdict, now)
        if session.connected:
            self._cutter.cut(subscription, reason, verdict.text, now, connection=session.tab.shares.connection)
        if not subscription.ended:
            write_off(self._registry, self._ending, subscription, reason, now, unreadable=unreadable)
        elif departed:
            if not session.connected:  # else it comes back with the connection
                queue_of(subscription.reader.queue).give_back(subscription, reason)
            self._verdicts.recover(subscription, now)
            self._watchlist.remove(subscription)


def why_unreadable(error: OSError) -> str:
    return f"what it had not read could not be read back from disk ({error.strerror or error})"


def _in_all(session: Session) -> str:
    """Returns in words what a client holds in all. What waits for a shared group is nobody's in particular."""
    many, held = len(session.holdings), session.holdings.gating_bytes + session.tab.bytes
    if not many:
        return f"{format_size(held)} besides what waits for its shared groups and queues"
    return f"{format_size(held)} in {format_count(many)} subscription{'' if many == 1 else 's'}"


def _departed(subscription: Subscription) -> bool:
    """Tells whether the consumer has left its queue with unsettled records."""
    queue = queue_behind(subscription)
    return queue is not None and subscription in queue.members.departed and bool(subscription.window.used)
