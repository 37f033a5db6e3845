"""The pace of acknowledgements: for how long a client usually acknowledges nothing while its window is full.

Theory of operation. Between two acknowledgements a worker is at its jobs, so what is usual is learnt as usual pauses
are. Two things are of their own:

1. *Only time with a full window counts*, also for fading. A client that has room, or for which nothing waits, may have
   nothing to acknowledge, so that time tells nothing against what was learnt before.
2. *What it acknowledged with room to spare counts, if that was quicker*: then the pause between two acknowledgements
   was no more, on average, than one window of records takes. That is known without a look at any of them.
"""

from __future__ import annotations

import copy

from headway.core.policy.meters.usual_pause import UsualPause

RARE_JOB_S = 10.0
USUAL_JOB_MAX_S = 20.0


class AckPace:
    """The pace of one client."""

    __slots__ = ("_clock_s", "_pause", "_seen_s", "_sent")

    def __init__(self, since: float) -> None:
        """``since``: when its subscription began."""
        self._pause = UsualPause(most_s=USUAL_JOB_MAX_S, rare_s=RARE_JOB_S)
        self._clock_s = 0.0
        """Seconds in which it acknowledged, as far as they count."""
        self._seen_s, self._sent = since, 0
        """When its window was last seen to be full, and how many records it had been sent by then."""

    def fork(self) -> AckPace:
        other = copy.copy(self)
        other._pause = self._pause.fork()
        return other

    def stays_full(self, now: float, acked: int, window: int) -> None:
        """Notes that its window is full again, without having had room for long."""
        self._seen_s, self._sent = now, acked + window

    def fills_up(self, now: float, acked: int, window: int) -> None:
        """Notes that its window is full, and had room before."""
        took_s, count = now - self._seen_s, acked - self._sent
        self.stays_full(now, acked, window)
        if count > 0 and took_s > 0:  # so many were sent and acknowledged in this time
            pause_s = took_s * window / count
            if pause_s < self.usual_s:
                self._clock_s += took_s
                self._pause.note(pause_s, self._clock_s)

    def acknowledges(self, pause_s: float) -> bool:
        """Notes that it has acknowledged something, after its window was full for so long. Returns whether that is the
        usual pause now."""
        self._clock_s += pause_s
        return self._pause.note(pause_s, self._clock_s)

    @property
    def usual_s(self) -> float:
        """Returns for how long it usually acknowledges nothing; 0: not known."""
        return self._pause.seconds(self._clock_s)
