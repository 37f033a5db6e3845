"""A backfill is a source of records that a consumer gets before any more from its lane."""

from __future__ import annotations

from typing import Protocol

from headway.core.consumer.connection import Outlet
from headway.core.consumer.progress.counters import NO_VOLUME, Volume
from headway.core.log import NO_PROGRESS, OutOfOrderProgress
from headway.core.message import Record


class BackfillSource(Protocol):
    """An iterator over the records of a backfill. It yields None if one step found no matching record; there may be
    more. It is closed when the consumer needs no more records."""

    @property
    def held_bytes(self) -> int:
        """Returns the memory that is held for this source alone."""

    def __next__(self) -> Record | None: ...
    def close(self) -> None: ...
    def waiting(self) -> tuple[int, int]:
        """Returns how many records it still has, at most, and their bytes, about. Asked at each look at its consumer:
        it is counted as the source is read. Records that a conflation owes are not among them."""


class Backfill:
    """Records that come before any more from the lane: retained records, a snapshot, a pass over a state, recorded
    records, or the unsent records of a replaced subscription.

    It stays until its client has taken its last batch: one that stands still before that is behind."""

    __slots__ = ("_batch_bytes", "_batch_end", "_batch_records", "done", "out_of_order", "records", "retained", "since",
                 "since_s")  # fmt: skip

    def __init__(
        self, records: BackfillSource, retained: bool, since: int, since_s: float,
        out_of_order: OutOfOrderProgress = NO_PROGRESS,
    ) -> None:  # fmt: skip
        self.records = records
        self.retained = retained
        """Set if the records are sent with the retain flag."""
        self.since = since
        """The last sequence before the subscription began. Later records also passed in its lane; if this backfill
        sends them from a state, they are owed no longer."""
        self.since_s = since_s
        """The time when it was asked for: its records wait since then."""
        self.out_of_order = out_of_order
        """Notes which records were sent and settled, if the subscription is durable."""
        self.done = False
        """Set if all records are in the outlet."""
        self._batch_records = self._batch_bytes = self._batch_end = 0

    def wrote(self, records: int, outlet: Outlet) -> None:
        """Notes a batch, which is in the outlet now."""
        self._batch_records, self._batch_bytes = records, len(outlet.out)
        self._batch_end = outlet.taken_bytes + self._batch_bytes

    def unsent(self, outlet: Outlet) -> Volume:
        """Returns what its client has not taken of the last batch."""
        left = min(self._batch_end - outlet.taken_bytes, len(outlet.out))
        if left <= 0 or not self._batch_bytes:
            return NO_VOLUME
        return Volume(-(-self._batch_records * left // self._batch_bytes), left)
