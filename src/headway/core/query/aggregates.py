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
from math import inf, isfinite, nan

from headway.core.message import MAX_KEY_CHARS
from headway.core.selector import nearest_float, place_of

INTEGER_MAX = 2**63
SMALLEST_BITS = 1074
"""The smallest float is 2 to the power of minus this."""


class Aggregate(ABC):
    """One aggregate of one group."""

    __slots__ = ()

    @abstractmethod
    def add(self, value: object) -> int:
        """Adds a value. Returns by how many bytes the aggregate grew."""

    def remove(self, value: object) -> int:
        """Takes a value out that was added. Returns by how many bytes the aggregate grew."""
        raise NotImplementedError(f"{type(self).__name__} only grows")

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

    def remove(self, value: object) -> int:
        self._count -= value is not None
        return 0

    @property
    def value(self) -> object:
        return self._count


class Sum(Aggregate):
    """Exact, in whatever order values come and go: a float is a whole number of the smallest float there is."""

    __slots__ = ("_above", "_below", "_count", "_floats", "_parts", "_whole")

    def __init__(self) -> None:
        self._count = self._floats = self._whole = self._parts = 0
        """The numbers, the floats among them, the sum of the whole ones, the sum of the floats in smallest floats."""
        self._above = self._below = 0
        """How many are beyond all floats."""

    def add(self, value: object) -> int:
        return self._change(value, 1)

    def remove(self, value: object) -> int:
        return self._change(value, -1)

    def _change(self, value: object, sign: int) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return 0
        self._count += sign
        if isinstance(value, int):
            if -INTEGER_MAX <= value < INTEGER_MAX:
                self._whole += sign * value
                return 0
            value = nearest_float(value)
        self._floats += sign
        if isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            self._parts += sign * (numerator << (SMALLEST_BITS + 1 - denominator.bit_length()))
        elif value > 0:
            self._above += sign
        else:
            self._below += sign
        return 0

    @property
    def value(self) -> object:
        if not self._count:
            return None
        if not self._floats and -INTEGER_MAX <= self._whole < INTEGER_MAX:
            return self._whole
        return self._divided(1)

    def _divided(self, by: int) -> float:
        if self._above or self._below:
            return nan if self._above and self._below else inf if self._above else -inf
        if not self._floats:
            return _quotient(self._whole, by)
        return _quotient((self._whole << SMALLEST_BITS) + self._parts, by << SMALLEST_BITS)


class Average(Sum):
    __slots__ = ()

    @property
    def value(self) -> object:
        return self._divided(self._count) if self._count else None


def _quotient(dividend: int, divisor: int) -> float:
    """Returns the float that is nearest to the quotient."""
    try:
        return dividend / divisor
    except OverflowError:
        return inf if dividend > 0 else -inf


def with_order(value: object) -> object:
    """Returns a value that has an order, and is no text that is too long; None for all others."""
    if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= MAX_KEY_CHARS):
        return value
    return None


class Least(Aggregate):
    __slots__ = ("_place", "_value")
    down = False

    def __init__(self) -> None:
        self._value: object = None
        self._place = place_of(None)

    def add(self, value: object) -> int:
        value, before = with_order(value), len(self._place)
        place = place_of(value, down=self.down)
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
