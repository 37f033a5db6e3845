"""Farewell: a last word to a client whose socket may be full, without keeping anything else of it.

A stuck consumer's socket takes no more bytes, so the reason it is disconnected for would never reach it. Its send
buffer is therefore kept small while it lives and enlarged at the end: the rest of a record half sent and the
DISCONNECT fit in behind what is there already, and the kernel delivers all of it if the client ever reads again. What
comes in is read and thrown away until the client closes too (closing with unread input would reset the connection and
destroy the last word). All of it ends after ``LINGER_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

LINGER_S = 30.0
FAREWELLS_MAX = 1024
LAST_SEND_BUFFER_BYTES = 16 * 1024 * 1024
"""Asked for; the kernel gives what it allows."""

_open: dict[Farewell, None] = {}


class Farewell:
    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, last: bytes) -> None:
        self._loop = loop
        self._sock = sock
        self._last = memoryview(last)
        self._half_closed = False
        self.done = asyncio.Event()
        with contextlib.suppress(OSError):  # else it keeps the buffer it has, and there may be less room
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LAST_SEND_BUFFER_BYTES)
        while len(_open) >= FAREWELLS_MAX:
            next(iter(_open)).close()
        _open[self] = None
        self._deadline = loop.call_later(LINGER_S, self.close)
        loop.add_reader(sock, self._read)
        loop.add_writer(sock, self._write)
        self._write()

    def _write(self) -> None:
        try:
            while self._last:
                self._last = self._last[self._sock.send(self._last) :]
            if not self._half_closed:
                self._half_closed = True
                self._loop.remove_writer(self._sock)
                self._sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _read(self) -> None:
        try:
            if not self._sock.recv(65536):
                self.close()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        if self in _open:
            del _open[self]
            self.done.set()
            self._deadline.cancel()
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()


async def end_farewells(seconds: float) -> None:
    """At the server's own end: wait this long for clients to hear their last word, then close on the others."""
    waiting = [farewell.done.wait() for farewell in _open]
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*waiting), seconds)
    for farewell in list(_open):
        farewell.close()
