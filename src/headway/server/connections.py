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

from headway.server.connection import Connection

LOOKS_MAX = 500
SLACK = 64


class Connections:
    def __init__(self) -> None:
        self.by_listener: Counter[str] = Counter()
        self._due_s: dict[Connection, float] = {}
        """All of them, and when each is to be looked at."""
        self._heap: list[tuple[float, int, Connection]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._due_s)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._due_s))

    def add(self, connection: Connection, due_s: float) -> None:
        self.by_listener[connection.listener] += 1
        self._due_s[connection] = inf
        self.look_at(connection, due_s)

    def remove(self, connection: Connection) -> None:
        if self._due_s.pop(connection, None) is not None:
            self.by_listener[connection.listener] -= 1

    def look_at(self, connection: Connection, due_s: float) -> None:
        """At that time, and not when it was said before."""
        if connection not in self._due_s:
            return
        self._due_s[connection] = due_s
        if due_s < inf:
            heappush(self._heap, (due_s, next(self._numbers), connection))
        if len(self._heap) > 2 * len(self._due_s) + SLACK:
            self._heap = [(due, next(self._numbers), one) for one, due in self._due_s.items() if due < inf]
            heapify(self._heap)

    def look(self, now: float, at: Callable[[Connection, float], float]) -> bool:
        """Look at those whose time has come; ``at`` says when to look again. True: there are more."""
        for _ in range(LOOKS_MAX):
            if not self._heap or self._heap[0][0] > now:
                return False
            due_s, _, connection = heappop(self._heap)
            if self._due_s.get(connection) == due_s:
                self.look_at(connection, at(connection, now))
        return True
