"""The null position: what stands in for a durable position where nothing outlives the process."""

from __future__ import annotations

from typing import Final, NoReturn

from headway.core.log.ledger import DurablePosition, Progress, Waits


class NullPosition(DurablePosition):
    """The durable position of every subscription and queue that is not durable. It may be told anything, and forgets
    it. What only a durable position can do (hold frames back, be committed) raises an error."""

    __slots__ = ()
    durable = False
    number = 0

    def __init__(self) -> None:
        pass

    def settled(self, cursor: Progress, number: int, sequence: int, upto: int, upto_sequence: int) -> None:
        pass

    def never_had(self, first: int, last: int) -> None:
        pass

    def passed(self, first: int, last: int) -> None:
        pass

    def moved(self) -> None:
        pass

    def drop(self, cursor: Progress) -> None:
        pass

    def record_in_flight(self, client: str, delivery_id: int, sequence: int, *, released: bool = False) -> None:
        pass

    def read_recorded_only(self) -> None:
        pass

    def hold_back(self, client: Waits, frames: bytes | bytearray) -> NoReturn:
        raise AssertionError("frames are held back for a position that is never written")


NOT_DURABLE: Final = NullPosition()
"""The position of everything that is not durable."""
