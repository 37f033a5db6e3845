"""Progress: how far a reader of durable records is, as the position knows it that is journaled for it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """The progress of one reader of durable records: a cursor, a poll, or out-of-order progress."""

    @property
    def attached(self) -> bool:
        """Tells whether the next delivery is a record of a lane, and not of a state."""

    @property
    def ended(self) -> int:
        """The last sequence that is this reader's; 0 means that it has no end yet."""

    def unsettled_sequence(self) -> int:
        """Returns the sequence of the first record that is not settled; 0 if there is none."""

    def unsent_sequence(self) -> int:
        """Returns the sequence of the first record that was never sent; 0 if there is none."""

    def unsettled_ranges(self, last: int) -> list[tuple[int, int]]:
        """Returns all ranges of unsettled records, as pairs of first and last sequence. ``last`` is the newest sequence
        of the broker."""
