"""Lingering sockets: they bring the last words to clients whose sockets may be full, and keep nothing else of them.

Theory of operation. A stuck consumer's socket takes no more bytes, so the client would never learn why it is
disconnected. Its send buffer is therefore kept small while the connection lives, and enlarged at the end: the rest of a
half-sent record and the DISCONNECT fit in behind what is there already, and the kernel delivers all of it if the client
ever reads again. Input is read and thrown away until the client closes too, because closing a socket with unread input
resets the connection and destroys the last words. A socket lingers for ``LINGER_S`` at most.

Rules:
- Last words count in the client's pool for as long as their socket lingers: the rest of a record is the lane's own
  memory, which the lane may have dropped meanwhile, and what the kernel took is memory of this machine, too.
- The lingering sockets of a pool have ``POOL_SHARE`` of its memory, and ``LINGER_BYTES_MAX`` at most. Beyond that the
  oldest are reset, so that the kernel drops their bytes as well. Why their clients were disconnected is on record all
  the same (``headway why``).
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from headway.core.base import Reason
from headway.core.log import Pool
from headway.server.transport import Buffer

# -- linger ------------------------------------------------------------------------------------------------------------


LINGER_S = 30.0
SOCKETS_MAX = 1024
"""Lingering sockets of one pool."""
LINGER_BYTES_MAX = 16 * 1024 * 1024
POOL_SHARE = 1 / 8
LINGER_BYTES_MIN = 64 * 1024
"""Every pool has room for this much, so that even the smallest can tell somebody."""
LAST_SEND_BUFFER_BYTES = 16 * 1024 * 1024
"""The size that is asked for; the kernel gives what it allows."""
_RESET = struct.pack("ii", 1, 0)


class Lingering:
    """All lingering sockets of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[Pool, dict[_LingeringSocket, None]] = {}
        self._bytes: dict[Pool, int] = {}

    def close(self, sock: socket.socket, words: Sequence[Buffer], pool: Pool) -> None:
        """Sends the last words, then closes the socket, which belongs to this object from now on."""
        with contextlib.suppress(OSError):  # if it fails, the buffer keeps its size, and there may be less room
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LAST_SEND_BUFFER_BYTES)
        lingerer = _LingeringSocket(self, self._loop, sock, words, pool)
        here = self._open.setdefault(pool, {})
        here[lingerer] = None
        self._count(pool, lingerer.size)
        most = max(LINGER_BYTES_MIN, min(LINGER_BYTES_MAX, int(pool.memory_limit * POOL_SHARE)))
        while len(here) > SOCKETS_MAX or (self._bytes[pool] > most and len(here) > 1):
            next(iter(here)).end(reset=True)
        lingerer.write()

    def over(self, lingerer: _LingeringSocket) -> bool:
        """Stops counting a socket that has ended. Returns False if it had ended before."""
        here = self._open[lingerer.pool]
        if lingerer not in here:
            return False
        del here[lingerer]
        self._count(lingerer.pool, -lingerer.size)
        return True

    def _count(self, pool: Pool, size: int) -> None:
        self._bytes[pool] = self._bytes.get(pool, 0) + size
        pool.add_memory(size)

    async def end(self, seconds: float) -> None:
        """Ends all of them when the server stops: waits this long for clients to read, then closes the others."""
        waiting = [lingerer.done.wait() for here in self._open.values() for lingerer in here]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*waiting), seconds)
        finally:
            for lingerer in [lingerer for here in self._open.values() for lingerer in here]:
                lingerer.end()


class _LingeringSocket:
    """One client's lingering socket. ``size``: the bytes that count in its pool."""

    __slots__ = ("_deadline", "_half_closed", "_loop", "_of", "_sock", "_words", "done", "pool", "size")

    def __init__(
        self, of: Lingering, loop: asyncio.AbstractEventLoop, sock: socket.socket, words: Sequence[Buffer], pool: Pool
    ) -> None:
        self._of = of
        self._loop = loop
        self._sock = sock
        self._words = [memoryview(view) for view in reversed(words) if view]
        """Buffers in reverse order: the next one to send is the last."""
        self._half_closed = False
        self.pool = pool
        self.size = sum(map(len, self._words))
        self.done = asyncio.Event()
        self._deadline = loop.call_later(LINGER_S, self.end)
        loop.add_reader(sock, self._read)
        loop.add_writer(sock, self.write)

    def write(self) -> None:
        words = self._words
        try:
            while words:
                view = words.pop()
                taken = 0
                try:
                    taken = self._sock.send(view)
                finally:
                    if taken < len(view):
                        words.append(view[taken:])
            if not self._half_closed:
                self._half_closed = True
                self._loop.remove_writer(self._sock)
                self._sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.end()

    def _read(self) -> None:
        try:
            gone = not self._sock.recv(65536)
            # A reset may have come behind the bytes; the loop calls no more then.
            if gone or self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.end()
        except BlockingIOError:
            return
        except OSError:
            self.end()

    def end(self, *, reset: bool = False) -> None:
        if self._of.over(self):
            self.done.set()
            self._deadline.cancel()
            self._words.clear()
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            if reset:
                with contextlib.suppress(OSError):
                    self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._sock.close()


# -- endings -----------------------------------------------------------------------------------------------------------
#
# Connections that are over end a few at a time, so that thousands that end in one moment hold nobody up.
#
# Ending a connection takes some tens of microseconds: it leaves its listener, its session ends, a line goes into the
# log. Its subscriptions and queues follow as deferred work of the core, which has a budget of its own. If a network
# breaks, all connections behind it are over in the same moment. So one round of the loop ends ``ENDS_MAX``, in the
# order in which they were found to be over; nothing is read from the others meanwhile. Ends that clients ask for are
# work of theirs (``END_WORK``), and take part in the budgets of the turn.
#
# A client that leaves is found by reading. While nothing is read from a connection that has not logged in, because its
# password is being checked, say, the kernel is asked to say when the client has closed its side or is gone: its slot is
# free at once, though the check takes seconds.


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
