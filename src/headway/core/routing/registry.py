"""The registry: all that there is (sessions, feeds, queues), and what is to be woken."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import msgspec

from headway.core.allowance import Allowance, Allowances
from headway.core.base import ROUNDS_WORK_MAX, DeferredWork, Reason, Timers, WorkSteps
from headway.core.consumer import (
    NO_OBSERVER,
    ArchiveIndex,
    ArchiveLag,
    Effect,
    Feed,
    RightsSource,
    Session,
    SharedReader,
    Subscription,
)
from headway.core.log import SESSION_BYTES, Ledger, NoLedger, Owners, Pool, Shares, Tab
from headway.core.message import Record, Run, covers, routing_key_of
from headway.core.policy import Lateness, Policy, policy_for, policy_for_any, policy_named
from headway.core.receipts import Receipts
from headway.core.routing.backpressure import Backpressure
from headway.core.routing.matching import Route, Router

if TYPE_CHECKING:
    from headway.core.consumer import Observer


# -- ended publishers --------------------------------------------------------------------------------------------------
#
# Ended publishers: sessions that have ended and whose records consumers may still lose. Their counters go on.
#
# They are bounded by number and by bytes, because clients choose the length of their names. The sessions that ended
# first are dropped first; records of theirs that consumers lose later are counted by reason only.


ENDED_PUBLISHERS_MAX = 10_000
ENDED_PUBLISHERS_BYTES_MAX = 32 * 1024 * 1024


class EndedPublishers:
    def __init__(self) -> None:
        self.bytes = 0
        self._by_number: OrderedDict[int, Session] = OrderedDict()

    def add(self, session: Session) -> None:
        self._by_number[session.number] = session
        self.bytes += _cost(session)
        while len(self._by_number) > ENDED_PUBLISHERS_MAX or self.bytes > ENDED_PUBLISHERS_BYTES_MAX:
            _, oldest = self._by_number.popitem(last=False)
            self.bytes -= _cost(oldest)

    def get(self, number: int) -> Session | None:
        return self._by_number.get(number)

    def values(self) -> Collection[Session]:
        return self._by_number.values()


def _cost(session: Session) -> int:
    return SESSION_BYTES + 2 * len(session.client) + 2 * len(session.username or "")


# -- overdue -----------------------------------------------------------------------------------------------------------
#
# Overdue work: work of queues on single records (dropping, sorting, handing out again) that is too much for one turn.
#
# Theory of operation. Dropping records is little work, unless they become dead letters, which are published anew, or
# wait one by one: those that were requeued, or that a selector has passed. A requeued record is handed out by itself.
# So all queues together share a limited amount of such work in a turn. Queues with more to do go on in the next turns;
# queues that did none in this turn come first. While a queue has records to drop or to sort, the broker reads no more
# records for it (``Broker.must_wait``). Otherwise their number could grow each turn.


OVERDUE_WORK = 1024
"""The work of one turn, in the server's units (server/connections/turn_budget.py): some 5 ms. It is done beside what
clients ask for in the same turn. A larger share would hand out no more in a second, for a turn itself costs little."""
DEAD_LETTER_WORK = 32
"""The work of publishing a dead letter."""
DROPPED_WORK = 24
"""The work of dropping a record that waits by itself."""
REQUEUED_WORK = 8
"""The work of handing out a requeued record."""
SORTED_WORK = 4
"""The work of sorting a record by priority."""
EXPIRED_WORK = 4
"""The work of dropping records in a row that came at once and have expired."""
REFUSED_WORK = 3
"""The work of taking back a record that a client refuses, beyond that of settling it."""


class Overdue:
    __slots__ = ("_last", "left", "queues")

    def __init__(self) -> None:
        self.left = OVERDUE_WORK
        """The work that this turn has left."""
        self.queues: dict[SharedReader, None] = {}
        """The queues that have more to do."""
        self._last: dict[SharedReader, None] = {}
        """The queues that have more to do and did some of it in this turn."""

    @property
    def begun(self) -> bool:
        """Tells whether work was done in this turn."""
        return self.left < OVERDUE_WORK

    def turn(self) -> dict[SharedReader, None]:
        """Begins a turn. Returns the queues that go on in it."""
        self.left = OVERDUE_WORK
        for queue in self._last:
            if queue in self.queues:
                del self.queues[queue]
                self.queues[queue] = None
        self._last = {}
        queues, self.queues = self.queues, {}
        return queues

    def put_off(self, queue: SharedReader, *, begun: bool) -> None:
        """Lets the queue go on in the next turn. ``begun`` says that it did some work in this one."""
        self.queues[queue] = None
        if begun:
            self._last[queue] = None

    def forget(self, queue: SharedReader) -> None:
        self.queues.pop(queue, None)
        self._last.pop(queue, None)


# -- recorded topics ---------------------------------------------------------------------------------------------------
#
# Recorded topics, as the core reads them. The null object stands for them where there is no journal.


class RecordedTopics(ArchiveIndex, Protocol):
    """Recorded topics, as subscribers read them. Times are wall clock times."""

    @property
    def wall_offset_s(self) -> float:
        """The wall clock less the monotonic clock."""

    def earliest(self, filter: str) -> int | None:
        """Returns the first offset from which on some topic has all its records; None if the filter is not recorded."""

    def complete(self, filter: str) -> bool:
        """Tells whether every record that the filter matches is recorded."""

    def before(self, filter: str, time_s: float) -> int:
        """Returns the last offset before a time."""

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        """Yields the runs that have records with ``after`` < offset <= ``upto``, each with its first offset and its
        time. Runs of other topics are among them. Raises OSError."""

    def stream_of(self, topic: str) -> str:
        """Returns the stream in which a topic is recorded; empty if it is not."""

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool], gone: Callable[[int, int], None],
        *, held: bool = False,
    ) -> Generator[Record | None, None, None]:  # fmt: skip
        """Yields the records with ``after`` < offset <= ``upto``, or None as a source of a backfill. Calls ``gone``
        with the first and last offset of what is not kept any more, when it comes to it; ``held``: not of what was
        deleted before this call. Raises OSError."""


class RecordedRecords:
    """Recorded records as a source of a backfill: those with ``after`` < offset <= ``upto`` (``RecordedTopics.read``).
    """

    held_bytes = 0

    def __init__(
        self, archive: RecordedTopics, filter: str, after: int, upto: int, accepts: Callable[[Record], bool],
        gone: Callable[[int, int], None], *, held: bool = False,
    ) -> None:  # fmt: skip
        self._archive = archive
        self._filter = filter
        self._upto = upto
        self._at = after
        """The offset of the last record; the end, if there are no more."""
        self._counted_at, self._waiting = -1, (0, 0)
        self._records = archive.read(filter, after, upto, accepts, gone, held=held)

    def __next__(self) -> Record | None:
        record = next(self._records, self)
        if isinstance(record, RecordedRecords):
            self._at = self._upto
            raise StopIteration
        if record is not None:
            self._at = record.sequence
        return record

    def close(self) -> None:
        self._at = self._upto
        self._records.close()

    def waiting(self) -> tuple[int, int]:
        """Counts the records of the topics that the filter touches, whatever a selector says. That is looked up in the
        index of each segment, so it is done once for each place."""
        if self._at >= self._upto:
            return 0, 0
        if self._at != self._counted_at:
            here, there = (self._archive.lag(self._filter, at + 1) for at in (self._at, self._upto))
            self._counted_at = self._at
            self._waiting = max(1, here.records - there.records), max(0, here.bytes - there.bytes)
        return self._waiting


class NothingRecorded:
    """No topics are recorded."""

    wall_offset_s = 0.0

    def earliest(self, filter: str) -> int | None:
        return None

    def complete(self, filter: str) -> bool:
        return False

    def before(self, filter: str, time_s: float) -> int:
        return 0

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        return iter(())

    def stream_of(self, topic: str) -> str:
        return ""

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool], gone: Callable[[int, int], None],
        *, held: bool = False,
    ) -> Generator[Record | None, None, None]:  # fmt: skip
        yield from ()

    def lag(self, filter: str, offset: int) -> ArchiveLag:
        return ArchiveLag(0, 0, 0, inf)


NOTHING_RECORDED: Final = NothingRecorded()


# -- totals ------------------------------------------------------------------------------------------------------------
#
# Totals: what was published, delivered and left out since the start, and how many consumers there are.


NO_TOPIC = "no_topic"


class Totals:
    def __init__(self) -> None:
        self.published_records = 0
        self.published_bytes = 0
        self.gap_records: Counter[Reason] = Counter()
        self.unpublished_records: Counter[str] = Counter()
        """Records that nobody waits with and that did not go where they were to go, by kind: wills, advisories and
        receipts for which there was no room; and as ``NO_TOPIC`` those whose routing key is no topic, which only queues
        have."""
        self.unpublished = ""
        """The last one for which there was no room."""
        self.missed = ""
        """The last one whose routing key is no topic, and its publisher."""
        self.delivered_records = 0
        self.delivered_bytes = 0
        """Totals of all subscriptions, also ended ones. Each counts as of its last ``count``."""
        self.consumers: Counter[str] = Counter()
        self.slow_consumers: Counter[str] = Counter()
        """The number of subscriptions, and of slow ones, by filter."""
        self.slow = 0
        """The number of slow subscriptions."""
        self.subscriptions = 0
        """The number of all of them."""

    def count(self, subscription: Subscription) -> None:
        """Brings the totals up to date with one subscription."""
        new = subscription.counters.add_to_total(subscription.delivered, self.gap_records)
        self.delivered_records += new.records
        self.delivered_bytes += new.bytes

    def count_missed(self, run: Run, publisher: str) -> None:
        """Counts records whose routing key is no topic, so that subscriptions, states or the journal do not have them.
        """
        self.unpublished_records[NO_TOPIC] += len(run)
        self.missed = f"{routing_key_of(run.topic)[:100]!a} by {publisher[:100]!a}"

    @property
    def missed_records(self) -> int:
        return self.unpublished_records[NO_TOPIC]

    @property
    def roomless_records(self) -> int:
        """Returns how many found no room."""
        return self.unpublished_records.total() - self.missed_records

    def slow_fraction(self, filter: str) -> float:
        return self.slow_consumers[filter] / max(1, self.consumers[filter])

    def count_consumers(self, filter: str, change: int) -> None:
        """Counts so many subscriptions more, or less if ``change`` is negative."""
        self.subscriptions += change
        _count(self.consumers, filter, change)

    def move(self, consumers: int, slow: int, old: Feed, new: Feed) -> None:
        """Counts so many consumers, of which so many are slow, for the feed that their queue reads now."""
        for feed, sign in ((old, -1), (new, 1)):
            self.count_consumers(feed.key.filter, sign * consumers)
            _count(self.slow_consumers, feed.key.filter, sign * slow)
            feed.slow += sign * slow

    def count_slow(self, subscription: Subscription, change: int) -> None:
        """Counts a subscription that is marked slow (1) or no longer is (-1)."""
        _count(self.slow_consumers, subscription.feed.key.filter, change)
        subscription.feed.slow += change
        self.slow += change
        if subscription.reader.queue is not None:
            subscription.reader.queue.count_slow(subscription, change)


def _count(counts: Counter[str], filter: str, change: int) -> None:
    counts[filter] += change
    if not counts[filter]:
        del counts[filter]  # clients choose filters, so there may be any number of them


# -- registry ----------------------------------------------------------------------------------------------------------
#
# The registry has the tables that all parts of the core work on, and the limits of clients.


class Choice(NamedTuple):
    """The policy that was chosen for a consumer of these names."""

    policies: tuple[Policy, ...]
    names: tuple[str, ...]
    durable: bool
    listener: str
    policy: Policy


T = TypeVar("T")
SORTED_QUEUES_MAX = 256
WAKES_AT_ONCE = 64
"""Members of queues that are looked at again at once when their session may take more; the others in the next turns."""


class Limits(msgspec.Struct, frozen=True):
    """The limits of one client's requests, by listener. Times are in seconds."""

    subscriptions_per_session_max: int = 10_000
    session_expiry_max_s: float = 7 * 86_400.0
    in_flight_max: int = 1024
    """Deliveries in flight to one client, even if the client permits more."""
    shares: Shares | None = None
    """Shares of the listener's pool; None: those of all its clients."""


