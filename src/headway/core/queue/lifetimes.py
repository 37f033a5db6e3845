"""Lifetimes: the records of a queue that expire while they wait.

A record that expires is dropped when it is at the head, not before. A record that comes while members wait for records
is handed out even if its lifetime is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from headway.core.base import NO_TIMER, Reason
from headway.core.consumer import SharedReader
from headway.core.log import Chunk
from headway.core.queue.backlog import Backlog
from headway.core.routing import EXPIRED_WORK, Registry


class Lifetimes:
    def __init__(self, queue: SharedReader, backlog: Backlog, registry: Registry,
                 drop: Callable[[int, Reason], int]) -> None:
        self.fresh_from: float = 0
        """The number of the first record that came after all others were handed out. Members may be waiting for the
        records from there on, so these do not expire."""
        self._queue = queue
        self._ttl_s = inf if queue.terms.ttl_s is None else queue.terms.ttl_s
        self._backlog = backlog
        self._registry = registry
        self._drop = drop
        self._alarm_s = inf
        self._bell = NO_TIMER

    def stop(self) -> None:
        """Stops the timer, because the queue has ended."""
        self._bell.cancel()
        del self._queue

    def expired(self, chunk: Chunk, index: int, now: float) -> bool:
        if chunk.first_number + index >= self.fresh_from:
            return False
        return self._expires_s(chunk, index) <= now

    def _expires_s(self, chunk: Chunk, index: int) -> float:
        run = chunk.run_of(index)
        return min(chunk.run_expires[run], chunk.run_time[run] + self._ttl_s)

    def head_expired(self, now: float) -> bool:
        """Tells whether the next record has expired. It is dropped at the end of this turn or of a later one."""
        head = self._backlog.head()
        if head is None or not self.expired(*head, now):
            return False
        self._registry.ready_queues[self._queue] = None
        return True

    def drop_expired(self, now: float) -> bool:
        """Drops expired records from the head on, and sets a timer for the next one that will expire. Returns False if
        there are more than this turn has work left for."""
        overdue, begun = self._registry.overdue, False
        while (head := self._backlog.head()) is not None:
            chunk, index = head
            if chunk.soonest_s == inf and self._ttl_s == inf:
                break
            if not self.expired(chunk, index, now):
                self._alarm(self._expires_s(chunk, index))
                break
            if overdue.left <= 0:
                overdue.put_off(self._queue, begun=begun)
                return False
            overdue.left -= EXPIRED_WORK
            self._drop(self._alike(chunk, index), Reason.EXPIRED)
            begun = True
        return True

    def _alike(self, chunk: Chunk, index: int) -> int:
        """Returns how many records have expired with this one, the next: those that came at once, or some of them where
        each of them is work."""
        if self._backlog.has_some_apart or self._queue.terms.dead_letter_exchange is not None:
            return 1
        first, run = chunk.first_number + index, chunk.run_of(index) + 1
        end = chunk.first_number + (chunk.run_first[run] if run < len(chunk.run_first) else len(chunk))
        return int(min(end, self.fresh_from, self._backlog.cursor.end_number)) - first

    def _alarm(self, when: float) -> None:
        if when == inf or self._alarm_s <= when:
            return
        self._alarm_s = when

        def ring(then: float) -> None:
            self._alarm_s = inf
            self._registry.ready_queues[self._queue] = None

        self._bell = self._registry.timers.move(self._bell, when, ring)
