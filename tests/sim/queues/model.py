"""The independent checker of one queue: what was put into it, and what each consumer was therefore right to be given.

It knows what was published, every byte that a pretended socket was offered and took, and what clients did about it. Of
the queue it is told only what the queue tells people: how many records wait, and how many it has left out, by reason.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from headway.core.base.errors import Reason
from headway.core.consumer.channel import Channel
from headway.core.consumer.request import QueueTerms
from headway.core.queue.queue import Queue

if TYPE_CHECKING:
    from tests.sim.queues.party import Consumer, Party

PRESSURE = frozenset({Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.CLIENT_SHARE})


class State(Enum):
    WAITS = "waits"
    FLIES = "is in flight"
    DONE = "was settled, or sent to one who settles nothing"
    REJECTED = "was rejected"
    PASSED = "was passed over, so it must have been dropped"
    PURGED = "was purged"


def patience_of(first: int, count: int) -> float:
    """The seconds of patience that so many records published together ask for, by the number of the first; 0: none."""
    return (0.5, 1.0, 3.0)[first % 3] if (first + count) % 7 == 0 else 0.0


class Entry:
    """One record in one queue."""

    def __init__(self, number: int, order: int, priority: int, published_s: float, expires_s: float, *,
                 promised: bool) -> None:
        self.number = number
        self.promised = promised
        """Its publisher was told that it is taken."""
        self.place = (-priority, order, number)
        self.published_s = published_s
        self.expires_s = expires_s
        self.state = State.WAITS
        self.delivered = False
        self.patience_s = 0.0
        """For how long its job may take, as it says; 0: it does not say."""
        self.flight: Flight | None = None


class Flight:
    """A delivery that its client has not settled."""

    def __init__(self, entry: Entry, model: QueueModel, party: Party, core: Channel, channel: int,
                 consumer: Consumer | None, id: int, now: float) -> None:
        self.entry = entry
        self.model = model
        self.party = party
        self.core = core
        self.channel = channel
        self.consumer = consumer
        """None: it was asked for."""
        self.id = id
        self.sent_s = now
        self.returned = False
        """The broker gave it to others; its client still counts it."""
        self.lost = False
        """Its channel, or its connection, is gone."""

    @property
    def patience_s(self) -> float:
        """For how long its client may hold it: as it asked, or as the record says."""
        own_s = self.consumer.subscription.patience_s if self.consumer is not None else 0.0
        return max(own_s, self.entry.patience_s)


class QueueModel:
    def __init__(self, queue: Queue, now: float) -> None:
        self.queue = queue
        self.name = queue.name
        self.terms: QueueTerms = queue.terms
        self.used_s = now
        self.had_consumer = False
        self.owner: Party | None = None
        self.consumers: list[Consumer] = []
        """In the order they came."""
        self.exclusive: Consumer | None = None
        self.gone = False
        self.entries: dict[int, Entry] = {}
        self._waiting: list[tuple[int, int, int]] = []
        self._orders = 0
        self.counts: Counter[State] = Counter()
        self.came_back = 0
        """Records that were given back; a queue that refuses may hold so many more."""
        self.dead: Counter[Reason] = Counter()
        """Letters, by reason."""

    def __str__(self) -> str:
        return f"queue {self.name}"

    @property
    def waiting(self) -> int:
        """At most: some of them may have been dropped."""
        return len(self._waiting)

    @property
    def lag(self) -> int:
        """How many wait, as the queue tells people."""
        return self.queue.backlog.lag_records

    # -- what happens -----------------------------------------------------------------------------------------------

    def published(self, number: int, priority: int, now: float, expires_s: float, *, promised: bool = False) -> None:
        priority = min(priority, self.terms.priorities)
        if self.terms.ttl_s is not None:
            expires_s = min(expires_s, now + self.terms.ttl_s)
        self._orders += 1
        entry = self.entries[number] = Entry(number, self._orders, priority, now, expires_s, promised=promised)
        self.counts[State.WAITS] += 1
        insort(self._waiting, entry.place)

    def _to(self, entry: Entry, state: State) -> None:
        if entry.state is State.WAITS:
            self._waiting.remove(entry.place)
        self.counts[entry.state] -= 1
        self.counts[state] += 1
        entry.state = state
        if state is State.WAITS:
            insort(self._waiting, entry.place)

    def given(self, number: int, redelivered: bool, now: float, who: str) -> Entry:
        """It is handed out: is it its turn?"""
        entry = self.entries.get(number)
        assert entry is not None, f"{self}: {who} was given {number}, which was never put into it"
        assert entry.state is State.WAITS, f"{self}: {who} was given {number}, which {entry.state.value}"
        says = f"{self}: {number} is marked {redelivered}, was given {entry.delivered}"
        assert bool(redelivered) == entry.delivered, says
        assert now < entry.expires_s, f"{self}: {number} expired at {entry.expires_s} and was given at {now}"
        while self._waiting[0] != entry.place:  # the queue has counted these as left out, or it is out of order
            self._to(self.entries[self._waiting[0][2]], State.PASSED)
        entry.delivered = True
        return entry

    def flies(self, entry: Entry, flight: Flight) -> None:
        self._to(entry, State.FLIES)
        entry.flight = flight

    def settled(self, entry: Entry) -> None:
        self._to(entry, State.DONE)
        entry.flight = None

    def rejected(self, entry: Entry) -> None:
        self._to(entry, State.REJECTED)
        entry.flight = None

    def back(self, entry: Entry) -> None:
        """It waits again."""
        self._to(entry, State.WAITS)
        entry.flight = None
        self.came_back += 1

    def purged(self, count: int) -> None:
        before = self.waiting
        assert count <= before, f"{self}: {count} purged, {before} wait"
        for place in self._waiting[: before - count]:  # the queue had dropped so many of them before
            self.counts[State.PASSED] += 1
            self.entries[place[2]].state = State.PASSED
        for place in self._waiting[before - count :]:
            self.counts[State.PURGED] += 1
            self.entries[place[2]].state = State.PURGED
        self.counts[State.WAITS] -= before
        self._waiting.clear()

    # -- sums -------------------------------------------------------------------------------------------------------

    def check(self, now: float, *, allowed: frozenset[Reason], readable: bool) -> None:
        """After every turn."""
        queue, counts = self.queue, self.counts
        told = queue.drops.by_reason
        dropped = told.total() - told[Reason.REJECTED] - told[Reason.PURGED]
        lag = self.lag
        assert told[Reason.REJECTED] == counts[State.REJECTED], f"{self}: {told}, {counts[State.REJECTED]} rejected"
        assert told[Reason.PURGED] == counts[State.PURGED], f"{self}: {told}, {counts[State.PURGED]} purged"
        there = lag + dropped
        expected = counts[State.WAITS] + counts[State.PASSED]
        assert there == expected, f"{self}: {lag} wait, {dropped} were dropped, not {expected} in all: {told}, {counts}"
        assert dropped >= counts[State.PASSED], f"{self}: {counts[State.PASSED]} were passed over, {dropped} dropped"
        size = queue.backlog.lag_bytes
        assert (size > 0) == (lag > 0) == queue.backlog.has_more, f"{self}: {lag} records wait in {size} bytes"
        self._reasons(now, allowed)
        if readable and self.terms.dead_letter_exchange is not None:
            letters = Counter({reason: count for reason, count in told.items() if reason is not Reason.PURGED})
            assert self.dead == letters, f"{self}: dead letters {self.dead}, left out {told}"

    def _reasons(self, now: float, allowed: frozenset[Reason]) -> None:
        told = self.queue.drops.by_reason
        limited = self.terms.drops_oldest
        mortal = sum(entry.expires_s <= now for entry in self.entries.values()) if told[Reason.EXPIRED] else 0
        assert told[Reason.EXPIRED] <= mortal, f"{self}: {told[Reason.EXPIRED]} expired, {mortal} could have"
        assert limited or not told[Reason.QUEUE_LENGTH], f"{self} has no limit, and {told}"
        usual = {Reason.REJECTED, Reason.PURGED, Reason.EXPIRED, Reason.QUEUE_LENGTH}
        strange = {reason for reason, count in told.items() if count} - usual - allowed
        assert not strange, f"{self}: {told}"
        if self.terms.records_max is not None and limited:
            assert self.lag <= self.terms.records_max, f"{self}: {self.lag} wait"
        if self.terms.records_max is not None and self.terms.refuses:
            most = self.terms.records_max + self.came_back
            assert self.lag <= most, f"{self}: {self.lag} wait, {most} may"
