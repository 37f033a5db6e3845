"""The independent checker of one queue whose consumers select, own groups, come and go.

It knows what was published, what each consumer was given as its socket heard of it, and what the clients said. From
that it follows who may have each record that waits. Of the queue it is told only what the queue tells people: how many
records wait, in all and for each consumer, how many went to others, and how many it has left out, by reason.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from tests.core.test_queue_picking_seeded import wanted

from headway.core.base.errors import Reason
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.queue.picking import groups
from headway.core.queue.queue import Queue
from headway.core.telemetry.stats import Account, account

PRESSURE = frozenset({Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.CLIENT_SHARE})


class State(Enum):
    WAITS = "waits"
    RETURNS = "comes back from a channel that ended"
    HELD = "is with a consumer"
    DONE = "was settled"
    PASSED = "was passed over, so it must have been dropped"
    PURGED = "was purged"


class Facts(NamedTuple):
    """What was published."""

    number: int
    rank: int
    colour: str
    n: int
    group: str | None
    closes: bool
    published_s: float
    expires_s: float


class Record:
    """One record in one queue."""

    def __init__(self, facts: Facts, rank: int) -> None:
        self.facts = facts
        self.place = (-rank, facts.number)
        self.state = State.WAITS
        self.session: Session | None = None
        """Who has it, or had it last."""
        self.tried = False
        """It came back from somebody who had tried it."""


class Taker:
    """One consumer of a queue."""

    def __init__(self, name: str, selector: str | None, *, alone: bool) -> None:
        self.name = name
        self.selector = selector
        self.alone = alone
        self.subscription: Subscription
        self.gone = False
        self.got = 0
        self.elsewhere = 0
        """The records it wants that left the queue otherwise since it came: each time they did."""
        self.books: Account | None = None
        self.slow = False

    def wants(self, record: Record) -> bool:
        return wanted(self.selector, record.facts.colour, record.facts.n)


class Truth:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.records: dict[int, Record] = {}
        self.takers: list[Taker] = []
        """In the order they came."""
        self._waiting: list[tuple[int, int]] = []
        self._passed = 0
        self._owners: dict[str | int, Taker] = {}
        self.grouped = False

    def __str__(self) -> str:
        return f"queue {self.queue.name}"

    # -- who may have what ------------------------------------------------------------------------------------------

    def owner(self, group: str) -> Taker | None:
        """Who has the group. Beyond a number of groups several share one owner, by their names."""
        return self._owners.get(group) or self._owners.get(_bucket(group))

    def eligible(self, taker: Taker) -> bool:
        alone = [other for other in self.takers if other.alone]
        return taker is (alone or self.takers)[0] if alone or self.queue.terms.single_active else True

    def may_have(self, taker: Taker, record: Record) -> bool:
        """Whoever else has room."""
        group = record.facts.group
        return taker.wants(record) and (group is None or self.owner(group) in (None, taker))

    def waiting(self) -> Iterator[Record]:
        """In the order of the queue."""
        return (self.records[number] for _, number in self._waiting)

    def for_taker(self, taker: Taker, *, returning: bool = False) -> list[Record]:
        """``returning``: also what comes back within the step."""
        coming = [record for record in self.records.values() if record.state is State.RETURNS] if returning else []
        return [record for record in (*self.waiting(), *coming) if self.may_have(taker, record)]

    # -- what happens -----------------------------------------------------------------------------------------------

    def published(self, facts: Facts) -> None:
        record = self.records[facts.number] = Record(facts, min(facts.rank, self.queue.terms.priorities))
        ttl_s = self.queue.terms.ttl_s
        if ttl_s is not None:
            record.facts = facts._replace(expires_s=min(facts.expires_s, facts.published_s + ttl_s))
        self.grouped |= facts.group is not None
        insort(self._waiting, record.place)

    def _to(self, record: Record, state: State) -> None:
        if record.state is State.WAITS:
            self._waiting.remove(record.place)
        record.state = state
        if state is State.WAITS:
            insort(self._waiting, record.place)

    def given(self, taker: Taker, number: int, redelivered: bool, now: float) -> Record:
        """It is handed out: may this consumer have it, and is it its turn?"""
        record = self._left(number, redelivered, now, taker)
        facts = record.facts
        assert not taker.gone
        self._look_for_cut()
        assert self.eligible(taker), f"{self}: {number} went to {taker.name}, and another one gets all"
        assert taker.wants(record), f"{taker.name} selects {taker.selector}, and was given {facts}"
        owner = None if facts.group is None else self.owner(facts.group)
        assert owner in (None, taker), f"{self}: {number} of {facts.group} went to {taker.name}, not to {owner.name}"
        for earlier in list(self.waiting()):
            if earlier.place >= record.place:
                break
            if earlier.facts.expires_s > now and self.may_have(taker, earlier):  # left out, or out of order
                self._pass(earlier)
        if facts.group is not None:
            self._group_goes_to(taker, facts.group, closes=facts.closes)
        taker.got += 1
        self._to(record, State.HELD)
        return record

    def _look_for_cut(self) -> None:
        """Who is being cut is no consumer any more; an effect tells of it later."""
        for taker in list(self.takers):
            if taker.subscription.session.ended:
                self.left(taker)

    def fetched(self, number: int, redelivered: bool, now: float) -> Record:
        """A client asked for the next one."""
        record = self._left(number, redelivered, now, None)
        for earlier in list(self.waiting()):
            if earlier.place >= record.place:
                break
            if earlier.facts.expires_s > now:
                self._pass(earlier)
        self._to(record, State.HELD)
        return record

    def _left(self, number: int, redelivered: bool, now: float, by: Taker | None) -> Record:
        record = self.records.get(number)
        assert record is not None, f"{self}: {number} was never put into it"
        if record.state is State.HELD and record.session is not None and record.session.ended:
            self.back(record, tried=True)
        assert record.state in (State.WAITS, State.RETURNS), f"{self}: {number} is given, and {record.state.value}"
        assert bool(redelivered) == record.tried, f"{self}: {number} is marked {redelivered}"
        assert record.facts.expires_s > now, f"{self}: {number} has expired"
        for taker in self.takers:
            taker.elsewhere += taker is not by and taker.wants(record)
        return record

    def _pass(self, record: Record) -> None:
        self._to(record, State.PASSED)
        self._passed += 1
        assert self._passed <= self._dropped(), f"{self}: {record.facts.number} was passed over"

    def _group_goes_to(self, taker: Taker, group: str, *, closes: bool) -> None:
        if closes:
            self._owners.pop(group, None)
        elif self.owner(group) is None:
            self._owners[group if len(self._owners) < groups.GROUPS_MAX else _bucket(group)] = taker

    def back(self, record: Record, *, tried: bool, returns: bool = False) -> None:
        """``returns``: its channel has ended, so it comes back within the step."""
        record.tried |= tried
        self._to(record, State.RETURNS if returns else State.WAITS)

    def settled(self, record: Record) -> None:
        self._to(record, State.DONE)

    def purged(self) -> None:
        for record in list(self.waiting()):
            self._to(record, State.PURGED)
            for taker in self.takers:
                taker.elsewhere += taker.wants(record)

    def came(self, taker: Taker) -> None:
        if taker.alone and not any(other.alone for other in self.takers):
            self._owners.clear()  # from now on it gets everything
        self.takers.append(taker)

    def left(self, taker: Taker) -> None:
        if taker.gone:
            return
        taker.gone = True
        self.takers.remove(taker)
        self._owners = {name: owner for name, owner in self._owners.items() if owner is not taker}

    # -- sums -------------------------------------------------------------------------------------------------------

    def _dropped(self) -> int:
        """How many the queue has left out before they expired."""
        told = self.queue.drops.by_reason
        return told.total() - told[Reason.REJECTED] - told[Reason.PURGED] - told[Reason.EXPIRED]

    def unknown(self) -> int:
        """How many of those that wait here and have not expired the queue has left out, as it says."""
        return self._dropped() - self._passed

    def at_rest(self, now: float) -> None:
        """After each turn: what came back is there, and the sums are right."""
        for record in self.records.values():
            if record.state is State.RETURNS:
                self._to(record, State.WAITS)
        lag, told = self.queue.backlog.lag_records, self.queue.drops.by_reason
        unknown = self.unknown() + told[Reason.EXPIRED]
        assert lag + unknown == len(self._waiting), f"{self}: {lag} wait, not {len(self._waiting)}: {told}"
        held = sum(record.state is State.HELD for record in self.records.values())
        assert self.queue.backlog.unacknowledged == held, f"{self}: {held} are with consumers"
        mortal = sum(record.facts.expires_s <= now for record in self.records.values())
        assert told[Reason.EXPIRED] <= mortal, f"{self}: {told[Reason.EXPIRED]} expired, {mortal} could have"
        for taker in self.takers:
            self._books(taker)

    def _books(self, taker: Taker) -> None:
        """What the consumer is told to have waiting for it, and to have missed, it does, and did."""
        books, mine = account(taker.subscription), len(self.for_taker(taker))
        looks = self.queue.picking.looks_for(taker.subscription)
        most = mine if looks else len(self._waiting)
        assert books.drained_records == taker.got, f"{taker.name}: {books}, {taker.got} were given to it"
        assert 0 <= books.lag_records <= most, f"{taker.name}: {books}, {most} wait for it"
        assert (books.lag_records > 0) == taker.subscription.has_more, f"{taker.name}: {books}"
        assert (books.lag_records > 0) == (books.lag_bytes > 0), f"{taker.name}: {books}"
        most = taker.elsewhere + self._dropped() + self.queue.drops.by_reason[Reason.EXPIRED]
        within = not looks or 0 <= books.skipped_records <= most
        assert within, f"{taker.name}: {books}, {taker.elsewhere} went elsewhere"
        before, taker.books = taker.books or books, books
        assert books.skipped_records >= before.skipped_records, f"{taker.name}: {before}, then {books}"


def _bucket(group: str) -> int:
    return crc32(group.encode()) % groups.BUCKETS
