"""A backfill is a source of records that a consumer gets before any more from its lane."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headway.core.log import NO_PROGRESS, OutOfOrderProgress
from headway.core.message import Record


class BackfillSource(Protocol):
    """An iterator over the records of a backfill. It yields None if one step found no matching record; there may be
    more. It is closed when the consumer needs no more records."""

    def __next__(self) -> Record | None: ...
    def close(self) -> None: ...


class Backfill(NamedTuple):
    """Records that come before any more from the lane: retained records, a snapshot, a pass over a state, recorded
    records, or the unsent records of a replaced subscription."""

    records: BackfillSource
    retained: bool
    """Set if the records are sent with the retain flag."""
    since: int
    """The last sequence before the subscription began. Later records also passed in its lane; if this backfill sends
    them from a state, they are owed no longer."""
    out_of_order: OutOfOrderProgress = NO_PROGRESS
    """Notes which records were sent and settled, if the subscription is durable."""
