"""Numbered properties: those of one sender's messages, which differ by the number that ends their ids, and by time.

Clients of JMS give each message an id and a time, so no two messages say the same of themselves; but what differs are
two numbers. A *numbering* is the rest. ``Numbered`` is what a run of such messages has in the place of one properties
for all (``Run.own``): the numbering, and two lists of numbers. Codecs that know it (``Dialect.reads_own``) write such a
run without an object per record.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from headway.core.message import Properties
from headway.wire.common import CommonProperties


class Numbering(Protocol):
    """The part that is equal, in the form of queues (codec.py)."""

    common: CommonProperties
    """The properties without the id and the time."""
    stem: str
    """The id, up to its number."""
    written: dict[Hashable, Any]
    """The parts that other protocols have written of it, by their forms; they keep its size in bounds."""

    def fits(self, time_ms: int) -> bool:
        """Tells whether messages of this time have properties of this form."""

    def properties(self, number: int, time_ms: int) -> Properties:
        """Returns the properties of one message. The time fits."""

    def natives(self, numbers: Sequence[int], times_ms: Sequence[int]) -> Sequence[bytes]:
        """Returns the properties of many messages as queues keep them."""

    def read(self, native: bytes) -> tuple[int, int] | None:
        """Returns the number and the time, from properties as queues keep them; None: these are not of this form."""

    def spans(self, native: bytes) -> tuple[tuple[int, int], ...]:
        """Returns the starts and ends of what differs in these properties, which are of this form."""

    def values(self, columns: Sequence[Sequence[bytes]]) -> tuple[Sequence[int], Sequence[int]] | None:
        """Returns the numbers and the times of many messages, from what stands at these spans, for each span one
        sequence. None: some are not of this form."""


class Numbered:
    """The properties of the records of a run, one by one. ``times_ms``: 0 where there is no time. ``written``: what a
    codec has written of the run and needs again for the next lane."""

    __slots__ = ("numbering", "numbers", "times_ms", "written")

    def __init__(self, numbering: Numbering, numbers: Sequence[int], times_ms: Sequence[int]) -> None:
        self.numbering = numbering
        self.numbers = numbers
        self.times_ms = times_ms
        self.written: dict[Hashable, Any] = {}

    def of(self, index: int) -> Properties:
        return self.numbering.properties(self.numbers[index], self.times_ms[index])

    def natives(self) -> Sequence[bytes]:
        return self.numbering.natives(self.numbers, self.times_ms)

    def part(self, start: int, stop: int) -> Numbered:
        return Numbered(self.numbering, self.numbers[start:stop], self.times_ms[start:stop])
