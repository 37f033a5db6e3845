"""Windows and channels: what a client permits to be in flight, and what is.

Credit is counted where the client gives it: MQTT's Receive Maximum is one window for the whole session; AMQP has one
for each consumer, one for all consumers of a channel, and ours for all channels of a session. What may be sent is what
all of them leave.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile
from typing import TYPE_CHECKING

from headway.core.log import Chunk, Cursor, LooseEnds
from headway.core.message import Record

if TYPE_CHECKING:
    from headway.core.consumer.subscription import Subscription

MQTT_ID_MAX = 65_535
NO_LIMIT = 2**62


class Delivery:
    """A record sent and not yet settled. ``released``: the client has it, its second acknowledgement is outstanding."""

    __slots__ = (
        "chunk", "cursor", "index", "loose", "number", "record", "released", "returns", "sent_s", "sequence",
        "subscription",
    )  # fmt: skip

    def __init__(self, subscription: Subscription, sent_s: float) -> None:
        self.subscription = subscription
        self.sent_s = sent_s
        self.released = False
        self.cursor: Cursor | None = None
        self.chunk: Chunk | None = None
        self.index = 0
        self.number = 0
        self.returns = 0
        """How often it had come back to its queue before."""
        self.record: Record | None = None
        """Set when the record did not come from a lane, or not in the subscription's own dialect."""
        self.loose: LooseEnds | None = None
        """Is told when it is settled, of one that has no cursor; by its ``sequence``."""
        self.sequence = 0


class Window:
    """So many deliveries may be in flight together."""

    __slots__ = ("exhausted_since_s", "limit", "timeouts", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.timeouts = 0
        """Of those: taken back for taking too long, and not settled. Nothing more goes to who has any."""
        self.exhausted_since_s: float | None = None
        """Since when something waits that it does not let through."""

    @property
    def left(self) -> int:
        return self.limit - self.used


NOTHING: dict[int, Delivery] = {}
BOUNDLESS = Window(NO_LIMIT)
"""Of a channel that is its session's only one. Nobody writes into it."""


class Channel(Window):
    """Deliveries that are numbered and acknowledged together: those of an MQTT session, or of one AMQP channel."""

    __slots__ = (
        "_last_id", "closed", "doubtful", "id_max", "in_flight", "members", "number", "owner", "replay", "timed_out",
        "whole",
    )  # fmt: skip

    def __init__(self, limit: int, id_max: int = MQTT_ID_MAX, number: int = 0, owner: int = 0) -> None:
        super().__init__(limit)
        self.number = number
        self.owner = owner
        """The number of its session, where that has several."""
        self.id_max = id_max
        """After it ids begin again at 1."""
        self.closed = False
        """Nothing more is handed out on it; what is left of it is dealt with as turns go."""
        self.members: dict[Subscription, None] | tuple[()] = ()
        """Consumers of queues, where a session has several channels."""
        self.whole: Window = BOUNDLESS
        """That of its session, where that has several."""
        self.in_flight: OrderedDict[int, Delivery] = OrderedDict()
        self.replay: list[int] = []
        """Deliveries to be sent again, to a client that has come back; the next one last."""
        self.timed_out: dict[int, Delivery] = NOTHING
        """Deliveries that were taken back for taking too long, and are still counted."""
        self.doubtful: list[int] = []
        """Ids its client may hold, and that stand for nothing (exactly.py)."""
        self._last_id = 0

    def next_id(self) -> int:
        """A free delivery id. There is one: no window is larger than their number."""
        candidate = self._last_id
        while True:
            candidate = candidate % self.id_max + 1
            if candidate not in self.in_flight and candidate not in self.doubtful:
                self._last_id = candidate
                return candidate

    def go_on_after(self, last_id: int) -> None:
        """This one was the last in use when the process before this one ended."""
        self._last_id = last_id

    @property
    def last_id(self) -> int:
        return self._last_id

    def take_ids(self, count: int) -> int:
        """The first of so many ids in a row; for channels whose ids do not begin again."""
        first = self._last_id + 1
        self._last_id += count
        return first

    def add(self, delivery_id: int, delivery: Delivery) -> None:
        self.in_flight[delivery_id] = delivery
        self._use(delivery.subscription.window, 1)

    def add_all(self, first_id: int, deliveries: list[Delivery], window: Window) -> None:
        """All of one subscription, whose window this is, with ids in a row."""
        self.in_flight.update(enumerate(deliveries, first_id))
        self._use(window, len(deliveries))

    def _use(self, window: Window, count: int) -> None:
        self.used += count
        if window is not self:
            window.used += count
        if self.whole is not BOUNDLESS:
            self.whole.used += count

    def remove(self, delivery_id: int) -> Delivery | None:
        """It is in flight no longer; what becomes of its record is the caller's affair."""
        delivery = self.in_flight.pop(delivery_id, None)
        if delivery is not None:
            self._use(delivery.subscription.window, -1)
        return delivery

    def settle(self, delivery_id: int) -> Delivery | None:
        """The client has the record for good."""
        delivery = self.remove(delivery_id)
        if delivery is not None and delivery.cursor is not None:
            delivery.cursor.acknowledge(delivery.number)
        elif delivery is not None and delivery.loose is not None:
            delivery.loose.acknowledge(delivery.sequence)
        return delivery

    def time_out(self, delivery_id: int) -> Delivery:
        """It is in flight no longer, but for its client, whose credit is not given back."""
        if self.timed_out is NOTHING:
            self.timed_out = {}
        delivery = self.timed_out[delivery_id] = self.in_flight.pop(delivery_id)
        delivery.subscription.window.timeouts += 1
        return delivery

    def settle_timed_out(self, delivery_id: int) -> Delivery | None:
        """The client settles what was taken back. None: it was not."""
        delivery = self.timed_out.pop(delivery_id, None) if self.timed_out else None
        if delivery is None:
            return None
        window = delivery.subscription.window
        window.timeouts -= 1
        window.exhausted_since_s = None
        self._use(window, -1)
        return delivery

    def upto(self, delivery_id: int) -> list[int]:
        """What the client has not settled up to this one, the oldest first; for channels whose ids do not begin again.
        0: all."""
        if not delivery_id:
            return [*self.timed_out, *self.in_flight]
        old = [returned for returned in self.timed_out if returned <= delivery_id]
        return [*old, *takewhile(delivery_id.__ge__, self.in_flight)]

    def clear(self) -> None:
        for delivery_id in list(self.in_flight):
            self.remove(delivery_id)
        self.timed_out = NOTHING
        self.replay.clear()
