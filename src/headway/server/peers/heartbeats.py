"""Heartbeats: a client to which nothing else was sent for a while is sent a word, so that it knows of the broker."""

from __future__ import annotations

from headway.server.connections import Connection


class Heartbeats:
    """The times of one client's heartbeats. ``pause_s``: the longest time without a word; 0: it wants none."""

    __slots__ = ("_said_s", "_taken_bytes", "pause_s")

    def __init__(self) -> None:
        self.pause_s = self._said_s = 0.0
        self._taken_bytes = 0

    def due(self, connection: Connection, now: float) -> bool:
        """Returns whether it is time for one."""
        if connection.taken_bytes != self._taken_bytes:
            self._taken_bytes, self._said_s = connection.taken_bytes, now
            return False
        if now - self._said_s < self.pause_s or connection.out or connection.blocked:
            return False
        self._said_s = now
        return True

    def next_look_s(self, now: float) -> float:
        return min(now + self.pause_s / 4, self._said_s + self.pause_s)
