"""A holding is what one client has not acknowledged: how much of it, and for how long it usually acknowledges nothing.

Theory of operation. A client that stops to acknowledge goes unnoticed where nothing waits: its window is wide, or
others of its queue take what comes. But it holds more and more, or all that its window permits. So it is *late* as long
as it acknowledges nothing and

- its window is full while records wait, or
- it holds ``MORE`` times what it usually holds, or more. Who acknowledges by the dozen holds up to eleven for as long
  as no more comes, and who does one job after the other holds one, however long it takes: neither is late.

What it usually holds, and for how long it then acknowledges nothing, is learnt from looks, a second apart or more. What
was sent and acknowledged between two of them is no pause. Until it has acknowledged something, nobody knows, and it is
not late. Clients for which nothing waits are glanced at (governance/watching/glances.py).
"""

from __future__ import annotations

from math import inf

from headway.core.policy.meters.ack_pace import RARE_JOB_S
from headway.core.policy.meters.usual_pause import UsualPause

MORE = 1.5
FEWEST = 2
"""A client that holds fewer records than this is at its work."""
FADES = 0.9
"""The usual number of records fades by so much with each look that finds more acknowledged."""


class Holding:
    """The holding of one client. Times are seconds on the broker's clock."""

    __slots__ = ("_acked", "_clock_s", "_held", "_many_since_s", "_most", "_moved_s", "_pause", "_sent_s", "_usual",
                 "looked_s")

    def __init__(self, now: float, acked: int) -> None:
        self.looked_s = -inf
        self._acked = acked
        self._moved_s = now
        """When it was last seen to have acknowledged more."""
        self._sent_s = inf
        """When the oldest of what it holds was sent; never: it held nothing at the last look."""
        self._held = self._most = 0
        """How many records it holds, and the most since it acknowledged any."""
        self._usual = 0.0
        """How many it usually holds."""
        self._many_since_s = inf
        """The time since when it holds more than usual; never: it does not."""
        self._pause = UsualPause(inf, inf, RARE_JOB_S)
        self._clock_s = 0.0
        """The sum of all pauses: only these fade what is usual."""

    def look(self, now: float, acked: int, held: int, sent_s: float) -> None:
        """Takes in how many records it has acknowledged, how many it holds, and when the oldest of them was sent."""
        self.looked_s = now
        if acked > self._acked:
            if self._sent_s < inf:
                pause_s = now - max(self._moved_s, self._sent_s)
                self._clock_s += pause_s
                self._pause.note(pause_s, self._clock_s)
            self._usual = max(self._most, FADES * self._usual)
            self._acked, self._moved_s, self._most, self._many_since_s = acked, now, 0, inf
        self._held, self._sent_s = held, sent_s if held else inf
        self._most = max(self._most, held)
        few = held < max(FEWEST, MORE * self._usual)
        self._many_since_s = inf if few else min(self._many_since_s, now)

    def late_since(self, full_since_s: float) -> float:
        """Returns since when it is late. ``full_since_s``: the time since when its window is full while records wait.
        ``inf`` is never."""
        if not self._acked:
            return inf
        return max(self._moved_s, self._sent_s, min(full_since_s, self._many_since_s))

    @property
    def usual_pause_s(self) -> float:
        """Returns for how long it usually acknowledges nothing of what it holds; 0: no look has found such a time."""
        seconds = self._pause.seconds(self._clock_s)
        return seconds if seconds < inf else 0.0
