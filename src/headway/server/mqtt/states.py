"""States of the enhanced authentication of an MQTT connection."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class AuthState(StrEnum):
    NOT_AGREED = "not agreed on"
    """CONNECT named no method, so AUTH may not come."""
    ASKED = "asked"
    """The client's first message is answered, and its last one is expected."""
    CHECKING = "checking"
    """The client's last message is being checked."""
    IDLE = "idle"
    """A client that is let in may begin again."""


NOT_AGREED: Final = AuthState.NOT_AGREED
ASKED: Final = AuthState.ASKED
CHECKING: Final = AuthState.CHECKING
IDLE: Final = AuthState.IDLE
AUTH_MOVES = {
    NOT_AGREED: {ASKED},
    ASKED: {CHECKING},
    CHECKING: {IDLE},
    IDLE: {ASKED},
}
