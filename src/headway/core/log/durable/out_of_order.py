"""Out-of-order progress: a durable subscription's records that are in no lane of its own.

These are the deliveries of the subscription that it replaced, and the records that it reads from recorded topics. Some
are with the client and unsettled; others are still to be sent. For the journal this is one more cursor of the durable
position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headway.core.log.durable.ledger import DurablePosition
from headway.core.log.durable.null_position import NOT_DURABLE


class OutOfOrderProgress:
    """The records with sequences up to ``ended``."""

    __slots__ = ("_following", "durable_position", "ended", "unacknowledged")
    attached = True

    def __init__(self, position: DurablePosition, ended: int, following: int = 0) -> None:
        self.durable_position = position
        self.ended = ended
        self.unacknowledged: dict[int, None] = {}
        """The sequences of records that were sent and are not settled."""
        self._following = following
        """The sequence of the next record to be sent; 0 if there is none."""

    def sent(self, sequence: int) -> None:
        """Notes that this record was sent and must be settled."""
        self.unacknowledged[sequence] = None

    def acknowledge(self, sequence: int) -> None:
        if sequence in self.unacknowledged:
            del self.unacknowledged[sequence]
            self.durable_position.settled_range(sequence, sequence)
            self._leave_if_over()

    def acknowledge_run(self, sequences: Iterable[int]) -> None:
        for sequence in sequences:
            self.acknowledge(sequence)

    def advance_past(self, sequence: int) -> None:
        """Moves on behind this record. It is settled, unless it was sent and must be acknowledged."""
        self._following = sequence + 1
        if sequence in self.unacknowledged:
            self.durable_position.moved()
        else:
            self.durable_position.settled_range(sequence, sequence)

    def finish(self) -> None:
        """Notes that all records were sent."""
        self._following = 0
        self.durable_position.moved()
        self._leave_if_over()

    def unsent_sequence(self) -> int:
        return self._following if self._following <= self.ended else 0

    def unsettled_sequence(self) -> int:
        return min(self.unacknowledged, default=0) or self.unsent_sequence()

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        """Returns all ranges of unsettled records, like a cursor."""
        fresh = self.unsent_sequence()
        return [(one, one) for one in self.unacknowledged] + ([(fresh, self.ended)] if fresh else [])

    @property
    def over(self) -> bool:
        """Tells whether all records are sent and settled."""
        return not self.unacknowledged and not self.unsent_sequence()

    def _leave_if_over(self) -> None:
        if self.over:
            self.durable_position.drop(self)


class NoProgress(OutOfOrderProgress):
    """The progress of records that no position has to know, and that are in no lane. It ignores all reports."""

    __slots__ = ()

    def sent(self, sequence: int) -> None:
        pass

    def acknowledge(self, sequence: int) -> None:
        pass

    def advance_past(self, sequence: int) -> None:
        pass

    def finish(self) -> None:
        pass


NO_PROGRESS: Final = NoProgress(NOT_DURABLE, 0)
