"""How much more a peer on this host is sent, as far as that depends on what it reads.

Two things limit it:

- A peer that wants what is new, and reads slowly, is sent what it is about to read (fresh_window.py).
- A peer that has read nothing for ``STANDS_S``, and much longer than usual, is sent nothing until it reads again, if
  the two kernels hold ``STANDS_BYTES`` for it. They would take megabytes. What comes waits in its lane instead, where
  it counts as lag, takes up memory that is charged, and may be replaced by newer records. When the peer reads, there
  is enough for it to go on with.

Whoever is limited is looked at again after ``look_s``; then it is as if its socket was writable.

Times are seconds on the broker's clock.
"""

from __future__ import annotations

from math import inf

from headway.server.progress.fresh_window import STILL_LOOK_S, FreshWindow, RoomLooks
from headway.server.progress.reading import Reading
from headway.server.progress.tcp_info import TcpInfo

STANDS_S = 8.0
STANDS_PAUSES = 2.0
STANDS_BYTES = 64 * 1024
ASKED_S = 0.005
"""The least time between two questions for what a peer has read, where room is sought."""
UNWANTED_S = 30.0
"""A client whose records were not conflated or discarded for so long does not mind how old they are."""


class Room:
    """The room of one peer."""

    __slots__ = ("_fresh", "_looked_s", "_looks", "_still", "_wanted_s", "limited")

    def __init__(self, looks: RoomLooks) -> None:
        self._looks = looks
        self._fresh = FreshWindow(looks)
        self._wanted_s = self._looked_s = -inf
        self._still = False
        """Whether it is sent nothing, because it reads nothing. Only ``_stand_still`` sets it."""
        self.limited = False
        """Whether the peer is sent less than there is, since the last look."""

    def freshen(self, now: float) -> None:
        """Notes that the peer wants what is new."""
        self._wanted_s = now

    def look(self, info: TcpInfo, now: float, reading: Reading, sent_bytes: int, held_bytes: int, waits: bool) -> None:
        """Takes in what the kernel knows, which must know what is unread, and what was sent in all. ``held_bytes``: of
        these, what no kernel has yet. ``waits``: there is more to send."""
        self._looked_s = now
        unread_bytes = info.unread_bytes + info.unsent_bytes
        long_s = max(STANDS_S, STANDS_PAUSES * reading.usual_pause_s)
        self._stand_still(unread_bytes >= STANDS_BYTES and now - reading.read_s >= long_s)
        if now - self._wanted_s <= UNWANTED_S:
            starved = waits and not unread_bytes
            self._fresh.look(now, unread_bytes + held_bytes, info.read_bytes, sent_bytes, starved)
        else:
            self._fresh.end()
        self.limited = self.bytes(sent_bytes) < inf

    def bytes(self, sent_bytes: int) -> float:
        """Returns how much more may be sent, as far as the last look knows. ``sent_bytes``: in all, until now."""
        return 0.0 if self._still else self._fresh.room_bytes(sent_bytes)

    def look_due(self, now: float) -> bool:
        return now - self._looked_s > (STILL_LOOK_S / 2 if self._still else ASKED_S)

    @property
    def look_s(self) -> float:
        """Returns after how many seconds there may be room again."""
        return max(STILL_LOOK_S, self._looks.every_s()) if self._still else self._fresh.look_s

    def end(self) -> None:
        """Takes all limits away: the peer is gone, or nobody knows any more what it reads."""
        self._stand_still(False)
        self._fresh.end()
        self.limited = False

    def _stand_still(self, still: bool) -> None:
        self._looks.peers += still - self._still
        self._still = still


NO_ROOM = Room(RoomLooks())
"""The room of a peer that is not on this host, or that nobody has looked at yet: it has no limit."""
