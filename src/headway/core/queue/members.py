"""Members of a queue, in the order of their turns: who may be given records, and who could take some now."""

from __future__ import annotations

from collections import Counter

from headway.core.consumer import QueueTerms, Session, Subscription
from headway.core.queue.writing import has_room, moves


class Members(dict[Subscription, None]):
    __slots__ = ("_of_session", "_terms", "departed", "exclusive")

    def __init__(self, terms: QueueTerms) -> None:
        super().__init__()
        self.departed: dict[Subscription, None] = {}
        """Members that are gone and have not settled all that they were given; some have, since."""
        self.exclusive: Subscription | None = None
        """Who is to be the only consumer."""
        self._terms = terms
        self._of_session: Counter[Session] = Counter()
        """Number of members of each session."""

    def add(self, member: Subscription) -> None:
        self[member] = None
        self._of_session[member.session] += 1

    def remove(self, member: Subscription) -> bool:
        """Returns whether the member's session has no other members."""
        session = member.session
        if self.pop(member, self) is None:
            self._of_session[session] -= 1
        if self._of_session[session]:
            return False
        del self._of_session[session]
        return True

    @property
    def consumers(self) -> list[Subscription]:
        """The members that are given records without asking."""
        return [member for member in self if not member.request.polling and not member.gone]

    @property
    def eligible(self) -> list[Subscription]:
        """The members that what waits could go to; not who stands by, nor, if there are others, who asks."""
        eligible = self.consumers or list(self)
        return eligible[:1] if self._terms.single_active else eligible

    @property
    def all_slow(self) -> bool:
        """One slow consumer is no problem of a queue; it is when there is no other."""
        return all(member.case.slow for member in self.eligible)

    def ready(self, now: float) -> list[Subscription]:
        """The eligible consumers that have room and credit."""
        if self._terms.single_active:
            first = next(iter(self.consumers), None)
            return [first] if first is not None and has_room(first, now) else []
        return [member for member in self if has_room(member, now)]

    def anybody_moves(self, late_s: float, asked_s: float) -> bool:
        """Somebody takes records, or did not long ago. ``asked_s``: when somebody last asked for one."""
        if asked_s > late_s and any(member.request.polling for member in self):
            return True
        return any(moves(member, late_s) for member in self.eligible if not member.request.polling)

    def to_the_back(self, member: Subscription) -> None:
        """It had its turn: others come first."""
        if len(self) > 1 and not self._terms.single_active:
            self.pop(member)
            self[member] = None

    def forget_settled(self) -> None:
        """Members that are gone and have settled everything need not be known any more."""
        self.departed = {member: None for member in self.departed if member.window.used}
