"""States of a client's side of a protocol, from its first byte to the end of its connection."""

from __future__ import annotations

from enum import StrEnum


class ClientState(StrEnum):
    GREETING = "greeting"
    """The client says who it is and what it can do."""
    WAITING = "waiting"
    """The client waits: its password is being checked, or its session is not in the journal yet. Nothing it sends is
    handled."""
    OPEN = "open"
    """The client was told that it is connected."""
    CLOSING = "closing"
    """The last word to the client is chosen; nothing else may be sent."""
    CLOSED = "closed"


GREETING, WAITING, OPEN, CLOSING, CLOSED = ClientState
MOVES = {
    GREETING: {WAITING, OPEN, CLOSING, CLOSED},
    WAITING: {GREETING, OPEN, CLOSING, CLOSED},
    OPEN: {CLOSING, CLOSED},
    CLOSING: {CLOSED},
    CLOSED: set[ClientState](),
}
