"""Reply codes (0-9-1, 1.2 of the reference). Soft codes close a channel, hard codes the connection."""

from __future__ import annotations

from enum import IntEnum


class ReplyCode(IntEnum):
    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541

    @property
    def is_soft(self) -> bool:
        return self in _SOFT

    @property
    def word(self) -> str:
        """The code's name, which clients show in front of the text."""
        return self.name


_SOFT = frozenset({311, 312, 313, 403, 404, 405, 406})
