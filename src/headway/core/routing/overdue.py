"""What is overdue: records that queues deal with one by one, of which there are too many for one turn.

Theory of operation. To leave a record out is little work, but where it is a dead letter that is published anew; one
that is out of its lane's order is handed out by itself. So all queues together do as much of either as a turn has room
for, and who has more goes on in the next turns: who had nothing of this turn comes first. As long as some are to be
left out nothing more is read that is for such a queue (``Broker.must_wait``): or there would be more of them each turn.
"""

from __future__ import annotations

from headway.core.consumer import SharedReader

OVERDUE_WORK = 4096
"""Of a turn, in the server's units (server/connections/turn_budget.py)."""
DEAD_LETTER_WORK = 32
"""What it takes to publish a dead letter."""
REQUEUED_WORK = 8
"""What it takes to hand out a record that is out of order."""
SORTED_WORK = 4
"""Work of sorting a record by priority."""


class Overdue:
    __slots__ = ("_last", "left", "queues")

    def __init__(self) -> None:
        self.left = OVERDUE_WORK
        """Of this turn."""
        self.queues: dict[SharedReader, None] = {}
        """Those that have more to do."""
        self._last: dict[SharedReader, None] = {}
        """Of these, those that had some of this turn."""

    @property
    def begun(self) -> bool:
        """Some of this turn is used up."""
        return self.left < OVERDUE_WORK

    def turn(self) -> dict[SharedReader, None]:
        """A turn begins. Returns who goes on in it."""
        self.left = OVERDUE_WORK
        for queue in self._last:
            if queue in self.queues:
                del self.queues[queue]
                self.queues[queue] = None
        self._last = {}
        queues, self.queues = self.queues, {}
        return queues

    def put_off(self, queue: SharedReader, *, begun: bool) -> None:
        """It goes on in the next turn; ``begun``: it did some in this."""
        self.queues[queue] = None
        if begun:
            self._last[queue] = None

    def forget(self, queue: SharedReader) -> None:
        self.queues.pop(queue, None)
        self._last.pop(queue, None)

    def any_of(self, queues: dict[SharedReader, None]) -> bool:
        few, many = (queues, self.queues) if len(queues) < len(self.queues) else (self.queues, queues)
        return any(queue in many for queue in few)
