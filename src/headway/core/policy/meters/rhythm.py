"""A rhythm is that of a feed which does not come evenly: for how long it usually rests between two lumps.

It is seen at looks only, and only while records wait. Rests that are shorter than ``SHORT_S`` cannot be told from the
time between two looks.
"""

from __future__ import annotations

import copy
from math import inf
from typing import Final

from headway.core.policy.meters.lateness import Lateness
from headway.core.policy.meters.usual_pause import UsualPause

SHORT_S = 0.3
OVERDUE = 1.25
"""A feed that has rested for so many of its usual rests no longer keeps to them."""


class Rhythm:
    __slots__ = ("_end_bytes", "_late", "_usual", "came_s", "rest_s")

    def __init__(self, now: float, end_bytes: int, late: Lateness) -> None:
        self.came_s = now
        """When more was last seen to have come."""
        self.rest_s = 0.0
        """For how long it usually rests; 0: it comes evenly, as far as is known."""
        self._end_bytes = end_bytes
        self._late = late
        self._usual = UsualPause()

    def look(self, now: float, end_bytes: int) -> None:
        """Takes in how far the feed is."""
        if end_bytes > self._end_bytes:
            rest_s = now - self.came_s - self._late.within(self.came_s, now)
            if rest_s >= SHORT_S:
                self._usual.note(rest_s, now)
            self.came_s, self.rest_s = now, self._usual.seconds(now)
        self._end_bytes = end_bytes

    def keeps_time(self, now: float) -> bool:
        """Tells whether it comes in lumps, and the next one is not overdue."""
        return self.rest_s > 0 and now - self.came_s <= OVERDUE * self.rest_s

    def upto(self, now: float) -> float:
        """Returns the end of the time over which its rate is measured: when its last lump came, until the next one is
        overdue."""
        return self.came_s if self.keeps_time(now) else now

    def fork(self) -> Rhythm:
        """Returns a copy that goes on from here by itself."""
        other = copy.copy(self)
        other._usual = self._usual.fork()
        return other


NO_RHYTHM: Final = Rhythm(-inf, 0, Lateness())
"""The rhythm of a feed that nobody lags behind. Nobody looks at it."""
