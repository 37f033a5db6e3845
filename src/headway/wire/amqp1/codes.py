"""Error conditions (AMQP 1.0, 2.8.15 to 2.8.18, and 4.5.8), numbered, because a ``ProtocolError`` has a number."""

from __future__ import annotations

from enum import IntEnum


class Condition(IntEnum):
    """The condition of an error. ``symbol`` is its name on the wire."""

    INTERNAL_ERROR = 1
    NOT_FOUND = 2
    UNAUTHORIZED_ACCESS = 3
    DECODE_ERROR = 4
    RESOURCE_LIMIT_EXCEEDED = 5
    NOT_ALLOWED = 6
    INVALID_FIELD = 7
    NOT_IMPLEMENTED = 8
    RESOURCE_LOCKED = 9
    PRECONDITION_FAILED = 10
    RESOURCE_DELETED = 11
    ILLEGAL_STATE = 12
    FRAME_SIZE_TOO_SMALL = 13
    CONNECTION_FORCED = 20
    FRAMING_ERROR = 21
    WINDOW_VIOLATION = 30
    ERRANT_LINK = 31
    HANDLE_IN_USE = 32
    UNATTACHED_HANDLE = 33
    DETACH_FORCED = 40
    TRANSFER_LIMIT_EXCEEDED = 41
    MESSAGE_SIZE_EXCEEDED = 42
    STOLEN = 43
    UNKNOWN_ID = 50
    TRANSACTION_ROLLBACK = 51

    @property
    def symbol(self) -> str:
        place = next(word for least, word in _PLACES if self >= least)
        return f"amqp:{place}{self.name.lower().replace('_', '-')}"


_PLACES = ((50, "transaction:"), (40, "link:"), (30, "session:"), (20, "connection:"), (0, ""))
