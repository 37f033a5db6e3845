"""Backfills: records that a consumer is given before any more from its lane, from elsewhere."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headway.core.log import LooseEnds
from headway.core.message import Record


class BackfillSource(Protocol):
    """Records from elsewhere than the lane, one at a time; closed when no more are wanted. None: it has looked at as
    many as it may in one step, and found none; there may be more."""

    def __next__(self) -> Record | None: ...
    def close(self) -> None: ...


class Backfill(NamedTuple):
    """Records that come before any more from the lane: retained ones, a snapshot, a conflated stretch, or what the
    subscription this one replaces had not been given."""

    records: BackfillSource
    retained: bool
    """The consumer sees them with the retain flag."""
    since: int
    """Sequence after which they are records that passed in the lane while conflating."""
    loose: LooseEnds | None = None
    """Is told what was given, where that is to outlive the process."""
