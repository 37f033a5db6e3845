"""Drops are records that a queue leaves out: because of its length, a lifetime, a policy, or a rejection.

Rules:
- The record that has waited longest is dropped first. The next member in turn gets the gap. The publisher and the queue
  count the record.
- A dropped record is published to the queue's dead letter exchange, if there is one, unless it was purged. The core
  only creates an effect; the codec knows how to publish the record.
- Dead letters cost work. So all queues together create a limited number of them in a turn (``Overdue``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway.core.base import Reason, WorkSteps
from headway.core.consumer import DeadLetter, Predicate, QueueTerms, SharedReader, Skip, Subscription
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
    record_at,
)
from headway.core.log import Chunk, stretch_bytes
from headway.core.message import Record, topic_of
from headway.core.policy import Action, Which
from headway.core.queue.backlog import Backlog
from headway.core.queue.places import Key, QueueCursor, RequeuedRecord, Row, StandingRecord
from headway.core.routing import COPIES, DEAD_LETTER_WORK, DROPPED_WORK, Registry, Router

# -- drops -------------------------------------------------------------------------------------------------------------


PURGED_AT_ONCE = 128
"""The number of requeued records in one step of a purge. A step of fresh records takes a chunk."""
DROPPED_CHUNK_WORK = 4
LETTER_BYTES_PER_WORK = 16
LOST_AT_ONCE = 32
"""The number of requeued records of a group in one step of their loss."""


def letter_work(router: Router, terms: QueueTerms, record: Record) -> int:
    """Returns the work of making a record a dead letter: its properties are read and written anew, and it is published.
    """
    work = DEAD_LETTER_WORK + record.properties.size // LETTER_BYTES_PER_WORK
    exchange, key = terms.dead_letter_exchange, terms.dead_letter_key
    if not exchange:
        return work
    headers = record.properties.headers
    if key is None:
        return work + router.reach(exchange, record.topic, headers)
    return work + router.reach(exchange, topic_of(key), {name: headers[name] for name in headers if name != COPIES})


class Drops:
    """``by_reason`` counts the dropped records."""

    def __init__(self, queue: SharedReader, backlog: Backlog, registry: Registry) -> None:
        self.by_reason: Counter[Reason] = Counter()
        self._queue = queue
        self._terms = queue.terms
        self._backlog = backlog
        self._registry = registry
        self._ended = False

    def stop(self) -> None:
        """Drops nothing more, because the queue has ended."""
        self._ended = True
        ended = Reason.SUBSCRIPTION_ENDED if self._queue.ends_with_members else Reason.PURGED
        self._registry.receipts.queue_ended(self._queue, ended)
        self._registry.overdue.forget(self._queue)
        del self._queue

    @property
    def _next_member(self) -> Subscription | None:
        """The member that gets the gap of dropped records."""
        return next(iter(self._queue.members), None)

    # -- dropping ---------------------------------------------------------------------------------------------------

    def drop(self, records: int, reason: Reason) -> int:
        """Drops the records that would be handed out next. Returns how many it dropped."""
        backlog, done = self._backlog, 0
        while done < records and backlog.has_some_apart:
            self.drop_out_of_order(backlog.pop(), reason)
            done += 1
        if reason is not Reason.PURGED and self._terms.dead_letter_exchange is None:
            self._registry.overdue.left -= DROPPED_WORK * done
        while done < records and backlog.has_fresh():
            cursor, chunk, first = backlog.fresh()
            last = min(first + records - done, len(chunk), cursor.end_number - chunk.first_number)
            self._drop(chunk, first, last, reason)
            cursor.skip_to(chunk.first_number + last)
            done += last - first
            backlog.reads.step()
        if not backlog.has_more:
            self._registry.ready_queues[self._queue] = None  # so that the lane frees the dropped records
        return done

    def drop_out_of_order(self, record: RequeuedRecord, reason: Reason) -> None:
        """Drops a record that was taken out of the backlog."""
        self._drop(record.chunk, record.at, record.at + 1, reason, record.key)
        self._backlog.free(record.cursor, record.number)

    def _drop(self, chunk: Chunk, first: int, last: int, reason: Reason, key: Key | None = None) -> None:
        """Drops neighbours. They become dead letters if the queue has a dead letter exchange."""
        self._backlog.handed(last - first, chunk.ends[last - 1] - chunk.record_start(first), key)
        if reason is Reason.PURGED:
            self._count(chunk, first, last, reason)
        elif self._terms.dead_letter_exchange is None:
            self.lose(self._next_member, chunk, first, last, reason)
        else:
            for index in range(first, last):
                self.give_up(chunk, index, reason)

    def give_up(self, chunk: Chunk, index: int, reason: Reason) -> None:
        """Makes a record a dead letter, or counts it as lost."""
        if not self._dead_letter(chunk, index, reason):
            self.lose(self._next_member, chunk, index, index + 1, reason)

    def lose(self, member: Subscription | None, chunk: Chunk, first: int, last: int, reason: Reason) -> None:
        """Counts records that no member gets, and notes them in the member's gap."""
        self._count(chunk, first, last, reason)
        if member is not None:
            member.note_gap(last - first, chunk.sequence_of(first), chunk.sequence_of(last - 1), reason)
        self._registry.lost(chunk.publishers(first, last), reason)
        if len(chunk.by_publisher) > 1:  # each run was looked at
            self._registry.handed_work += chunk.run_of(last - 1) - chunk.run_of(first)

    def drop_standing(self, cursor: QueueCursor, row: Row, first: int, last: int, reason: Reason) -> int:
        """Drops neighbours that stand, as many of them as this turn has work left for. Returns how many."""
        backlog, chunk = self._backlog, row.chunk
        if self._terms.dead_letter_exchange is None and backlog.on_gone is None:
            backlog.standing.settle(cursor, row, first, last)
            self._drop(chunk, first, last, reason)
            backlog.reads.settled(cursor)
            return last - first
        last = first + self.affordable(last - first)
        for index in range(first, last):
            self.drop_out_of_order(backlog.take(StandingRecord(cursor, row, index)), reason)
        self._registry.overdue.left -= DROPPED_WORK * (last - first)
        return last - first

    def lose_standing(self, member: Subscription, reason: Reason) -> None:
        """Drops the standing records, which no member gets, and counts them in this member's gap."""
        for chunk, first, last in self._backlog.standing.give_up():
            self._backlog.handed(last - first, chunk.ends[last - 1] - chunk.record_start(first))
            self.lose(member, chunk, first, last, reason)
        for cursor in list(self._backlog.draining):
            self._backlog.reads.settled(cursor)

    def lose_requeued(self, member: Subscription, reason: Reason) -> WorkSteps:
        """Counts the requeued records, which no member gets, in this member's gap at once. Frees them little by little.
        """
        chunks, records = self._backlog.take_requeued()
        ends = [record.chunk.sequence_of(record.at) for record in (records[0], max(records[-LOST_AT_ONCE:]))]
        member.note_gap(len(records), min(ends), max(ends), reason)
        self.by_reason[reason] += len(records)
        runs = {chunk: (chunk.run_first[:], chunk.run_publisher[:]) for chunk in chunks}  # a group takes its lane along
        return self._lose_some(records, runs, reason)

    def _lose_some(
        self, records: list[RequeuedRecord], runs: Mapping[Chunk, tuple[Sequence[int], Sequence[int]]], reason: Reason
    ) -> WorkSteps:
        while records:
            losses: Counter[int] = Counter()
            for record in records[-LOST_AT_ONCE:]:
                firsts, publishers = runs[record.chunk]
                losses[publishers[bisect_right(firsts, record.at) - 1]] += 1
                if not self._ended:
                    self._tell_receipts(record.chunk, record.at, record.at + 1, reason)
                    self._backlog.free(record.cursor, record.number)
            del records[-LOST_AT_ONCE:]
            self._registry.lost(losses, reason)
            yield LOST_AT_ONCE

    def _count(self, chunk: Chunk, first: int, last: int, reason: Reason, *, dead_letter: bool = False) -> None:
        """Counts dropped records, and tells those who asked for receipts."""
        self.by_reason[reason] += last - first
        self._tell_receipts(chunk, first, last, reason, dead_letter=dead_letter)

    def _tell_receipts(
        self, chunk: Chunk, first: int, last: int, reason: Reason, *, dead_letter: bool = False
    ) -> None:
        receipts = self._registry.receipts
        if receipts.open:
            between = chunk.sequence_of(first), chunk.sequence_of(last - 1)
            receipts.dropped(self._queue, *between, reason, dead_letter=dead_letter)

    def _dead_letter(self, chunk: Chunk, index: int, reason: Reason) -> bool:
        """Makes a record a dead letter, if the queue has a dead letter exchange and the record can be read. Returns
        whether it is one."""
        if self._terms.dead_letter_exchange is None:
            return False
        try:
            record = record_at(self._backlog.cursor.lane.dialect, chunk, index)
        except OSError:
            return False
        self._count(chunk, index, index + 1, reason, dead_letter=True)
        self._registry.effects.append(DeadLetter(self._queue.name, self._terms, record, reason))
        self._registry.overdue.left -= letter_work(self._registry.router, self._terms, record)
        return True

    def reject(self, chunk: Chunk, index: int) -> None:
        """Drops a record that a member rejected."""
        if not self._dead_letter(chunk, index, Reason.REJECTED):
            self._count(chunk, index, index + 1, Reason.REJECTED)

    def purge_some(self, most: int) -> tuple[int, int]:
        """Drops some of the waiting records, ``most`` at most. Returns how many it dropped, and the work of that."""
        backlog = self._backlog
        records, work = PURGED_AT_ONCE, PURGED_AT_ONCE * DROPPED_WORK
        if not backlog.has_some_apart and backlog.has_fresh():
            _, chunk, first = backlog.fresh()
            records, work = len(chunk) - first, DROPPED_CHUNK_WORK
        return self.drop(min(records, most), Reason.PURGED), work

    def forget(self) -> None:
        """Counts the records that wait in a deleted queue as purged."""
        self.by_reason[Reason.PURGED] += self._backlog.lag_records
        self._backlog.handed(self._backlog.lag_records, self._backlog.lag_bytes)

    def give_up_chunk(self, chunk: Chunk, reason: Reason, *, promises: bool) -> bool:
        """Drops this chunk's records to make room. If the queue still holds older chunks, drops those of the oldest
        instead. ``promises`` says that promised records stay. Returns whether this turn had work left for all."""
        backlog = self._backlog
        chunk = backlog.oldest_wanted(chunk)
        while backlog.has_some_apart and backlog.wants(chunk) and not (promises and backlog.head_is_held):
            if not self.drop_some(1, reason):
                return False
        if backlog.has_some_apart:
            return True
        while backlog.has_fresh() and backlog.cursor.chunk is chunk and backlog.cursor.position != chunk.stop:
            number, stop = backlog.cursor.number, chunk.first_number + len(chunk)
            upto = backlog.cursor.held_number(stop) if promises else stop
            if upto == number:
                return True
            if not self.drop_some(upto - number, reason):
                return False
            backlog.cursor.step()
        return True

    # -- length -----------------------------------------------------------------------------------------------------

    def room(self, body_bytes: int) -> int:
        """Returns how many more records with bodies of about this size the queue accepts."""
        terms, backlog, found = self._terms, self._backlog, 2**62
        if terms.records_max is not None:
            found = terms.records_max - backlog.lag_records
        if terms.bytes_max is not None:
            found = min(found, (terms.bytes_max - backlog.body_bytes) // max(1, body_bytes))
        return max(0, found)

    def keep_within(self) -> None:
        """Drops the oldest records while the queue is too long, as far as this turn's work goes."""
        begun = False
        while (excess := self._excess()) > 0:
            some = self.affordable(excess)
            if not some:
                self._registry.overdue.put_off(self._queue, begun=begun)
                return
            self.drop(some, Reason.QUEUE_LENGTH)
            begun = True

    def _excess(self) -> int:
        """Returns by how many records the queue is too long. A limit in bytes is converted by the average record."""
        terms, backlog = self._terms, self._backlog
        if terms.records_max is not None and (excess := backlog.lag_records - terms.records_max) > 0:
            return excess
        if terms.bytes_max is not None and (excess := backlog.body_bytes - terms.bytes_max) > 0:
            return max(1, excess * backlog.lag_records // backlog.lag_bytes)
        return 0

    def affordable(self, records: int) -> int:
        """Returns how many of these records may be dropped in this turn. Dead letters cost work, and records that wait
        one by one."""
        left = self._registry.overdue.left
        if left <= 0:
            return 0
        if self._terms.dead_letter_exchange is not None:
            return min(records, 1)  # what a dead letter costs is known when it is made
        return min(records, max(1, left // DROPPED_WORK)) if self._backlog.has_some_apart else records

    # -- policies and pressure --------------------------------------------------------------------------------------

    def affordable_at_least(self, records: int) -> int:
        """Returns how many of these records may be dropped in this turn; all if they cost no work."""
        costs = self._terms.dead_letter_exchange is not None or self._backlog.has_some_apart
        return self.affordable(records) if costs else records

    def drop_some(self, records: int, reason: Reason) -> bool:
        """Drops as many of the next records as this turn has work left for. Returns False if that is none."""
        some = self.affordable_at_least(records)
        if not some:
            self._registry.overdue.put_off(self._queue, begun=True)
            return False
        self.drop(some, reason)
        return True


# -- discards ----------------------------------------------------------------------------------------------------------
#
# Discards are a policy's orders to leave out records that wait in a queue.
#
# Theory of operation. Only the records that come next can be dropped as they are. So all others are left standing first
# (places.py): what is chosen of them is dropped, and the rest waits at its place. It is done little by little, at the
# beginning of the queue's runs, as far as the turn's work goes (``Overdue``). While the oldest are dropped, nothing is
# handed out. The other orders do not hold the queue up, because what comes first stays or is dropped one by one.
#
# A queue with priorities has them all on its heap (places.py), and each look is at all of them.
#
# What comes while a rule lasts is dropped when it would be handed out (``Skip``), or by the next look.


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
