"""A byte stream is what lies between a connection and its kernel socket. Streams can be stacked: a connection uses one
that has another below it, down to the one that is the socket.

Rules:
- The kernel's socket is ``sock``. The connection alone registers it with the loop, except while the stream is not
  ``ready``: a handshake comes first, and the stream has the socket to itself.
- What was taken by ``send`` is gone: a stream may have changed it already. So a stream takes a small piece at a time,
  and no more while the kernel has not taken the last one. The rest of that piece is ``unsent``: ``flush`` sends it when
  the socket is writable, and nothing else is sent before it. No other bytes wait in a stream.
- ``receive`` may leave bytes that the kernel does not show any more: they are ``pending``, and the connection reads on
  without waiting for the socket.
- Figures of the kernel count the bytes on the wire. ``acknowledged`` translates them into bytes that were given to
  ``send``.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from headway.core.base import Reason
from headway.core.log import SpillHandle
from headway.server.loop import Pulse, lowest_free_descriptor

# -- byte stream -------------------------------------------------------------------------------------------------------


Buffer = bytes | bytearray | memoryview


class StreamError(ConnectionError):
    """The stream is over, for a reason of its own that ``str`` gives in plain words."""

    def __init__(self, text: str, reason: Reason = Reason.CLIENT_GONE, *, polite: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.polite = polite
        """Whether the peer can still be told."""


class Opening(Protocol):
    """The waiter for a stream to get ready: the connection, or the stream above."""

    address: str
    """The client's, with its port. A proxy that is trusted says which it is."""

    def holds(self, size: int) -> None:
        """Notes how many bytes are held of a handshake that has come in part."""
    def opened(self) -> None: ...
    def close(self, reason: Reason, text: str = "") -> None: ...


class ByteStream(ABC):
    """Raises BlockingIOError where the socket has to be waited for, OSError when the stream has ended."""

    __slots__ = ()

    sock: socket.socket
    ready: bool
    """Whether records may be received and sent."""
    pending: bool
    """Whether there are received bytes that the loop calls no reader for."""
    user: str
    """The user whose certificate the client has shown; empty: none."""

    protocol: str = ""
    """The protocol that the handshake agreed on; empty: it did not say."""
    portion_bytes: float = inf
    """The most that is sent at once to a peer that is to have little unread: it takes a record of TLS whole."""
    held_bytes: int = 0
    """Bytes of memory for what was received, and waits in this stream."""
    unsent: int
    """Bytes for the wire that the kernel has not taken yet; True: there are some."""

    @abstractmethod
    def open(self, opening: Opening) -> None:
        """Begins the handshake of a stream that is not ready, and tells ``opening`` how it ended."""

    @property
    @abstractmethod
    def stage(self) -> str:
        """Returns what a stream that is not ready waits for, in words."""

    @abstractmethod
    def receive(self, size: int) -> bytes:
        """Returns some ``size`` bytes at most; none at the end of the stream."""

    @abstractmethod
    def send(self, views: Sequence[Buffer]) -> int:
        """Sends one byte at least, since a frame around none tells some clients that the stream has ended.

        Returns how many bytes were taken. It raises only if none were: what was taken before an error may have reached
        the peer, and counts as sent. The next call finds the error again. So it is with ``send_pieces`` and
        ``send_file``."""

    @abstractmethod
    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        """Sends bytes that the peer's kernel frees in pieces of this size. Returns how many were taken."""

    @abstractmethod
    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        """Sends part of a file. Returns how many bytes were taken. Raises OSError, too, if the disk fails."""

    @abstractmethod
    def flush(self) -> bool:
        """Sends what is unsent. Returns whether the kernel has taken any of it."""

    def be_frugal(self, frugal: bool) -> None:  # noqa: B027
        """Lets as little wait in this stream as can be, or as much as it likes."""

    def complete(self) -> None:  # noqa: B027
        """Completes what was announced to the peer: no bytes follow for now, and a packet of the protocol has ended."""

    @abstractmethod
    def acknowledged(self, wire_bytes: int) -> int:
        """Returns how many of the bytes that were taken are among the first ``wire_bytes`` on the wire."""

    def leaving(self, reason: Reason, text: str) -> None:  # noqa: B027
        """Tells the stream why it is going to end."""

    @abstractmethod
    def last_words(self, words: Sequence[Buffer]) -> list[Buffer]:
        """Ends the stream. Returns the bytes that are still to be sent on the socket: these words, as the peer reads
        them. The last of them is the protocol's last packet."""

    @abstractmethod
    def close(self) -> None:
        """Ends the stream, and closes the socket."""


