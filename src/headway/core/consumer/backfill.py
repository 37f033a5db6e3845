"""Backfills: records from elsewhere that a consumer is given before any more from its lane."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headway.core.log import OutOfOrderProgress
from headway.core.message import Record


class BackfillSource(Protocol):
    """An iterator over the records of a backfill. None means that it has looked at as many records as one step allows
    and found none that is wanted; there may be more. It is closed when no more are wanted."""

    def __next__(self) -> Record | None: ...
    def close(self) -> None: ...


class Backfill(NamedTuple):
    """Records that come before any more from the lane: retained records, a snapshot, a pass over a state, or what the
    subscription that this one replaces had not been given."""

    records: BackfillSource
    retained: bool
    """Whether the records are sent with the retain flag."""
    since: int
    """Records after this sequence were appended to the lane since the subscription began: if they are read from a
    state, they are owed to it."""
    out_of_order: OutOfOrderProgress | None = None
    """Notes what was sent and settled, where that has to outlive the process."""
