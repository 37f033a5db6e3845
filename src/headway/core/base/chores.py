"""Chores: what one command asks for and is too much for one turn; it is done little by little, whoever asked.

Theory of operation. A session with ten thousand subscriptions ends, a channel with as many deliveries is closed: nobody
waits for that, so nobody has to hold still for it. Such a command says at once what others may see of it (the name is
free, nothing more is handed out), and leaves the rest here as an iterator that yields the work of each step. What fits
into this turn is done at once, so for nearly everybody nothing is put off.

Rules:
- All chores together have a share of a turn. They are done one after the other, in the order in which they were begun:
  what a client left behind is dealt with in the order in which it did it.
- A step asks ``now`` for the time, which may be later than when it was begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

CHORES_WORK = 4096
"""Of a turn, in the server's units (server/connections/share.py)."""
END_WORK = 16
"""What it takes to end one subscription."""
DELIVERY_WORK = 2
"""What it takes to have one delivery back."""

Steps = Iterator[int]
"""The work of each step."""


class Chores:
    __slots__ = ("_left", "begun", "now")

    def __init__(self) -> None:
        self.now = 0.0
        """When the step is made that is made now."""
        self.begun: deque[Steps] = deque()
        """Those that are not done."""
        self._left = CHORES_WORK

    def begin(self, steps: Steps, now: float) -> None:
        """Do this as far as the turn goes, behind what was begun before, and the rest of it in turns to come."""
        self.begun.append(steps)
        self._go_on(now)

    def turn(self, now: float) -> None:
        """A turn's share of them."""
        self._left = CHORES_WORK
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        self.now = max(self.now, now)  # what another step begins may know only when that was asked for
        while self.begun and self._left > 0:
            steps = self.begun.popleft()  # it is over if it fails
            work = next(steps, None)
            if work is not None:
                self.begun.appendleft(steps)
                self._left -= work
