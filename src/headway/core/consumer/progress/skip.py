"""A skip leaves out records of a lane for one consumer."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from headway.core.base import Reason
from headway.core.message import Record


class Predicate:
    """A test of records, or a figure of each from 0 to 255. Each chunk caches the results, and consumers with equal
    ``key`` share them."""

    __slots__ = ("key", "test")

    def __init__(self, key: tuple[object, ...], test: Callable[[Record], int]) -> None:
        self.key = key
        self.test = test


class Skip:
    """Leaves out the records for which ``predicate`` is true, or all records if it is None.

    It applies to the records from ``first`` to the one before ``stop``; while it is *open*, to all that follow."""

    __slots__ = ("first", "position", "predicate", "reason", "stop")

    def __init__(self, first: int, predicate: Predicate | None, reason: Reason) -> None:
        self.first = first
        self.stop = inf
        self.predicate = predicate
        self.reason = reason
        self.position = 0
        """The lane position of record ``first``. Only set if every record is left out: the lag ends there."""

    @property
    def open(self) -> bool:
        """Tells whether records that are published from now on are left out, too."""
        return self.stop == inf
