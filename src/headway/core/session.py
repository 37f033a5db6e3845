"""Sessions: a client identity that may outlive its connection, and its deliveries in flight. Knows no protocol."""

from __future__ import annotations

from collections import Counter, OrderedDict
from math import inf
from typing import TYPE_CHECKING

import msgspec

from headway.core.chunk import Chunk
from headway.core.cursor import Cursor
from headway.core.errors import Reason
from headway.core.outlet import Outlet
from headway.core.pool import Pool
from headway.core.record import Record
from headway.core.subscription import Subscription

if TYPE_CHECKING:
    from headway.core.shared import Share

DELIVERY_ID_MAX = 65535


class Will(msgspec.Struct, frozen=True):
    """Published when the connection ends without a goodbye, ``delay_s`` later unless the session is resumed."""

    record: Record
    delay_s: float = 0.0
    lifetime_s: float | None = None


class ConnectRequest(msgspec.Struct, frozen=True):
    """Who wants in. ``expiry_s`` 0: the session ends with the connection; inf: never."""

    client: str
    listener: str
    clean_start: bool = True
    expiry_s: float = 0.0
    credit: int = DELIVERY_ID_MAX
    """Deliveries the client lets be in flight (MQTT Receive Maximum)."""
    max_packet_bytes: int = 2**62
    username: str | None = None
    protocol: str = ""
    will: Will | None = None


class Delivery:
    """A record sent and not yet settled. ``released``: the client has it, its second acknowledgement is outstanding."""

    __slots__ = ("chunk", "cursor", "index", "number", "record", "released", "sent_s", "subscription")

    def __init__(self, subscription: Subscription, sent_s: float) -> None:
        self.subscription = subscription
        self.sent_s = sent_s
        self.released = False
        self.cursor: Cursor | None = None
        self.chunk: Chunk | None = None
        self.index = 0
        self.number = 0
        self.record: Record | None = None
        """Set when the record did not come from a lane, or not in the subscription's own dialect."""


class Session:
    """One client. ``outlet`` is None while it is away."""

    __slots__ = (
        "_last_id", "client", "connected_s", "credit", "credit_exhausted_since_s", "dead", "ended", "expiry_s",
        "gone_since_s", "half_sent", "in_flight", "incoming", "lagging", "last_reason", "listener", "lost_records",
        "max_packet_bytes", "number", "outlet", "paused_by", "paused_since_s", "pauses", "pending_will", "pool",
        "present", "protocol", "published_bytes", "published_records", "refused_records", "replay", "rest", "shares",
        "stalled_s", "subscriptions", "username", "will",
    )  # fmt: skip

    def __init__(self, number: int, request: ConnectRequest, pool: Pool, now: float) -> None:
        self.number = number
        self.client = request.client
        self.pool = pool
        self.present = False
        """This connection found the session's earlier state."""
        self.subscriptions: dict[str, Subscription] = {}
        self.lagging: dict[Subscription, None] = {}
        """Those for whom something waits; everybody else is in its feed's ``waiting``."""
        self.half_sent: Subscription | None = None
        """Whose record the outlet has taken only part of."""
        self.rest = b""
        """What is left of a half-sent record whose subscription has moved on."""
        self.in_flight: OrderedDict[int, Delivery] = OrderedDict()
        self.replay: list[int] = []
        """Deliveries to be sent again, to a client that has come back; the next one last."""
        self.incoming: dict[int, None] = {}
        """Ids of exactly-once publishes that arrived and are not released."""
        self.shares: dict[Share, None] = {}
        self.outlet: Outlet | None = None
        self._last_id = 0
        self.credit_exhausted_since_s: float | None = None
        self.gone_since_s = now
        self.paused_by: dict[object, None] = {}
        """Feeds and pools on whose account this publisher is not read."""
        self.paused_since_s = 0.0
        self.stalled_s = 0.0
        self.pauses = 0
        self.published_records = 0
        self.published_bytes = 0
        self.refused_records = 0
        """Not published: the topic is not for clients, or there was no room to retain it."""
        self.lost_records: Counter[str] = Counter()
        """Records this client published that some consumer was not given, by reason."""
        self.dead = False
        """Given up by the broker: nothing more is sent, and the session ends with its connection."""
        self.ended = False
        self.last_reason: Reason | None = None
        self.adopt(request, now)

    def adopt(self, request: ConnectRequest, now: float) -> None:
        """A new connection takes the session over."""
        self.listener = request.listener
        self.protocol = request.protocol
        self.username = request.username
        self.expiry_s = request.expiry_s
        self.credit = request.credit
        self.max_packet_bytes = request.max_packet_bytes
        self.will = request.will
        self.pending_will: Will | None = None
        """To be published when its delay is over, unless the client comes back before."""
        self.connected_s = now

    @property
    def credit_left(self) -> int:
        return self.credit - len(self.in_flight)

    def expires_at(self) -> float:
        """When the session ends if the client stays away."""
        return inf if self.outlet is not None else self.gone_since_s + self.expiry_s

    def next_id(self) -> int:
        """A free delivery id. There is one: credit never exceeds their number."""
        candidate = self._last_id
        while True:
            candidate = candidate % DELIVERY_ID_MAX + 1
            if candidate not in self.in_flight:
                self._last_id = candidate
                return candidate

    def settle(self, delivery_id: int) -> Delivery | None:
        """The client has the record for good."""
        delivery = self.in_flight.pop(delivery_id, None)
        if delivery is not None and delivery.cursor is not None:
            delivery.cursor.acknowledge(delivery.number)
        return delivery

    def oldest_unacknowledged_s(self) -> float | None:
        """When the delivery that has waited longest for its acknowledgement was sent."""
        for delivery in self.in_flight.values():
            return delivery.sent_s
        return None
