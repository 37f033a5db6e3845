"""Lives: the states of a subscription, a channel and a session, and the legal moves between them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Life(StrEnum):
    OPEN = "open"
    PAUSED = "paused"
    """The client stopped deliveries for now (AMQP channel.flow), or the channel is closed."""
    REPLACED = "replaced"
    """Another subscription has replaced this one, and reads this one's records before its own. Then this one ends."""
    ENDED = "ended"


OPEN: Final = Life.OPEN
PAUSED: Final = Life.PAUSED
REPLACED: Final = Life.REPLACED
ENDED: Final = Life.ENDED
MOVES = {
    OPEN: {PAUSED, REPLACED, ENDED},
    PAUSED: {OPEN, ENDED},
    REPLACED: {ENDED},
    ENDED: set[Life](),
}


class SessionLife(StrEnum):
    AWAY = "away"
    """The client is not connected. The session waits for it until it expires."""
    CONNECTED = "connected"
    GIVEN_UP = "given up"
    """The broker has given up the connection: nothing more is sent, and the session ends with it."""
    ENDED = "ended"


AWAY: Final = SessionLife.AWAY
CONNECTED: Final = SessionLife.CONNECTED
GIVEN_UP: Final = SessionLife.GIVEN_UP
SESSION_MOVES = {
    AWAY: {CONNECTED, SessionLife.ENDED},
    CONNECTED: {AWAY, GIVEN_UP, SessionLife.ENDED},
    GIVEN_UP: {SessionLife.ENDED},
    SessionLife.ENDED: set[SessionLife](),
}


class ChannelLife(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


CHANNEL_OPEN: Final = ChannelLife.OPEN
CHANNEL_CLOSED: Final = ChannelLife.CLOSED
CHANNEL_MOVES = {CHANNEL_OPEN: {CHANNEL_CLOSED}, CHANNEL_CLOSED: set[ChannelLife]()}
