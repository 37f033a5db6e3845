"""The registry: the tables everybody in the core works on, and the limits they hold to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Protocol

import msgspec

from headway.core.base import DeferredWork, Reason, Timers, WorkSteps, format_size
from headway.core.consumer import ArchiveIndex, Effect, Feed, Pause, Resume, Session, Subscription
from headway.core.log import Lane, Ledger, Pool, Tab
from headway.core.message import Record, Run
from headway.core.policy import Lateness, Policy, policy_for, policy_for_any, policy_named
from headway.core.routing.ended_publishers import EndedPublishers
from headway.core.routing.overdue import Overdue
from headway.core.routing.router import Router

if TYPE_CHECKING:
    from headway.core.consumer import Observer, SharedReader


class RecordedTopics(ArchiveIndex, Protocol):
    """Recorded topics, as those who subscribe see them. Times are the wall clock's."""

    @property
    def wall_offset_s(self) -> float:
        """The wall clock less the monotonic one."""

    def earliest(self, filter: str) -> int | None:
        """The first offset from which on its records are there; None: it is not recorded."""

    def complete(self, filter: str) -> bool:
        """Every record it matches is recorded."""

    def before(self, filter: str, time_s: float) -> int:
        """The last offset before a time."""

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        """Runs that have records with ``after`` < offset <= ``upto``, each with its first offset and its time; also of
        other topics. Raises OSError."""

    def stream_of(self, topic: str) -> str:
        """The stream a topic is recorded in; empty: it is not."""

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool]
    ) -> Generator[Record | None, None, None]:
        """The records with ``after`` < offset <= ``upto``; None as any source of a backfill. Raises OSError."""


Holdup = Feed | Lane | Pool | Ledger
"""What publishers wait for."""
RESUME_WORK = 4
"""Work of telling one publisher that it may go on."""


def pause_reason(by: object) -> str:
    """What a publisher is told that has to wait; ``by`` is a ``Holdup``."""
    if isinstance(by, Feed):
        return "consumers cannot keep up"
    if isinstance(by, Lane):
        return f"the room for what nobody takes is used up ({format_size(by.memory_bytes)} of memory)"
    return "memory is used up" if isinstance(by, Pool) else "the journal cannot follow"


class Limits(msgspec.Struct, frozen=True):
    """What one client of a listener may ask for. Times in seconds."""

    subscriptions_per_session_max: int = 10_000
    session_expiry_max_s: float = 7 * 86_400.0
    in_flight_max: int = 1024
    """Deliveries in flight to one client, whatever it says it can take."""


