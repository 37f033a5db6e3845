"""Windows and channels: the number of deliveries that a client permits to be in flight, and the deliveries themselves.

Credit is counted where the client gives it. MQTT's Receive Maximum is one window for the whole session. AMQP has one
window for each consumer and one for all consumers of a channel; the broker adds one for all channels of a session. A
delivery needs room in all windows that apply to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import groupby, repeat, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from headway.core.allowance import NOT_COUNTED, InFlightBytes
from headway.core.base import moved
from headway.core.consumer.life import CHANNEL_CLOSED, CHANNEL_MOVES, CHANNEL_OPEN
from headway.core.log import Chunk, Cursor, OutOfOrderProgress
from headway.core.message import Record

if TYPE_CHECKING:
    from headway.core.consumer.subscription import Subscription

MQTT_ID_MAX = 65_535
NO_LIMIT = 2**62
_READER = attrgetter("subscription", "cursor")


class Delivery(Struct, eq=False):
    """A record that was sent and is not settled yet. ``number``: its own in the lane of its cursor."""

    subscription: Subscription
    sent_s: float
    cursor: Cursor | None = None
    chunk: Chunk | None = None
    index: int = 0
    number: int = 0
    released: bool = False
    """The client has it, and only the second half of the exactly-once handshake is missing."""
    patience_s: float = 0.0
    """For how long the message says that its job may take; 0: it does not say."""
    returns: int = 0
    """How often the record had been requeued before this delivery."""
    record: Record | None = None
    """The record, if it was not copied from a lane in the subscription's own dialect."""
    out_of_order: OutOfOrderProgress | None = None
    """The progress that notes the settled ``sequence`` of a record from a durable subscription's backfill, which has no
    cursor."""
    sequence: int = 0


