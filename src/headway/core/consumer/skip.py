"""Skips: stretches of a lane in which a consumer is not given all records."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import Reason
from headway.core.message import Record


class Predicate:
    """A test of records. Its answers are kept with each chunk, so consumers with equal ``key`` share them."""

    __slots__ = ("key", "test")

    def __init__(self, key: tuple[object, ...], test: Callable[[Record], bool]) -> None:
        self.key = key
        self.test = test


class Skip:
    """Leaves out the records for which ``predicate`` is true, or all records if it is None.

    It applies from record ``first`` to the one before ``stop``; while ``stop`` is None, to all that follow."""

    __slots__ = ("first", "position", "predicate", "reason", "stop")

    def __init__(self, first: int, stop: int | None, predicate: Predicate | None, reason: Reason) -> None:
        self.first = first
        self.stop = stop
        self.predicate = predicate
        self.reason = reason
        self.position = 0
        """The lane position of record ``first``. Set only where every record is left out: there the lag ends."""