class Registry:
    """Who and what there is. Only plain tables and counters; who changes them is in the modules further down."""

    def __init__(self, limits: dict[str, Limits], pools: dict[str, Pool], policies: tuple[Policy, ...],
                 sessions_max: int) -> None:
        self.limits = limits
        """By listener; ``""`` is for every listener without its own."""
        self.sessions_max = sessions_max
        self.declared = Tab(pools[""])
        """What exchanges, queues and bindings take up: they are nobody's, for who declared them may be gone."""
        self.pools = pools
        """By listener; ``""`` is the global one, for every listener without its own."""
        self.policies = policies
        self.router = Router()
        self.sessions: dict[str, Session] = {}
        self.numbers: dict[int, Session] = {}
        self.ended_publishers = EndedPublishers()
        self.timers = Timers()
        self.deferred = DeferredWork()
        self.lateness = Lateness()
        self.effects: list[Effect] = []
        self.overdue = Overdue()
        """To be left out."""
        self.returning = Overdue()
        """To be handed out, out of order."""
        self.paused: dict[Holdup, dict[Session, None]] = {}
        """Publishers that are not read, by what holds them back."""
        self.dirty: dict[Feed, None] = {}
        """Feeds whose lane has grown since the last flush."""
        self.woken: dict[SharedReader, None] = {}
        """Queues that may be able to hand out more than at the last flush, though nothing came."""
        self.left: dict[Feed, None] = {}
        """Feeds that a queue reads no longer: what gates there were may be gone."""
        self.renamed: dict[SharedReader, None] = {}
        """Queues that go by other names: other policies may govern their consumers."""
        self.came_back: dict[SharedReader | None, None] = {}
        """Queues that had records given back in this sweep."""
        self.unused: dict[SharedReader, None] = {}
        """Queues that a consumer has left."""
        self.owned: dict[Session, dict[SharedReader, None]] = {}
        """Queues that end with a session."""
        self.cuts: dict[tuple[object, ...], object] = {}
        """Stretches of lanes taken apart in this flush, for all who are given the same."""
        self.watched: dict[Subscription, None] = {}
        """Consumers the governor looks at: those that lag, and those whose rules have not all stepped back."""
        self.consumers: Counter[str] = Counter()
        self.slow_consumers: Counter[str] = Counter()
        """Subscriptions, and slow ones, per filter."""
        self.slow = 0
        """All slow ones."""
        self.observer: Observer | None = None
        """Puts on record what is observed; None while nobody wants to know."""
        self.ledger: Ledger | None = None
        """What is to outlive the process; None: nothing is."""
        self.archive: RecordedTopics | None = None
        """Recorded topics; None: there are none."""
        self.wall_offset_s = 0.0
        """Epoch seconds minus the broker's clock."""
        self.sequence = 0
        self.session_number = 0
        self.published_records = 0
        self.published_bytes = 0
        self.gap_records: Counter[Reason] = Counter()
        self.delivered_records = 0
        self.delivered_bytes = 0
        """Of all subscriptions there ever were; of those that are, as of when each was last counted."""

    def count(self, subscription: Subscription) -> None:
        """Bring the totals up to date by one consumer."""
        new = subscription.counters.add_to_total(subscription.delivered, self.gap_records)
        self.delivered_records += new.records
        self.delivered_bytes += new.bytes

    @property
    def journaled(self) -> int:
        """The journal has what it was given up to this sequence."""
        return 0 if self.ledger is None else self.ledger.written_sequence

    def count_durable_reader(self, feed: Feed, change: int) -> None:
        """One more that is durable reads it (1), or one less (-1)."""
        feed.kept += change
        if feed.kept == (change > 0):
            self.router.forget()

    def close_if_unread(self, feed: Feed) -> None:
        """Let go of a feed whose last reader is gone."""
        if not feed.subscriptions and not feed.reading:
            self.router.remove_feed(feed)
            self.dirty.pop(feed, None)
            feed.lane.close()

    def pool_of(self, listener: str) -> Pool:
        return self.pools.get(listener) or self.pools[""]

    def limits_of(self, listener: str) -> Limits:
        return self.limits.get(listener) or self.limits[""]

    def distinct_pools(self) -> list[Pool]:
        return list(dict.fromkeys(self.pools.values()))

    def policy_for(self, filter: str, durable: bool, among: tuple[Policy, ...] | None = None) -> Policy:
        return policy_for(self.policies if among is None else among, filter, durable)

    def policy_for_queue(self, filters: tuple[str, ...], durable: bool) -> Policy:
        return policy_for_any(self.policies, filters, durable)

    def policy_of(self, subscription: Subscription, among: tuple[Policy, ...] | None = None) -> Policy:
        """The one that governs it unless it asked for another: the first of all that cover any of its names."""
        policies = self.policies if among is None else among
        return policy_for_any(policies, subscription.reader.names(subscription), subscription.durable)

    def moved(self, subscription: Subscription, feed: Feed) -> None:
        """Its queue reads another feed now."""
        old, slow = subscription.feed, subscription.case.slow
        self.count_consumer(old.key.filter, -1)
        self.count_consumer(feed.key.filter, 1)
        if slow:
            self.count_slow(subscription, -1)
        del old.subscriptions[subscription]
        feed.subscriptions[subscription] = None
        subscription.feed = feed
        if slow:
            self.count_slow(subscription, 1)

    def policy_named(self, name: str) -> Policy | None:
        return policy_named(self.policies, name)

    def slow_fraction(self, filter: str) -> float:
        return self.slow_consumers[filter] / max(1, self.consumers[filter])

    def count_consumer(self, filter: str, change: int) -> None:
        """There is one more (1), or one less (-1)."""
        _count(self.consumers, filter, change)

    def count_slow(self, subscription: Subscription, change: int) -> None:
        """A subscription is marked slow (1), or is no longer (-1)."""
        _count(self.slow_consumers, subscription.feed.key.filter, change)
        subscription.feed.slow += change
        self.slow += change

    def lost(self, losses: dict[int, int], reason: Reason) -> None:
        """Charge records some consumer was not given to their publishers' counters."""
        for number, count in losses.items():
            publisher = self.numbers.get(number) or self.ended_publishers.get(number)
            if publisher is not None:
                publisher.lost_records[reason] += count

    # -- backpressure to publishers ---------------------------------------------------------------------------------

    def pause(self, session: Session, by: Holdup, now: float) -> None:
        """Stop reading from a publisher on account of a feed's gate, a closed lane, a full pool, or a journal that is
        behind."""
        if session.outlet is None:
            return
        if not session.paused_by:
            session.paused_since_s = now
            session.pauses += 1
            self.effects.append(Pause(session, pause_reason(by)))
        session.paused_by[by] = None
        self.paused.setdefault(by, {})[session] = None

    def ungate(self, feed: Feed, now: float) -> None:
        """A consumer holds publishers back no longer, or is not the only one of its queue any more."""
        if feed.gated:
            own = next(gate.session for gate in feed.gates if gate.reader.gates)
            if own in self.paused.get(feed, ()) and not feed.holds_back(own):  # no publisher waits for itself
                del self.paused[feed][own]
                self._resume(own, feed, now)
            return
        if feed.was_gated:
            feed.was_gated = False
            feed.gated_s += now - feed.gated_since_s
        self.resume(feed, now)

    def resume(self, by: Holdup, now: float) -> None:
        """Reads again from publishers that waited only for this: as many as this turn has room for, and the others in
        turns to come."""
        waiting = self.paused.pop(by, None)
        if waiting:
            self.deferred.begin(self._resume_all(waiting, by), now)

    def _resume_all(self, waiting: dict[Session, None], by: Holdup) -> WorkSteps:
        for session in waiting:
            self._resume(session, by, self.deferred.now)
            yield RESUME_WORK

    def _resume(self, session: Session, by: Holdup, now: float) -> None:
        if by in session.paused_by:
            del session.paused_by[by]
            if not session.paused_by:
                session.stalled_s += now - session.paused_since_s
                self.effects.append(Resume(session))


def _count(counts: Counter[str], filter: str, change: int) -> None:
    counts[filter] += change
    if not counts[filter]:
        del counts[filter]  # clients choose them: there may be any number
