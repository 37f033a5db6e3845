"""A session round goes through all sessions, a slice a turn: what a reload changes for each of them.

Rules:
- A round that is asked for while one goes on makes this one go on, from where it is, until it has visited every session
  since. So no session waits for longer than one round, however often the configuration is reloaded.
- A visit is made of steps. What a visit has begun it ends, even if another round is asked for meanwhile.
- Sessions that come during a round are not visited: they began under the new configuration.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from headway.core.base import WorkSteps
from headway.core.consumer import Session
from headway.core.routing.registry.registry import Registry

VISIT_WORK = 1
"""The work of a visit that finds nothing to do."""


class SessionRound:
    """``visit`` does what is to be done for one session; ``over`` is called when every session was visited."""

    def __init__(self, registry: Registry, visit: Callable[[Session], WorkSteps],
                 over: Callable[[], None] = lambda: None) -> None:
        self._registry = registry
        self._visit = visit
        self._over = over
        self._asked = False
        self._last = 0
        """The number of the session that was visited last."""
        self.going = False

    def begin(self, now: float) -> None:
        """Visits all sessions, this turn's share of them at once."""
        self._asked = True
        if not self.going:
            self.going = True
            self._registry.rounds.begin(self._go(), now)

    def _go(self) -> WorkSteps:
        try:
            while self._asked:
                self._asked = False
                sessions = list(self._registry.numbers.values())  # their numbers ascend
                at = bisect_right(sessions, self._last, key=lambda session: session.number)
                yield VISIT_WORK + len(sessions) // 64
                for session in (*sessions[at:], *sessions[:at]):
                    yield VISIT_WORK
                    if not session.ended:
                        yield from self._visit(session)
                    self._last = session.number
                    if self._asked:
                        break
        finally:
            self.going = False
        self._over()
