"""Deferred work: the part of a command that is too much for one turn. It is done in small steps over the turns to come.

Theory of operation. A session with ten thousand subscriptions ends, or a channel with as many deliveries is closed. No
client waits for that, so the loop can go on meanwhile. Such a command does at once the part that other clients can see
(the name is free, no more records are handed out). It leaves the rest here, as an iterator that yields the work of each
step. The first steps run at once, as far as the turn's share goes, so nearly every command is done in its turn.

Rules:
- All deferred work together has one share of each turn. It is done in the order in which it was begun. A round through
  all sessions, after a reload, has a share of its own (``Registry.rounds``), so that nothing waits for its end.
- A step reads the time from ``now``, which may be later than the time at which its command began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

DEFERRED_WORK_MAX = 4096
"""The work of one turn, in the server's units (server/connections/turn_budget.py)."""
ROUNDS_WORK_MAX = 2048
"""The work of one turn for rounds through all sessions."""
END_WORK = 16
"""The work of ending one subscription."""
DELIVERY_WORK = 2
"""The work of requeueing one delivery."""

WorkSteps = Iterator[int]
"""Yields the work of each step."""


class DeferredWork:
    __slots__ = ("_left", "_share", "begun", "now")

    def __init__(self, share: int = DEFERRED_WORK_MAX) -> None:
        """``share`` is the work of one turn."""
        self.now = 0.0
        """The time of the step that runs now."""
        self.begun: deque[WorkSteps] = deque()
        """The work that is not done, the oldest first."""
        self._share = self._left = share

    def begin(self, steps: WorkSteps, now: float) -> None:
        """Queues the steps, and runs steps until the turn's share is used up. Later turns run the rest."""
        self.begun.append(steps)
        self._go_on(now)

    def turn(self, now: float) -> None:
        """Runs a new turn's share of steps."""
        self._left = self._share
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        self.now = max(self.now, now)  # a command that a step begins may pass the older time at which it was asked for
        while self.begun and self._left > 0:
            steps = self.begun.popleft()  # work that fails is dropped
            work = next(steps, None)
            if work is not None:
                self.begun.appendleft(steps)
                self._left -= work
