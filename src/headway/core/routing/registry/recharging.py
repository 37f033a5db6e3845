"""Recharging: each session is counted for its user's limits, after a reload has changed these.

Sessions are visited over the turns to come (``SessionRound``). Until then a session is counted where it was, so a user
whose first limit came with the reload may have a few connections more for a moment.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.allowance import Allowance
from headway.core.base import WorkSteps
from headway.core.consumer import Session
from headway.core.routing.registry.registry import Registry
from headway.core.routing.registry.session_round import SessionRound

AllowanceOf = Callable[[Session], Allowance]


class Recharging:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._round = SessionRound(registry, self._visit, self._resume)
        self._allowance_of: AllowanceOf = lambda session: session.allowance

    def apply(self, allowance_of: AllowanceOf, now: float) -> None:
        """Counts each session for the user that ``allowance_of`` gives. Publishers that wait for a limit go on when all
        are counted, and wait again if they have to."""
        self._allowance_of = allowance_of
        self._round.begin(now)

    def _visit(self, session: Session) -> WorkSteps:
        session.charge(self._allowance_of(session))
        yield from ()

    def _resume(self) -> None:
        for by in [by for by in self._registry.paused if isinstance(by, Allowance)]:
            self._registry.resume(by, self._registry.rounds.now)
