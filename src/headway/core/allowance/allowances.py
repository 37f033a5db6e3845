"""Allowances: those of all users. The first limit of the configuration that is for a user is its limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from headway.core.allowance.allowance import UNLIMITED, Allowance, Due
from headway.core.allowance.user_limits import UserLimits
from headway.core.permission import Identity

UNUSED_MAX = 1_000
"""Allowances of users who are not there are forgotten when there are so many more than at the last look."""

USERS_AT_ONCE = 64
"""So many users' sessions go on at once when there is room for more bytes in flight."""


class Allowances:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often a limit was reached, by limit."""
        self.due = Due()
        self._limits: tuple[UserLimits, ...] = ()
        self._groups: dict[str, frozenset[str]] = {}
        self._known: dict[str, Allowance] = {}
        self._forget_at = UNUSED_MAX

    def take(self, limits: Sequence[UserLimits], groups: Mapping[str, Sequence[str]]) -> bool:
        """Takes the limits of a configuration. Returns whether clients may have other allowances now."""
        before = self._limits, self._groups
        self._limits = tuple(limits)
        self._groups = {name: frozenset(members) for name, members in groups.items()}
        return bool(before[0] or limits) and before != (self._limits, self._groups)

    def of(self, identity: Identity) -> Allowance:
        """Returns the allowance of a user. One without limits, or whose name was not checked, has the unlimited one."""
        user = identity.user
        limits = next((one for one in self._limits if user and self._is_for(one, identity)), None)
        if limits is None:
            return UNLIMITED
        known = self._known.get(user)
        if known is None:
            if len(self._known) >= self._forget_at:
                self._known = {name: one for name, one in self._known.items() if not one.unused}
                self._forget_at = len(self._known) + UNUSED_MAX
            known = self._known[user] = Allowance(user, limits, self.counts, self.due)
        known.take(limits)
        return known

    def next_turns(self) -> list[int]:
        """Returns the numbers of sessions that may be sent more, of some users."""
        found = list(islice(self.due.freed, USERS_AT_ONCE))
        for session in found:
            del self.due.freed[session]
        for allowance in list(islice(self.due.with_room, USERS_AT_ONCE)):
            del self.due.with_room[allowance]
            found += allowance.next_turns()  # it puts itself back, at the end, if others wait
        return found

    def _is_for(self, limits: UserLimits, identity: Identity) -> bool:
        user, group = identity.user, limits.group
        if limits.user is not None:
            return limits.user == user
        return group is None or group in identity.groups or user in self._groups.get(group, ())
