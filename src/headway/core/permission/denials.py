"""Denials: how often each operation was denied, and the words of each that was denied for the first time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from headway.core.permission.rule import Operation


class Denial(msgspec.Struct, frozen=True):
    """A client was denied something that it had not asked for before."""

    client: str
    user: str
    operation: Operation
    name: str
    text: str
    first: bool
    """Whether it is the client's first denial of this operation since it connected, or since the last reload."""


class Denials:
    def __init__(self, tell: Callable[[Denial], None] = lambda denial: None) -> None:
        self.counts: Counter[Operation] = Counter()
        """Requests that were denied; of publishes, the records."""
        self.tell = tell
        """Called with each denial; not again while the client's answers are remembered."""

    def add(self, operation: Operation, count: int = 1) -> None:
        self.counts[operation] += count
