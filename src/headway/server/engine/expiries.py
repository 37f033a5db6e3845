"""Expiries: connections end with the tokens by which their clients came in."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from headway.core.base import Reason
from headway.core.permission import Identity
from headway.server.connections import Connection


class Expiries:
    __slots__ = ("_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def put(self, connection: Connection, identity: Identity) -> None:
        """Ends the connection when its client's identity does, in the place of the identity it had before."""
        self.remove(connection)
        if identity.until_s is not None:
            text = "the token by which the client came in has expired"
            end = partial(connection.end_soon, Reason.NOT_AUTHORIZED, text, told=True)
            self._timers[connection] = self._loop.call_later(max(0.0, identity.until_s - time.time()), end)

    def remove(self, connection: Connection) -> None:
        """Forgets a connection that has ended."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()
