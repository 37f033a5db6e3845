"""States of a client's side of a protocol, from its first byte to the end of its connection."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ClientState(StrEnum):
    GREETING = "greeting"
    """The client says who it is and what it can do."""
    WAITING = "waiting"
    """Nothing more of the client is handled: its password is being checked, or the journal does not know it yet."""
    OPEN = "open"
    """The client was told that it is connected."""
    CLOSING = "closing"
    """The last word to the client is decided on."""
    CLOSED = "closed"


GREETING: Final = ClientState.GREETING
WAITING: Final = ClientState.WAITING
OPEN: Final = ClientState.OPEN
CLOSING: Final = ClientState.CLOSING
CLOSED: Final = ClientState.CLOSED
MOVES = {
    GREETING: {WAITING, OPEN, CLOSING, CLOSED},
    WAITING: {GREETING, OPEN, CLOSING, CLOSED},
    OPEN: {CLOSING, CLOSED},
    CLOSING: {CLOSED},
    CLOSED: set[ClientState](),
}
