"""Lingering: last words to clients whose sockets may be full, without keeping anything else of them.

A stuck consumer's socket takes no more bytes, so the reason it is disconnected for would never reach it. Its send
buffer is therefore kept small while it lives and enlarged at the end: the rest of a record half sent and the
DISCONNECT fit in behind what is there already, and the kernel delivers all of it if the client ever reads again. What
comes in is read and thrown away until the client closes too (closing with unread input would reset the connection and
destroy the last word). All of it ends after ``LINGER_S``.

Rules:
- The rest of a record is the lane's own memory, not a copy, but a lane may have let go of it meanwhile; so it counts,
  and so does what the kernel took, for that is memory of this machine too: as long as the farewell lasts all of it
  counts in the client's pool.
- The farewells of a pool have ``POOL_SHARE`` of its memory, and ``LINGER_BYTES_MAX`` at most. Beyond that the oldest
  end first: reset, so that the kernel lets go of them as well. Why they were cut is on record all the same
  (``headway why``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence

from headway.core.log import Pool

LINGER_S = 30.0
SOCKETS_MAX = 1024
"""Of one pool."""
LINGER_BYTES_MAX = 16 * 1024 * 1024
POOL_SHARE = 1 / 8
LINGER_BYTES_MIN = 64 * 1024
"""A pool is never so small that nobody can be told."""
LAST_SEND_BUFFER_BYTES = 16 * 1024 * 1024
"""Asked for; the kernel gives what it allows."""
_RESET = struct.pack("ii", 1, 0)

Buffer = bytes | bytearray | memoryview


class Lingering:
    """All of a broker's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[Pool, dict[_LingeringSocket, None]] = {}
        self._bytes: dict[Pool, int] = {}

    def close(self, sock: socket.socket, words: Sequence[Buffer], pool: Pool) -> None:
        """Say this, and then close the socket, which is ours from now on."""
        with contextlib.suppress(OSError):  # else it keeps the buffer it has, and there may be less room
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
        """It has ended; False if it had before."""
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
        """At the server's own end: wait this long for clients to hear their last word, then close on the others."""
        waiting = [lingerer.done.wait() for here in self._open.values() for lingerer in here]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waiting), seconds)
        for lingerer in [lingerer for here in self._open.values() for lingerer in here]:
            lingerer.end()


class _LingeringSocket:
    """To one client. ``size``: what of it is counted."""

    __slots__ = ("_deadline", "_half_closed", "_loop", "_of", "_sock", "_words", "done", "pool", "size")

    def __init__(
        self, of: Lingering, loop: asyncio.AbstractEventLoop, sock: socket.socket, words: Sequence[Buffer], pool: Pool
    ) -> None:
        self._of = of
        self._loop = loop
        self._sock = sock
        self._words = [memoryview(view) for view in reversed(words) if view]
        """The next last."""
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
            if not self._sock.recv(65536):
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