class PlainStream(ByteStream):
    """The socket itself."""

    __slots__ = ("sock",)

    ready = True
    pending = False
    unsent = 0
    stage = user = ""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def open(self, opening: Opening) -> None:
        raise AssertionError("a plain stream is ready")

    def receive(self, size: int) -> bytes:
        return self.sock.recv(size)

    def send(self, views: Sequence[Buffer]) -> int:
        return self.sock.send(views[0]) if len(views) == 1 else self.sock.sendmsg(views)

    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        return send_pieces(self.sock, data, piece_bytes)

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        taken = os.sendfile(self.sock.fileno(), handle.fd, handle.offset + start, count)
        if not taken:
            raise OSError(errno.EIO, "the file ends before the record does")
        return taken

    def flush(self) -> bool:
        return False

    def acknowledged(self, wire_bytes: int) -> int:
        return wire_bytes

    def last_words(self, words: Sequence[Buffer]) -> list[Buffer]:
        return [view for view in words if view]

    def close(self) -> None:
        self.sock.close()


def send_pieces(sock: socket.socket, data: Buffer, piece_bytes: int) -> int:
    """Sends pieces that the peer's kernel does not join (peer_progress.py). Returns how many bytes were taken."""
    view, taken = memoryview(data), 0
    try:
        while taken < len(view):
            piece = view[taken : taken + piece_bytes]
            count = sock.send(piece, socket.MSG_EOR)
            taken += count
            if count < len(piece):
                break
    except BlockingIOError:
        pass
    except OSError:
        if not taken:
            raise
    return taken


def lost(number: int | None) -> str:
    """Words an error of the operating system that ended a connection."""
    return f"the connection was lost: {os.strerror(number).lower()}" if number else ""


def first_bytes(views: Sequence[Buffer], size: int) -> bytes:
    """Returns the first ``size`` bytes. No more is copied, for a lane may offer megabytes."""
    parts: list[memoryview] = []
    for view in views:
        if size <= 0:
            break
        parts.append(memoryview(view)[:size])
        size -= len(parts[-1])
    return b"".join(parts)


# -- sockets -----------------------------------------------------------------------------------------------------------
#
# Listening sockets.


QUIET_S = 60
PROBE_EVERY_S = 15
PROBES = 4
"""TCP keep-alive: after ``QUIET_S`` of silence the kernel probes the peer, which has two minutes in all to answer. This
finds silent subscribers without keep-alive or heartbeat whose machine was switched off."""


def bound(host: str, port: int) -> socket.socket:
    """Returns a bound socket that does not listen yet. Accepted sockets inherit its options. Raises OSError if the
    address cannot be had."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with_options(sock)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def with_options(sock: socket.socket) -> socket.socket:
    """Sets the options of a listening socket."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    return sock


# -- acceptor ----------------------------------------------------------------------------------------------------------
#
# Accepting connections from a listening socket, whatever goes wrong with one of them or with all.


log = logging.getLogger("headway")

ACCEPTS_PER_TURN, ACCEPTS_LEAST = 32, 4
"""Connections that all listeners of a broker accept in one turn, about 8 ms with what their first bytes cost; and each
of them, however many others came to its neighbours."""
WAITING_MAX = 64
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

    __slots__ = ("_loop", "_most", "_used", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, waiting: Callable[[], int] = lambda: 0,
                 most: int = ACCEPTS_PER_TURN) -> None:
        """``waiting`` tells how many connections wait for their turn; while many do, few more are accepted."""
        self._loop = loop
        self._waiting = waiting
        self._most = most
        self._used = 0

    def left(self) -> int:
        """Returns how many connections a listener may accept now."""
        most = self._most if self._waiting() < WAITING_MAX else ACCEPTS_LEAST
        return max(ACCEPTS_LEAST, most - self._used)

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
