"""Connections: all there are, how many each listener has, and when each is to be looked at next.

Nobody is looked at before there may be something to see: a connection has one place in a heap of times, and is asked
when it wants to be looked at again. One that was heard of meanwhile only says a later time. A look at those whose time
has come takes ``LOOKS_MAX`` of them; the rest comes a moment later.
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
        """All of them, and the number of each one's place in the heap; 0: it has none."""
        self._waiting: dict[int, Connection] = {}
        """Whose place that is. It is nobody's any more if its connection has another or is gone."""
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
        """At that time, and not when it was said before."""
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

    def look(self, now: float, at: Callable[[Connection, float], float]) -> bool:
        """Look at those whose time has come; ``at`` says when to look again. True: there are more."""
        for _ in range(LOOKS_MAX):
            if not self._heap or self._heap[0][0] > now:
                return False
            connection = self._waiting.get(heappop(self._heap)[1])
            if connection is not None:
                self.look_at(connection, at(connection, now))
        return True
