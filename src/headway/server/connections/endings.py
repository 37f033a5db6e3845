"""Connections that are over end a few at a time, so that thousands that end in one moment hold nobody up.

Ending a connection takes some tens of microseconds: it leaves its listener, its session ends, a line goes into the log.
Its subscriptions and queues follow as deferred work of the core, which has a budget of its own. If a network breaks,
all connections behind it are over in the same moment. So one round of the loop ends ``ENDS_MAX``, in the order in which
they were found to be over; nothing is read from the others meanwhile. Ends that clients ask for are work of theirs
(``END_WORK``), and take part in the budgets of the turn.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Protocol

from headway.core.base import Reason

ENDS_MAX = 64
END_WORK = 32
"""Work of ending a connection, in units of the turn's budget."""


class Ending(Protocol):
    """A connection, as far as its end goes."""

    def end_now(self, reason: Reason, text: str, *, told: bool) -> None: ...


class Endings:
    __slots__ = ("_due", "_left", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = ENDS_MAX
        """How many may still end in this round of the loop."""
        self._waiting: dict[Ending, tuple[Reason, str, bool]] = {}
        self._due = False

    def end(self, connection: Ending, reason: Reason, text: str, *, told: bool) -> bool:
        """Ends a connection now, or in one of the next rounds. Returns whether it has ended. ``told``: the client is
        told why."""
        if connection in self._waiting:
            return False
        if not self._due:
            self._due = True
            self._loop.call_soon(self._round)
        if self._waiting or self._left <= 0:
            self._waiting[connection] = reason, text, told
            return False
        self._left -= 1
        connection.end_now(reason, text, told=told)
        return True

    def _round(self) -> None:
        self._left = ENDS_MAX
        for connection in list(islice(self._waiting, ENDS_MAX)):
            self._left -= 1
            reason, text, told = self._waiting.pop(connection)
            connection.end_now(reason, text, told=told)
        self._due = self._left < ENDS_MAX
        if self._due:
            self._loop.call_soon(self._round)
