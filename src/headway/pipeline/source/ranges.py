"""Ranges of offsets, cut into parts that are read side by side, and narrowed by filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from headway.core.message import BadTopic, matches, validate_topic

if TYPE_CHECKING:
    from headway.pipeline.archive.folder import File

SPAN_OFFSETS = 50_000
"""Offsets that are worth a partition of their own."""
CLOCK_BACK = timedelta(minutes=10)
"""The clock of a broker's machine may have been set back between two runs: records of a time then lie behind some of a
later time, and all are found that lie behind by no more than that."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Span(InputPartition):
    """A partition: the records with ``first`` <= offset < ``stop``."""

    first: int
    stop: int


@dataclass(frozen=True)
class ArchiveSpan(InputPartition):
    """A partition of the archive: of these files, the records with ``first`` <= offset < ``stop``."""

    first: int
    stop: int
    files: tuple[File, ...]


def split(first: int, stop: int, most: int) -> list[Span]:
    """Splits a range into even parts, at least one, which may be empty."""
    count = max(1, min(most, -(-(stop - first) // SPAN_OFFSETS)))
    ends = [first + (stop - first) * number // count for number in range(count + 1)]
    return [Span(*pair) for pair in pairwise(ends)]


@dataclass
class Bounds:
    """The range that pushed filters leave: all of them hold."""

    topic: str
    """A topic, or a filter."""
    first: int = 0
    stop: int | None = None
    since: list[datetime] = field(default_factory=list)
    """Times before which no record lies; those written together have one time, so the range is not exact."""
    until: list[datetime] = field(default_factory=list)
    nothing: bool = False

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Takes in the filters that it can; yields those that Spark has to apply."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
            return False
        if one.attribute == ("offset",) and type(one.value) is int:
            self._at_offset(one, one.value)
            return True
        if one.attribute == ("topic",) and isinstance(one, EqualTo):
            return self._of_topic(one.value)
        if one.attribute == ("timestamp",) and isinstance(one.value, datetime) and one.value.tzinfo is not None:
            self._at_time(one, one.value.astimezone(UTC))
        return False

    def _at_offset(self, one: Filter, value: int) -> None:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first = max(self.first, value + isinstance(one, GreaterThan))
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            stop = value + (not isinstance(one, LessThan))
            self.stop = stop if self.stop is None else min(self.stop, stop)

    def _at_time(self, one: Filter, value: datetime) -> None:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.since.append(value)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.until.append(value + _MICROSECOND + CLOCK_BACK)

    def _of_topic(self, topic: Any) -> bool:
        if not matches(self.topic, topic):
            self.nothing = True
            return True
        try:
            self.topic = validate_topic(topic)
        except BadTopic:
            return False
        return True
