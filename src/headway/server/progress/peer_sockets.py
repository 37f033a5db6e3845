"""The sockets of peers on this host, which our kernel knows too: it tells what a peer has not read, to the byte.

Theory of operation. What a remote application reads can only be guessed from what its kernel acknowledges, in lumps
(peer_progress.py). A peer on the same host, which may be a proxy, has its socket in our kernel's own table, under our
connection's addresses the other way round, and everybody may ask for its receive queue. Who is not found there is
remote, or in another network namespace, and is not asked for again. A question takes 3 us, and no longer with many
connections: the kernel looks one socket up. Once a connection it is also asked how large its receive buffer is.

Source: sock_diag(7); struct inet_diag_req_v2 and inet_diag_msg in linux/inet_diag.h.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from contextlib import suppress
from typing import NamedTuple

_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG, and SOCK_DIAG_BY_FAMILY below."""
_BY_FAMILY, _REQUEST = 20, 1
_ANY_STATE = _ANY_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_REST = struct.Struct("=III")
_STATE_AT = _HEADER.size + 1
_UNREAD = struct.Struct("=I")
_UNREAD_AT = _HEADER.size + 56
"""idiag_rqueue comes after the family, the addresses and the time of expiry."""
_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTES_AT = _HEADER.size + 72
_INFO, _MEMORY = 2, 7
"""INET_DIAG_INFO: struct tcp_info; INET_DIAG_SKMEMINFO: what it takes up, and may."""
_ASKS_AT = _HEADER.size + 2
"""Where a question says which of these are asked for."""
_ATTRIBUTES_MAX = 16
_RECEIVED = struct.Struct("=Q")
_RECEIVED_AT = _ATTRIBUTE.size + 128
_BUFFER = struct.Struct("=I")
_BUFFER_AT = _ATTRIBUTE.size + 4
"""SK_MEMINFO_RCVBUF."""
_ANSWER_BYTES = 1024
_ANSWERS_MAX = 4
_NUMBER_AT = slice(8, 12)
"""Where a message has its number: an answer has that of its question."""
_RETRIED = (errno.ENOBUFS, errno.EAGAIN)

DEFAULT_BUFFER_BYTES = 128 * 1024
"""Linux's default for a receive buffer (net.ipv4.tcp_rmem)."""


class Receipt(NamedTuple):
    """The bytes of a connection that have come to its peer."""

    unread_bytes: int
    """Bytes that its application has not read."""
    read_bytes: int


