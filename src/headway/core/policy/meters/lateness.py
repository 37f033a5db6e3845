"""Lateness: when the broker's own loop was late. Meters leave that time out, for no consumer is to blame for it."""

from __future__ import annotations

from collections import deque

EVENTS_MAX = 64


class Lateness:
    """A record of when the broker's own loop was late, and by how much. All meters share it and subtract it."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: deque[tuple[float, float]] = deque(maxlen=EVENTS_MAX)

    def add(self, now: float, seconds: float) -> None:
        """Notes that the loop ran at ``now`` and should have run ``seconds`` earlier."""
        if seconds > 0:
            self._events.append((now, seconds))

    def within(self, since: float, now: float) -> float:
        """Returns how many of the seconds from ``since`` to ``now`` the loop was late."""
        if not self._events or self._events[-1][0] <= since:
            return 0.0
        late = 0.0
        for at, seconds in self._events:
            late += max(0.0, min(at, now) - max(at - seconds, since))
        return min(late, max(0.0, now - since))
