"""Skips: stretches of a lane of which a consumer is not given some records, or any."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import Reason
from headway.core.message import Record


class Predicate:
    """A question about records, asked once per record and chunk however many consumers share the answer."""

    __slots__ = ("key", "test")

    def __init__(self, key: tuple[object, ...], test: Callable[[Record], bool]) -> None:
        self.key = key
        self.test = test


class Skip:
    """From record ``first`` on, and before ``stop`` (None: until further notice), leave out what ``predicate`` marks.

    ``predicate`` None means every record."""

    __slots__ = ("first", "position", "predicate", "reason", "stop")

    def __init__(self, first: int, stop: int | None, predicate: Predicate | None, reason: Reason) -> None:
        self.first = first
        self.stop = stop
        self.predicate = predicate
        self.reason = reason
        self.position = 0
        """Of record ``first``; known where every record is left out, for then the lag ends there."""
