"""Loose ends: records of a durable subscription that are with its client, or to be given to it, and stand in no lane of
its own: what the subscription it replaced was giving, and what is read from recorded topics.

To the journal they are one more cursor of the subscription's place.
"""

from __future__ import annotations

from itertools import pairwise

from headway.core.ledger import Kept


class LooseEnds:
    """``ended``: it has to do with sequences up to this one."""

    __slots__ = ("_following", "ended", "kept", "unacknowledged")
    attached = True

    def __init__(self, kept: Kept, ended: int, following: int = 0) -> None:
        self.kept = kept
        self.ended = ended
        self.unacknowledged: dict[int, None] = {}
        """Sequences."""
        self._following = following
        """The next to be given; 0: there is none."""

    def sent(self, sequence: int) -> None:
        """It is with the client until that settles it."""
        self.unacknowledged[sequence] = None

    def acknowledge(self, sequence: int) -> None:
        if sequence in self.unacknowledged:
            del self.unacknowledged[sequence]
            self.kept.passed(sequence, sequence)

    def given(self, sequence: int) -> None:
        """That was its turn; what is to come is behind it."""
        self._following = sequence + 1
        if sequence in self.unacknowledged:
            self.kept.moved()
        else:
            self.kept.passed(sequence, sequence)

    def finish(self) -> None:
        """There is nothing to come."""
        self._following = 0
        self.kept.moved()

    def fresh_sequence(self) -> int:
        return self._following if self._following <= self.ended else 0

    def wanted_sequence(self) -> int:
        return min(self.unacknowledged, default=0) or self.fresh_sequence()

    def settled_sequences(self, after: int, last: int) -> list[int]:
        """As a cursor's."""
        found: list[int] = []
        wanted = [*sorted(self.unacknowledged), self.fresh_sequence() or self.ended + 1]
        for before, following in pairwise([after, *wanted]):
            if following > before + 1:
                found += (before + 1, following - 1)
        return found
