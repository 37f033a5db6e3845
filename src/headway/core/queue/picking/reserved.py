"""Reserved messages: those of an owner's message groups that wait for it alone (groups.py)."""

from __future__ import annotations

from headway.core.queue.places import BEHIND_ALL, FoundHeap, FoundRecord, Key

RESERVED_EACH = 16
"""So many messages are reserved for an owner in any case."""
GroupName = str | int
"""The name of a group, or the number that it shares with others."""


class Reserved:
    """The messages that are reserved for one owner, and the places where more of them may stand."""

    __slots__ = ("again_from", "by_group", "left_out", "passed", "wanted")

    def __init__(self) -> None:
        self.wanted = FoundHeap()
        """Those that it is to get."""
        self.by_group: dict[str, dict[Key, FoundRecord]] = {}
        """All of them."""
        self.again_from = BEHIND_ALL
        """The place from which on it is to be looked again for messages that were passed over."""
        self.passed: dict[GroupName, Key] = {}
        """The groups of which such messages were passed over, with the last place."""
        self.left_out: dict[GroupName, Key] = {}
        """The groups of which messages were passed over that it does not want, with the first place."""

    @property
    def passed_some(self) -> bool:
        """Tells whether messages that it wants were passed over."""
        return self.again_from < BEHIND_ALL

    @property
    def has_few(self) -> bool:
        """Tells whether there is room for another one in any case."""
        return len(self.wanted) < RESERVED_EACH

    @property
    def is_low(self) -> bool:
        """Tells whether it is time to look again for more, so that the owner is never without any."""
        first = self.wanted.first()
        short = first is None or len(self.wanted) <= max(1, RESERVED_EACH // 2) or first.key >= self.again_from
        return short and self.passed_some

    def has_enough(self, before: int) -> bool:
        """Tells whether enough was reserved since there were so many."""
        return len(self.wanted) >= before + RESERVED_EACH


NOTHING_RESERVED = Reserved()
"""Shared by all members for which nothing is reserved. It is never written to."""
