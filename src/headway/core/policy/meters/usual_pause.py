"""Usual pauses: for how long somebody who takes one step after the other usually stands still in between.

It is the longest of the last pauses, and fades by half in ``FADES_S``. A long pause, of ``rare_s`` or more, counts as a
whole only if it belongs to a *rhythm*: it is in proportion to what is usual, or to the last pause, and the time between
that one and this, in which somebody moved on, is no more than a ``RHYTHM``-th of it. Any other is trouble and not a
habit, also if it comes again, or grows each time: it counts as ``rare_s``.
"""

from __future__ import annotations

import copy
import math

from headway.core.policy.meters.sample import PAUSES

FADES_S = 30.0
RARE_S = 5.0
USUAL_MAX_S = 15.0
"""A reader of 7 kB/s takes so long for a full lump."""
RHYTHM = 4.0
"""A rhythm has so many times as much standing still as moving on in between."""
MOVES_S = 1.0
"""Steps that are closer together are moving on."""


class UsualPause:
    __slots__ = ("_at_s", "_last_s", "_most_s", "_rare_s", "_seconds", "_stood_until_s", "_unknown_s")

    def __init__(self, unknown_s: float = 0.0, most_s: float = USUAL_MAX_S, rare_s: float = RARE_S) -> None:
        """``unknown_s``: what holds until there was a pause; ``most_s``: the most that it can be."""
        self._unknown_s, self._most_s, self._rare_s = unknown_s, most_s, rare_s
        self._seconds = self._at_s = 0.0
        self._last_s, self._stood_until_s = 0.0, -math.inf
        """The last pause of ``MOVES_S`` or more, and when it ended."""

    def note(self, pause_s: float, now: float, times: float = 1.0, began_s: float | None = None) -> bool:
        """Notes a pause that has just ended; it counts so many ``times``, unless it breaks a rhythm. ``began_s``: when
        it may have begun already, if somebody moved on unseen. Returns whether it is the longest."""
        counted_s, moved_on = pause_s, self._moved_on(pause_s, now - pause_s if began_s is None else began_s)
        if pause_s >= self._rare_s and (moved_on or not self._in_proportion(pause_s, now)):
            counted_s = self._rare_s
            times = 1.0 if moved_on and self._last_s else times
        noted_s = min(counted_s * times, self._most_s)
        if pause_s >= MOVES_S:
            self._last_s, self._stood_until_s = pause_s, now
        if self._seconds and noted_s < self.seconds(now):
            return False
        self._seconds, self._at_s = noted_s, now
        return True

    def fork(self) -> UsualPause:
        """Returns a copy that goes on from here by itself."""
        return copy.copy(self)

    def _moved_on(self, pause_s: float, began_s: float) -> bool:
        """Tells whether it moved on for long between the last pause and this one, as far as it is known."""
        return self._seconds > 0 and RHYTHM * (began_s - self._stood_until_s) > pause_s

    def _in_proportion(self, pause_s: float, now: float) -> bool:
        return pause_s < PAUSES * max(self.seconds(now - pause_s), self._last_s)

    def seconds(self, now: float) -> float:
        """Returns the usual pause. ``now``: when the last step was, so that a pause which goes on fades nothing."""
        if not self._seconds:
            return self._unknown_s
        return self._seconds * float(0.5 ** (max(0.0, now - self._at_s) / FADES_S))
