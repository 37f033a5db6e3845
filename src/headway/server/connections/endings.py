"""Connections that are over end a few at a time, so that thousands that end in one moment hold nobody up.

Ending a connection takes some tens of microseconds: it leaves its listener, its session ends, a line goes into the log.
Its subscriptions and queues follow as deferred work of the core, which has a budget of its own. If a network breaks,
all connections behind it are over in the same moment. So one round of the loop ends ``ENDS_MAX``, in the order in which
they were found to be over; nothing is read from the others meanwhile. Ends that clients ask for are work of theirs
(``END_WORK``), and take part in the budgets of the turn.

A client that leaves is found by reading. While nothing is read from a connection that has not logged in, because its
password is being checked, say, the kernel is asked to say when the client has closed its side or is gone: its slot is
free at once, though the check takes seconds.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
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


class Hangups:
    """Clients' sockets that are not read, and what to call when one of them hangs up. A second epoll is what the loop
    has no word for: its readers are called for data, too, which nobody wants to read yet."""

    __slots__ = ("_calls", "_epoll", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        loop.add_reader(self._epoll, self._look)

    def watch(self, sock: socket.socket, call: Callable[[], None]) -> None:
        """Calls ``call`` once if the client closes its side, is reset or vanishes, or has done so already."""
        self._calls[sock.fileno()] = call
        self._epoll.register(sock, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, sock: socket.socket) -> None:
        if self._calls.pop(sock.fileno(), None) is not None:
            self._epoll.unregister(sock)

    def _look(self) -> None:
        for number, _ in self._epoll.poll(0, ENDS_MAX):
            call = self._calls.get(number)
            if call is not None:  # it may have been forgotten by a call before it
                call()

    def close(self) -> None:
        self._loop.remove_reader(self._epoll)
        self._epoll.close()
