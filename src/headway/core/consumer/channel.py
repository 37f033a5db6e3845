"""A channel numbers the deliveries that a client acknowledges together, and knows them until they are settled.

It is also a window for them, as consumers have one (credit.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby, repeat, takewhile
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from headway.core.allowance import NOT_COUNTED, InFlightBytes
from headway.core.base import Refused, consecutive, moved
from headway.core.consumer.credit import MQTT_ID_MAX, NO_LIMIT, Window
from headway.core.log import DELIVERY_BYTES, NO_PROGRESS, UNSETTLED, Chunk, Cursor, OutOfOrderProgress, Tab
from headway.core.message import Record

if TYPE_CHECKING:
    from headway.core.consumer.subscription import Subscription


Reported = Cursor | OutOfOrderProgress


# -- delivery ----------------------------------------------------------------------------------------------------------
#
# Deliveries: records that were sent and are not settled yet, and the ids of each consumer's.


KNOWN_SPARE = 64
"""The number of ids that may be noted beyond twice as many as are in flight."""


class Delivery(Struct, eq=False):
    """A record that was sent and is not settled yet."""

    subscription: Subscription
    sent_s: float
    cursor: Reported = NO_PROGRESS
    """Is told when it is settled: the cursor of its lane, or the progress of the backfill that it is from."""
    chunk: Chunk | None = None
    """The chunk that has it, at ``index``; None: it is in no lane, or no longer."""
    index: int = 0
    number: int = 0
    """The number by which its cursor knows it; its sequence, if it is from a backfill."""
    released: bool = False
    """The client has it, and only the second half of the exactly-once handshake is missing."""
    patience_s: float = 0.0
    """For how long the message says that its job may take; 0: it does not say."""
    returns: int = 0
    """How often the record had been requeued before this delivery."""
    record: Record | None = None
    """The record, if it was not copied from a lane in the subscription's own dialect."""

    @property
    def size(self) -> int:
        """The bytes of the record; 0 if it is gone."""
        if self.record is not None:
            return self.record.size
        return 0 if self.chunk is None else self.chunk.size_of(self.index)

    def leave_lane(self) -> None:
        """Lets go of the record's place, which nobody is told of any more when it is settled."""
        self.cursor, self.chunk, self.number = NO_PROGRESS, None, 0


class Row(Struct, eq=False):
    """Deliveries of neighbours of one chunk that were sent together, under consecutive ids; or one that was sent alone
    behind such a row."""

    first_id: int
    """The first one's id. In a channel it is counted on where ids begin again, so that rows stand in order."""
    count: int
    subscription: Subscription
    sent_s: float
    cursor: Cursor
    chunk: Chunk | None
    index: int
    number: int
    """Where the first one's record is: its index in the chunk, and its number."""
    released: bool = False
    alone: Delivery | None = None
    """The only one, if it was sent alone."""

    def rest(self, count: int) -> Row:
        """Returns a row of those behind the first ``count``."""
        rest = replace(self)
        rest.drop(count)
        return rest

    def deliveries(self) -> list[Delivery]:
        return [self.delivery(at) for at in range(self.count)]

    def delivery(self, at: int) -> Delivery:
        if self.alone is not None:
            return self.alone
        return Delivery(self.subscription, self.sent_s, self.cursor, self.chunk, self.index + at, self.number + at,
                        self.released)  # fmt: skip

    def drop(self, count: int) -> None:
        """Drops the first ones, which are settled."""
        self.first_id += count
        self.index += count
        self.number += count
        self.count -= count


class DeliveriesByConsumer:
    """The ids of a channel's deliveries in flight, by consumer.

    A channel knows its deliveries by id alone, because that is all that sending and settling need. A search through all
    of them for each of its consumers would be quadratic. So the ids are noted by consumer when somebody asks for those
    of one, each id once. Ids of deliveries that were settled meanwhile are forgotten when their consumer is asked for,
    or all at once when they are most of what is noted. Only for channels whose ids never begin again."""

    __slots__ = ("_ids", "_upto", "known")

    def __init__(self) -> None:
        self.known = 0
        """The number of ids that are noted."""
        self._ids: dict[int, list[int]] = {}
        """By the consumer's ``id``, because a reference to it would make a cycle."""
        self._upto = 0

    def of(self, consumer: Subscription, in_flight: OrderedDict[int, Delivery]) -> list[int]:
        """Returns the ids of the consumer's deliveries, the oldest first."""
        self._note_new(in_flight)
        noted = self._ids.pop(id(consumer), [])
        self.known -= len(noted)
        left = [known for known in noted if (one := in_flight.get(known)) is not None and one.subscription is consumer]
        if left:
            self._ids[id(consumer)] = left
            self.known += len(left)
        return left

    def _note_new(self, in_flight: OrderedDict[int, Delivery]) -> None:
        if self.known > 2 * len(in_flight) + KNOWN_SPARE:
            self._ids.clear()
            self.known = self._upto = 0
        new = list(takewhile(self._upto.__lt__, reversed(in_flight)))
        for delivery_id in reversed(new):
            self._ids.setdefault(id(in_flight[delivery_id].subscription), []).append(delivery_id)
        self.known += len(new)
        if new:
            self._upto = new[0]


