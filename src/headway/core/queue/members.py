"""The members of a queue, in the order of their turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from itertools import islice

from headway.core.consumer import QueueTerms, Session, Subscription
from headway.core.queue.writing import has_room, moves, waits_for_client


class Members(dict[Subscription, None]):
    __slots__ = ("_of_session", "_terms", "departed", "exclusive", "ring")

    def __init__(self, terms: QueueTerms) -> None:
        super().__init__()
        self.departed: dict[Subscription, None] = {}
        """Members that left with unsettled deliveries. Some may have settled them since (``forget_settled``)."""
        self.exclusive: Subscription | None = None
        """The consumer that asked to be the only one."""
        self.ring: dict[Subscription, None] = {}
        """The members that records are offered to, in the order of their turns. The others can take none before their
        clients do something; they are in their sessions' ``aside``."""
        self._terms = terms
        self._of_session: Counter[Session] = Counter()
        """The number of members of each session."""

    def add(self, member: Subscription) -> None:
        self[member] = self.ring[member] = None
        self._of_session[member.session] += 1

    def remove(self, member: Subscription) -> bool:
        """Removes a member. Returns whether its session has no other members."""
        session = member.session
        self.ring.pop(member, None)
        session.aside.pop(member, None)
        if self.pop(member, self) is None:
            self._of_session[session] -= 1
        if self._of_session[session]:
            return False
        del self._of_session[session]
        return True

    @property
    def consumers(self) -> list[Subscription]:
        """The members that records are pushed to."""
        return [member for member in self if not member.request.polling and not member.gone]

    @property
    def eligible(self) -> list[Subscription]:
        """The members that could get the waiting records. Standby consumers are not among them. Members that ask for
        each record are among them only if there are no others."""
        if self._terms.single_active:
            members = (member for member in self if not member.request.polling and not member.gone)
            return list(islice(members, 1)) or list(islice(self, 1))
        return self.consumers or list(self)

    @property
    def all_slow(self) -> bool:
        """Tells whether every eligible member is slow. One that is not slow can serve the queue."""
        return all(member.case.slow for member in self.eligible)

    def all_gate(self, gates: Container[Subscription]) -> bool:
        """Tells whether every eligible member is among the gates. Looks first at those that had their turn last."""
        if not self._terms.single_active and any(
            member not in gates and not member.request.polling and not member.gone for member in reversed(self)
        ):
            return False
        return all(member in gates for member in self.eligible)

    @property
    def any_consumer(self) -> bool:
        """Tells whether there is a member that records are pushed to."""
        return any(not member.request.polling and not member.gone for member in self)

    def ready(self, now: float) -> Iterator[Subscription]:
        """Finds the eligible consumers that have room and credit, one by one: with few records and ten thousand
        consumers, only the first are looked at."""
        if self._terms.single_active:
            return (member for member in self.eligible if not member.request.polling and has_room(member, now))
        return self._offered(now)

    def _offered(self, now: float) -> Iterator[Subscription]:
        for member in list(self.ring):
            if has_room(member, now):
                yield member
            elif waits_for_client(member) and member in self.ring:
                del self.ring[member]
                member.session.aside[member] = None

    def look_again(self, member: Subscription) -> None:
        """Offers records to the member again."""
        if member in self and member not in self.ring:
            member.session.aside.pop(member, None)
            self.ring[member] = None

    def check(self) -> None:
        """Asserts the invariants. It visits every member."""
        for member in self:
            aside = member.session.aside
            assert (member in self.ring) + (member in aside) == 1, "it is in the ring, or aside"
            assert member in self.ring or waits_for_client(member), "whoever can take a record is offered some"

    def anybody_moves(self, late_s: float, asked_s: float) -> bool:
        """Tells whether a member can take records, or could since ``late_s``. ``asked_s`` is the time when a member
        last asked for one."""
        if asked_s > late_s and any(member.request.polling for member in self):
            return True
        return any(moves(member, late_s) for member in self.eligible if not member.request.polling)

    def to_the_back(self, member: Subscription) -> None:
        """Moves a member that had its turn behind the others."""
        if len(self) > 1 and not self._terms.single_active:
            for table in (self, self.ring):
                if table.pop(member, self) is None:
                    table[member] = None

    def forget_settled(self) -> None:
        """Drops departed members that have settled everything."""
        self.departed = {member: None for member in self.departed if member.window.used}
