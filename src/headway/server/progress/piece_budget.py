"""Small pieces cost a system call each, so all connections together have a budget of them (peer_progress.py)."""

from __future__ import annotations

SMALL_BYTES = 1024
TRIED_BYTES = 96 * 1024
PIECES_A_S = 5000
"""Pieces in a second, for all connections together."""
PIECES_MAX = 500
"""Pieces at once: they take some 5 to 10 ms, for which everybody else waits."""


class PieceBudget:
    """The small pieces that all connections together may still send."""

    __slots__ = ("_left", "_refilled_s")

    def __init__(self) -> None:
        self._left = float(PIECES_MAX)
        self._refilled_s = 0.0

    def plenty(self, now: float) -> bool:
        """Tells whether there are pieces to spare: those who have just come need them most."""
        self._refill(now)
        return self._left > PIECES_MAX / 2

    def _refill(self, now: float) -> None:
        self._left = min(PIECES_MAX, self._left + (now - self._refilled_s) * PIECES_A_S)
        self._refilled_s = now

    def take(self, size: int, now: float) -> bool:
        """Takes the pieces for so many bytes. Returns False if there are not so many."""
        self._refill(now)
        pieces = -(-min(size, TRIED_BYTES) // SMALL_BYTES)
        if pieces > self._left:
            return False
        self._left -= pieces
        return True
