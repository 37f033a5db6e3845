"""Lives: what a subscription is at a time, from its beginning to its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Life(StrEnum):
    OPEN = "open"
    PAUSED = "paused"
    """Its client wants nothing delivered for now (AMQP channel.flow), or its channel is closed."""
    REPLACED = "replaced"
    """What replaced it reads its records before its own; when that is done it ends."""
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
