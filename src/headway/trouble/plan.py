"""The plan of a run: which trouble, how much of it, and the traffic that it is made beside."""

from __future__ import annotations

import asyncio
import ctypes
import ipaddress
import select
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from headway.client.address_parts import open_tls, read_parts
from headway.core.base import ConfigError

# -- plan --------------------------------------------------------------------------------------------------------------


KEEP_ALIVE_S = 10
"""Asked for by every client, so that a broker which looks for dead peers finds one within a short run."""


@dataclass(frozen=True)
class Plan:
    kinds: dict[str, int]
    """How many of each kind of trouble."""
    name: str
    """Clients' names begin with it; no other run has it."""
    prefix: str
    """All topics begin with it."""
    controls: int = 5
    rate: float = 500.0
    """Records a second, of all topics together."""
    size_bytes: int = 1000
    topics: int = 4
    listen: str | None = None
    """A filter of traffic that others make; None: the run has a publisher of its own."""
    calm_s: float = 10.0
    """For how long the controls are alone."""
    trouble_s: float = 60.0
    qos: int = 1
    """The records' QoS, in MQTT's words; 1: confirmed to the publisher."""
    trickle_bytes: float = 2000.0
    """A trickling consumer reads so much a second."""
    window: int = 20
    """Deliveries that consumers who acknowledge late, or never, permit without an acknowledgement."""
    tolerate_s: float = 0.01
    """The controls' p99 may grow by so much, or to twice of what it was, before it counts as harm."""
    seed: int = 1

    @property
    def traffic(self) -> list[str]:
        """The topics of the publisher."""
        return [f"{self.prefix}/traffic/{number}" for number in range(self.topics)]

    @property
    def filters(self) -> list[str]:
        """The filters of an ordinary consumer."""
        return [self.listen] if self.listen is not None else [f"{self.prefix}/traffic/#"]

    @property
    def bursts(self) -> str:
        """The topic of a bursty producer is below it."""
        return f"{self.prefix}/burst"


# -- place -------------------------------------------------------------------------------------------------------------
#
# Addresses of any broker, in the protocols that this test bench speaks: ``mqtt://alice:secret@broker:1883``.
#
# ``ca`` (``mqtts://broker?ca=ca.pem``) names the CA; without it the CAs of this machine are trusted.


PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084, "amqp": 5672, "amqps": 5671}
PROTOCOLS = {"ws": "mqtt", "wss": "mqtt"}
WITH_TLS = frozenset({"mqtts", "wss", "amqps"})
PATHS = {"ws": "/mqtt", "wss": "/mqtt"}


class Place(NamedTuple):
    """Where a broker listens, and the login for it."""

    protocol: str
    """``mqtt`` or ``amqp``."""
    host: str
    port: int
    websocket_path: str | None
    tls: ssl.SSLContext | None
    user: str | None
    password: str | None
    virtual_host: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_place(text: str, user: str | None = None, password: str | None = None, ca: str | None = None) -> Place:
    """Takes an address apart. Raises ConfigError, which does not repeat the login."""
    parts = read_parts(text, PORTS, ("ca",), f"; its scheme is one of {', '.join(PORTS)}")
    scheme, host = parts.scheme, parts.host
    files = parts.options or ({"ca": ca} if ca else {})
    if files and scheme not in WITH_TLS:
        raise ConfigError(f"a CA is for {', '.join(sorted(WITH_TLS))}, and the address is {scheme}://{host}")
    return Place(
        PROTOCOLS.get(scheme, scheme.removesuffix("s")), host, parts.port,
        (parts.path or PATHS[scheme]) if scheme in PATHS else None,
        open_tls(files, host) if scheme in WITH_TLS else None,
        parts.user if user is None else user, parts.password if password is None else password,
        unquote(parts.path[1:]) or "/" if scheme.startswith("amqp") else "/",
    )  # fmt: skip


def is_loopback(place: Place) -> bool:
    """Says whether all addresses of the host are this machine's own. Raises ConfigError for a host without any."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{place.host} is not known: {error.strerror or error}") from None
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


# -- line --------------------------------------------------------------------------------------------------------------
#
# A line: one non-blocking socket to a broker, which is read when its user wants and as much as it wants.
#
# Nothing is read ahead, so a user that reads nothing is a consumer that reads nothing.


READ_BYTES = 262_144
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A program of the kernel's packet filter: no packet passes."""
NO_BYTES_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
ENDED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class Gone(Exception):
    """The connection has ended; the text says how."""


class Line:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._out = bytearray()
        self._loop = asyncio.get_running_loop()
        self._writes = False
        self.more = False
        """The last ``take`` may have left something."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def take(self, most: float = READ_BYTES) -> bytes:
        """Reads what is there, up to so many bytes. Raises Gone."""
        most = min(int(min(most, READ_BYTES)), READ_BYTES)
        self.more = False
        if most < 1:
            return b""
        try:
            data = self._sock.recv(most)
        except NO_BYTES_YET:
            return b""
        except OSError as error:
            raise Gone((error.strerror or str(error)).lower()) from None
        if not data:
            raise Gone("closed without a word")
        self.more = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0
        return self._received(data)

    def _received(self, data: bytes) -> bytes:
        return data

    async def readable(self) -> None:
        """Returns when there is something to read."""
        if self.more:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._sock, _wake, woken)
        try:
            await woken
        finally:
            if self._sock.fileno() >= 0:
                self._loop.remove_reader(self._sock)

    @property
    def ended(self) -> bool:
        """The other side has ended the connection, as far as this machine's kernel was told; nothing is read."""
        poll = select.poll()
        poll.register(self._sock, ENDED)
        return bool(poll.poll(0))

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """The broker does not take what was written."""
        return bool(self._out)

    def write(self, data: bytes | bytearray) -> None:
        """Sends bytes, in order, when there is room for them. What goes wrong is told by the next ``take``."""
        self._out += data
        if not self._writes:
            self._send()

    def _send(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except NO_BYTES_YET:
            pass
        except OSError:
            self._out.clear()
        if bool(self._out) != self._writes:
            self._writes = not self._writes
            if self._writes:
                self._loop.add_writer(self._sock, self._send)
            else:
                self._loop.remove_writer(self._sock)

    # -- trouble ------------------------------------------------------------------------------------------------------

    def deafen(self) -> bool:
        """From now on no packet arrives: the host answers nothing any more. False: this system cannot do it."""
        held = ctypes.create_string_buffer(NOTHING)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(held)))
        except OSError:
            return False
        return True

    def hear(self) -> None:
        """Ends ``deafen``."""
        self._sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)

    def reset(self) -> None:
        """Ends the connection as the kernel does for a process that was killed."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
