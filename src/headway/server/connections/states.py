"""States of a connection's socket. After its end a socket may linger for its last words (linger.py)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ConnectionState(StrEnum):
    OPEN = "open"
    BROKEN = "broken"
    """A write failed. The loop closes the connection soon: the write may have been in the middle of a flush."""
    CLOSED = "closed"


OPEN: Final = ConnectionState.OPEN
BROKEN: Final = ConnectionState.BROKEN
CLOSED: Final = ConnectionState.CLOSED
MOVES = {
    OPEN: {BROKEN, CLOSED},
    BROKEN: {CLOSED},
    CLOSED: set[ConnectionState](),
}
