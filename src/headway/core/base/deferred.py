"""Deferred work: the part of a command that is too much for one turn. It is done in small steps over the turns to come.

Theory of operation. A session with ten thousand subscriptions ends, or a channel with as many deliveries is closed. No
client waits for that, so the loop can go on meanwhile. Such a command does at once the part that other clients can see
(the name is free, no more records are handed out). It leaves the rest here, as an iterator that yields the work of each
step. The first steps run at once, as far as the turn's share goes, so nearly every command is done in its turn.

Rules:
- All deferred work together has one share of each turn. Clients take turns in it: each does a portion before any does
  the next, so nobody's little work waits for another's that is very much. The work of one client is done in the order
  in which it was begun. A round through all sessions, after a reload, has a share of its own (``Registry.rounds``), so
  that nothing waits for its end.
- Work that a step begins is of the same client, unless it says of whom it is. What is of no client is of the broker,
  which takes its turn as a client does.
- A step that yields 0 waits for something. Its client's work is put aside, and one such client in each turn is asked
  again, so that very many who wait take nothing from the others.
- When the broker stops, what is left is dropped, but for what others would see the half of (``finish``).
- A step reads the time from ``now``, which may be later than the time at which its command began.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final
from weakref import WeakSet

from headway.core.base.errors import Refused

# -- deferred ----------------------------------------------------------------------------------------------------------


DEFERRED_WORK_MAX = 2048
"""The work of one turn, in the server's units (server/connections/turn_budget.py)."""
PORTION_WORK = 64
"""The work that one client has done before it is another's turn."""
ROUNDS_WORK_MAX = 2048
"""The work of one turn for rounds through all sessions."""
END_WORK = 16
"""The work of ending one subscription."""
DELIVERY_WORK = 3
"""The work of requeueing one delivery."""

WorkSteps = Iterator[int]
"""Yields the work of each step. 0: it cannot go on before a later turn."""


class DeferredWork:
    __slots__ = ("_client", "_left", "_running", "_share", "_waiting", "_whole", "begun", "now")

    def __init__(self, share: int = DEFERRED_WORK_MAX) -> None:
        """``share`` is the work of one turn."""
        self.now = 0.0
        """The time of the step that runs now."""
        self.begun: OrderedDict[object, deque[WorkSteps]] = OrderedDict()
        """The work that is not done, the oldest first, of each client. It is the first client's turn."""
        self._waiting: OrderedDict[object, deque[WorkSteps]] = OrderedDict()
        """The work of clients whose first one waits for something."""
        self._share = self._left = share
        self._whole: WeakSet[WorkSteps] = WeakSet()
        """The work that is not left half done."""
        self._running = False
        self._client: object = None
        """The client whose step runs now."""

    def __len__(self) -> int:
        """Returns the number of works that are not done."""
        return sum(map(len, (*self.begun.values(), *self._waiting.values())))

    def __bool__(self) -> bool:
        return bool(self.begun or self._waiting)

    def begin(self, steps: WorkSteps, now: float, *, client: object = None, whole: bool = False) -> None:
        """Queues the steps of a ``client``, and runs steps until the turn's share is used up. Later turns run the rest.
        ``whole``: this work is not left half done."""
        if whole:
            self._whole.add(steps)
        if client is None and self._running:
            client = self._client
        (self._waiting if client in self._waiting else self.begun).setdefault(client, deque()).append(steps)
        self._go_on(now)

    def turn(self, now: float) -> None:
        """Runs a new turn's share of steps."""
        self._left = self._share
        if self._waiting:
            client, works = self._waiting.popitem(last=False)
            self.begun[client] = works
        self._go_on(now)

    def finish(self) -> None:
        """Does the rest of what is not left half done, because there are no more turns."""
        for client, works in (*self.begun.items(), *self._waiting.items()):
            self.begun[client] = deque(one for one in works if one in self._whole)
        self._waiting.clear()
        while self:
            with suppress(Refused):
                self.turn(self.now)

    def _go_on(self, now: float) -> None:
        self.now = max(self.now, now)  # a command that a step begins may pass the older time at which it was asked for
        if self._running:
            return  # what a step has begun comes after it
        self._running = True
        try:
            while self.begun and self._left > 0:
                self._run_portion(*next(iter(self.begun.items())))
        finally:
            self._running, self._client = False, None

    def _run_portion(self, client: object, works: deque[WorkSteps]) -> None:
        self._client = client
        upto = max(0, self._left - PORTION_WORK)
        while works and self._left > upto:
            steps = works.popleft()  # work that fails is dropped
            work = next(steps, None)
            if work is None:
                continue
            works.appendleft(steps)
            if not work:
                self._waiting[client] = self.begun.pop(client)
                return
            self._left -= work
        if works:
            self.begun.move_to_end(client)
        else:
            del self.begun[client]


# -- timers ------------------------------------------------------------------------------------------------------------
#
# Timers: actions to run later, by the broker's clock. The caller passes the time in.
#
# ``at`` returns a timer, which its owner cancels when it is no longer needed. A cancelled timer drops its action at
# once. Its heap entry stays until half of the entries are cancelled ones, so a cancel is cheap and the heap is never
# more than twice as large as the number of timers.
#
# ``run`` runs at most ``RUN_MAX`` timers that are due; ``next_s`` then shows that more are due.


DEAD_MIN = 64
"""The heap is not rebuilt for fewer cancelled entries."""
RUN_MAX = 128
"""The number of timers that one call runs."""


class Timer:
    """One action to run later."""

    __slots__ = ("_action", "_timers")

    def __init__(self, action: Callable[[float], object] | None, timers: Timers) -> None:
        self._action = action
        self._timers = timers

    def cancel(self) -> None:
        """Drops the action. Does nothing if it has run or was cancelled before."""
        if self._action is not None:
            self._action = None
            self._timers.cancelled()

    def ring(self, now: float) -> bool:
        """Runs the action. Returns False if it was cancelled."""
        action, self._action = self._action, None
        if action is not None:
            action(now)
        return action is not None

    @property
    def waits(self) -> bool:
        return self._action is not None


class Timers:
    """Actions by time; actions of the same instant in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._dead = 0
        self.next_s = inf
        """The time of the earliest timer."""

    def at(self, when: float, action: Callable[[float], object]) -> Timer:
        """Calls ``action(now)`` at the first ``run`` at or after ``when``."""
        timer = Timer(action, self)
        heappush(self._heap, (when, next(self._order), timer))
        self.next_s = self._heap[0][0]
        return timer

    def move(self, timer: Timer, when: float, action: Callable[[float], object]) -> Timer:
        """Cancels ``timer`` and runs the action at ``when`` instead."""
        timer.cancel()
        return self.at(when, action)

    def run(self, now: float) -> None:
        rung = 0
        while rung < RUN_MAX and self._heap and self._heap[0][0] <= now:
            timer = heappop(self._heap)[2]
            if timer.ring(now):
                rung += 1
            else:
                self._dead -= 1
        self._look()

    def cancelled(self) -> None:
        """Counts a cancelled timer; rebuilds the heap when half of it is cancelled."""
        self._dead += 1
        if self._dead > DEAD_MIN and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].waits]
            heapify(self._heap)
            self._dead = 0
            self._look()

    def _look(self) -> None:
        self.next_s = self._heap[0][0] if self._heap else inf

    def __len__(self) -> int:
        """Returns the number of timers that have neither run nor been cancelled."""
        return len(self._heap) - self._dead

    @property
    def places(self) -> int:
        """The number of heap entries, cancelled ones included."""
        return len(self._heap)


NO_TIMER: Final = Timer(None, Timers())
"""A timer with nothing to run."""
