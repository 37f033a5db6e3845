"""The null position is the durable position of subscriptions and queues that do not outlive the process."""

from __future__ import annotations

from typing import Final, NoReturn

from headway.core.log.durable.held_back import CommitWaiter
from headway.core.log.durable.ledger import DurablePosition
from headway.core.log.durable.progress import Progress


class NullPosition(DurablePosition):
    """The position of every subscription and queue that is not durable. It ignores all reports. Operations of durable
    positions only (holding frames back, a commit) raise an error."""

    __slots__ = ()
    durable = False
    number = 0

    def __init__(self) -> None:
        pass

    def settled(self, cursor: Progress, number: int, sequence: int, upto: int, upto_sequence: int) -> None:
        pass

    def refused(self, first: int, last: int, accepted: int) -> None:
        pass

    def settled_range(self, first: int, last: int) -> None:
        pass

    def moved(self) -> None:
        pass

    def drop(self, cursor: Progress) -> None:
        pass

    def record_in_flight(self, client: str, delivery_id: int, sequence: int, *, released: bool = False) -> None:
        pass

    def read_recorded_only(self) -> None:
        pass

    def hold_back(self, client: CommitWaiter, frames: bytes | bytearray) -> NoReturn:
        raise AssertionError("frames are held back for a position that is never written")


NOT_DURABLE: Final = NullPosition()
"""The only null position."""
