"""The service manager: what it hands over at the start, and what it is told (systemd's sd_notify and sd_listen_fds)."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping, Sequence

from headway.core.base import ConfigError
from headway.server.config import Url

# -- notify socket -----------------------------------------------------------------------------------------------------
#
# The notify socket: a service tells its manager how it is, in datagrams of lines (sd_notify(3)).
#
# A message is sent at once or not at all: a manager that does not read must not hold up the broker. A message that did
# not get through is logged, once until one gets through again.


log = logging.getLogger("headway")


class NotifySocket:
    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        """``address``: a path, or after ``@`` an abstract name; empty: nobody is told. ``watchdog_s``: the service is
        ended if the manager has heard nothing for so long; None: it is not."""
        self.watchdog_s = watchdog_s
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        if self._socket is not None:
            self._socket.setblocking(False)
        self._lost = False

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> NotifySocket:
        """Reads what the manager has put into the environment, and removes it, so that no other program speaks for this
        one."""
        address = environment.pop("NOTIFY_SOCKET", "")
        limit, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        if not address.startswith(("/", "@")):
            if address:
                log.warning("the service manager is not told anything: NOTIFY_SOCKET=%s is no path", address)
            return cls()
        watched = limit.isdecimal() and int(limit) > 0 and pid in ("", str(os.getpid()))
        return cls(address, int(limit) / 1e6 if watched else None)

    def tell(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
            self._lost = False
        except OSError as error:
            if not self._lost:
                log.warning("the service manager could not be told %s: %s", lines[0], error.strerror or error)
            self._lost = True

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


# -- passed sockets ----------------------------------------------------------------------------------------------------
#
# Passed sockets: listening sockets that the service manager opened before the broker began (sd_listen_fds(3)).
#
# A socket is for the listener that its name names (``FileDescriptorName=`` of the unit), or else for the one with its
# address. The address of a socket counts, whatever the config says. The manager keeps these sockets when the broker
# ends, so clients that come between two starts wait in the kernel instead of being refused.


FIRST = 3
"""The descriptor of the first socket; the others follow."""
SOCKETS_MAX = 1000
ADMIN = "admin"
"""Name of the socket for the admin API."""


class PassedSockets:
    def __init__(self, sockets: Sequence[tuple[str, socket.socket]] = ()) -> None:
        """``sockets``: each with its name. Raises ConfigError for one that no client could come through."""
        self._left = list(sockets)
        for name, sock in self._left:
            if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
                raise ConfigError(f"the socket {name!r} of the service manager is not one of TCP")
            sock.setblocking(False)
            sock.set_inheritable(False)

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> PassedSockets:
        """Takes the sockets that are for this process, and removes what tells of them. Raises ConfigError."""
        pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
        names = environment.pop("LISTEN_FDNAMES", "").split(":")
        if pid != str(os.getpid()) or not count.isdecimal():
            return cls()
        if int(count) > SOCKETS_MAX:
            raise ConfigError(f"LISTEN_FDS={count[:20]}: at most {SOCKETS_MAX} sockets can be passed")
        names += [""] * (int(count) - len(names))
        try:
            return cls([(names[at], socket.socket(fileno=FIRST + at)) for at in range(int(count))])
        except OSError as error:
            raise ConfigError(f"LISTEN_FDS={count}: not all are sockets: {error.strerror}") from error

    def take(self, name: str, url: Url) -> socket.socket | None:
        """Returns the socket of this listener; None: there is none."""
        named = [one for one in self._left if one[0] == name]
        there = [one for one in named or self._left if _address(one[1]) == (url.host, url.port)]
        found = next(iter(there or named), None)
        if found is None:
            return None
        self._left.remove(found)
        return found[1]

    def check_all_taken(self) -> None:
        """Raises ConfigError for sockets that are of no listener."""
        if self._left:
            name, sock = self._left[0]
            host, port = _address(sock)
            raise ConfigError(
                f"the socket {name!r} of the service manager, {host}:{port}, is of no listener: FileDescriptorName= "
                f"of its unit is a listener's name or {ADMIN!r}, or its address is one of theirs; each has one socket"
            )


def _address(sock: socket.socket) -> tuple[str, int]:
    host, port = sock.getsockname()[:2]
    return host, port
