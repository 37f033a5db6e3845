"""The small pieces in which a remote peer is sent bytes while nobody knows how it reads (peer_progress.py)."""

from __future__ import annotations

from math import inf

from headway.server.progress.piece_budget import TRIED_BYTES, PieceBudget

FINE_BYTES = 384 * 1024
NEW_S = 2.0
BURST_BYTES = 64 * 1024
AGAIN_S = 30.0
"""A burst of so many bytes is sent as if the peer was new, not sooner than so long after the last time."""


class SmallPieces:
    """The small pieces of one connection. Times are seconds on the broker's clock."""

    __slots__ = ("_budget", "_from_bytes", "_since_s", "_until_s", "left_bytes")

    def __init__(self, budget: PieceBudget, now: float) -> None:
        self._budget = budget
        self._since_s, self._until_s = now, now + NEW_S
        """When they last began, and when they end."""
        self.left_bytes = FINE_BYTES
        """So many bytes are still to be sent in small pieces."""
        self._from_bytes = 0
        """All taken bytes from this one on were sent in small pieces, if these have not ended."""

    def begin(self, now: float, taken_bytes: int, seconds: float = inf) -> None:
        """Sends small pieces from now on."""
        if self.left_bytes <= 0:
            self._from_bytes = taken_bytes
        self.left_bytes, self._since_s, self._until_s = FINE_BYTES, now, now + seconds

    def may_begin(self, now: float) -> bool:
        """Tells whether a burst may be sent in small pieces: they were not sent of late, and there are many left."""
        return now - self._since_s >= AGAIN_S and self._budget.plenty(now)

    def due(self, now: float) -> bool:
        return now <= self._until_s

    @property
    def tried(self) -> bool:
        """Tells whether a new peer has got so many that it shows whether it reads."""
        return self._until_s < inf and self.left_bytes <= FINE_BYTES - TRIED_BYTES

    def take(self, size: int, now: float) -> bool:
        """Takes the pieces for so many bytes. Returns False if all connections together have no more."""
        return self._budget.take(size, now)

    def fill(self, acknowledged_bytes: int, held_bytes: int) -> bool:
        """Tells whether all that the peer's host may hold, ``held_bytes``, came in small pieces."""
        large_bytes = self._from_bytes + held_bytes if self._from_bytes else 0
        return self.left_bytes > 0 and acknowledged_bytes >= large_bytes
