"""Faults of a client, with the short heading that an ERROR frame has beside the text."""

from __future__ import annotations

from headway.core.base import ProtocolError, Reason

BAD_COMMAND = "Bad command"
BAD_DESTINATION = "Invalid destination"
UNKNOWN_DESTINATION = "Unknown destination"
NO_DESTINATION = "Missing destination"
NO_HEADER = "Missing header"
BAD_HEADER = "Invalid header"
BAD_FRAME = "Invalid frame"


class StompFault(ProtocolError):
    """``heading`` is in RabbitMQ's words where it has some, which clients look for."""

    def __init__(self, heading: str, text: str, reason: Reason = Reason.PROTOCOL_ERROR) -> None:
        super().__init__(text, reason=reason)
        self.heading = heading
