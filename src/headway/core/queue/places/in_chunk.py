"""Where a record that waits is in memory."""

from __future__ import annotations

from headway.core.log import Chunk
from headway.core.queue.places.requeued import RequeuedRecord
from headway.core.queue.places.standing import StandingRecord


def place_in_chunk(one: RequeuedRecord | StandingRecord) -> tuple[Chunk, int]:
    """Returns the chunk of a record, and its index there."""
    return (one.chunk if isinstance(one, RequeuedRecord) else one.row.chunk), one.at
