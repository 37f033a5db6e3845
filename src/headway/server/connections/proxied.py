"""The PROXY protocol, versions 1 and 2: a proxy says whose connection it hands on, before anything else.

Rules:
- A listener either expects a header from everybody or from nobody: otherwise any client could say that it is another.
- A header comes whole, within ``HEADER_BYTES_MAX``, or the connection is closed. Nothing behind it is touched: the
  bytes are looked at before they are taken.
- A header without an address (``UNKNOWN``, ``LOCAL``: the proxy itself asks) leaves the proxy's own.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from headway.core.base import Reason
from headway.server.connections.socket_outlet import ended
from headway.server.transport import Opening

Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES = 16
V1_BYTES_MAX = 107
HEADER_BYTES_MAX = 1024
PROXIES_MAX = 32
_V2_FORMS = {0x11: (socket.AF_INET, 4), 0x21: (socket.AF_INET6, 16)}


class BadHeader(Exception):
    """The bytes are no header of the PROXY protocol."""


class Announcement:
    """The header with which a connection begins, before its stream."""

    __slots__ = ("_loop", "_opening", "_seen_bytes", "_sock", "_then")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._seen_bytes = 0
        self._opening: Opening | None = None
        self._then: Callable[[], None] | None = None

    def read(self, opening: Opening, then: Callable[[], None]) -> None:
        """Reads the header, gives ``opening`` the client's address, and calls ``then``."""
        self._opening, self._then = opening, then
        self._loop.add_reader(self._sock, self._look)

    def _look(self) -> None:
        opening, then = self._opening, self._then
        assert opening is not None
        assert then is not None
        try:
            data = self._sock.recv(HEADER_BYTES_MAX, socket.MSG_PEEK)
            header = parse(data) if data else None
            if header is None:
                if len(data) <= self._seen_bytes:
                    opening.close(Reason.CLIENT_GONE, "the proxy left before it had said whose connection it was")
                    return
                # The bytes stay where they are; the loop calls again only when there are more.
                self._seen_bytes = len(data)
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(data) + 1)
                return
            self._sock.recv(header.size_bytes)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        except BlockingIOError:
            return
        except BadHeader as error:
            opening.close(Reason.PROTOCOL_ERROR, str(error))
            return
        except OSError as error:
            opening.close(*ended(error))
            return
        self._loop.remove_reader(self._sock)
        opening.address = header.address or opening.address
        then()


class Header(NamedTuple):
    size_bytes: int
    """The bytes that it takes up."""
    address: str | None
    """The client's address and port; None: the proxy's own counts."""


def parse(data: bytes) -> Header | None:
    """Parses what a connection begins with. Returns None while bytes are missing. Raises BadHeader."""
    if data[: len(SIGNATURE)] == SIGNATURE[: len(data)]:
        return _parse_v2(data)
    if data[:6] == b"PROXY "[: len(data)]:
        return _parse_v1(data)
    raise BadHeader("the connection does not begin with a header of the PROXY protocol")


def _parse_v1(data: bytes) -> Header | None:
    line, end, _ = data.partition(b"\r\n")
    if not end:
        if len(data) >= V1_BYTES_MAX:
            raise BadHeader("the header of the PROXY protocol has no end")
        return None
    size = len(line) + len(end)
    words = line.decode("latin-1").split(" ")
    if size > V1_BYTES_MAX or len(words) < 2:
        raise BadHeader("the header of the PROXY protocol is malformed")
    if words[1] == "UNKNOWN":
        return Header(size, None)
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise BadHeader("the header of the PROXY protocol is malformed")
    version = 4 if words[1] == "TCP4" else 6
    return Header(size, _address(words[2], _port(words[4]), version, (words[3], words[5])))


def _parse_v2(data: bytes) -> Header | None:
    if len(data) < HEAD_BYTES:
        return None
    version, command, form, length = data[12] >> 4, data[12] & 15, data[13], int.from_bytes(data[14:16], "big")
    if version != 2 or command > 1:
        raise BadHeader("the header of the PROXY protocol is of another version")
    size = HEAD_BYTES + length
    if size > HEADER_BYTES_MAX:
        raise BadHeader("the header of the PROXY protocol is too long")
    if len(data) < size:
        return None
    if command == 0 or form >> 4 == 0:
        return Header(size, None)
    if form not in _V2_FORMS:
        raise BadHeader("the PROXY protocol speaks of something else than TCP")
    family, width = _V2_FORMS[form]
    if length < 2 * width + 4:
        raise BadHeader("the header of the PROXY protocol is too short")
    host = socket.inet_ntop(family, data[HEAD_BYTES : HEAD_BYTES + width])
    (port,) = struct.unpack_from(">H", data, HEAD_BYTES + 2 * width)
    return Header(size, shown(host, port))


def _port(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= 5 and int(word) <= 65_535):
        raise BadHeader("a port in the header of the PROXY protocol is not valid")
    return int(word)


def _address(host: str, port: int, version: int, to: tuple[str, str]) -> str:
    _port(to[1])
    for one in (host, to[0]):
        try:
            parsed = ipaddress.ip_address(one)
        except ValueError:
            parsed = None
        if parsed is None or parsed.version != version or "%" in one:
            raise BadHeader("an address in the header of the PROXY protocol is not valid")
    return shown(host, port)


def shown(host: str, port: int) -> str:
    return f"{host}:{port}"


def client_of(forwarded: list[str], peer: str, trusted: Networks) -> str:
    """Returns the client's host by the elements of X-Forwarded-For, the nearest proxy's last: the last one that is no
    trusted proxy. ``peer``: the host at the other end of the connection, which is the answer unless it is trusted."""
    client = peer
    for one in islice(reversed(forwarded), PROXIES_MAX):
        if not is_trusted(client, trusted):
            break
        try:
            client = str(ipaddress.ip_address(one.strip().strip("[]")))
        except ValueError:
            break
    return client


def is_trusted(host: str, trusted: Networks) -> bool:
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address.version == network.version and address in network for network in trusted)
