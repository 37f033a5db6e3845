"""Usual pauses: for how long somebody who takes one step after the other usually stands still in between.

It is the longest of the last pauses, and fades by half in ``FADES_S``. A pause out of all proportion is trouble, not a
habit: ``rare_s`` or more, and ``PAUSES`` times the usual one. It counts as ``rare_s`` only, and as a whole if it comes
again before that has faded.
"""

from __future__ import annotations

import copy

from headway.core.policy.meters.sample import PAUSES

FADES_S = 30.0
RARE_S = 5.0
USUAL_MAX_S = 15.0
"""A reader of 7 kB/s takes so long for a full lump."""


class UsualPause:
    __slots__ = ("_at_s", "_most_s", "_rare_s", "_seconds", "_unknown_s")

    def __init__(self, unknown_s: float = 0.0, most_s: float = USUAL_MAX_S, rare_s: float = RARE_S) -> None:
        """``unknown_s``: what holds until there was a pause; ``most_s``: the most that it can be."""
        self._unknown_s, self._most_s, self._rare_s = unknown_s, most_s, rare_s
        self._seconds = self._at_s = 0.0

    def note(self, pause_s: float, now: float, times: float = 1.0) -> bool:
        """Notes a pause that has just ended; it counts so many ``times``. Returns whether it is the longest."""
        before_s = self.seconds(now - pause_s)
        noted_s = self._rare_s if pause_s >= max(self._rare_s, PAUSES * before_s) else pause_s
        noted_s = min(noted_s * times, self._most_s)
        if self._seconds and noted_s < self.seconds(now):
            return False
        self._seconds, self._at_s = noted_s, now
        return True

    def fork(self) -> UsualPause:
        """Returns a copy that goes on from here by itself."""
        return copy.copy(self)

    def seconds(self, now: float) -> float:
        """Returns the usual pause. ``now``: when the last step was, so that a pause which goes on fades nothing."""
        if not self._seconds:
            return self._unknown_s
        return self._seconds * float(0.5 ** (max(0.0, now - self._at_s) / FADES_S))
