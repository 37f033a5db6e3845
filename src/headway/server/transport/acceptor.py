"""Accepting connections from a listening socket, whatever goes wrong with one of them or with all."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable

from headway.server.loop import Pulse, lowest_free_descriptor

log = logging.getLogger("headway")

ACCEPTS_PER_TURN, ACCEPTS_LEAST = 32, 4
"""Connections that all listeners of a broker accept in one turn, about 8 ms with what their first bytes cost; and each
of them, however many others came to its neighbours."""
RETRY_S = 0.5
_OF_ONE = {
    errno.ECONNABORTED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT,
    errno.EOPNOTSUPP, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH,
}  # fmt: skip
"""Errors of one connection that was lost, or not let through by a firewall, before it was accepted (accept(2))."""
_NO_FILES = {errno.EMFILE, errno.ENFILE}
NO_FILES_LEFT, FILES_ADVICE = "no more open files for clients", " (raise it: ulimit -n)"


class AcceptShare:
    """The connections that some listeners may accept together in one turn of the loop."""

    __slots__ = ("_loop", "_most", "_used")

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = ACCEPTS_PER_TURN) -> None:
        self._loop = loop
        self._most = most
        self._used = 0

    def left(self) -> int:
        """Returns how many connections a listener may accept now."""
        return max(ACCEPTS_LEAST, self._most - self._used)

    def use(self) -> None:
        if not self._used:
            self._loop.call_soon(self._renew)  # it comes behind all listeners of this turn
        self._used += 1

    def _renew(self) -> None:
        self._used = 0


class Acceptor:
    """Accepts some connections a turn. It passes over a connection that was lost before it was accepted, and accepts
    nobody for ``RETRY_S`` after any other error, or while there are no descriptors for clients. Those who come
    meanwhile wait in the kernel."""

    def __init__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, pulse: Pulse, url: str,
        welcome: Callable[[socket.socket, str], None], share: AcceptShare, files_max: int = sys.maxsize,
        free_descriptor: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """``sock`` is bound, and is closed by the acceptor; ``url`` names it in the log. ``welcome`` gets each
        connection's socket, which does not block and sends at once, and its address. ``files_max``: descriptors from
        this number on are not for its clients. ``free_descriptor`` closes a connection that may make room for another
        one, and returns False if there is none."""
        self._sock = sock
        self._loop = loop
        self._pulse = pulse
        self._url = url
        self._welcome = welcome
        self._files_max = files_max
        self._free_descriptor = free_descriptor
        self._share = share
        self.paused = ""
        """Why nobody is accepted at the moment; empty while all is well."""

    def open(self, backlog: int) -> None:
        """``backlog``: number of connections that may wait in the kernel."""
        self._sock.listen(backlog)
        self._loop.add_reader(self._sock, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _accept(self) -> None:
        began = self._pulse.begin()
        self._accept_some()
        self._pulse.end("accept", began)

    def _accept_some(self) -> None:
        for number in range(self._share.left()):
            self._share.use()
            try:
                if self._is_short_of_files():
                    if number:
                        return  # perhaps nobody waits; if somebody does, the loop calls again
                    if not self._free_descriptor() or self._is_short_of_files():
                        self._pause(NO_FILES_LEFT, FILES_ADVICE)
                        return
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OF_ONE:
                    continue
                self._pause(error.strerror or str(error), FILES_ADVICE if error.errno in _NO_FILES else "")
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._welcome(sock, f"{address[0]}:{address[1]}")

    def _is_short_of_files(self) -> bool:
        return lowest_free_descriptor() >= self._files_max

    def _pause(self, why: str, advice: str) -> None:
        """Accepts nobody for a moment: whatever is wrong would be so again at once."""
        log.error("cannot accept on %s: %s%s", self._url, why, advice)
        self.paused = why
        self._loop.remove_reader(self._sock)
        self._loop.call_later(RETRY_S, self._accept_again)

    def _accept_again(self) -> None:
        self.paused = ""
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)