class Registry:
    """Plain tables and counters. The rooms above (queue, clients, governance) change them."""

    def __init__(self, limits: dict[str, Limits], pools: dict[str, Pool], policies: tuple[Policy, ...],
                 sessions_max: int, priorities: Mapping[str, int]) -> None:
        self.limits = limits
        """By listener; ``""`` is for listeners without limits of their own."""
        self.sessions_max = sessions_max
        self.declared = Tab(pools[""])
        """Tab of exchanges, queues and bindings. They are on no client's tab, because they can outlive the client."""
        self.queue_owners = Owners(pools[""].owners.share)
        """The part of each owner in that: its queues and their bindings."""
        self.pools = pools
        """By listener; ``""`` is the global pool, for listeners without a pool of their own. Pools of topics are here
        as well, by their names."""
        self._topic_pools = {pool.topic: pool for pool in pools.values() if pool.topic}
        self.priorities = priorities
        """The priority of what a filter covers (``Feed.priority``); what none covers has 0."""
        for listener, one in limits.items():
            if one.shares is not None:
                pool = self.pool_of(listener)
                pool.lane_share = max(pool.lane_share, one.shares.client)
        self.policies = policies
        self.policies_version = 0  # rises with each reload that brings other ones
        self.trials: tuple[Policy, ...] = ()
        """Policies that judge beside those in force, and change nothing."""
        self.trials_mind_acks = self.trials_mind_silence = False
        self.router = Router(pools[""])
        self.sessions: dict[str, Session] = {}
        self.numbers: dict[int, Session] = {}
        self.ended_publishers = EndedPublishers()
        self.timers = Timers()
        self.receipts = Receipts(self.timers)
        self.deferred = DeferredWork()
        self.rounds = DeferredWork(ROUNDS_WORK_MAX)  # through all sessions, after a reload
        self.rights = RightsSource()
        self.lateness = Lateness()
        self.effects: list[Effect] = []
        self.overdue = Overdue()  # queues with records to drop or to sort
        self.returning = Overdue()  # queues with requeued records to hand out
        self.backpressure = Backpressure(lambda effect: self.effects.append(effect), self.timers, self.deferred)
        self.dirty: dict[Feed, None] = {}
        """Feeds whose lane has grown since the last flush."""
        self.ready_queues: dict[SharedReader, None] = {}
        """Queues that may be able to hand out more than at the last flush. They are dispatched in this turn."""
        self.put_off: dict[SharedReader, None] = {}  # ready queues for which the turns so far had no work left
        self.woken: dict[Session, int] = {}  # sessions with so many members of queues that are to be looked at again
        self.looks_for_room: dict[Route, bool | None] = {}
        """Findings of this turn about room on routes (``Intake.must_wait``). Very many publishers may ask about one
        route to very many consumers."""
        self.left: dict[Feed, None] = {}  # feeds that a queue no longer reads; their gates may be gone
        self.renamed: dict[SharedReader, None] = {}
        """Queues whose names for policies have changed; other policies may govern their consumers."""
        self.came_elsewhere: dict[Session, None] = {}  # sessions that came back on other terms
        self.came_back: dict[SharedReader | None, None] = {}  # queues to which records came back in this sweep
        self.unused: dict[SharedReader, None] = {}  # queues that a consumer left in this turn
        self.owned: dict[Session, dict[SharedReader, None]] = {}
        """Exclusive queues of each session, which end with it."""
        self.cuts: dict[tuple[object, ...], object] = {}
        """Records as cut by envelopes in this flush; members that get the same records share them."""
        self.handed_work = 0  # of handing out records of queues, in records that are cut (queue/dispatch.py); it grows
        self.watched: dict[Subscription, None] = {}
        """Consumers that the governor looks at: those that lag, and those with a rule that has not stepped back."""
        self.observer: Observer = NO_OBSERVER
        """Records telemetry; the null observer if telemetry is off."""
        self.ledger: Ledger = NoLedger()
        """Collects entries for the journal."""
        self.archive: RecordedTopics = NOTHING_RECORDED
        self._last_choice: Choice | None = None
        """The members of one queue, which has thousands of names, ask for their policy one after the other."""
        self.allowances = Allowances()
        self.totals = Totals()
        self.wall_offset_s = 0.0
        """Epoch seconds minus the broker's clock."""
        self.sequence = self.session_number = 0

    @property
    def journaled(self) -> int:
        """The sequence up to which all entries of the journal are on disk."""
        return self.ledger.written_sequence

    def count_durable_reader(self, feed: Feed, change: int) -> None:
        """Counts one durable reader of the feed more (1) or less (-1)."""
        feed.durable_readers += change
        if feed.durable_readers == (change > 0):
            self.router.forget()

    def close_if_unread(self, feed: Feed) -> None:
        """Closes a feed that has no readers any more."""
        if not feed.subscriptions and not feed.reading:
            self.router.remove_feed(feed)
            if feed.live is not None:
                feed.live.leave(feed)
            self.dirty.pop(feed, None)
            feed.lane.close()

    def pool_of(self, listener: str) -> Pool:
        return self.pools.get(listener) or self.pools[""]

    def pool_for(self, ways: Iterable[Sequence[str]], pool: Pool) -> Pool:
        """Returns the pool for a lane: that of the first topic that covers all filters of one of the ``ways`` to name
        it, else ``pool``."""
        return _first_covering(self._topic_pools, ways, pool)

    def priority_for(self, ways: Iterable[Sequence[str]]) -> int:
        """Returns the priority of a feed, by the first topic that covers all filters of one of the ``ways`` to name
        it."""
        return _first_covering(self.priorities, ways, 0)

    def limits_of(self, listener: str) -> Limits:
        return self.limits.get(listener) or self.limits[""]

    def subscriptions_of(self, client: str) -> Mapping[object, Subscription]:
        """Returns the subscriptions of a client by their names; none if there is no such client."""
        session = self.sessions.get(client)
        return {} if session is None else session.subscriptions

    def distinct_pools(self) -> list[Pool]:
        return list(dict.fromkeys(self.pools.values()))

    def policy_for(self, filter: str, durable: bool, listener: str) -> Policy:
        return policy_for(self.policies, filter, durable, listener)

    def policy_for_queue(self, filters: tuple[str, ...], durable: bool, listener: str) -> Policy:
        return policy_for_any(self.policies, filters, durable, listener)

    def policy_of(self, subscription: Subscription, among: tuple[Policy, ...] | None = None) -> Policy:
        """Returns the policy of a subscription that asked for none: the first that covers any of its names."""
        policies = self.policies if among is None else among
        names, durable = subscription.reader.names(subscription), subscription.durable
        listener, last = subscription.session.listener, self._last_choice
        if (
            last is None or last.names is not names or last.policies is not policies
            or (last.durable, last.listener) != (durable, listener)
        ):  # fmt: skip
            policy = policy_for_any(policies, names, durable, listener)
            last = self._last_choice = Choice(policies, names, durable, listener, policy)
        return last.policy

    def moved(self, members: int, slow: int, old: Feed, new: Feed) -> None:
        """Notes that a queue, which has so many members and slow ones, reads another feed than before."""
        self.totals.move(members, slow, old, new)
        if members and new is not old:
            self.observer.moved(old, new, members)

    def policy_named(self, name: str) -> Policy | None:
        return policy_named(self.policies, name)

    def lost(self, losses: dict[int, int], reason: Reason) -> None:
        """Adds records that a consumer did not get to the counters of their publishers."""
        for number, count in losses.items():
            publisher = self.numbers.get(number) or self.ended_publishers.get(number)
            if publisher is not None:
                publisher.lost_records[reason] += count

    def wake(self, session: Session) -> None:
        """Marks the session's queues as ready, because its members may have room or credit again. They come in the
        order in which they were served, also those that are ready already, unless there are very many."""
        queues = session.queues
        if 1 < len(queues) <= SORTED_QUEUES_MAX:
            for queue in queues:
                self.ready_queues.pop(queue, None)
        self.ready_queues |= queues
        if session.aside:
            self.woken[session] = len(session.aside)
            self.look_again(WAKES_AT_ONCE)

    def look_again(self, most: int) -> None:
        """Has queues look again at so many members of the sessions that were woken, in turn."""
        while self.woken and most > 0:
            session, count = next(iter(self.woken.items()))
            del self.woken[session]
            members = list(islice(session.aside, min(count, WAKES_AT_ONCE)))
            for member in members:
                del session.aside[member]
                if member.reader.queue is not None:
                    member.reader.queue.look_again(member)
            most -= 1 + len(members)
            if len(members) == WAKES_AT_ONCE < count:
                self.woken[session] = count - WAKES_AT_ONCE


