"""Relief makes room when a pool, or one client's share of it, is over its limit.

``pressure.py`` finds the lanes to spill and the consumers to evict. This file spills and evicts them, and opens lanes
and pools again. An eviction disconnects a connected consumer. An absent consumer loses its next records instead
(``write_off.py``). In both cases there is a verdict.
"""

from __future__ import annotations

from itertools import islice

from headway.core.allowance import UNLIMITED
from headway.core.base import Reason, format_count, format_size
from headway.core.clients import Ending
from headway.core.consumer import Session, Subscription
from headway.core.governance.memory import pressure
from headway.core.governance.moves import Cutter, write_off
from headway.core.governance.watching import VerdictLog, Watchlist, observe, with_peer
from headway.core.log import GRACE_S, Pool
from headway.core.policy import ActionKind, Reading, judge_pressure
from headway.core.queue import Queue, queue_behind
from headway.core.routing import Registry

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
        """Makes room in each pool that is over its limit, by the rules of pressure.py."""
        while self._unreadable and self._cutter.cuts_left > 0:
            subscription = next(iter(self._unreadable))
            self.evict_unreadable(subscription, self._unreadable.pop(subscription), now)
        for pool in self._pools:
            pool.appended_bytes = 0
            self._registry.effects.extend(pressure.spills(pool, self._registry.journaled, now))
            for evictions in islice(pressure.evictions(pool, now), EVICTIONS_MAX):
                evicted = self._evict_all(evictions, now)
                pool.hopeless = False
                if not evicted or self._cutter.cuts_left <= 0:
                    break
            pool.hopeless = pool.hopeless and (pool.disk_full or pool.to_spill_bytes() > 0)
            self._open(pool, now)

    def go_on(self, now: float) -> None:
        """Lets publishers go on after a write. More leaves memory once it is worth a write, or at the next tick."""
        if any(pool.strained or pool.ripe for pool in self._pools):
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
                self._registry.resume(lane, now)
        if not pool.crowded:
            self._registry.resume(pool, now)
        wanted = pool.wanted
        if wanted.size and (pool.fits(wanted.size) or not pool.makes_room(wanted.size, now)):
            wanted.size = 0
            self._registry.resume(wanted, now)

    # -- shares -----------------------------------------------------------------------------------------------------

    def enforce_shares(self, subscription: Subscription, now: float) -> bool:
        """Evicts the consumer if its client takes up more than one client may. Returns whether it does."""
        return self._over_share(subscription, now) or self._holds_unsent(subscription, now)

    def _over_share(self, subscription: Subscription, now: float) -> bool:
        """Evicts the consumer of a client that holds more of lanes than its share, even with room in the pool."""
        if subscription.feed.key.pool.topic:
            return False  # what it holds there is no part of the share, so to evict it would free nothing
        pool, allowance = subscription.session.pool, UNLIMITED
        over = pressure.over_share(pool, subscription, now)
        if over is None:
            over, allowance = pressure.over_share_of_user(pool, subscription, now), subscription.session.allowance
        if over is None or not pressure.gives_way(subscription, now):
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

    def _evict_all(self, evictions: pressure.Evictions[pressure.Holder], now: float) -> bool:
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
