"""Bytes in flight: those of one session's deliveries, counted where its user has a limit of them.

The size of a delivery is that of its record as it is in the lane. It is kept until the delivery is settled, because the
record may be gone by then. Deliveries that were sent before the limit came are not counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from headway.core.allowance.allowance import UNLIMITED, Allowance

NO_SIZES: dict[object, int] = {}


class InFlightBytes:
    """The bytes in flight of one session, shared by its channels. The session is known by its number, as a reference
    would make a cycle."""

    __slots__ = ("_session", "_sizes", "allowance", "counts")

    def __init__(self, session: int = 0) -> None:
        self.allowance = UNLIMITED
        """The user's, if that has such a limit."""
        self.counts = False
        """Whether deliveries are counted: there is such a limit."""
        self._session = session
        self._sizes = NO_SIZES

    @property
    def total(self) -> int:
        """The bytes that are counted. It adds them up."""
        return sum(self._sizes.values())

    def charge(self, allowance: Allowance) -> None:
        """Counts the bytes for another user, or for none."""
        self.counts = allowance.limits.in_flight_bytes < inf
        if not self.counts:
            allowance = UNLIMITED
        if allowance is self.allowance:
            return
        self.allowance.leave(self._session)
        self.allowance.fly(-self.total)
        self._sizes = (self._sizes or {}) if self.counts else NO_SIZES
        self.allowance = allowance
        allowance.fly(self.total)

    def add(self, delivery: object, size: int) -> None:
        """Counts a delivery that was sent. Called only where deliveries are counted."""
        self._sizes[delivery] = size
        self.allowance.fly(size)

    def remove(self, delivery: object) -> None:
        """Ends the count of a delivery. Called only where deliveries are counted."""
        self.allowance.fly(-self._sizes.pop(delivery, 0))

    @property
    def permitted(self) -> bool:
        """Whether the session may be sent more deliveries."""
        return not self.counts or self.allowance.lets_fly(self._session)

    def permits(self, ends: Sequence[int], first: int, last: int) -> int:
        """Returns the end of those of records ``first`` … ``last - 1`` for which there is room; ``ends``: where records
        end. The record that uses up the room is among them. Without any room it is ``last``: then these are records
        that need no credit."""
        room = self.allowance.room
        if room <= 0:
            return last
        begin = ends[first - 1] if first else 0
        return min(last, bisect_left(ends, begin + room, first) + 1)

    @property
    def waiting(self) -> bool:
        """Whether the session waits for its user's limit."""
        return self._session in self.allowance.waiting

    @property
    def wait_reason(self) -> str:
        """Why the session waits for it, in words; empty: it does not."""
        return self.allowance.flight_reason if self.waiting else ""

    def wait(self) -> None:
        """Has the session wait for its turn, if it is the limit that keeps it from more."""
        if not self.permitted:
            self.allowance.wait(self._session)

    def wait_no_more(self) -> None:
        self.allowance.wait_no_more(self._session)


NOT_COUNTED = InFlightBytes()
"""That of channels that are no client's. It is shared and never changes."""
