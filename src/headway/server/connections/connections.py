"""All connections: how many each listener has, and when each is looked at next.

A connection is looked at only when there may be something to see. It has one place in a heap of times; each look
returns the time of the next. If the client was heard from meanwhile, the look only sets a later time. One pass looks at
``LOOKS_MAX`` connections that are due; the rest follow a moment later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf

from headway.server.connections.connection import Connection

LOOKS_MAX = 500
SLACK = 64


class Connections:
    def __init__(self) -> None:
        self.by_listener: Counter[str] = Counter()
        self._places: dict[Connection, int] = {}
        """Number of each connection's place in the heap; 0: it has none."""
        self._waiting: dict[int, Connection] = {}
        """The connection that has each place. Places without one are stale: their connection has moved or ended."""
        self._heap: list[tuple[float, int]] = []
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._places))

    def add(self, connection: Connection, due_s: float) -> None:
        self.by_listener[connection.listener] += 1
        self._places[connection] = 0
        self.look_at(connection, due_s)

    def remove(self, connection: Connection) -> None:
        place = self._places.pop(connection, None)
        if place is not None:
            self._waiting.pop(place, None)
            self.by_listener[connection.listener] -= 1

    def look_at(self, connection: Connection, due_s: float) -> None:
        """Looks at the connection at this time instead of the one set before."""
        if connection not in self._places:
            return
        self._waiting.pop(self._places[connection], None)
        place = self._places[connection] = next(self._numbers) if due_s < inf else 0
        if place:
            self._waiting[place] = connection
            heappush(self._heap, (due_s, place))
        if len(self._heap) > 2 * len(self._places) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._waiting]
            heapify(self._heap)

    @property
    def next_s(self) -> float:
        """Time at which the first connection is due; ``inf``: none is."""
        heap = self._heap
        while heap and heap[0][1] not in self._waiting:
            heappop(heap)
        return heap[0][0] if heap else inf

    def look(self, now: float, at: Callable[[Connection, float], float]) -> None:
        """Looks at connections that are due; ``at`` returns when to look again. The others are due as before."""
        for _ in range(LOOKS_MAX):
            if self.next_s > now:
                return
            connection = self._waiting[heappop(self._heap)[1]]
            self.look_at(connection, at(connection, now))
