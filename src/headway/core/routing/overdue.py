"""Overdue: work of queues on single records (dropping, sorting, handing out again) that is too much for one turn.

Theory of operation. Dropping a record is little work, unless it becomes a dead letter, which is published anew. A
requeued record is handed out by itself. So all queues together do only as much of each as a turn has room for. Queues
with more to do go on in the next turns; those that had no part of this turn come first. While a queue has records to
drop or to sort, the broker reads no more records for it (``Broker.must_wait``); otherwise there could be more of them
each turn.
"""

from __future__ import annotations

from headway.core.consumer import SharedReader

OVERDUE_WORK = 4096
"""Work in one turn, in the server's units (server/connections/turn_budget.py)."""
DEAD_LETTER_WORK = 32
"""Work of publishing a dead letter."""
REQUEUED_WORK = 8
"""Work of handing out a requeued record."""
SORTED_WORK = 4
"""Work of sorting a record by priority."""


class Overdue:
    __slots__ = ("_last", "left", "queues")

    def __init__(self) -> None:
        self.left = OVERDUE_WORK
        """Work that this turn has left."""
        self.queues: dict[SharedReader, None] = {}
        """Queues that have more to do."""
        self._last: dict[SharedReader, None] = {}
        """Queues that have more to do and have done some in this turn."""

    @property
    def begun(self) -> bool:
        """Whether work was done in this turn."""
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
        """Lets the queue go on in the next turn. ``begun``: it has done some in this one."""
        self.queues[queue] = None
        if begun:
            self._last[queue] = None

    def forget(self, queue: SharedReader) -> None:
        self.queues.pop(queue, None)
        self._last.pop(queue, None)

    def any_of(self, queues: dict[SharedReader, None]) -> bool:
        few, many = (queues, self.queues) if len(queues) < len(self.queues) else (self.queues, queues)
        return any(queue in many for queue in few)
