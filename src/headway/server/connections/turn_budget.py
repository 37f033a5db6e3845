"""Turn budgets: how much of what a client asks for is done in one turn.

Theory of operation. One read may bring a great deal of work: ten thousand publishes, a thousand filters. Each
connection has a *budget* for each turn, counted in work and not in bytes. What goes beyond it waits for the next turn,
in order, and the connection is not read meanwhile. Connections with more to do take turns (engine.py), behind those
that found the turn used up when they came. All connections together have a budget as well. So the others are read
soon, even if one client asks for a lot. Clients that have not logged in have a small budget of their own, so that
nobody without a login keeps clients waiting.

A unit of work is one record on its way to one lane, or the smallest of packets, some three microseconds. What takes
longer counts as more. A decoder counts, for each kind of item, what it takes to be read and carried out
(``Decoder.extra_work``), and stops where the budget ends. Who carries it out adds what only it knows: lanes,
matches, deliveries. The budget is checked once per command, never per message.

A unit is an estimate, and machines differ. So the turn's budget follows the time that turns take (``TurnWork``): one
that took too long makes the next ones smaller, and short ones give that back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final

# -- turn budget -------------------------------------------------------------------------------------------------------


TURN_WORK = 4096
"""Budget of all connections together, per turn."""
BUDGET_WORK = 1024
"""Budget of one connection, per turn."""
GREETING_WORK = 256
"""Budget of all connections together whose clients have not logged in, per turn: anybody can open one."""
LOGIN_WORK = 16
"""Work of each packet of a client that has not logged in."""
SUBSCRIBE_WORK = 24
"""Work of beginning or ending one subscription."""

LONG_S = 0.010
"""The time of the processor that the work of one turn is to take at most."""
LEAST_WORK = TURN_WORK // 16

Steps = Iterator[int]
"""A command that is done in steps; yields the work of each. 0: it cannot go on before the next turn."""


class TurnWork:
    """How much work one turn allows. ``processor_s`` tells the time that the processor has given to this thread: if
    other programs have it, no turn is too long."""

    __slots__ = ("_began_s", "_processor_s", "most")

    def __init__(self, processor_s: Callable[[], float] = time.thread_time) -> None:
        self.most = TURN_WORK
        self._processor_s = processor_s
        self._began_s = processor_s()

    @property
    def of_one(self) -> int:
        """How much of it one connection may ask for."""
        return self.most * BUDGET_WORK // TURN_WORK

    @property
    def of_strangers(self) -> int:
        """How much all may ask for that have not logged in."""
        return min(GREETING_WORK, self.most // 4)

    def begin(self) -> None:
        """Begins the next turn: its work is done from now on."""
        self._began_s = self._processor_s()

    def end(self) -> None:
        """Takes in the time: all that clients asked for is done. The rest of the turn has budgets of its own."""
        took_s = self._processor_s() - self._began_s
        if took_s > LONG_S:
            self.most = max(LEAST_WORK, int(self.most * LONG_S / took_s))
        elif self.most < TURN_WORK:
            self.most = min(TURN_WORK, self.most + self.most // 4)


class TurnBudget:
    """One connection's budget: the work left in this turn, and the command that is running."""

    __slots__ = ("left", "running")

    def __init__(self) -> None:
        self.left = 0
        self.running: Steps | None = None
        """The command that has begun and is not done. The next command waits for it."""

    def begin(self, steps: Steps) -> None:
        """Runs a command as far as the budget goes, and the rest of it in later turns."""
        self.running = steps
        self.go_on()

    def go_on(self) -> None:
        """Continues the running command."""
        while self.running is not None and self.left > 0:
            steps, self.running = self.running, None  # if a step raises, the command is over
            work = next(steps, None)
            if work is not None:
                self.running = steps
                self.left -= work
                if not work:
                    return


# -- states ------------------------------------------------------------------------------------------------------------
#
# States of a connection's socket. After its end a socket may linger for its last words (linger.py).


class ConnectionState(StrEnum):
    OPEN = "open"
    BROKEN = "broken"
    """A write failed. The loop closes the connection soon: the write may have been in the middle of a flush."""
    CLOSED = "closed"


OPEN: Final = ConnectionState.OPEN
BROKEN: Final = ConnectionState.BROKEN
CLOSED: Final = ConnectionState.CLOSED
MOVES = {
    OPEN: {BROKEN, CLOSED},
    BROKEN: {CLOSED},
    CLOSED: set[ConnectionState](),
}