def _first_covering(topics: Mapping[str, T], ways: Iterable[Sequence[str]], otherwise: T) -> T:
    """Returns the value of the first filter that covers all filters of one of the ``ways``."""
    if topics:
        ways = list(ways)
        for topic, value in topics.items():
            if any(all(covers(topic, filter) for filter in filters) for filters in ways):
                return value
    return otherwise


# -- session round -----------------------------------------------------------------------------------------------------
#
# A session round goes through all sessions, a slice a turn: what a reload changes for each of them.
#
# Rules:
# - A round that is asked for while one goes on makes this one go on, from where it is, until it has visited every
# session
#   since. So no session waits for longer than one round, however often the configuration is reloaded.
# - A visit is made of steps. What a visit has begun it ends, even if another round is asked for meanwhile.
# - Sessions that come during a round are not visited: they began under the new configuration.


VISIT_WORK = 1
"""The work of a visit that finds nothing to do."""


class SessionRound:
    """``visit`` does what is to be done for one session; ``over`` is called when every session was visited."""

    def __init__(self, registry: Registry, visit: Callable[[Session], WorkSteps],
                 over: Callable[[], None] = lambda: None) -> None:
        self._registry = registry
        self._visit = visit
        self._over = over
        self._asked = False
        self._last = 0
        """The number of the session that was visited last."""
        self.going = False

    def begin(self, now: float) -> None:
        """Visits all sessions, this turn's share of them at once."""
        self._asked = True
        if not self.going:
            self.going = True
            self._registry.rounds.begin(self._go(), now)

    def _go(self) -> WorkSteps:
        try:
            while self._asked:
                self._asked = False
                sessions = list(self._registry.numbers.values())  # their numbers ascend
                at = bisect_right(sessions, self._last, key=lambda session: session.number)
                yield VISIT_WORK + len(sessions) // 64
                for session in (*sessions[at:], *sessions[:at]):
                    yield VISIT_WORK
                    if not session.ended:
                        yield from self._visit(session)
                    self._last = session.number
                    if self._asked:
                        break
        finally:
            self.going = False
        self._over()


# -- recharging --------------------------------------------------------------------------------------------------------
#
# Recharging: each session is counted for its user's limits, after a reload has changed these.
#
# Sessions are visited over the turns to come (``SessionRound``). Until then a session is counted where it was, so a
# user whose first limit came with the reload may have a few connections more for a moment.


AllowanceOf = Callable[[Session], Allowance]


class Recharging:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._round = SessionRound(registry, self._visit, self._resume)
        self._allowance_of: AllowanceOf = lambda session: session.allowance

    def apply(self, allowance_of: AllowanceOf, now: float) -> None:
        """Counts each session for the user that ``allowance_of`` gives. Publishers that wait for a limit go on when all
        are counted, and wait again if they have to."""
        self._allowance_of = allowance_of
        self._round.begin(now)

    def _visit(self, session: Session) -> WorkSteps:
        session.charge(self._allowance_of(session))
        yield from ()

    def _resume(self) -> None:
        self._registry.backpressure.resume_rates(self._registry.rounds.now)
