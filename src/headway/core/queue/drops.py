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

from headway.core.base import Reason, WorkSteps
from headway.core.consumer import DeadLetter, QueueTerms, SharedReader, Subscription
from headway.core.delivery import record_at
from headway.core.log import Chunk
from headway.core.message import Record, topic_of
from headway.core.queue.backlog import Backlog
from headway.core.queue.places import Key, QueueCursor, RequeuedRecord, Row, StandingRecord
from headway.core.routing import COPIES, DEAD_LETTER_WORK, DROPPED_WORK, Registry, Router

PURGED_AT_ONCE = 128
"""The number of requeued records in one step of a purge. A step of fresh records takes a chunk."""
CHUNK_WORK = 4
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
            records, work = len(chunk) - first, CHUNK_WORK
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
