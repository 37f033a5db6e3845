"""Discards are a policy's orders to leave out records that wait in a queue.

Theory of operation. Only the records that come next can be dropped as they are. So all others are left standing first
(standing.py): what is chosen of them is dropped, and the rest waits at its place. It is done little by little, at the
beginning of the queue's runs, as far as the turn's work goes (``Overdue``). While the oldest are dropped, nothing is
handed out. The other orders do not hold the queue up, because what comes first stays or is dropped one by one.

A queue with priorities has them all on its heap (requeued.py), and each look is at all of them.

What comes while a rule lasts is dropped when it would be handed out (``Skip``), or by the next look.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.base import Reason, WorkSteps
from headway.core.consumer import Predicate, SharedReader, Skip, Subscription
from headway.core.delivery import (
    CHUNK_WORK,
    LOOKED_AT_WORK,
    PRIORITY,
    RANGE_WORK,
    at_most,
    enough,
    figures_of,
    neighbours,
    predicate_of,
)
from headway.core.log import Chunk, stretch_bytes
from headway.core.policy import Action, Which
from headway.core.queue.backlog import Backlog
from headway.core.queue.drops import Drops
from headway.core.queue.places import Key, QueueCursor, Row
from headway.core.routing import DROPPED_WORK, Registry

PRIORITY_MAX = 9
Kept = tuple[float, float]
"""The records and bytes that are to be left of what waits."""
NOTHING: Kept = (0, 0)


class Oldest(NamedTuple):
    """An order to drop records until the backlog's counts of handed records and bytes reach these values."""

    handed_records: int
    handed_bytes: int
    reason: Reason


