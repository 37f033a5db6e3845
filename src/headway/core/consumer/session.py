"""Sessions: a client identity that may outlive its connection. Knows no protocol."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import msgspec

from headway.core.base import PacketIds, Reason, Timer, stop
from headway.core.consumer.channel import MQTT_ID_MAX, Channel
from headway.core.consumer.outlet import Outlet
from headway.core.consumer.subscription import Subscription
from headway.core.log import (
    ANSWERS,
    DELIVERY_BYTES,
    HELD_BACK_BYTES,
    SESSION,
    SESSION_BYTES,
    UNSETTLED,
    WILL,
    HeldBack,
    Pool,
    Tab,
)
from headway.core.message import Record

if TYPE_CHECKING:
    from headway.core.consumer.shared_reader import SharedReader


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
    credit: int = MQTT_ID_MAX
    """Deliveries the client lets be in flight (MQTT Receive Maximum)."""
    max_packet_bytes: int = 2**62
    username: str | None = None
    protocol: str = ""
    will: Will | None = None


BEHIND_MAX = 16
"""So many subscriptions of a client are looked at when one of them is."""


class Holdings:
    """What of lanes is kept for one client: sums over its subscriptions and queues, of each as it was when somebody
    looked at it last. The sums are exact for who has few; nobody walks through ten thousand."""

    __slots__ = ("_known", "disk_bytes", "gating_bytes")

    def __init__(self) -> None:
        self._known: dict[object, tuple[int, int]] = {}
        self.gating_bytes = 0
        self.disk_bytes = 0
        """Part of it that is on disk."""

    def note(self, holder: object, gating_bytes: int, spilled_bytes: int) -> None:
        """``spilled_bytes``: of its lane."""
        gating, disk = self._known.pop(holder, (0, 0))
        self.gating_bytes -= gating
        self.disk_bytes -= disk
        if gating_bytes:
            disk = min(gating_bytes, spilled_bytes)
            self._known[holder] = gating_bytes, disk
            self.gating_bytes += gating_bytes
            self.disk_bytes += disk


class Session:
    """One client. ``outlet`` is None while it is away."""

    __slots__ = (
        "channel", "client", "connected_s", "dead", "ended", "expiry", "expiry_s", "gates", "gone_since_s", "half_sent",
        "held_back", "holdings", "incoming", "kept", "lagging", "last_reason", "listener", "lost_records",
        "max_packet_bytes", "number", "outlet", "paused_by", "paused_since_s", "pauses", "pending_will", "pool",
        "present", "protocol", "published_bytes", "published_records", "queues", "ready", "refused_records", "rest",
        "stalled_s", "starved", "subscriptions", "tab", "username", "will", "will_due",
    )  # fmt: skip

    def __init__(self, number: int, request: ConnectRequest, pool: Pool, now: float) -> None:
        self.number = number
        self.client = request.client
        self.pool = pool
        self.tab = Tab(pool)
        """What it takes up besides records."""
        self.present = False
        """This connection found the session's earlier state."""
        self.subscriptions: dict[object, Subscription] = {}
        """By ``SubscribeRequest.key``."""
        self.lagging: dict[Subscription, None] = {}
        """Those for whom something waits; everybody else is in its feed's ``waiting``."""
        self.ready: OrderedDict[Subscription, None] = OrderedDict()
        """Of those: who may be able to go on, next the one that was given something longest ago."""
        self.holdings = Holdings()
        self.starved: OrderedDict[Subscription, None] = OrderedDict()
        """Of those: who waits for credit, or for the journal."""
        self.gates: dict[Subscription, None] = {}
        """Those that may hold back publishers."""
        self.half_sent: Subscription | None = None
        """Whose record the outlet has taken only part of."""
        self.rest: bytes | memoryview = b""
        """What is left of a half-sent record whose subscription has moved on."""
        self.channel = Channel(request.credit)
        """Its only one, where the protocol has no channels."""
        self.incoming = PacketIds()
        """Ids of exactly-once publishes that arrived and are not released."""
        self.held_back = HeldBack()
        self.queues: dict[SharedReader, None] = {}
        """Whose member it is."""
        self.outlet: Outlet | None = None
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
        self.expiry: Timer | None = None
        """Ends it, while its client is away."""
        self.will_due: Timer | None = None
        """Publishes the will whose delay is running."""
        self.dead = False
        """Given up by the broker: nothing more is sent, and the session ends with its connection."""
        self.ended = False
        self.kept = False
        """It outlives the process."""
        self.last_reason: Reason | None = None
        self.adopt(request, now)

    def adopt(self, request: ConnectRequest, now: float) -> None:
        """A new connection takes the session over."""
        self.listener = request.listener
        self.protocol = request.protocol
        self.username = request.username
        self.expiry_s = request.expiry_s
        self.channel.limit = request.credit
        self.max_packet_bytes = request.max_packet_bytes
        self.will = request.will
        self.stop_timers()
        self.pending_will: Will | None = None
        """To be published when its delay is over, unless the client comes back before."""
        self.connected_s = now

    def fell_behind(self, subscription: Subscription) -> None:
        self.lagging[subscription] = self.ready[subscription] = None

    def set_aside(self, subscription: Subscription) -> None:
        """It cannot go on, and need not be looked at until there is credit, or room, for it."""
        if self.ready.pop(subscription, self) is None:
            self.starved[subscription] = None

    def go_on(self) -> None:
        """As many of those who were set aside as there is credit for may go on."""
        if self.starved and self.held_back.size < HELD_BACK_BYTES:
            for _ in range(min(self.channel.left, len(self.starved))):
                self.ready[self.starved.popitem(last=False)[0]] = None

    def written(self, number: int) -> None:
        """This commit is on disk: what was held back for it is sent."""
        frames = self.held_back.upto(number)
        if self.outlet is not None:
            self.outlet.out += frames

    def caught_up(self, subscription: Subscription) -> None:
        """Nothing waits for it any more, or it is over."""
        if self.lagging.pop(subscription, self) is None:
            self.holdings.note(subscription, 0, 0)
            self.ready.pop(subscription, None)
            self.starved.pop(subscription, None)

    def stop_timers(self) -> None:
        """Neither its end nor its will is due."""
        stop(self.expiry)
        stop(self.will_due)

    @staticmethod
    def cost(request: ConnectRequest) -> int:
        """What a session takes up by itself, and its will."""
        return SESSION_BYTES + 2 * len(request.client) + _will_bytes(request.will)

    def settle_tab(self) -> None:
        """It has been let in, or has a will, or has none any more."""
        if self.ended:
            return
        self.tab.put(SESSION, SESSION_BYTES + 2 * len(self.client))
        self.tab.put(WILL, _will_bytes(self.will) + _will_bytes(self.pending_will))

    def count_unsent(self) -> int:
        """Put on the tab what was written for it alone and is not taken, and what it has not settled; the first of
        these."""
        outlet = self.outlet
        unsent = 0 if outlet is None else len(outlet.out) + self.held_back.size
        if type(self.rest) is bytes:
            unsent += len(self.rest)
        self.tab.put(ANSWERS, unsent)
        self.tab.put(UNSETTLED, DELIVERY_BYTES * self.channel.used)
        return unsent

    def some_behind(self) -> Iterator[Subscription]:
        """Some of what it takes up room with: those for whom something waits, and queues that are its alone."""
        yield from islice(self.lagging, BEHIND_MAX)
        for queue in islice(self.queues, BEHIND_MAX):
            if queue.owner is self and queue.backlog.has_more:
                yield from islice((member for member in queue.members if member.session is self), 1)

    def look_at(self, subscription: Subscription) -> None:
        """Know what this one, and some others, keep from being let go of."""
        self._note(subscription)
        for other in self.some_behind():
            self._note(other)

    def _note(self, subscription: Subscription) -> None:
        queue, lane = subscription.reader.queue, subscription.feed.lane
        most = lane.resident_bytes + lane.spilled_bytes  # the journal has the rest, and that takes up no room
        if queue is None and subscription in self.lagging:
            self.holdings.note(subscription, min(subscription.gating_bytes, most), lane.spilled_bytes)
        elif queue is not None and queue.owner is self:
            self.holdings.note(queue, min(queue.backlog.lag_bytes, most), lane.spilled_bytes)

    def expires_at(self) -> float:
        """When the session ends if the client stays away."""
        return inf if self.outlet is not None else self.gone_since_s + self.expiry_s


def _will_bytes(will: Will | None) -> int:
    return 0 if will is None else will.record.size
