"""The sockets of peers on this host, which our kernel knows too: it tells what a peer has not read, to the byte.

Theory of operation. What a remote application reads can only be guessed from what its kernel acknowledges, in lumps
(peer_progress.py). A peer on the same host, which may be a proxy, has its socket in our kernel's own table, under our
connection's addresses the other way round, and everybody may ask for its receive queue. Who is not found there is
remote, or in another network namespace, and is not asked for again. A question takes 3 us, and no longer with many
connections: the kernel looks one socket up.

Source: sock_diag(7); struct inet_diag_req_v2 and inet_diag_msg in linux/inet_diag.h.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from contextlib import suppress

_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG, and SOCK_DIAG_BY_FAMILY below."""
_BY_FAMILY, _REQUEST = 20, 1
_ANY_STATE = _ANY_COOKIE = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_REST = struct.Struct("=III")
_UNREAD = struct.Struct("=I")
_UNREAD_AT = _HEADER.size + 56
"""idiag_rqueue comes after the family, the addresses and the time of expiry."""
_ANSWER_BYTES = 512
_ANSWERS_MAX = 4
_NUMBER_AT = slice(8, 12)
"""Where a message has its number: an answer has that of its question."""
_RETRIED = (errno.ENOBUFS, errno.EAGAIN)


class PeerSockets:
    """The kernel's table of sockets. Without access to it, all peers are remote."""

    def __init__(self, used: bool = True) -> None:
        self._netlink: socket.socket | None = None
        if used:
            with suppress(OSError):  # the kernel has no such table, or the service may not use it
                self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _SOCK_DIAG)
        self._answer = bytearray(_ANSWER_BYTES)

    def of(self, sock: socket.socket) -> PeerSocket:
        """Returns the other end of a connection of ours."""
        return PeerSocket(self, b"" if self._netlink is None else _question(sock))

    def unread_bytes(self, question: bytes) -> int | None:
        """Asks for a socket's receive queue. Returns None if the socket is not on this host. Raises OSError if the
        kernel does not answer now."""
        netlink, answer = self._netlink, self._answer
        if netlink is None:
            return None
        netlink.send(question)
        for _ in range(_ANSWERS_MAX):  # an older answer is there if it could not be taken at its time
            size = netlink.recv_into(answer)
            if answer[_NUMBER_AT] == question[_NUMBER_AT]:
                break
        if size >= _UNREAD_AT + _UNREAD.size and _HEADER.unpack_from(answer)[1] == _BY_FAMILY:
            return int(_UNREAD.unpack_from(answer, _UNREAD_AT)[0])
        return None

    def close(self) -> None:
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


class PeerSocket:
    """The far end of one connection."""

    __slots__ = ("_known_bytes", "_question", "_table", "near")

    def __init__(self, table: PeerSockets, question: bytes) -> None:
        self._table = table
        self._question = question
        self._known_bytes = 0
        self.near = bool(question)
        """Whether it is on this host, as far as is known."""

    def unread_bytes(self) -> int | None:
        """Returns how many bytes its application has not read, or had not when the kernel last answered; None: nobody
        knows, for the peer is remote or gone."""
        if not self.near:
            return None
        try:
            unread_bytes = self._table.unread_bytes(self._question)
        except OSError as error:
            self.near = error.errno in _RETRIED
        else:
            self.near = unread_bytes is not None
            self._known_bytes = unread_bytes or 0
        return self._known_bytes if self.near else None


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
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + sought
    number = far_port << 16 | near_port
    return _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, number, 0) + asked


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns an address of a socket, in the family of the network that it uses."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return address if address.version == 4 else address.ipv4_mapped or address
