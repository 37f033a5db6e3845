"""The registry has the tables that all parts of the core work on, and the limits of clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from headway.core.allowance import Allowance, Allowances
from headway.core.base import ROUNDS_WORK_MAX, DeferredWork, Reason, Timers, WorkSteps, format_size
from headway.core.consumer import (
    NO_OBSERVER,
    Effect,
    Feed,
    Pause,
    Resume,
    RightsSource,
    Session,
    Subscription,
)
from headway.core.log import Coming, Lane, Ledger, NoLedger, Owners, Pool, RoomWanted, Shares, Tab
from headway.core.message import covers
from headway.core.policy import Lateness, Policy, policy_for, policy_for_any, policy_named
from headway.core.receipts import Receipts
from headway.core.routing.matching import Route, Router
from headway.core.routing.registry.ended_publishers import EndedPublishers
from headway.core.routing.registry.overdue import Overdue
from headway.core.routing.registry.recorded_topics import NOTHING_RECORDED, RecordedTopics
from headway.core.routing.registry.totals import Totals

if TYPE_CHECKING:
    from headway.core.consumer import Observer, SharedReader


class Choice(NamedTuple):
    """The policy that was chosen for a consumer of these names."""

    policies: tuple[Policy, ...]
    names: tuple[str, ...]
    durable: bool
    listener: str
    policy: Policy


class WideRecords:
    """Holds up publishers whose next record goes to very many lanes (publishing/appending.py), while others are on
    their way there. They go on one by one, in the order in which they came."""

    def __init__(self) -> None:
        self.coming: dict[Coming, None] = {}


Holdup = Feed | Lane | Pool | RoomWanted | WideRecords | Ledger | Allowance
"""An object that can hold up publishers: a feed with a gate, a closed lane, a full pool, one without room for the next
record, records on their way to very many lanes, a journal that is behind, a user's allowance that is used up for now.
"""
T = TypeVar("T")
SORTED_QUEUES_MAX = 256
WAKES_AT_ONCE = 64
"""Members of queues that are looked at again at once when their session may take more; the others in the next turns."""
RESUME_WORK = 4
"""The work of resuming one publisher."""


def pause_reason(by: object) -> str:
    """Returns, in words, the reason why a publisher has to wait; ``by`` is a ``Holdup``."""
    if isinstance(by, Feed):
        return "consumers cannot keep up"
    if isinstance(by, Lane):
        return f"records that consumers do not take use up their room ({format_size(by.memory_bytes)} of memory)"
    if isinstance(by, WideRecords):
        return "a record before its next one is on its way to very many consumers"
    if isinstance(by, Allowance):
        return by.wait_reason
    if isinstance(by, Pool):
        return f"the memory for {by.topic[:100]!a} is used up" if by.topic else "memory is used up"
    if isinstance(by, RoomWanted):
        return f"its next record takes up {format_size(by.size)} in all lanes together, for which there is no room yet"
    return "the journal cannot follow"


def is_out_of_room(paused_by: Iterable[object]) -> bool:
    """Returns whether publishers wait for memory, and not for consumers that gate them or for a rate."""
    return any(isinstance(by, Lane | Pool | RoomWanted) for by in paused_by)


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
        self.paused: dict[Holdup, dict[Session, None]] = {}
        """Publishers that are not read, by what holds them up."""
        self.wide = WideRecords()
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
        self.handed_work = 0  # of handing out records of queues, in records that are cut (queue/writing.py); it grows
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

    # -- backpressure to publishers ---------------------------------------------------------------------------------

    def pause(self, session: Session, by: Holdup, now: float) -> None:
        """Stops reading from a publisher because of a feed's gate, a closed lane, a full pool, or a journal that is
        behind."""
        if not session.connected:
            return
        if not session.paused_by:
            session.paused_since_s = now
            session.pauses += 1
            self.effects.append(Pause(session, session.outlet, pause_reason(by)))
        session.paused_by[by] = None
        self.paused.setdefault(by, {})[session] = None

    def spend(self, session: Session, now: float) -> None:
        """Counts what the client has published since the last call, and has it wait if its user may publish no more."""
        records, size = session.published_records, session.published_bytes
        session.allowance.spend(records - session.spent_records, size - session.spent_bytes, now)
        session.spent_records, session.spent_bytes = records, size
        self.keep_to_rate(session, now)

    def keep_to_rate(self, session: Session, now: float) -> None:
        """Has the publisher wait if its user has published as much as it may for now."""
        allowance = session.allowance
        wait_s = allowance.wait_s(now)
        if wait_s > 0 and session.connected:
            if allowance not in session.paused_by:
                allowance.waits()
            self.pause(session, allowance, now)
            if not allowance.timer.waits:
                allowance.timer = self.timers.at(now + wait_s, partial(self._paid, allowance))

    def _paid(self, allowance: Allowance, now: float) -> None:
        """Lets publishers go on if what their user has published is paid for; others may have published meanwhile."""
        wait_s = allowance.wait_s(now)
        if wait_s > 0:
            allowance.timer = self.timers.at(now + wait_s, partial(self._paid, allowance))
        else:
            self.resume(allowance, now)

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

    def ungate(self, feed: Feed, now: float) -> None:
        """Resumes publishers that a gate held up, after a gate was opened or a queue got another consumer."""
        if feed.gated:
            own = next(gate.session for gate in feed.gates if gate.reader.gates)
            if own in self.paused.get(feed, ()) and not feed.holds_back(own):  # a publisher never waits for itself
                del self.paused[feed][own]
                self._resume(own, feed, now)
            return
        if feed.was_gated:
            feed.was_gated = False
            feed.gated_s += now - feed.gated_since_s
        self.resume(feed, now)

    def resume(self, by: Holdup, now: float) -> None:
        """Resumes publishers that waited only for this: as many as this turn has work left for, and the others in the
        turns to come."""
        waiting = self.paused.pop(by, None)
        if waiting:
            self.deferred.begin(self._resume_all(waiting, by), now, client=by)

    def resume_one(self, by: Holdup, now: float) -> None:
        """Resumes the publisher that has waited longest for this."""
        waiting = self.paused[by]
        while waiting:
            session = next(iter(waiting))
            del waiting[session]
            if by in session.paused_by:
                self._resume(session, by, now)
                break
        if not waiting:
            del self.paused[by]

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


def _first_covering(topics: Mapping[str, T], ways: Iterable[Sequence[str]], otherwise: T) -> T:
    """Returns the value of the first filter that covers all filters of one of the ``ways``."""
    if topics:
        ways = list(ways)
        for topic, value in topics.items():
            if any(all(covers(topic, filter) for filter in filters) for filters in ways):
                return value
    return otherwise