class Window:
    """A limit on how many deliveries may be in flight at once."""

    __slots__ = ("exhausted_since_s", "limit", "timeouts", "used")
    grants = False
    """Whether its client says how many deliveries follow, and not how many may be unsettled (``Grant``)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.timeouts = 0
        """The deliveries in ``used`` whose acknowledgement took too long. They were requeued, and this consumer gets no
        more records until it settles them."""
        self.exhausted_since_s: float | None = None
        """The time since which records wait because the window has no room."""

    @property
    def left(self) -> int:
        return self.limit - self.used

    def spend(self, cut: object, count: int) -> None:
        """Notes that the first ``count`` deliveries of a cut were sent, settled or not."""


class Grant(Window):
    """The credit of a consumer whose client says how many deliveries may follow, whether it settles those that it has
    or not (link credit of AMQP 1.0). ``used`` counts its unsettled deliveries, as in any window."""

    __slots__ = ("_on_sent", "credit", "spent")
    grants = True

    def __init__(self, on_sent: Callable[[Any, int], None]) -> None:
        """``on_sent``: is told of the deliveries of a cut that were sent."""
        super().__init__(0)
        self._on_sent = on_sent
        self.credit = 0
        self.spent = 0
        """The deliveries that were sent since the consumer began, and the credit that was used up without any."""

    @property
    def left(self) -> int:
        return self.credit

    def spend(self, cut: object, count: int) -> None:
        self.credit -= count
        self.spent += count
        self._on_sent(cut, count)

    def use_up(self) -> None:
        """Uses the credit up without a delivery."""
        self.spent += max(0, self.credit)
        self.credit = 0

    def give(self, credit: int) -> None:
        """The client permits so many further deliveries. ``limit`` becomes the most that it has permitted at once."""
        self.credit = credit
        self.limit = max(self.limit, credit)
        if credit > 0:
            self.exhausted_since_s = None


class CountedWindow(Window):
    """The window of a consumer of topics that says how many records it has done with, and not which. What it was sent
    (``Reader.delivered``) minus these is in flight, so nothing is done per record."""

    __slots__ = ("settled",)

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.settled = 0

    def sent(self, records: int) -> None:
        """Notes how many records were sent in all."""
        self.used = records - self.settled

    def settle(self, records: int) -> int:
        """Settles so many of the oldest records in flight, or as many as there are. Returns how many."""
        done = min(records, self.used)
        self.settled += done
        self.used -= done
        return done


NOTHING: dict[int, Delivery] = {}
BOUNDLESS = Window(NO_LIMIT)
"""``Channel.whole`` where a session has only one channel. It is shared and never changes."""


KNOWN_SPARE = 64
"""The number of ids that may be noted beyond twice as many as are in flight."""


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


class Channel(Window):
    """Deliveries that are numbered and acknowledged together: those of an MQTT session, or of one AMQP channel."""

    __slots__ = (
        "_last_id",
        "by_consumer",
        "id_max",
        "in_flight",
        "in_flight_bytes",
        "life",
        "members",
        "number",
        "orphaned_ids",
        "owner",
        "replay",
        "timed_out",
        "whole",
    )  # fmt: skip

    def __init__(self, limit: int, id_max: int = MQTT_ID_MAX, number: int = 0, owner: int = 0,
                 in_flight_bytes: InFlightBytes = NOT_COUNTED) -> None:
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
        self.in_flight: OrderedDict[int, Delivery] = OrderedDict()
        self.by_consumer: DeliveriesByConsumer | None = None
        """Made when somebody asks for the deliveries of one of several consumers."""
        self.in_flight_bytes = in_flight_bytes
        """Those of the session, where its user has a limit of them."""
        self.replay: list[int] = []
        """Ids of deliveries to be sent again to a client that has reconnected. The next one stands last."""
        self.timed_out: dict[int, Delivery] = NOTHING
        """Deliveries whose acknowledgement took too long. They use up credit until the client settles them."""
        self.orphaned_ids: dict[int, None] = {}
        """Ids without a record that the client may still hold (exactly_once.py)."""
        self._last_id = 0

    @property
    def closed(self) -> bool:
        return self.life is CHANNEL_CLOSED

    def close(self) -> None:
        """Ends deliveries. Those that it has are requeued over the next turns (deferred.py)."""
        self.life = moved(CHANNEL_MOVES, self.life, CHANNEL_CLOSED)

    @property
    def left(self) -> int:
        """Returns how many more deliveries there may be: as the client permits, as there are ids, and as the limit of
        its user has room."""
        left = min(self.limit, self.id_max - len(self.orphaned_ids)) - self.used
        if self.in_flight_bytes.allowance is not None and self.whole is BOUNDLESS:  # else the whole has asked
            return left if self.in_flight_bytes.permitted else min(left, 0)
        return left

    def next_id(self) -> int:
        """Returns a free delivery id. Called only while there is room (``left``), so there is one."""
        candidate = self._last_id
        while True:
            candidate = candidate % self.id_max + 1
            if candidate not in self.in_flight and candidate not in self.orphaned_ids:
                self._last_id = candidate
                return candidate

    def go_on_after(self, last_id: int) -> None:
        """Continues the ids of the process before this one."""
        self._last_id = last_id

    def holds(self, delivery_id: int) -> bool:
        """Tells whether a delivery is there to be settled."""
        return delivery_id in self.in_flight or delivery_id in self.timed_out

    @property
    def last_id(self) -> int:
        return self._last_id

    def take_ids(self, count: int) -> int:
        """Takes ``count`` ids in a row and returns the first. Only for channels whose ids never begin again."""
        first = self._last_id + 1
        self._last_id += count
        return first

    def add(self, delivery_id: int, delivery: Delivery) -> None:
        self.in_flight[delivery_id] = delivery
        self._use(delivery.subscription.window, 1)
        if self.in_flight_bytes.allowance is not None:
            self.in_flight_bytes.add(delivery, _size_of(delivery))

    def add_all(self, first_id: int, deliveries: list[Delivery], window: Window, chunk: Chunk, first: int) -> None:
        """Adds deliveries of one subscription, which has this window, under consecutive ids: of the records of
        ``chunk`` from ``first`` on."""
        in_flight = self.in_flight
        for delivery_id, delivery in enumerate(deliveries, first_id):  # faster than update()
            in_flight[delivery_id] = delivery
        self._use(window, len(deliveries))
        if self.in_flight_bytes.allowance is not None:
            for index, delivery in enumerate(deliveries, first):
                self.in_flight_bytes.add(delivery, chunk.size_of(index))

    def _use(self, window: Window, count: int) -> None:
        self.used += count
        if window is not self:
            window.used += count
        if self.whole is not BOUNDLESS:
            self.whole.used += count

    def remove(self, delivery_id: int) -> Delivery | None:
        """Removes a delivery and frees its credit. The caller decides what becomes of its record."""
        delivery = self.in_flight.pop(delivery_id, None)
        if delivery is not None:
            self._use(delivery.subscription.window, -1)
            if self.in_flight_bytes.allowance is not None:
                self.in_flight_bytes.remove(delivery)
        return delivery

    def settle(self, delivery_id: int) -> Delivery | None:
        """Settles a delivery: the client has the record for good."""
        delivery = self.remove(delivery_id)
        if delivery is not None and delivery.cursor is not None:
            delivery.cursor.acknowledge(delivery.number)
        elif delivery is not None and delivery.out_of_order is not None:
            delivery.out_of_order.acknowledge(delivery.sequence)
        return delivery

    def settle_run(self, delivery_ids: Iterator[int]) -> dict[tuple[Subscription, Cursor | None], int]:
        """Settles deliveries up to the first that is not in flight, which it takes from the iterator too. Neighbours of
        one consumer and one cursor are settled at once. Returns how many of each were settled."""
        done: dict[tuple[Subscription, Cursor | None], int] = {}
        found = takewhile(bool, map(self.in_flight.pop, delivery_ids, repeat(None)))
        for of, some in groupby(cast("Iterator[Delivery]", found), _READER):
            run = list(some)
            done[of] = done.get(of, 0) + len(run)
            self._use(of[0].window, -len(run))
            if of[1] is not None:
                of[1].acknowledge_run([delivery.number for delivery in run])
            if self.in_flight_bytes.allowance is not None:
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
        if self.in_flight_bytes.allowance is not None:
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
        for delivery_id in list(self.in_flight):
            self.remove(delivery_id)
        self.timed_out = NOTHING
        self.replay.clear()


class GrantedChannel(Channel):
    """A channel whose client permits so many further frames, of which a large record takes several."""

    __slots__ = ("frames_left",)

    def __init__(self, number: int, owner: int, in_flight_bytes: InFlightBytes = NOT_COUNTED) -> None:
        super().__init__(NO_LIMIT, NO_LIMIT, number, owner, in_flight_bytes)
        self.frames_left = 0

    @property
    def left(self) -> int:
        return min(super().left, self.frames_left)


def _size_of(delivery: Delivery) -> int:
    if delivery.record is not None:
        return delivery.record.size
    return 0 if delivery.chunk is None else delivery.chunk.size_of(delivery.index)