# -- life --------------------------------------------------------------------------------------------------------------
#
# Lives: the states of a subscription, a channel and a session, and the legal moves between them.


class Life(StrEnum):
    OPEN = "open"
    PAUSED = "paused"
    """The client stopped deliveries for now (AMQP channel.flow), or the channel is closed."""
    REPLACED = "replaced"
    """Another subscription has replaced this one, and reads this one's records before its own. Then this one ends."""
    ENDED = "ended"


OPEN: Final = Life.OPEN
PAUSED: Final = Life.PAUSED
REPLACED: Final = Life.REPLACED
ENDED: Final = Life.ENDED
MOVES = {
    OPEN: {PAUSED, REPLACED, ENDED},
    PAUSED: {OPEN, ENDED},
    REPLACED: {ENDED},
    ENDED: set[Life](),
}


class SessionLife(StrEnum):
    AWAY = "away"
    """The client is not connected. The session waits for it until it expires."""
    CONNECTED = "connected"
    GIVEN_UP = "given up"
    """The broker has given up the connection: nothing more is sent, and the session ends with it."""
    ENDED = "ended"


AWAY: Final = SessionLife.AWAY
CONNECTED: Final = SessionLife.CONNECTED
GIVEN_UP: Final = SessionLife.GIVEN_UP
SESSION_MOVES = {
    AWAY: {CONNECTED, SessionLife.ENDED},
    CONNECTED: {AWAY, GIVEN_UP, SessionLife.ENDED},
    GIVEN_UP: {SessionLife.ENDED},
    SessionLife.ENDED: set[SessionLife](),
}


class ChannelLife(StrEnum):
    OPEN = "open"
    CLOSED = "closed"


CHANNEL_OPEN: Final = ChannelLife.OPEN
CHANNEL_CLOSED: Final = ChannelLife.CLOSED
CHANNEL_MOVES = {CHANNEL_OPEN: {CHANNEL_CLOSED}, CHANNEL_CLOSED: set[ChannelLife]()}


# -- channel -----------------------------------------------------------------------------------------------------------


_READER = attrgetter("subscription", "cursor")
_FIRST_ID = attrgetter("first_id")
NOTHING: dict[int, Delivery] = {}
NO_ROWS: deque[Row] = deque()
IN_ROWS_MAX = 8192
"""The most deliveries in rows. So it takes some milliseconds at most to make each of them an object."""
LAPS_MAX = 2
"""Rows are looked for in so many earlier laps of the ids. What is in flight for longer leaves its row."""
UNASKED_MAX = 16
"""So many deliveries, or rows of them, a client may have in flight for which there was no room on its tab. So one with
nothing in flight is always sent something, and its acknowledgement asks for more."""
BOUNDLESS = Window(NO_LIMIT)
"""``Channel.whole`` where a session has only one channel. It is shared and never changes."""