class PeerSockets:
    """The kernel's table of sockets. Without access to it, all peers are remote."""

    def __init__(self, used: bool = True) -> None:
        self._netlink: socket.socket | None = None
        if used:
            with suppress(OSError):  # the kernel has no such table, or the service may not use it
                self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _SOCK_DIAG)
        self._answer = bytearray(_ANSWER_BYTES)
        self._info_at = _ATTRIBUTES_AT
        """Where the last answer had the figures of the connection."""

    def of(self, sock: socket.socket) -> PeerSocket:
        """Returns the other end of a connection of ours."""
        return PeerSocket(self, b"" if self._netlink is None else _question(sock))

    def receipt(self, question: bytes) -> Receipt | None:
        """Asks what has come to a socket. Returns None if the socket is not on this host. Raises OSError if the kernel
        does not answer now."""
        size, answer = self._ask(question), self._answer
        if not size or not self._find_info(size):
            return None
        # Both are of one moment. What is acknowledged would not do: that may come later than what is unread.
        (unread_bytes,) = _UNREAD.unpack_from(answer, _UNREAD_AT)
        (received_bytes,) = _RECEIVED.unpack_from(answer, self._info_at + _RECEIVED_AT)
        return Receipt(unread_bytes, received_bytes - unread_bytes)

    def buffer_bytes(self, question: bytes) -> int:
        """Asks how large a socket's receive buffer is, as the kernel counts; 0: it is not on this host. Raises OSError
        if the kernel does not answer now."""
        size = self._ask(question[:_ASKS_AT] + bytes((1 << (_MEMORY - 1),)) + question[_ASKS_AT + 1 :])
        at = self._find(_MEMORY, size, _BUFFER_AT + _BUFFER.size)
        return int(_BUFFER.unpack_from(self._answer, at + _BUFFER_AT)[0]) if at else 0

    def state(self, question: bytes) -> int:
        """Asks for the state of a socket; 0: it is not on this host. Raises OSError if the kernel does not answer now.
        """
        return self._answer[_STATE_AT] if self._ask(question) else 0

    def _ask(self, question: bytes) -> int:
        """Asks for a socket. Returns the size of the answer; 0: there is no such socket."""
        netlink, answer = self._netlink, self._answer
        if netlink is None:
            return 0
        netlink.send(question)
        for _ in range(_ANSWERS_MAX):  # an older answer is there if it could not be taken at its time
            size = netlink.recv_into(answer)
            if answer[_NUMBER_AT] == question[_NUMBER_AT]:
                break
        return size if size > _ATTRIBUTES_AT and _HEADER.unpack_from(answer)[1] == _BY_FAMILY else 0

    def _find_info(self, size: int) -> bool:
        """Finds the figures of the connection in an answer of this size. They are mostly where the last one had them.
        """
        at = self._info_at
        if at + _RECEIVED_AT + _RECEIVED.size <= size and _ATTRIBUTE.unpack_from(self._answer, at)[1] == _INFO:
            return True
        at = self._find(_INFO, size, _RECEIVED_AT + _RECEIVED.size)
        self._info_at = at or self._info_at
        return at > 0

    def _find(self, kind: int, size: int, needed_bytes: int) -> int:
        """Returns where an answer of this size has an attribute of this kind; 0: nowhere."""
        at = _ATTRIBUTES_AT
        for _ in range(_ATTRIBUTES_MAX):
            if at + needed_bytes > size:
                break
            length, found = _ATTRIBUTE.unpack_from(self._answer, at)
            if found == kind:
                return at
            at += max(_ATTRIBUTE.size, (length + 3) & ~3)
        return 0

    def close(self) -> None:
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


class PeerSocket:
    """The far end of one connection."""

    __slots__ = ("_known", "_question", "_table", "near")

    def __init__(self, table: PeerSockets, question: bytes) -> None:
        self._table = table
        self._question = question
        self._known = Receipt(0, 0)
        self.near = bool(question)
        """Whether it is on this host, as far as is known."""

    def receipt(self) -> Receipt | None:
        """Returns what has come to it, or had come when the kernel last answered; None: nobody knows, for the peer is
        remote or gone."""
        if not self.near:
            return None
        try:
            receipt = self._table.receipt(self._question)
        except OSError as error:
            self.near = error.errno in _RETRIED
        else:
            self.near = receipt is not None
            self._known = receipt or self._known
        return self._known if self.near else None

    @property
    def state(self) -> int:
        """Returns the state of this socket (linux/tcp_states.h); 0: nobody knows. Asks the kernel."""
        try:
            return self._table.state(self._question) if self._question else 0
        except OSError:
            return 0

    @property
    def cramped(self) -> bool:
        """Tells whether its receive buffer is smaller than Linux's default. Asks the kernel."""
        if not self.near:
            return False
        try:
            return 0 < self._table.buffer_bytes(self._question) < DEFAULT_BUFFER_BYTES
        except OSError:
            return False


REMOTE = PeerSocket(PeerSockets(used=False), b"")
"""The far end of a connection whose peer is not on this host."""


def _question(sock: socket.socket) -> bytes:
    """Returns the question for the peer of this socket; empty: it has none."""
    try:
        (near, near_port), (far, far_port) = sock.getsockname()[:2], sock.getpeername()[:2]
        ends = [_address(str(address)) for address in (far, near)]
    except (OSError, ValueError):  # it is not connected any more, or no socket of the internet
        return b""
    family = socket.AF_INET if ends[0].version == 4 else socket.AF_INET6
    addresses = b"".join(end.packed.ljust(16, b"\0") for end in ends)
    sought = _PORTS.pack(far_port, near_port) + addresses + _REST.pack(0, _ANY_COOKIE, _ANY_COOKIE)
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ANY_STATE) + sought
    number = far_port << 16 | near_port
    return _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, number, 0) + asked


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns an address of a socket, in the family of the network that it uses."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return address if address.version == 4 else address.ipv4_mapped or address
