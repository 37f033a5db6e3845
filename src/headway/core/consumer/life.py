"""Lives: the states of a subscription, and the legal moves between them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Life(StrEnum):
    OPEN = "open"
    PAUSED = "paused"
    """The client wants no deliveries for now (AMQP channel.flow), or the channel is closed."""
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
