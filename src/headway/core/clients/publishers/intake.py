"""Intake: what publishers ask for. A publisher that has to wait from now on is told to the operator, as a fast one."""

from __future__ import annotations

from headway.core.allowance import UNLIMITED
from headway.core.consumer import Session, SharedReader
from headway.core.delivery import Fanout
from headway.core.message import Run
from headway.core.routing import Advisories, Published, PublishedRuns, PublishedSlice, Publishing, Registry, Route

UNTOLD_MAX = 1024
"""Receipts that are closed and not told, from which on nobody may ask for more."""
ADVISORIES_WAITING_MAX = 1024


class Intake:
    """Publishes runs while there is room for them."""

    def __init__(self, registry: Registry, publishing: Publishing, fanout: Fanout, advisories: Advisories) -> None:
        self._registry = registry
        self._publishing = publishing
        self.check_room, self.takes_at_once = publishing.check_room, publishing.takes_at_once
        self.is_wide, self.has_its_turn = publishing.is_wide, publishing.has_its_turn
        self._fanout = fanout
        self.advisories = advisories
        self._pools = registry.distinct_pools()

    def publish(self, session: Session | None, runs: list[Run], now: float) -> int:
        taken = self._publishing.publish(session, runs, now)
        self._published(session, now)
        return taken

    @property
    def short_of_room(self) -> bool:
        """Tells whether there may be no room for more records; see ``must_wait``."""
        for pool in self._pools:
            if pool.closed or pool.crowded:
                break
        else:
            registry = self._registry
            return bool(self._fanout.unfinished or registry.overdue.queues or registry.put_off
                        or len(registry.receipts.done) >= UNTOLD_MAX)  # fmt: skip
        return True

    def must_wait(self, session: Session, run: Run, now: float) -> bool:
        """Tells whether a publisher has to wait before the first record of a read is published.

        It waits if there is no room for the record. It also waits if records before it are not yet offered to all
        consumers, or not yet dropped, which may take several turns, and if it asks for a receipt while very many are
        not told. Without this check a client that connects again and
        again would get in one read each time."""
        if self.lacks_room(session, run, now):
            return True
        if not self.short_of_room:
            return False
        if run.receipt is not None and len(self._registry.receipts.done) >= UNTOLD_MAX:
            return True
        route, looks = self._publishing.route(run), self._registry.looks_for_room
        if route not in looks:
            looks[route] = self._look(route)
        if (look := looks[route]) is not None:
            return look
        waits = self._publishing.must_wait(session, route, now)
        if waits and session.paused_since_s == now:
            self._tell_fast(session, now)
        return waits

    def lacks_room(self, session: Session, run: Run, now: float, start: int = 0) -> bool:
        """Tells whether the publisher has to wait because its next record takes up more than there is room for."""
        waits = self._publishing.lacks_room(session, run, now, start)
        if waits and session.paused_since_s == now:
            self._tell_fast(session, now)
        return waits

    def crowds(self, run: Run) -> bool:
        """True if the run would go to a topic's pool that is crowded, so that what a client that has left published is
        not taken any more."""
        return self.short_of_room and any(
            feed.key.pool.topic and feed.key.pool.crowded for feed in self._publishing.route(run).feeds
        )

    def _look(self, route: Route) -> bool | None:
        """Tells whether all publishers to this route wait, or whether there is room for all. None: that differs."""
        late = [some for some in (self._registry.overdue.queues, self._registry.put_off) if some]
        strained = {pool for pool in self._pools if pool.hopeless or pool.full or pool.crowded}
        tight = False
        for feed in route.feeds:
            queues = feed.queues
            if feed.left or (late and queues and any(_share(some, queues) for some in late)):
                return True
            tight = tight or feed.lane.full
            if strained and not tight and (pool := feed.key.pool) in strained:
                tight = pool.hopeless or pool.full_for(feed.lane)
        return None if tight else False

    def _tell_fast(self, session: Session, now: float) -> None:
        """Tells operators. The advisories say how many pauses there were, so that those left out are told later. Who
        waits for a record of its own to reach very many consumers is not fast."""
        if self.advisories.waiting < ADVISORIES_WAITING_MAX and self._registry.wide not in session.paused_by:
            self.advisories.tell("fast_producer", session.client, now, pauses=session.pauses)

    def publish_some(self, session: Session, runs: list[Run], now: float, work_max: float) -> PublishedRuns:
        """Publishes these runs, from the first on, until ``work_max`` is used up."""
        some = self._publishing.publish_some(session, runs, now, work_max)
        if some.refused is None or session.allowance is not UNLIMITED:
            self._published(session, now)
        return some

    def publish_slice(self, session: Session, run: Run, now: float, start: int = 0) -> PublishedSlice:
        """Publishes a slice of a run to its exchange, from record ``start`` on."""
        done = self._publishing.publish_slice(session, run, now, start)
        self._published(session, now)
        return done

    def publish_to(self, session: Session | None, run: Run, now: float) -> Published:
        """Publishes a run to its exchange (``run.exchange``)."""
        published = self._publishing.publish_to(session, run, now)
        self._published(session, now)
        return published

    def _published(self, session: Session | None, now: float) -> None:
        """Tells operators if the publisher has to wait now, because others do not keep up. One that has published more
        than its user may a second waits, too. What the broker itself publishes has no session."""
        if session is None:
            return
        if session.paused_by and session.paused_since_s == now:
            self._tell_fast(session, now)
        if session.allowance is not UNLIMITED:
            self._registry.spend(session, now)


def _share(some: dict[SharedReader, None], others: dict[SharedReader, None]) -> bool:
    """Tells whether a queue is in both. Looks through the smaller one."""
    if len(others) == 1:  # most feeds are read by one queue
        return next(iter(others)) in some
    few, many = (some, others) if len(some) < len(others) else (others, some)
    return any(queue in many for queue in few)
