"""Supervision of connections: those that are silent, do not log in, or do not read their replies are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.core.base import Reason
from headway.server.config import Settings
from headway.server.connections import Connection, Connections, Reassembly

ON_S = 0.02
"""Pause between two passes, while more connections are due than one pass looks at."""
AGAIN_S = 0.5
"""Least time between two looks at one connection."""
PAUSED_AGAIN_S = 5.0
"""Time between two looks at a connection that is not read."""
QUIET_S = 60.0
"""Time between two looks at a connection of which nothing need be heard for longer."""
REPLIES_UNREAD_S = 30.0


class Supervision:
    def __init__(self, settings: Settings, connections: Connections, reassembly: list[Reassembly],
                 loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._settings = settings
        self._connections = connections
        self._reassembly = reassembly
        self._loop = loop
        self._now = now

    def sweep(self) -> None:
        """Looks at the connections that are due."""
        for reassembly in self._reassembly:
            for connection, text in reassembly.overdue(self._now()):
                connection.end_soon(Reason.CLIENT_MEMORY, text, told=True)
        self._look_on()

    def _look_on(self) -> None:
        if self._connections.look(self._now(), self._look):
            self._loop.call_later(ON_S, self._look_on)

    def look_at(self, connection: Connection) -> None:
        """Looks at a connection in the next sweep, because the time of its next look may have changed."""
        self._connections.look_at(connection, self._now())

    def _look(self, connection: Connection, now: float) -> float:
        """Closes a connection that has not logged in, was silent for one and a half times its keep-alive, or does not
        read its replies. Returns when to look again."""
        peer, reading_paused_by = connection.peer_side, connection.reading_paused_by
        heartbeat_s = peer.heartbeat(now)
        if peer.session is None:
            limit_s = self._settings.listeners[connection.listener].connect_timeout_s
            due_s = connection.opened_s + limit_s
            if "memory" in reading_paused_by:
                due_s = max(due_s, now + PAUSED_AGAIN_S)
            elif due_s < now:
                stage = connection.stream.stage
                what = f"finish {stage}" if stage else "log in"
                text = f"the client did not {what} within {limit_s:.0f} s"
                connection.end_soon(Reason.CONNECT_TIMEOUT, text, told=True)
        elif not reading_paused_by:
            due_s = connection.heard_s + 1.5 * peer.keep_alive_s
            if due_s < now:
                silent_s = now - connection.heard_s
                connection.end_soon(Reason.KEEP_ALIVE, f"nothing was heard for {silent_s:.0f} s", told=True)
            elif due_s > now + QUIET_S:
                connection.read_now()
                due_s = now + QUIET_S
        else:
            due_s = now + PAUSED_AGAIN_S
            blocked_s = connection.blocked_s(now)
            if "replies" in reading_paused_by and blocked_s > REPLIES_UNREAD_S:
                connection.end_soon(Reason.BLOCKED, f"replies were not read for {blocked_s:.0f} s", told=True)
        return max(min(due_s, heartbeat_s), now + AGAIN_S)
