"""A handover gives the unsent records of a replaced subscription to its successor, before the successor's own records.

MQTT 5 (3.8.4) says that no message is lost when a subscription is replaced. The old cursor stays in its own lane. It is
read record by record, as the first backfill of the new subscription, up to the point where the new one began.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import Reason
from headway.core.consumer import REPLACED, Subscription
from headway.core.delivery.frames import record_at
from headway.core.delivery.rendering import Losses
from headway.core.message import Record


class Handover:
    """A source of records for a backfill. Calls ``done`` once, with the old subscription, when no record is left."""

    held_bytes = 0

    def __init__(self, old: Subscription, lost: Losses, done: Callable[[Subscription], object]) -> None:
        self._old = old
        old.become(REPLACED)
        self._upto = old.stop_number = old.feed.lane.count
        self._end = old.feed.lane.end
        self._lost = lost
        self._done = done
        self._closed = False

    def __iter__(self) -> Handover:
        return self

    def __next__(self) -> Record | None:
        old, cursor = self._old, self._old.cursor
        if not self._closed and not old.ended:
            old.pass_left_out()
        if not self._closed and not old.ended and cursor.number < self._upto:
            cursor.step()
            chunk = cursor.chunk
            index = chunk.index_at(cursor.position)
            try:
                record = record_at(old.feed.lane.dialect, chunk, index)
            except OSError:
                self._lost(old.skip_to(cursor.number + 1, Reason.SPILL_FAILED), Reason.SPILL_FAILED)
                return None
            size = chunk.ends[index] - chunk.record_start(index)
            cursor.advance(size)
            old.counters.pass_over(1, size)  # the new subscription delivers it
            return record
        raise StopIteration

    def waiting(self) -> tuple[int, int]:
        cursor, left_out = self._old.cursor, self._old.left_out
        if self._closed or self._old.ended:
            return 0, 0
        records = max(0, self._upto - cursor.number - left_out.records)
        return records, max(0, self._end - cursor.position - left_out.bytes)

    def close(self) -> None:
        """Ends the old subscription, and counts its remaining records as lost."""
        if self._closed or self._old.ended:
            return
        self._closed = True
        old, lane = self._old, self._old.feed.lane
        lane.receive()
        self._lost(old.skip_to(self._upto, Reason.SUBSCRIPTION_ENDED), Reason.SUBSCRIPTION_ENDED)
        old.counters.pass_over(lane.count - old.cursor.number, lane.end - old.cursor.position)
        old.cursor.jump_to_end()  # the new subscription gets the later records by its own lane
        self._done(old)
