"""Aggregates: count, sum, avg, min, max of the values of a field. Rules:

- ``count(*)`` counts records, ``count`` of a field those that have it: any value but null.
- ``sum`` and ``avg`` take numbers. Other values (true, texts, objects) are left out; of no number they are null. A sum
  of whole numbers is exact; beyond 64 bits it is the nearest float, and null in JSON beyond all floats.
- ``min`` and ``max`` take values that have an order (selector/ordering.py): false, true, numbers, texts; of none they
  are null. Texts of more than ``MAX_KEY_CHARS`` characters are left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from headway.core.message import MAX_KEY_CHARS
from headway.core.selector import nearest_float, place_of

INTEGER_MAX = 2**63


class Aggregate(ABC):
    """One aggregate of one group."""

    __slots__ = ()

    @abstractmethod
    def add(self, value: object) -> int:
        """Adds a value. Returns by how many bytes the aggregate grew."""

    @property
    @abstractmethod
    def value(self) -> object:
        """The aggregate of the values so far; None if there is none."""


class Count(Aggregate):
    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, value: object) -> int:
        self._count += value is not None
        return 0

    @property
    def value(self) -> object:
        return self._count


class Sum(Aggregate):
    __slots__ = ("_count", "_sum")

    def __init__(self) -> None:
        self._count = 0
        self._sum: float = 0

    def add(self, value: object) -> int:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self._count += 1
            if isinstance(value, int) and not -INTEGER_MAX <= value < INTEGER_MAX:
                value = nearest_float(value)
            self._sum += value
        return 0

    @property
    def value(self) -> object:
        if not self._count:
            return None
        return self._sum if -INTEGER_MAX <= self._sum < INTEGER_MAX else float(self._sum)


class Average(Sum):
    __slots__ = ()

    @property
    def value(self) -> object:
        return self._sum / self._count if self._count else None


class Least(Aggregate):
    __slots__ = ("_place", "_value")
    down = False

    def __init__(self) -> None:
        self._value: object = None
        self._place = place_of(None)

    def add(self, value: object) -> int:
        if isinstance(value, str) and len(value) > MAX_KEY_CHARS:
            return 0
        place, before = place_of(value, down=self.down), len(self._place)
        if place >= self._place:
            return 0
        self._value, self._place = value, place
        return 2 * (len(place) - before)

    @property
    def value(self) -> object:
        return self._value


class Greatest(Least):
    __slots__ = ()
    down = True


AGGREGATES: Mapping[str, type[Aggregate]] = {
    "count": Count, "sum": Sum, "avg": Average, "min": Least, "max": Greatest,
}  # fmt: skip
