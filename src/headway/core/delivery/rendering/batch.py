"""A batch is what one call renders for a consumer, and what it costs: steps of a turn (fanout.py)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from headway.core.base import Reason
from headway.core.consumer import Session
from headway.core.log import HELD_BACK_BYTES, Chunk

BATCH_BYTES = 64 * 1024
BATCH_RECORDS = 512
"""The largest batch of records that are written one by one."""
WRITTEN_A_STEP = 8
"""Records that are written, or looked at, one by one in the time of one step."""
ENCODED_A_STEP = 2
"""Records of a backfill, each encoded for one consumer, or records that are put into an envelope, in that time."""
Losses = Callable[[dict[int, int], Reason], None]
"""Is told of records that were left out, by their publishers, and why."""


def takes_more(session: Session) -> bool:
    """Tells whether the batch in the outlet has room for another record, and what is held back, too."""
    size, most = len(session.outlet.out), min(BATCH_BYTES, session.outlet.room_bytes)
    return (not size or size < most) and session.held_back.size < HELD_BACK_BYTES


def end_of_batch(chunk: Chunk, first: int) -> int:
    """Returns the first record of the chunk that is not in the batch that record ``first`` begins."""
    return max(first + 1, bisect_right(chunk.ends, chunk.record_start(first) + BATCH_BYTES))


def steps_of(records: int) -> int:
    return 1 + records // WRITTEN_A_STEP


def encoded_steps_of(records: int) -> int:
    return 1 + records // ENCODED_A_STEP


def out_of_credit(session: Session, now: float) -> bool:
    """Tells whether the client permits no more deliveries; notes since when."""
    channel = session.channel
    if channel.left > 0:
        return False
    channel.in_flight_bytes.wait()
    if channel.exhausted_since_s is None:
        channel.exhausted_since_s = now
    return True