class Channel(Window):
    """Deliveries that are numbered and acknowledged together: those of an MQTT session, or of one AMQP channel."""

    __slots__ = (
        "_each",
        "_granted",
        "_in_rows",
        "_laps",
        "_last_id",
        "_rows",
        "by_consumer",
        "id_max",
        "in_flight_bytes",
        "life",
        "members",
        "number",
        "orphaned_ids",
        "owner",
        "replay",
        "tab",
        "timed_out",
        "whole",
    )  # fmt: skip

    def __init__(self, limit: int, id_max: int = MQTT_ID_MAX, number: int = 0, owner: int = 0,
                 in_flight_bytes: InFlightBytes = NOT_COUNTED, tab: Tab | None = None) -> None:
        super().__init__(limit)
        self.number = number
        self.owner = owner
        """The number of the session, where a session has several channels."""
        self.id_max = id_max
        """The largest delivery id. The next one after it is 1."""
        self.life = CHANNEL_OPEN
        """Only ``close`` sets it."""
        self.members: dict[Subscription, None] | tuple[()] = ()
        """Consumers on this channel, where a session has several channels."""
        self.whole: Window = BOUNDLESS
        """The window of all channels of the session, where a session has several."""
        self._each: OrderedDict[int, Delivery] = OrderedDict()
        """Deliveries in flight that are objects of their own, by id. They are older than those in rows."""
        self._rows = NO_ROWS
        """Deliveries that were sent together, and those that were sent alone behind them. What is settled or released
        out of order splits its row."""
        self._in_rows = 0
        self._laps = 0
        """The ids of all laps before this one: ``id_max`` for each time that ids began again."""
        self.tab = tab
        """The tab that counts the memory of deliveries in flight; None: the session's own channel counts this one's."""
        self._granted = 0
        """The deliveries, or rows of them, for which there was room on it when more were to be sent."""
        self.by_consumer: DeliveriesByConsumer | None = None
        """Made when somebody asks for the deliveries of one of several consumers."""
        self.in_flight_bytes = in_flight_bytes
        """Those of the session, where its user has a limit of them."""
        self.replay: list[int] = []
        """Ids of deliveries to be sent again to a client that has reconnected. The next one stands last."""
        self.timed_out: dict[int, Delivery] = NOTHING
        """Deliveries whose acknowledgement took too long. They use up credit until the client settles them."""
        self.orphaned_ids: dict[int, None] = {}
        """Ids without a record that the client may still hold (frames.py)."""
        self._last_id = 0

    @property
    def in_flight(self) -> OrderedDict[int, Delivery]:
        """All deliveries in flight by id, the oldest first. Makes each an object."""
        while self._in_rows:
            self._leave_row()
        return self._each

    @property
    def has_rows(self) -> bool:
        """Tells whether the newest deliveries are in rows."""
        return self._in_rows > 0

    def _leave_row(self) -> None:
        """Makes the deliveries of the oldest row objects."""
        row, each = self._rows.popleft(), self._each
        self._in_rows -= row.count
        first_id = (row.first_id - 1) % self.id_max + 1
        for delivery_id, delivery in enumerate(row.deliveries(), first_id):  # faster than update()
            each[delivery_id] = delivery

    def _find(self, delivery_id: int) -> tuple[Row, int, int] | None:
        """Returns the row of a delivery, its place among rows, and the delivery's place in the row; None: it is in no
        row."""
        rows = self._rows
        if not rows:
            return None
        oldest, wanted = rows[0].first_id, self._laps + delivery_id
        if wanted == oldest:  # most clients settle in order
            return rows[0], 0, 0
        if wanted == rows[-1].first_id:  # and tell of an arrival soon
            return rows[-1], len(rows) - 1, 0
        while wanted >= oldest:
            place = bisect_right(rows, wanted, key=_FIRST_ID) - 1
            row = rows[place]
            if wanted < row.first_id + row.count:
                return row, place, wanted - row.first_id
            wanted -= self.id_max
        return None

    def _cut(self, row: Row, place: int, first: int, count: int) -> None:
        """Drops deliveries from a row: ``count`` from its ``first`` on. Those behind them become a row of their own."""
        self._in_rows -= count
        if count == row.count:
            del self._rows[place]
            return
        if first and first + count < row.count:
            self._rows.insert(place + 1, row.rest(first + count))
        if first:
            row.count = first
        else:
            row.drop(count)

    @property
    def closed(self) -> bool:
        return self.life is CHANNEL_CLOSED

    def close(self) -> None:
        """Ends deliveries. Those that it has are requeued over the next turns (deferred.py)."""
        self.life = moved(CHANNEL_MOVES, self.life, CHANNEL_CLOSED)

    @property
    def left(self) -> int:
        """Returns how many more deliveries there may be: as the client permits, as there are ids, and as there is room
        on its tab and in the limit of its user."""
        left = self.limit - self.used
        if self.orphaned_ids:
            left = min(left, self.id_max - len(self.orphaned_ids) - self.used)
        asked_for = self.used - self._in_rows + len(self._rows) - self._granted
        if asked_for >= UNASKED_MAX and left > 0 and not self._pays():
            return 0
        if self.in_flight_bytes.counts and self.whole is BOUNDLESS:  # else the whole has asked
            return left if self.in_flight_bytes.permitted else min(left, 0)
        return left

    @property
    def objects(self) -> int:
        """The deliveries in flight, where a row counts as one."""
        return self.used - self._in_rows + len(self._rows)

    def _pays(self) -> bool:
        """Puts all deliveries in flight on the tab, if there is room. Returns whether there is."""
        if self.tab is not None and not self.tab.has_room(self._uncounted_bytes):
            return False
        self._granted = self.objects
        self.settle_tab()
        return True

    @property
    def _uncounted_bytes(self) -> int:
        """The bytes of deliveries in flight that are not on the tab yet."""
        assert self.tab is not None
        return DELIVERY_BYTES * self.objects - self.tab.amounts.get(UNSETTLED, 0)

    @property
    def wait_reason(self) -> str:
        """Why it gets no more deliveries whatever its client permits, in words; empty: it does."""
        if self.tab is not None and self.objects - self._granted >= UNASKED_MAX:
            try:
                self.tab.check(self._uncounted_bytes)
            except Refused as refused:
                return str(refused)
        return self.in_flight_bytes.wait_reason

    def settle_tab(self) -> None:
        """Puts what is in flight now on the tab, whether or not there is room. It grants nothing more."""
        self._granted = min(self._granted, self.objects)
        if self.tab is not None:
            self.tab.put(UNSETTLED, DELIVERY_BYTES * self.objects)

    def next_id(self) -> int:
        """Returns a free delivery id. Called only while there is room (``left``), so there is one."""
        candidate = self._last_id
        while True:
            if candidate == self.id_max:
                candidate = 0
                self._laps += self.id_max
            candidate += 1
            if candidate in self._each or candidate in self.orphaned_ids:
                continue
            found = self._find(candidate)
            if found is None:
                self._last_id = candidate
                return candidate
            row, _, at = found
            candidate += row.count - at - 1

    def go_on_after(self, last_id: int) -> None:
        """Continues the ids of the process before this one."""
        self._last_id = last_id

    def get(self, delivery_id: int) -> Delivery | None:
        """Returns a delivery in flight that was sent alone."""
        found = self._find(delivery_id)
        return self._each.get(delivery_id) if found is None else found[0].alone

    def holds(self, delivery_id: int) -> bool:
        """Tells whether a delivery is there to be settled."""
        return delivery_id in self._each or delivery_id in self.timed_out or self._find(delivery_id) is not None

    @property
    def last_id(self) -> int:
        return self._last_id

    def take_ids(self, count: int) -> int:
        """Takes ``count`` ids in a row and returns the first. Only for channels whose ids never begin again, which are
        all free."""
        first = self._last_id + 1
        self._last_id += count
        return first

    def take_row(self, count: int) -> int:
        """Takes ``count`` ids in a row, behind the last one, and returns the first; 0: they are not all free."""
        first, stop = self._last_id + 1, self._last_id + 1 + count
        if self.orphaned_ids or stop > self.id_max + 1:
            return 0
        if self._each and not self._each.keys().isdisjoint(range(first, stop)):
            return 0
        if self._laps and self._rows and self._rows[0].first_id <= self._laps and self._in_older_rows(first, stop):
            return 0
        self._last_id = stop - 1
        return first

    def _in_older_rows(self, first: int, stop: int) -> bool:
        """Tells whether any of these ids is in a row of an earlier lap."""
        wanted, oldest = self._laps - self.id_max + stop - 1, self._rows[0].first_id
        while wanted >= oldest:
            row = self._rows[bisect_right(self._rows, wanted, key=_FIRST_ID) - 1]
            if row.first_id + row.count > wanted - (stop - 1 - first):
                return True
            wanted -= self.id_max
        return False

    def add(self, delivery_id: int, delivery: Delivery) -> None:
        self._add(delivery_id, delivery)
        self._use(delivery.subscription.window, 1)
        if self.in_flight_bytes.counts:
            self.in_flight_bytes.add(delivery, delivery.size)

    def add_all(self, first_id: int, deliveries: list[Delivery], window: Window, chunk: Chunk, first: int) -> None:
        """Adds deliveries of one subscription, which has this window, under consecutive ids: of the records of
        ``chunk`` from ``first`` on."""
        each, in_rows = self._each, bool(self._rows)
        for delivery_id, delivery in enumerate(deliveries, first_id):  # faster than update()
            if in_rows:
                self._add(delivery_id, delivery)
            else:
                each[delivery_id] = delivery
        self._use(window, len(deliveries))
        if self.in_flight_bytes.counts:
            for index, delivery in enumerate(deliveries, first):
                self.in_flight_bytes.add(delivery, chunk.size_of(index))

    def _add(self, delivery_id: int, delivery: Delivery) -> None:
        if not self._rows:
            self._each[delivery_id] = delivery
            return
        of, number = delivery, self._laps + delivery_id
        assert number > self._rows[-1].first_id, "ids only grow behind a row"
        cursor = cast("Cursor", of.cursor)  # nobody asks the row for it
        row = Row(number, 1, of.subscription, of.sent_s, cursor, of.chunk, of.index, of.number, of.released, of)
        self._append(row)

    def add_row(self, row: Row) -> None:
        """Adds deliveries that were sent together, under the last ids. Not where their bytes are counted."""
        if self._rows is NO_ROWS:
            self._rows = deque()
        row.first_id += self._laps
        self._use(row.subscription.window, row.count)
        self._append(row)

    def _append(self, row: Row) -> None:
        rows = self._rows
        rows.append(row)
        self._in_rows += row.count
        if self._in_rows > IN_ROWS_MAX or (self._laps and rows[0].first_id + LAPS_MAX * self.id_max < row.first_id):
            self._leave_row()
            while self._in_rows > IN_ROWS_MAX:
                self._leave_row()

    def _use(self, window: Window, count: int) -> None:
        self.used += count
        if window is not self:
            window.used += count
        if self.whole is not BOUNDLESS:
            self.whole.used += count

    def remove(self, delivery_id: int) -> Delivery | None:
        """Removes a delivery and frees its credit. The caller decides what becomes of its record."""
        delivery = self._each.pop(delivery_id, None)
        if delivery is None and (found := self._find(delivery_id)) is not None:
            row, place, at = found
            delivery = row.delivery(at)
            self._cut(row, place, at, 1)
        if delivery is not None:
            self._use(delivery.subscription.window, -1)
            if self.in_flight_bytes.counts:
                self.in_flight_bytes.remove(delivery)
        return delivery

    def settle(self, delivery_id: int) -> Delivery | None:
        """Settles a delivery: the client has the record for good."""
        delivery = self.remove(delivery_id)
        if delivery is not None:
            delivery.cursor.acknowledge(delivery.number)
        return delivery

    def settle_row(self, delivery_ids: Sequence[int], at: int) -> tuple[Subscription, int] | None:
        """Settles deliveries of one row: as many as the ids from ``at`` on name in order. Returns their consumer and
        their number; None: the first of them is in no row."""
        found = self._find(delivery_ids[at])
        if found is None:
            return None
        row, place, first = found
        if row.alone is not None:
            self.settle(delivery_ids[at])
            return row.subscription, 1
        count = row.count - first
        if count > 1:
            count = consecutive(delivery_ids, at, count)
        number = row.number + first
        self._cut(row, place, first, count)
        self._use(row.subscription.window, -count)
        row.cursor.acknowledge_range(number, number + count)
        return row.subscription, count

    def release_row(self, delivery_ids: Sequence[int], at: int) -> int:
        """Notes that the client has received deliveries of one row: as many as the ids from ``at`` on name in order.
        Returns their number; 0: the first of them was sent alone, or is not in flight."""
        found = self._find(delivery_ids[at])
        if found is None or found[0].alone is not None:
            return 0
        row, place, first = found
        count = consecutive(delivery_ids, at, row.count - first)
        if row.released:
            return count
        if first + count < row.count:
            self._rows.insert(place + 1, row.rest(first + count))
        if first:
            released = row.rest(first)
            released.count, released.released = count, True
            self._rows.insert(place + 1, released)
            row.count = first
        else:
            row.count, row.released = count, True
        return count

    def oldest_sent_s(self) -> float:
        """Returns the time when the oldest delivery in flight was sent; ``inf`` if there is none."""
        for delivery in self._each.values():
            return delivery.sent_s
        return self._rows[0].sent_s if self._in_rows else inf

    def settle_run(self, delivery_ids: Sequence[int], at: int) -> dict[tuple[Subscription, Reported], int]:
        """Settles deliveries that are in no row, from the id at ``at`` on to the first that is none. Neighbours of one
        consumer and one cursor are settled at once. Returns how many of each were settled."""
        done: dict[tuple[Subscription, Reported], int] = {}
        ids = map(delivery_ids.__getitem__, range(at, len(delivery_ids))) if at else iter(delivery_ids)
        found = takewhile(bool, map(self._each.pop, ids, repeat(None)))
        for of, some in groupby(cast("Iterator[Delivery]", found), _READER):
            run = list(some)
            done[of] = done.get(of, 0) + len(run)
            self._use(of[0].window, -len(run))
            of[1].acknowledge_run([delivery.number for delivery in run])
            if self.in_flight_bytes.counts:
                for delivery in run:
                    self.in_flight_bytes.remove(delivery)
        return done

    def time_out(self, delivery_id: int) -> Delivery:
        """Moves a delivery from ``in_flight`` to ``timed_out``. It still uses up its client's credit."""
        if self.timed_out is NOTHING:
            self.timed_out = {}
        delivery = self.timed_out[delivery_id] = self.in_flight.pop(delivery_id)
        delivery.subscription.window.timeouts += 1
        return delivery

    def settle_timed_out(self, delivery_id: int) -> Delivery | None:
        """Frees the credit of a delivery that had timed out. Returns None if there is none with this id."""
        delivery = self.timed_out.pop(delivery_id, None) if self.timed_out else None
        if delivery is None:
            return None
        window = delivery.subscription.window
        window.timeouts -= 1
        window.exhausted_since_s = None
        self._use(window, -1)
        if self.in_flight_bytes.counts:
            self.in_flight_bytes.remove(delivery)
        return delivery

    def ids_of(self, consumer: Subscription) -> list[int]:
        """Returns the ids of a consumer's deliveries in flight, the oldest first. The list is not the caller's to
        change."""
        if self.id_max != NO_LIMIT:
            return [known for known, one in self.in_flight.items() if one.subscription is consumer]
        if consumer.window is not self and not consumer.window.used:
            return []
        if self.by_consumer is None:
            self.by_consumer = DeliveriesByConsumer()
        return self.by_consumer.of(consumer, self.in_flight)

    def upto(self, delivery_id: int) -> list[int]:
        """Returns the unsettled ids up to this one, the oldest first; for 0, all of them. Only for channels whose ids
        never begin again."""
        if not delivery_id:
            return [*self.timed_out, *self.in_flight]
        old = [returned for returned in self.timed_out if returned <= delivery_id]
        return [*old, *takewhile(delivery_id.__ge__, self.in_flight)]

    def clear(self) -> None:
        for row in self._rows:
            self._use(row.subscription.window, -row.count)
            if row.alone is not None and self.in_flight_bytes.counts:
                self.in_flight_bytes.remove(row.alone)
        self._rows, self._in_rows = NO_ROWS, 0
        for delivery_id in list(self._each):
            self.remove(delivery_id)
        self.timed_out = NOTHING
        self.replay.clear()

    def check(self) -> None:
        """Asserts the invariants. It visits all deliveries in flight."""
        rows = list(self._rows)
        assert self._in_rows == sum(row.count for row in rows)
        assert all(row.count > 0 for row in rows)
        assert all(row.count == 1 for row in rows if row.alone is not None)
        in_rows = [one for row in rows for one in row.deliveries()]
        ids = [one for row in rows for one in range(row.first_id, row.first_id + row.count)]
        assert ids == sorted(ids)
        ids = [(one - 1) % self.id_max + 1 for one in ids]
        assert len({*ids, *self._each}) == len(ids) + len(self._each), "an id is in use once"
        assert not NO_ROWS
        there = [*self._each.values(), *in_rows, *self.timed_out.values()]
        assert self.used == len(there), f"{self.used} deliveries are counted, {len(there)} are in flight"
        assert self.whole is BOUNDLESS or self.whole.used >= self.used
        if not there:
            return
        used = Counter(delivery.subscription.window for delivery in there)
        late = Counter(delivery.subscription.window for delivery in self.timed_out.values())
        assert all(window.used == count for window, count in used.items())
        assert all(window.timeouts == late[window] for window in used)


class GrantedChannel(Channel):
    """A channel whose client permits so many further frames, of which a large record takes several."""

    __slots__ = ("frames_left",)

    def __init__(self, number: int, owner: int, in_flight_bytes: InFlightBytes = NOT_COUNTED) -> None:
        super().__init__(NO_LIMIT, NO_LIMIT, number, owner, in_flight_bytes)
        self.frames_left = 0

    @property
    def left(self) -> int:
        return min(super().left, self.frames_left)
