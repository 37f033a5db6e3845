"""Glances find consumers that have stopped to acknowledge though nothing waits for them.

Theory of operation. The governor looks at consumers that lag. One that holds more and more deliveries without an
acknowledgement may have no lag: its window is wide, or others of its queue take what comes. So each sweep glances at
``GLANCES`` more, one after the other, and goes round at most once in ``ROUND_S``. A glance takes 2 us: it learns what
the consumer usually holds (core/policy/meters/holding.py). Whoever is late gets onto the watchlist, and its policy
judges it. No glance is at consumers whose policy does not compare ``unacknowledged_time``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import inf

from headway.core.consumer import Session, Subscription, is_patient
from headway.core.governance.watching.sampling import hold, minds_silence
from headway.core.governance.watching.watchlist import Watchlist
from headway.core.policy import PAUSES
from headway.core.routing import Registry

GLANCES = 128
ROUND_S = 1.0
OF_A_SESSION = 64
"""So many subscriptions of one session."""
COPIED_A_GLANCE = 64
"""To note so many sessions for a round takes as long as a glance."""
LATE_S = 4.0
"""A consumer that is late for less than this, or three of its usual pauses, is not watched yet."""


class Glances:
    """The rounds through all sessions."""

    def __init__(self, registry: Registry, watchlist: Watchlist) -> None:
        self._registry, self._watchlist = registry, watchlist
        self._round: Iterator[Session] = iter(())
        self._begun_s = -inf

    def go_on(self, now: float) -> None:
        """Makes the glances of one sweep."""
        left = GLANCES
        while left > 0:
            session = next(self._round, None)
            if session is None:
                if now - self._begun_s < ROUND_S:
                    return
                sessions = list(self._registry.sessions.values())
                self._begun_s, self._round = now, iter(sessions)
                left -= 1 + len(sessions) // COPIED_A_GLANCE
                continue
            left -= 1
            if not session.connected:
                continue
            some = list(islice(session.subscriptions.values(), OF_A_SESSION))
            left -= len(some)
            for subscription in some:
                self._glance(subscription, now)

    def _glance(self, subscription: Subscription, now: float) -> None:
        if subscription in self._registry.watched or not minds_silence(self._registry, subscription):
            return
        holding = hold(subscription, now)
        if holding is None or is_patient(subscription):
            return
        if now - holding.late_since(inf) >= max(LATE_S, PAUSES * holding.usual_pause_s):
            self._watchlist.add(subscription)
