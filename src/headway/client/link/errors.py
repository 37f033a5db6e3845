"""Errors of a link."""

from __future__ import annotations

from headway.core.base import HeadwayError


class LinkError(HeadwayError):
    """The broker cannot be reached, does not let the client in, or has ended the connection."""

    def __init__(self, text: str, *, retry_after_s: float = 0.0, final: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        """The time for which the broker has shut the client out."""
        self.final = final
        """The broker would give the same answer again."""
