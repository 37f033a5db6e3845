"""Loose ends: records of a durable subscription that are with its client, or to be given to it, and stand in no lane of
its own: what the subscription it replaced was giving, and what is read from recorded topics.

To the journal they are one more cursor of the subscription's place.
"""

from __future__ import annotations

from headway.core.log.ledger import DurablePosition


class OutOfOrderProgress:
    """``ended``: it has to do with sequences up to this one."""

    __slots__ = ("_following", "durable_position", "ended", "unacknowledged")
    attached = True

    def __init__(self, position: DurablePosition, ended: int, following: int = 0) -> None:
        self.durable_position = position
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
            self.durable_position.passed(sequence, sequence)
            self._leave_if_over()

    def given(self, sequence: int) -> None:
        """That was its turn; what is to come is behind it."""
        self._following = sequence + 1
        if sequence in self.unacknowledged:
            self.durable_position.moved()
        else:
            self.durable_position.passed(sequence, sequence)

    def finish(self) -> None:
        """There is nothing to come."""
        self._following = 0
        self.durable_position.moved()
        self._leave_if_over()

    def fresh_sequence(self) -> int:
        return self._following if self._following <= self.ended else 0

    def wanted_sequence(self) -> int:
        return min(self.unacknowledged, default=0) or self.fresh_sequence()

    def wanted_sequences(self, last: int) -> list[tuple[int, int]]:
        """As a cursor's."""
        fresh = self.fresh_sequence()
        return [(one, one) for one in self.unacknowledged] + ([(fresh, self.ended)] if fresh else [])

    @property
    def over(self) -> bool:
        """Nothing is with the client, nor to be given to it."""
        return not self.unacknowledged and not self.fresh_sequence()

    def _leave_if_over(self) -> None:
        if self.over:
            self.durable_position.drop(self)
