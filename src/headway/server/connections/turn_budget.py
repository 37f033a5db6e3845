"""Shares: how much of what a client asks for is done at once.

Theory of operation. What one read brings may be a great deal of work: ten thousand publishes, a thousand filters. A
connection has a *share* of each turn, counted in work and not in bytes; what goes beyond waits for the next turn, in
order, and the connection is not read meanwhile. Those that have more to be done go in turn (engine.py), and all of them
together have a share of a turn as well, so that what others send is looked at soon, whoever asks for how much.

A unit of work is a record's way to one lane, some microseconds. Checks are made once per command, never per message.
"""

from __future__ import annotations

from collections.abc import Iterator

TURN_WORK = 4096
"""Of all connections together."""
BUDGET_WORK = 1024
"""Of one connection."""
ITEMS_MAX = 1024
"""Packets, or runs of them, decoded at once."""
SUBSCRIBE_WORK = 16
"""What it takes to begin or end one subscription."""

Steps = Iterator[int]
"""A command that is done little by little: the work of each step. 0: it cannot go on before the next turn."""


class TurnBudget:
    """What is left to one connection in this turn, and what is under way."""

    __slots__ = ("left", "running")

    def __init__(self) -> None:
        self.left = 0
        self.running: Steps | None = None
        """A command that is begun and not done: nothing comes before it."""

    def begin(self, steps: Steps) -> None:
        """Do this as far as the share goes, and the rest of it in turns to come."""
        self.running = steps
        self.go_on()

    def go_on(self) -> None:
        """With what is under way."""
        while self.running is not None and self.left > 0:
            steps, self.running = self.running, None  # it is over if it fails
            work = next(steps, None)
            if work is not None:
                self.running = steps
                self.left -= work
                if not work:
                    return
