"""All connections: how many each listener has, which of them make room for others, and when each is looked at next.

Connections that have not logged in (*strangers*) keep nobody out: where there is no room for another one, the one that
promises least is closed. That is one whose client has left, else the oldest that has said nothing, else the oldest;
those that came a moment ago have their time. While one network has most of them, the new ones of this network take the
places of its own.

A connection is looked at only when there may be something to see. It has one place in a heap of times; each look
returns the time of the next. If the client was heard from meanwhile, the look only sets a later time. One pass looks at
``LOOKS_MAX`` connections that are due; the rest follow a moment later.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf

from headway.core.base import Reason, format_duration
from headway.server.connections.connection import OUT_BYTES_MAX, Connection
from headway.server.journal import JournalWriter
from headway.server.logins import network_of

# -- connections -------------------------------------------------------------------------------------------------------


LOOKS_MAX = 500
SLACK = 64
STAGE_LOOKS_MAX = 64
"""Looks for a connection at each stage. Where only one network counts it has most of them, so few looks find one."""
SILENT_S, SPEAKING_S = 0.5, 3.0
"""A client may be silent, or log in, for so long before its connection makes room for another one. Else none would get
in where more come at once than there is room for: each would take the place of the one before it."""


class Strangers:
    """The connections of one listener that have not logged in, with the networks that they are from; at each stage the
    oldest first."""

    def __init__(self) -> None:
        self.left: dict[Connection, str] = {}
        """Those whose clients have left. What they said before is still to be handled."""
        self.silent: dict[Connection, str] = {}
        self.speaking: dict[Connection, str] = {}
        self.networks: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.left) + len(self.silent) + len(self.speaking)

    def add(self, connection: Connection) -> None:
        network = self.silent[connection] = network_of(connection.address.rpartition(":")[0])
        self.networks[network] += 1

    def move(self, connection: Connection, to: dict[Connection, str]) -> None:
        network = self._take(connection)
        if network is not None:
            to[connection] = network

    def remove(self, connection: Connection) -> None:
        network = self._take(connection)
        if network is not None:
            self.networks[network] -= 1
            if not self.networks[network]:
                del self.networks[network]

    def _take(self, connection: Connection) -> str | None:
        for stage in (self.silent, self.speaking, self.left):
            if connection in stage:
                return stage.pop(connection)
        return None

    def first(self, host: str, now: float) -> Connection | None:
        """Returns the connection that makes room for another one from this host; None: all were here too short a time,
        and may still log in."""
        network = network_of(host)
        if self.networks[network] * 2 > len(self):
            own = self._first(now, network)
            if own is not None:
                return own
        return self._first(now, "")

    def _first(self, now: float, network: str) -> Connection | None:
        """``network``: only connections of this one count; empty: all do."""
        for stage, wait_s in ((self.left, 0.0), (self.silent, SILENT_S), (self.speaking, SPEAKING_S)):
            for connection, other in islice(stage.items(), STAGE_LOOKS_MAX):
                if now - connection.opened_s < wait_s:
                    break
                if network in ("", other) and not (stage is self.silent and connection.has_unread):
                    return connection
        return None


class Connections:
    def __init__(self) -> None:
        self.by_listener: Counter[str] = Counter()
        self.strangers: defaultdict[str, Strangers] = defaultdict(Strangers)
        """Those that have not logged in, by listener."""
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
        self.strangers[connection.listener].add(connection)
        self.look_at(connection, due_s)

    def remove(self, connection: Connection) -> None:
        place = self._places.pop(connection, None)
        if place is not None:
            self._waiting.pop(place, None)
            self.by_listener[connection.listener] -= 1
            self.strangers[connection.listener].remove(connection)

    def make_room(self, listener: str, host: str, why: str, now: float) -> bool:
        """Closes a connection to this listener that has not logged in, for another one from this host. Returns False if
        there is none that had its time. ``listener``: empty if any will do; ``why``: why there is no room."""
        strangers = self.strangers[listener] if listener else max(self.strangers.values(), key=len, default=Strangers())
        connection = strangers.first(host, now)
        if connection is None:
            return False
        open_s = format_duration(round(now - connection.opened_s, 1))
        text = f"the client had not logged in after {open_s}, and made room for another one: {why}"
        connection.close(Reason.CONNECT_TIMEOUT, text)
        return True

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


# -- pending replies ---------------------------------------------------------------------------------------------------
#
# Pending replies: the broker confirms a record to its publisher only when the journal has it.
#
# A client that pipelines requests while the disk is full is owed ever more replies. So no more is read of one that is
# owed ``OUT_BYTES_MAX`` until it is owed half of that.


REPLY_BYTES = 150
"""The memory of a reply that waits, besides its bytes."""
COUNTED_BYTES = 4 * 1024
"""Memory of clients is counted in portions of so many bytes, not at each reply."""


class PendingReplies:
    """Pending replies of one connection, in the order in which they are sent. Without a journal none of them waits."""

    __slots__ = ("_bytes", "_connection", "_counted_bytes", "_journal", "_waiting")

    def __init__(self, connection: Connection, journal: JournalWriter | None) -> None:
        self._connection = connection
        self._journal = journal
        self._waiting: deque[tuple[int, bytes, int]] = deque()
        """Replies that wait: the commit, the frame, and the channel it is sent on."""
        self._bytes = self._counted_bytes = 0
        """The memory of these, and how much of it is counted."""

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def send(self, frame: bytes, *, kept: bool, channel: int = 0) -> None:
        """Sends a reply; if ``kept``, once everything told to the journal so far is there. Order is preserved."""
        number = 0 if self._journal is None or not kept else self._journal.wait(self)
        if number or self._waiting:
            self._waiting.append((max(number, self._waiting[-1][0] if self._waiting else 0), frame, channel))
            self._bytes += REPLY_BYTES + len(frame)
            if self._bytes >= self._counted_bytes + COUNTED_BYTES:
                self._count()
        else:
            self._connection.out += frame

    def _count(self) -> None:
        self._connection.pool.add_clients(self._bytes - self._counted_bytes)
        self._counted_bytes = self._bytes
        if self._bytes > OUT_BYTES_MAX:
            self.stop_reading()

    def stop_reading(self) -> None:
        self._connection.pause_reading("confirms")

    def drop_channel(self, channel: int) -> int:
        """Drops the replies of a channel that is closed: nothing more may be sent on it. Returns how many were looked
        at."""
        looked_at = len(self._waiting)
        if looked_at:
            self._waiting = deque(answer for answer in self._waiting if answer[2] != channel)
            self._bytes = sum(REPLY_BYTES + len(frame) for _, frame, _ in self._waiting)
        self.fewer()
        return looked_at

    def over(self) -> None:
        """Drops all of them: the connection has ended."""
        if self._waiting and self._journal is not None:
            self._journal.forget(self)
        self._waiting.clear()
        self._bytes = 0
        self.fewer()

    def fewer(self) -> None:
        """Called when some of the replies may have gone."""
        if self._counted_bytes:
            self._count()
            if self._bytes <= OUT_BYTES_MAX // 2:
                self._connection.resume_reading("confirms")

    def on_commit(self, number: int) -> None:
        """Sends what waited for commits up to this one, which the journal now has."""
        waiting, connection = self._waiting, self._connection
        while waiting and waiting[0][0] <= number:
            frame = waiting.popleft()[1]
            self._bytes -= REPLY_BYTES + len(frame)
            connection.out += frame
        if waiting and self._journal is not None:
            self._journal.wait(self)
        connection.out_soon()
        self.fewer()


class HoldingReplies(PendingReplies):
    """Pending replies that hold up what the client asks for behind them: that something durable is there, or is gone.

    While one is pending, only more requests of its kind are handled. So all replies keep their order, and a hundred
    such requests in a row wait for one commit. Without a journal, or if nothing durable is asked for, none waits."""

    __slots__ = ("_held",)

    def __init__(self, connection: Connection, journal: JournalWriter | None) -> None:
        super().__init__(connection, journal)
        self._held = False

    def hold(self) -> bool:
        """Stops reading until no reply is pending. Returns True."""
        self._held = True
        self._connection.pause_reading("journal")
        return True

    def stop_reading(self) -> None:
        self.hold()

    def fewer(self) -> None:
        super().fewer()
        if self._held and not self.waiting:
            self._held = False
            self._connection.resume_reading("journal")
