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
import socket
import struct
from collections.abc import Sequence

from headway.core.log import Pool
from headway.server.transport import Buffer

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
