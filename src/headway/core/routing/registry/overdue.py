"""Overdue work: work of queues on single records (dropping, sorting, handing out again) that is too much for one turn.

Theory of operation. Dropping records is little work, unless they become dead letters, which are published anew, or
wait one by one: those that were requeued, or that a selector has passed. A requeued record is handed out by itself. So
all queues together share a limited amount of such work in a turn. Queues
with more to do go on in the next turns; queues that did none in this turn come first. While a queue has records to drop
or to sort, the broker reads no more records for it (``Broker.must_wait``). Otherwise their number could grow each turn.
"""

from __future__ import annotations

from headway.core.consumer import SharedReader

OVERDUE_WORK = 1024
"""The work of one turn, in the server's units (server/connections/turn_budget.py): some 5 ms. It is done beside what
clients ask for in the same turn. A larger share would hand out no more in a second, for a turn itself costs little."""
DEAD_LETTER_WORK = 32
"""The work of publishing a dead letter."""
DROPPED_WORK = 24
"""The work of dropping a record that waits by itself."""
REQUEUED_WORK = 8
"""The work of handing out a requeued record."""
SORTED_WORK = 4
"""The work of sorting a record by priority."""
EXPIRED_WORK = 4
"""The work of dropping records in a row that came at once and have expired."""
REFUSED_WORK = 3
"""The work of taking back a record that a client refuses, beyond that of settling it."""


class Overdue:
    __slots__ = ("_last", "left", "queues")

    def __init__(self) -> None:
        self.left = OVERDUE_WORK
        """The work that this turn has left."""
        self.queues: dict[SharedReader, None] = {}
        """The queues that have more to do."""
        self._last: dict[SharedReader, None] = {}
        """The queues that have more to do and did some of it in this turn."""

    @property
    def begun(self) -> bool:
        """Tells whether work was done in this turn."""
        return self.left < OVERDUE_WORK

    def turn(self) -> dict[SharedReader, None]:
        """Begins a turn. Returns the queues that go on in it."""
        self.left = OVERDUE_WORK
        for queue in self._last:
            if queue in self.queues:
                del self.queues[queue]
                self.queues[queue] = None
        self._last = {}
        queues, self.queues = self.queues, {}
        return queues

    def put_off(self, queue: SharedReader, *, begun: bool) -> None:
        """Lets the queue go on in the next turn. ``begun`` says that it did some work in this one."""
        self.queues[queue] = None
        if begun:
            self._last[queue] = None

    def forget(self, queue: SharedReader) -> None:
        self.queues.pop(queue, None)
        self._last.pop(queue, None)

