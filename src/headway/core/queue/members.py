"""The members of a queue, in the order of their turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from itertools import islice

from headway.core.consumer import QueueTerms, Session, Subscription
from headway.core.delivery import has_room, moves, waits_for_client
from headway.core.queue.picking import Picking

WATCHED_AT_ONCE = 64
"""So many members begin to be looked at by the governor when a queue is dispatched; the others in the next turns."""


class Members(dict[Subscription, None]):
    __slots__ = (
        "_alone", "_of_session", "_pushed", "_slow", "_terms", "_there", "departed", "exclusive", "leaving",
        "leaving_since_s", "picking", "ring", "unwatched",
    )  # fmt: skip

    def __init__(self, terms: QueueTerms, picking: Picking) -> None:
        super().__init__()
        self.picking = picking
        """The pickers of members with selectors."""
        self.departed: dict[Subscription, None] = {}
        """Members that left with unsettled deliveries. Some may have settled them since (``forget_settled``)."""
        self.leaving: dict[Subscription, None] = {}
        """Members that are gone, and whose unsettled records come back over the turns to come (deferred.py)."""
        self.leaving_since_s = 0.0
        self.exclusive: dict[Subscription, None] = {}
        """The consumer that asked to be the only one, if there is one."""
        self.ring: dict[Subscription, None] = {}
        """The members that records are offered to, in the order of their turns. The others can take none before their
        clients do something; they are in their sessions' ``aside``."""
        self.unwatched: dict[Subscription, None] = {}
        """The members that the governor may not look at. It looks at all others (``Registry.watched``)."""
        self._alone: dict[Subscription, None] = {}
        """The members that are to get all records."""
        self._terms = terms
        self._of_session: Counter[Session] = Counter()
        """The number of members of each session."""
        self._there: dict[Subscription, None] = {}
        """The members whose sessions were not seen to have ended (``anybody_there``)."""
        self._pushed = 0
        """The number of members that records are pushed to."""
        self._slow = {True: 0, False: 0}
        """The numbers of slow members that ask for each record (True), and that records are pushed to."""

    @property
    def single(self) -> bool:
        """Tells whether one consumer gets all records: the queue, or a consumer, was declared so."""
        return self._terms.single_active or bool(self._alone)

    def add(self, member: Subscription) -> None:
        if member.request.alone:
            if not self._alone:
                self.picking.end_groups()
            self._alone[member] = None
        self[member] = self.ring[member] = self.unwatched[member] = self._there[member] = None
        self._of_session[member.session] += 1
        self._pushed += not member.request.polling

    def remove(self, member: Subscription) -> bool:
        """Removes a member. Returns whether its session has no other members."""
        session = member.session
        self.picking.leave(member)
        for table in (self.ring, self.unwatched, self._there, self._alone, self.exclusive, self.leaving, session.aside):
            table.pop(member, None)
        if self.pop(member, self) is None:
            self._of_session[session] -= 1
            self._pushed -= not member.request.polling
        if self._of_session[session]:
            return False
        del self._of_session[session]
        return True

    @property
    def anybody_there(self) -> bool:
        """Tells whether the session of a member has not ended. A member whose session has is looked at once."""
        while self._there:
            member = next(reversed(self._there))
            if not member.session.ended:
                return True
            del self._there[member]
        return False

    @property
    def consumers(self) -> list[Subscription]:
        """The members that records are pushed to."""
        return [member for member in self if not member.request.polling and not member.gone]

    @property
    def eligible(self) -> list[Subscription]:
        """The members that could get the waiting records. Standby consumers are not among them. Members that ask for
        each record are among them only if there are no others."""
        if self.single:
            members = (member for member in self._alone or self if not member.request.polling and not member.gone)
            return list(islice(members, 1)) or list(islice(self, 1))
        return self.consumers or list(self)

    @property
    def all_slow(self) -> bool:
        """Tells whether every eligible member is slow. One that is not slow can serve the queue."""
        if self.single:
            return all(member.case.slow for member in self.eligible)
        return self._slow[False] == self._pushed if self._pushed else self._slow[True] == len(self)

    @property
    def slow(self) -> int:
        """The number of slow members."""
        return sum(self._slow.values())

    def count_slow(self, member: Subscription, change: int) -> None:
        """Counts a member that is marked slow (1) or no longer is (-1)."""
        if member in self:
            self._slow[member.request.polling] += change

    def all_gate(self, gates: Container[Subscription]) -> bool:
        """Tells whether every eligible member is among the gates. Looks first at those that had their turn last."""
        if not self.single and any(
            member not in gates and not member.request.polling and not member.gone for member in reversed(self)
        ):
            return False
        return all(member in gates for member in self.eligible)

    @property
    def any_consumer(self) -> bool:
        """Tells whether there is a member that records are pushed to."""
        return any(not member.request.polling and not member.gone for member in self)

    def ready(self, now: float, most: int, ring: Mapping[Subscription, None]) -> list[Subscription]:
        """Returns the eligible consumers of a ring that have room and credit, those that come next: ``most`` at most,
        which is at least one. Those before them that wait for their clients are set aside."""
        if self.single:
            return [member for member in self.eligible if not member.request.polling and has_room(member, now)
                    and member in ring]  # fmt: skip
        ready, stuck = [], []
        for member in ring:
            if has_room(member, now):
                ready.append(member)
                if len(ready) == most:
                    break
            elif waits_for_client(member):
                stuck.append(member)
        for member in stuck:
            del self.ring[member]
            member.session.aside[member] = None
            if self.picking.pickers:
                self.picking.set_aside(member)
        return ready

    def watch(self, on_lag: Callable[[Subscription, float], None], now: float) -> bool:
        """Has the governor look at the members that could get the waiting records: ``WATCHED_AT_ONCE`` more of them.
        Returns whether these were all."""
        some = self.eligible if self.single else list(islice(self.unwatched, WATCHED_AT_ONCE))
        for member in some:
            on_lag(member, now)
            self.unwatched.pop(member, None)
        return self.single or not self.unwatched

    def not_watched(self, member: Subscription) -> None:
        """Notes that the governor looks at the member no more."""
        if member in self:
            self.unwatched[member] = None

    def look_again(self, member: Subscription) -> None:
        """Offers records to the member again."""
        if member in self and member not in self.ring:
            member.session.aside.pop(member, None)
            self.ring[member] = None
            if self.picking.pickers:
                self.picking.offer_again(member)

    def check(self) -> None:
        """Asserts the invariants. It visits every member."""
        for member in self:
            aside = member.session.aside
            assert (member in self.ring) + (member in aside) == 1, "it is in the ring, or aside"
            assert member in self.ring or waits_for_client(member), "whoever can take a record is offered some"
            assert not self.picking or self.picking.offers(member) is (member in self.ring), "its picker knows as well"
        self.picking.check()
        assert self.unwatched.keys() <= self.keys()
        assert self._pushed == sum(not member.request.polling for member in self)
        for polling, count in self._slow.items():
            assert count == sum(member.case.slow for member in self if member.request.polling is polling)

    def anybody_moves(self, late_s: float, asked_s: float, among: list[Subscription]) -> bool:
        """Tells whether a member can take records, or could since ``late_s``. ``asked_s`` is the time when a member
        last asked for one. ``among``: those that are looked at."""
        if asked_s > late_s and any(member.request.polling for member in self):
            return True
        return any(moves(member, late_s) for member in among if not member.request.polling)

    def to_the_back(self, member: Subscription) -> None:
        """Moves a member that had its turn behind the others."""
        if len(self) > 1 and not self.single:
            for table in (self, self.ring):
                if table.pop(member, self) is None:
                    table[member] = None
            if self.picking.pickers:
                self.picking.to_the_back(member)

    def forget_settled(self) -> None:
        """Drops departed members that have settled everything."""
        self.departed = {member: None for member in self.departed if member.window.used}