class Discards:
    def __init__(self, queue: SharedReader, backlog: Backlog, drops: Drops, skips: list[Skip], registry: Registry
                 ) -> None:  # fmt: skip
        self.oldest: Oldest | None = None
        """An order that was too much work for one turn."""
        self._looks: dict[Action, WorkSteps] = {}
        """Orders that are being applied to what waits."""
        self._queue = queue
        self._backlog = backlog
        self._drops = drops
        self._skips = skips
        self._registry = registry

    @property
    def begun(self) -> bool:
        """Tells whether orders are being carried out."""
        return self.oldest is not None or bool(self._looks)

    def stop(self) -> None:
        """Does nothing more, because the queue has ended."""
        self._looks.clear()
        del self._queue

    def look(self, member: Subscription, action: Action) -> None:
        """Applies a policy's order to what waits now."""
        kept, waiting = action.records_kept(member.prefetch), self._backlog
        if action.which is Which.OLDEST:
            records, size = waiting.lag_records - kept, waiting.lag_bytes - action.bytes_kept
            self.discard(int(max(0, records)), int(max(0, size)), Reason.DISCARDED)
        elif action.which is not Which.OLDER_PER_KEY and action not in self._looks:
            if action.which is Which.LOWEST_PRIORITY:
                steps = self._lowest(member, (kept, action.bytes_kept))
            elif (predicate := predicate_of(action)) is not None:
                steps = self._matching(member, action, predicate)
            else:
                steps = self._newest(member, action, kept, action.bytes_kept)
            self._looks[action] = steps
            self._registry.ready_queues[self._queue] = None

    def discard(self, records: int, size: int, reason: Reason) -> None:
        """Drops the next records: at least ``records`` of them, and at least ``size`` bytes. If that is too much work
        for this turn, the turns to come go on with it, before they hand out records."""
        backlog = self._backlog
        self.oldest = Oldest(backlog.handed_records + records, backlog.handed_bytes + size, reason)
        self._discard_oldest()

    def go_on(self) -> bool:
        """Goes on with the orders. Returns whether records may be handed out."""
        if not self._discard_oldest():
            return False
        overdue, begun = self._registry.overdue, False
        while self._looks:
            action, steps = next(iter(self._looks.items()))
            if overdue.left <= 0:
                overdue.put_off(self._queue, begun=begun)
                break
            if (work := next(steps, None)) is None:
                del self._looks[action]
                for cursor in self._backlog.standing.readers:
                    cursor.hold_little()
            else:
                overdue.left -= work
                begun = True
        return True

    def _discard_oldest(self) -> bool:
        """Goes on with the order to drop the oldest. Returns whether it is done."""
        backlog, oldest = self._backlog, self.oldest
        while oldest is not None and (waiting := backlog.lag_records) and backlog.has_some:
            records = oldest.handed_records - backlog.handed_records
            excess = oldest.handed_bytes - backlog.handed_bytes
            if excess > 0:
                records = max(records, 1, excess * waiting // backlog.lag_bytes)
            if records <= 0:
                break
            if not self._drops.drop_some(records, oldest.reason):
                return False
        self.oldest = None
        return True

    # -- orders -----------------------------------------------------------------------------------------------------

    def _skip(self, action: Action) -> Skip | None:
        """Returns the skip that an order has begun, which leaves out what comes while it lasts."""
        return next((skip for skip in self._skips if skip.order == action and skip.open), None)

    def _begin_skip(self, action: Action, predicate: Predicate | None) -> None:
        self._skips.append(Skip(self._backlog.cursor.number, predicate, Reason.DISCARDED, action))

    def _matching(self, member: Subscription, action: Action, predicate: Predicate) -> WorkSteps:
        """Drops the records that match: at its first look also of what stands, and then of what has come since."""
        first_look = self._skip(action) is None
        if first_look:
            self._begin_skip(action, predicate)
        if first_look or self._backlog.sorts:
            yield from self._drop_requeued(member, predicate, True)
            for cursor, row in self._rows():
                yield from self._know(member, row, predicate)
                yield from self._drop_of(cursor, row, predicate, True)
        while self._has_fresh():
            cursor, chunk, first, last = self._pass_some(member, predicate)
            yield LOOKED_AT_WORK * (last - first)
            for row in [row for row in cursor.rows[-1:] if row.chunk is chunk]:
                yield from self._drop_of(cursor, row, predicate, True)

    def _newest(self, member: Subscription, action: Action, records: float, size: float) -> WorkSteps:
        """Keeps the first records that wait, so many at most, and drops all others: at its first look also of what
        stands. What a member gave back comes first."""
        if self._skip(action) is not None and not self._backlog.sorts:
            records = size = 0
        else:
            for record in sorted(self._backlog.requeued):
                if records >= 1 and size >= record.size:
                    records, size = records - 1, size - record.size
                else:
                    records = 0
                    yield from self._drop_one(record.key)
            for cursor, row in self._rows():
                for first, last in row.waiting_ranges():
                    stop = first + at_most(row.chunk, first, last, records, size)
                    if stop < last:
                        yield from self._drop_of(cursor, row, None, 0, stop)
                        records = 0
                        break
                    records, size = records - (stop - first), size - stretch_bytes(row.chunk, first, last)
                yield CHUNK_WORK
        while self._has_fresh():
            cursor, chunk, first, last = self._pass_some(member, None)
            stop = first + at_most(chunk, first, last, records, size)
            yield CHUNK_WORK
            if stop < last:
                records = 0
                for row in [row for row in cursor.rows[-1:] if row.chunk is chunk]:
                    yield from self._drop_of(cursor, row, None, 0, stop)
            elif stop > first:
                records, size = records - (stop - first), size - stretch_bytes(chunk, first, stop)
        if self._skip(action) is None:
            self._begin_skip(action, None)

    def _lowest(self, member: Subscription, kept: Kept) -> WorkSteps:
        """Drops records of the lowest priority, and then of the next one, until no more wait than are to be kept."""
        if self._is_within(kept):
            return
        while self._has_fresh():
            _, _, first, last = self._pass_some(member, PRIORITY)
            yield LOOKED_AT_WORK * (last - first)
        for _, row in self._rows():
            yield from self._know(member, row, PRIORITY)
        for priority in range(PRIORITY_MAX + 1):
            if self._is_within(kept):
                return
            yield from self._drop_requeued(member, PRIORITY, priority, kept)
            for cursor, row in self._rows():
                yield from self._drop_of(cursor, row, PRIORITY, priority, kept=kept)

    # -- parts ------------------------------------------------------------------------------------------------------

    def _rows(self) -> list[tuple[QueueCursor, Row]]:
        return [(cursor, row) for cursor in self._backlog.standing.readers for row in cursor.rows]

    def _has_fresh(self) -> bool:
        return not self._backlog.sorts and self._backlog.has_fresh()

    def _excess(self, kept: Kept) -> tuple[float, float]:
        return self._backlog.lag_records - kept[0], self._backlog.lag_bytes - kept[1]

    def _is_within(self, kept: Kept) -> bool:
        return max(self._excess(kept)) <= 0

    def _pass_some(
        self, member: Subscription, predicate: Predicate | None
    ) -> tuple[QueueCursor, Chunk, int, int]:
        """Lets some of the fresh records stand, of which there must be one. Returns which."""
        backlog = self._backlog
        cursor, chunk, first = backlog.fresh()
        last = min(len(chunk), cursor.end_number - chunk.first_number)
        if predicate is not None:
            last = min(last, len(figures_of(member, chunk, predicate, first)))
        backlog.leave_standing(last - first)
        return cursor, chunk, first, last

    def _know(self, member: Subscription, row: Row, predicate: Predicate) -> WorkSteps:
        """Looks at all records of a row."""
        known = len(_known(row.chunk, predicate))
        while row.waiting and known < len(row.flags):
            before, known = known, len(figures_of(member, row.chunk, predicate, known))
            yield LOOKED_AT_WORK * (known - before)

    def _drop_of(
        self, cursor: QueueCursor, row: Row, predicate: Predicate | None, figure: int, index: int = 0,
        kept: Kept = NOTHING,
    ) -> WorkSteps:  # fmt: skip
        """Drops the records of a row, from ``index`` on, of which a predicate says this figure (all, without one), as
        long as more wait than are to be kept."""
        done = False
        while not done:
            done = True
            ranges = [(max(first, index), last) for first, last in row.waiting_ranges() if last > index]
            if predicate is not None:
                figures = _known(row.chunk, predicate)
                ranges = [run for a, b in ranges for run in neighbours(figures, figure, a, min(b, len(figures)))]
            for first, last in ranges:
                wanted = enough(row.chunk, first, last, *self._excess(kept)) if kept is not NOTHING else last - first
                if not wanted:
                    return
                if self._drops.drop_standing(cursor, row, first, first + wanted, Reason.DISCARDED) < wanted:
                    done = False  # there is more to do than can be done at once
                    break
                self._registry.overdue.left -= RANGE_WORK
            yield CHUNK_WORK

    def _drop_requeued(
        self, member: Subscription, predicate: Predicate, figure: int, kept: Kept = NOTHING
    ) -> WorkSteps:
        """Drops likewise those that wait out of order."""
        for record in list(self._backlog.requeued):
            yield CHUNK_WORK if len(_known(record.chunk, predicate)) > record.at else LOOKED_AT_WORK
            if figures_of(member, record.chunk, predicate, record.at)[record.at] == figure:
                if kept is not NOTHING and self._is_within(kept):
                    return
                yield from self._drop_one(record.key)

    def _drop_one(self, key: Key) -> WorkSteps:
        while key in self._backlog.requeued.by_key:
            if self._drops.affordable_at_least(1):
                self._drops.drop_out_of_order(self._backlog.requeued.take(key), Reason.DISCARDED)
            yield DROPPED_WORK


def _known(chunk: Chunk, predicate: Predicate) -> bytes:
    """Returns what is known already of the first records of a chunk."""
    return (chunk.marks or {}).get(predicate.key, b"")
