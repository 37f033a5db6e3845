"""The state of one rule for one consumer, and what a consumer that goes to and fro teaches it.

A consumer that is slow, well, slow, well would make a verdict each time. So a rule that fires again soon after it has
stepped back is *wavering*, and steps back less easily from then on:

1. A rule that fires within ``MEMORY_S`` of the last time has *relapsed*. Its condition has to be gone for ``CALM_S``
   then, without a break, before it steps back; with each relapse for twice as long, up to ``CALM_MAX_S``.
2. If the condition holds again in that time, that is a relapse too. It is counted, and there is no decision about it.
3. ``MEMORY_S`` after the last relapse all is forgotten.

This is for actions that do no harm while they last: ``notify``, ``conflate``, ``offline``, and what is done once. The
others (to discard, to hold publishers back, to return records) end at once, for records or time are lost by them.
"""

from __future__ import annotations

from enum import Enum
from math import inf

from headway.core.policy.rules.action import Action, ActionKind

CALM_S = 2.0
CALM_MAX_S = 60.0
MEMORY_S = 300.0
SLACK_S = 1e-6
"""Times that differ by less than this are the same instant: sums of floating-point numbers are not exact."""
_ENDS_AT_ONCE = frozenset((ActionKind.DISCARD, ActionKind.BLOCK_PUBLISHERS, ActionKind.RETURN, ActionKind.PLUGIN))


class Phase(Enum):
    IDLE = 0
    PENDING = 1
    COUNTED = 2
    ACTIVE = 3


class RuleState:
    __slots__ = (
        "_calm", "_calm_since", "_relapsed_at", "_stepped_back_at", "actions", "fired_at", "next_test", "onsets",
        "phase", "relapses", "since", "tests",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.since = 0.0
        self.fired_at = 0.0
        self.next_test = 0.0
        self.tests = 0
        self.onsets: list[float] = []
        self.actions: tuple[Action, ...] = ()
        """The actions in force while it is active: its own, or those that its plugged-in action answered."""
        self.relapses = 0
        """How often the condition has held anew since the rule began to waver."""
        self._relapsed_at = self._stepped_back_at = -inf
        self._calm = False
        """The condition was gone at some look since the rule fired or relapsed."""
        self._calm_since = inf
        """When it was first found gone, without a break until now; ``inf``: it is not."""

    @property
    def holds(self) -> bool:
        """True if it is active, and its condition was not gone when last looked at."""
        return self.phase is Phase.ACTIVE and not self._calm

    @property
    def steady(self) -> bool:
        """Tells whether no clock of it runs."""
        return self.phase is Phase.IDLE or (self.phase is Phase.ACTIVE and not self._calm)

    def fire(self, action: Action, now: float) -> None:
        """Makes the rule active."""
        self.phase, self.fired_at = Phase.ACTIVE, now
        self.actions = () if action.kind is ActionKind.PLUGIN else (action,)
        self._calm, self._calm_since = False, inf
        if now - self._stepped_back_at <= MEMORY_S:
            self._relapse(now)
        else:
            self.relapses = 0

    def steps_back(self, action: Action, holds: bool, gone: bool, now: float) -> bool:
        """Takes in a look at the active rule: whether its condition holds, and whether it is gone, with ease. Returns
        whether the rule steps back, and then it has."""
        if not gone:
            if holds and self._calm:
                self._relapse(now)
                self._calm = False
            self._calm_since = inf
            return False
        if action.kind not in _ENDS_AT_ONCE:
            self._calm = True
            if self._calm_since == inf:
                self._calm_since = now
            if now - self._calm_since + SLACK_S < self.calm_s(now):
                return False
        self.phase, self._stepped_back_at = Phase.IDLE, now
        return True

    def calm_s(self, now: float) -> float:
        """Returns for how long the condition has to be gone before the rule steps back."""
        if not self.relapses or now - self._relapsed_at > MEMORY_S:
            return 0.0
        return min(CALM_MAX_S, CALM_S * 2.0 ** min(self.relapses - 1, 32))

    def shift(self, seconds: float) -> None:
        """Moves the clocks by so many seconds, which were the broker's own fault."""
        self.since += seconds
        self.fired_at += seconds
        self.next_test += seconds
        self.onsets = [onset + seconds for onset in self.onsets]
        self._relapsed_at += seconds
        self._stepped_back_at += seconds
        self._calm_since += seconds

    def _relapse(self, now: float) -> None:
        self.relapses = 1 if now - self._relapsed_at > MEMORY_S else self.relapses + 1
        self._relapsed_at = now
