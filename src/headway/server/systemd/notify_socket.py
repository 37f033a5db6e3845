"""The notify socket: a service tells its manager how it is, in datagrams of lines (sd_notify(3)).

A message is sent at once or not at all: a manager that does not read must not hold up the broker. A message that did
not get through is logged, once until one gets through again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

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
