"""A session is a client identity that may outlive its connections. It knows no protocol."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from headway.core.allowance import UNLIMITED, Allowance, Holdings, InFlightBytes
from headway.core.base import NO_TIMER, PacketIds, Reason, moved
from headway.core.consumer.channel import AWAY, CONNECTED, GIVEN_UP, PAUSED, SESSION_MOVES, Channel, SessionLife
from headway.core.consumer.connection import NO_OUTLET, NO_SOURCE, HeldRights, Outlet, RightsSource
from headway.core.consumer.request import NO_WILL, ConnectRequest, Will
from headway.core.consumer.subscription import Departed, Subscription
from headway.core.log import (
    ANSWERS,
    HELD_BACK_BYTES,
    SESSION,
    SESSION_BYTES,
    WILL,
    Cursor,
    HeldBack,
    Pool,
    Tab,
)
from headway.core.message import has_wildcard, shape_of
from headway.core.permission import Rights

if TYPE_CHECKING:
    from headway.core.consumer.feed import SharedReader


BEHIND_MAX = 16
"""A look at one subscription updates so many other subscriptions, and so many queues, of the same client."""
TURNS_PER_PRIORITY = 4
"""A priority has so many more turns for each step; all without one have one turn together."""


class Line:
    """Subscriptions of one client that wait for their turn to be sent something, where some have a priority. It does
    what an ``OrderedDict`` of them does for most clients.

    Those of one priority take turns. The next turn goes to the priority that has had the fewest for its weight, and
    of equals to the highest. So a priority has ``1 + 4 x priority`` turns where all without one have one together,
    and none waits for ever. (Rejected: to count for each subscription. Alerts would wait behind ten thousand
    boards.) A priority that nobody waited with has no claim to the turns that it did not take: what falls behind
    anew begins where the others are. So the highest comes first at once.

    A client has two lines: who may be able to go on, and who needs credit first. Turns count in both together.
    """

    __slots__ = ("_taken", "by_priority")

    def __init__(self, taken: dict[int, float], some: Iterable[Subscription]) -> None:
        """``taken``: the turns that each priority has had in the client's lines, by its weight."""
        self._taken = taken
        self.by_priority: dict[int, OrderedDict[Subscription, None]] = {}
        for subscription in some:
            self[subscription] = None

    def __len__(self) -> int:
        return sum(map(len, self.by_priority.values()))

    def __iter__(self) -> Iterator[Subscription]:
        """Yields whose turn it is."""
        for priority in sorted(self.by_priority, key=lambda one: (self._taken.get(one, 0.0), -one)):
            yield from self.by_priority[priority]

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription in self.by_priority.get(subscription.priority, ())

    def __setitem__(self, subscription: Subscription, value: None) -> None:
        self.by_priority.setdefault(subscription.priority, OrderedDict())[subscription] = value

    def pop(self, subscription: Subscription, default: object) -> object:
        if subscription not in self:
            return default
        same = self.by_priority[subscription.priority]
        del same[subscription]
        if not same:
            del self.by_priority[subscription.priority]
        return None

    def move_to_end(self, subscription: Subscription) -> None:
        """Notes that a subscription has had its turn."""
        priority = subscription.priority
        self.by_priority[priority].move_to_end(subscription)
        self._taken[priority] = self._taken.get(priority, 0.0) + 1 / (1 + TURNS_PER_PRIORITY * priority)


class Session:
    """One client."""

    __slots__ = (
        "_taken",
        "allowance",
        "aside",
        "channel",
        "client",
        "departed",
        "durable",
        "expiry",
        "expiry_s",
        "gates",
        "gone_since_s",
        "half_sent",
        "held",
        "held_back",
        "holdings",
        "incoming",
        "lagging",
        "last_reason",
        "life",
        "listener",
        "lost_records",
        "max_packet_bytes",
        "number",
        "outlet",
        "owner",
        "paused_by",
        "paused_since_s",
        "pauses",
        "pending_will",
        "pool",
        "present",
        "protocol",
        "published_bytes",
        "published_records",
        "queues",
        "ranked",
        "ready",
        "refused_records",
        "renewed_s",
        "rest",
        "selecting",
        "shapes",
        "spent_bytes",
        "spent_records",
        "stalled_s",
        "starved",
        "subscriptions",
        "tab",
        "username",
        "will",
        "will_due",
    )  # fmt: skip

    def __init__(self, number: int, request: ConnectRequest, pool: Pool, now: float,
                 source: RightsSource = NO_SOURCE) -> None:
        self.number = number
        self.client = request.client
        self.pool = pool
        self.tab = Tab(pool)
        """The bytes that the client takes up besides records."""
        self.present = False
        """Set if this connection resumed an earlier session (MQTT session present)."""
        self.subscriptions: dict[object, Subscription] = {}
        """By ``SubscribeRequest.key``."""
        self.shapes: dict[str, int] = {}
        """How many of their filters have wildcards, and these in the same places."""
        self.selecting: dict[str, int] = {}
        """How many of a filter have a selector."""
        self.lagging: dict[Subscription, None] = {}
        """Subscriptions with records waiting. All others are in their feed's ``waiting``."""
        self.ready: OrderedDict[Subscription, None] | Line = OrderedDict()
        """Lagging subscriptions that may be able to go on. The first is the one served longest ago, or has priority."""
        self.holdings = Holdings()
        self.ranked = False
        """Set while the pool ranks the client by what it holds."""
        self.starved: OrderedDict[Subscription, None] | Line = OrderedDict()
        """Lagging subscriptions that wait for credit or for the journal."""
        self.gates: dict[Subscription, None] = {}
        """Subscriptions that may hold back publishers."""
        self._taken: dict[int, float] = {}
        """The turns that each priority of subscriptions has had, by its weight; empty: none has one."""
        self.half_sent: Subscription | None = None
        """The subscription of a record that the outlet has taken only in part."""
        self.rest: bytes | memoryview = b""
        """The rest of a half-sent record whose subscription has moved on."""
        self.channel = Channel(request.credit, in_flight_bytes=InFlightBytes(number), tab=self.tab)
        """The only channel, where the protocol has no channels."""
        self.incoming = PacketIds()
        """Ids of exactly-once publishes that have arrived and are not released."""
        self.held_back = HeldBack()
        self.queues: dict[SharedReader, None] = {}
        """The queues that the session's subscriptions are members of."""
        self.departed = Departed()
        """Members of groups that have ended, and whose unsettled records the client still has."""
        self.aside: dict[Subscription, None] = {}
        """Members of queues that are not offered records before the client can take more (``Registry.wake``)."""
        self.outlet: Outlet = NO_OUTLET
        self.gone_since_s = now
        self.paused_by: dict[Any, None] = {}
        """The feeds, lanes, pools and journal that hold up this publisher."""
        self.paused_since_s = 0.0
        self.stalled_s = 0.0
        self.pauses = self.published_records = self.published_bytes = 0
        self.refused_records = 0
        """Records that were not published: the topic is not for clients, or there was no room to retain them."""
        self.lost_records: Counter[str] = Counter()
        """Records of this publisher that a consumer did not get, by reason."""
        self.renewed_s = -inf
        """When the client last renewed the leases of all its subscriptions at once."""
        self.expiry = NO_TIMER
        """The timer that ends the session while its client is away."""
        self.will_due = NO_TIMER
        """The timer that publishes a delayed will."""
        self.life = AWAY
        """Only ``become`` sets it."""
        self.durable = False
        """Set if the session is in the journal and so outlives the process."""
        self.last_reason = Reason.SUBSCRIPTION_ENDED
        self.held = HeldRights(source)
        self.allowance = UNLIMITED
        """The allowance that counts what the client takes up. Only ``charge`` sets it."""
        self.spent_records = self.spent_bytes = 0
        """Those of ``published_records`` and ``published_bytes`` that are counted in the allowance."""
        self.adopt(request, now)
        self.held.judged_by = request.rights

    def become(self, life: SessionLife) -> None:
        self.life = moved(SESSION_MOVES, self.life, life)

    @property
    def ended(self) -> bool:
        return self.life is SessionLife.ENDED

    @property
    def rights(self) -> Rights:
        """The client's rights."""
        return self.held.of(self, self.tab)

    @property
    def connected(self) -> bool:
        """Tells whether the client has a connection. One that was given up stays until its last word is sent."""
        return self.outlet is not NO_OUTLET

    def connect(self, outlet: Outlet) -> None:
        self.become(CONNECTED)
        self.allowance.connections += not self.connected
        self.outlet = outlet

    def disconnect(self, now: float) -> None:
        """Notes that the connection is gone. A session that was given up, or has ended, stays so."""
        _ = self.rights  # who the client is, is known by its connection
        if self.life is CONNECTED:
            self.become(AWAY)
        self.allowance.connections -= self.connected
        self.channel.in_flight_bytes.wait_no_more()
        self.outlet = NO_OUTLET
        self.gone_since_s = now

    def give_up(self) -> None:
        """Stops sending: the rest of a half-sent record cannot be read from disk."""
        self.become(GIVEN_UP)

    def adopt(self, request: ConnectRequest, now: float) -> None:
        """Takes over the terms of a new connection."""
        self.listener = request.listener
        self.protocol = request.protocol
        self.username = request.username
        self.expiry_s = request.expiry_s
        self.channel.limit = request.credit
        self.max_packet_bytes = request.max_packet_bytes
        self.will = request.will
        self.stop_timers()
        self.pending_will: Will = NO_WILL
        """A will to be published when its delay is over, unless the client comes back before."""
        self.owner = request.owner
        self.tab.charge(request.owner)
        self.grant(request.rights)
        self.charge(request.allowance)

    def grant(self, rights: Rights) -> None:
        """Replaces the client's rights, and forgets the answers of the old ones."""
        self.held.grant(rights, self.tab)

    def charge(self, new: Allowance) -> None:
        """Counts what the client takes up for another user, or for none."""
        old = self.allowance
        self.channel.in_flight_bytes.charge(new)  # first, because limits change and their allowance stays
        if new is old:
            return
        old.connections -= self.connected
        old.subscriptions -= len(self.subscriptions)
        new.connections += self.connected
        new.subscriptions += len(self.subscriptions)
        self.allowance = new
        self.holdings.charge(new)
        self.spent_records, self.spent_bytes = self.published_records, self.published_bytes

    def put(self, subscription: Subscription) -> None:
        """Puts a subscription into the table, under a key that is free or its own."""
        old = self.subscriptions.get(subscription.request.key)
        if old is None:
            self.allowance.subscriptions += 1
        else:
            self._count_kinds(old, -1)
        self._count_kinds(subscription, 1)
        self.subscriptions[subscription.request.key] = subscription

    def drop(self, subscription: Subscription) -> None:
        """Takes a subscription out of the table, if it is there; its key is free then."""
        if self.subscriptions.get(subscription.request.key) is subscription:
            del self.subscriptions[subscription.request.key]
            self.allowance.subscriptions -= 1
            self._count_kinds(subscription, -1)

    def _count_kinds(self, subscription: Subscription, by: int) -> None:
        filter = subscription.request.filter
        if has_wildcard(filter):
            _count(self.shapes, shape_of(filter), by)
        if subscription.request.options.selector is not None:
            _count(self.selecting, filter, by)

    def fell_behind(self, subscription: Subscription) -> None:
        self.lagging[subscription] = None
        if subscription.life is not PAUSED:
            self._make_ready(subscription)

    def _make_ready(self, subscription: Subscription) -> None:
        if subscription.priority or self._taken:
            self._weigh(subscription.priority)
        self.ready[subscription] = None

    def _weigh(self, priority: int) -> None:
        """Has turns taken by priority from now on. One that nobody waited with begins where the others are."""
        taken, ready, starved = self._taken, self.ready, self.starved
        if not isinstance(ready, Line) or not isinstance(starved, Line):
            ready, starved = self.ready, self.starved = Line(taken, ready), Line(taken, starved)
        waiting = {*ready.by_priority, *starved.by_priority}
        if priority not in waiting:
            least = min((taken.get(one, 0.0) for one in waiting), default=0.0)
            taken[priority] = max(taken.get(priority, 0.0), least)

    def served(self, queue: SharedReader) -> None:
        """Notes that a queue has handed something to this client. Its others come first the next time, for they may
        share a window, of which the first one takes all."""
        if self.queues.pop(queue, self) is None:
            self.queues[queue] = None

    def pause(self, subscription: Subscription) -> None:
        """Sends a lagging subscription nothing until it is let on."""
        self.ready.pop(subscription, None)
        self.starved.pop(subscription, None)

    def let_on(self, subscription: Subscription) -> None:
        if subscription in self.lagging and subscription.life is not PAUSED:
            self._make_ready(subscription)

    def set_aside(self, subscription: Subscription) -> None:
        """Moves a subscription from ``ready`` to ``starved``: it needs credit, or room in the journal, to go on."""
        if self.ready.pop(subscription, self) is None:
            self.starved[subscription] = None

    def go_on(self) -> None:
        """Moves subscriptions from ``starved`` to ``ready``, as many as there is credit for."""
        if self.starved and self.held_back.size < HELD_BACK_BYTES:
            left = self.channel.left
            if left <= 0:
                self.channel.in_flight_bytes.wait()
            for _ in range(min(left, len(self.starved))):
                first = next(iter(self.starved))
                self.starved.pop(first, None)
                self.ready[first] = None

    def written(self, number: int) -> None:
        """Sends what was held back for a commit, which is on disk now."""
        frames = self.held_back.upto(number)
        if frames:
            self.outlet.out += frames

    def caught_up(self, subscription: Subscription) -> None:
        """Notes that a subscription has no waiting records any more, or has ended."""
        if self.lagging.pop(subscription, self) is None:
            self.ready.pop(subscription, None)
            self.starved.pop(subscription, None)
            if self.ranked:  # else it was not looked at since it fell behind
                self.let_go(subscription.feed.lane, subscription)

    def stop_timers(self) -> None:
        self.expiry.cancel()
        self.will_due.cancel()

    @staticmethod
    def cost(request: ConnectRequest) -> int:
        """Returns how many bytes a session takes up by itself, with its will."""
        return SESSION_BYTES + 2 * len(request.client) + request.will.size

    def settle_tab(self) -> None:
        """Puts the session and its wills on its tab."""
        if self.ended:
            return
        self.tab.put(SESSION, SESSION_BYTES + 2 * len(self.client))
        self.tab.put(WILL, self.will.size + self.pending_will.size)

    def count_unsent(self) -> int:
        """Puts unsent bytes and unsettled deliveries on the tab. Returns the unsent bytes, which were written for this
        client alone."""
        unsent = len(self.outlet.out) + self.held_back.size
        if type(self.rest) is bytes:
            unsent += len(self.rest)
        self.tab.put(ANSWERS, unsent)
        self.channel.settle_tab()
        return unsent

    def some_behind(self, most: int = BEHIND_MAX) -> Iterator[Subscription]:
        """Yields some of the lagging subscriptions, and a member of some of the exclusive queues."""
        yield from islice(self.lagging, most)
        for queue in islice(self.queues, most):
            if queue.owner is self and queue.backlog.has_more:
                yield from islice((member for member in queue.members if member.session is self), 1)

    def look_at(self, *subscriptions: Subscription) -> None:
        """Updates ``holdings`` by these subscriptions and some others, and the client's place in the rankings of its
        pool."""
        for subscription in (*subscriptions, *self.some_behind()):
            self._note(subscription)
        if self.lagging or self.holdings:
            self.ranked = True
            self.pool.clients.put(self)
            if self.holdings.disk_bytes:
                self.pool.clients_on_disk.put(self)
        elif self.ranked:
            self._leave_rankings()

    def _note(self, subscription: Subscription) -> None:
        queue = subscription.reader.queue
        if queue is None and subscription in self.lagging:
            lane = subscription.feed.lane
            self._note_held(lane, subscription, subscription.cursor, subscription.gating_bytes)
        elif queue is not None and queue.owner is self:
            self._note_held(queue, queue, queue.backlog.reading, queue.backlog.lag_bytes)

    def _note_held(self, source: object, holder: object, cursor: Cursor, size: int) -> None:
        """Notes the newest bytes of a lane as held. The newest are in memory, and the oldest on disk. What is held in a
        topic's pool is no part of the client's share of its own."""
        lane = cursor.lane
        if lane.pool.topic:
            self.holdings.note(source, holder, 0, 0, 0)  # the queue may have been in another pool
            return
        resident, spilled, on_disk = lane.resident_bytes, lane.spilled_bytes, 0
        held = min(size, resident + spilled)  # the rest is in the journal and takes up no room
        if spilled:  # it holds the whole of its chunk
            on_disk = min(held, spilled, max(0, lane.end - cursor.chunk.start - resident))
        self.holdings.note(source, holder, held, on_disk, min(held, resident - lane.spilling_bytes))

    def let_go(self, source: object, holder: object) -> None:
        """Notes that a subscription, or a queue of its own, holds nothing any more."""
        self.holdings.note(source, holder, 0, 0, 0)
        if not (self.lagging or self.holdings):
            self._leave_rankings()

    def _leave_rankings(self) -> None:
        self.ranked = False
        self.pool.clients.forget(self)
        self.pool.clients_on_disk.forget(self)

    @property
    def memory_bytes(self) -> int:
        """The memory that is held for a client that lags: of lanes, also with others, and what is on its tab."""
        return self.holdings.memory_bytes + self.tab.bytes if self.ranked else 0

    @property
    def disk_bytes(self) -> int:
        return self.holdings.disk_bytes

    def expires_at(self) -> float:
        """Returns the time when the session ends if the client stays away."""
        return inf if self.connected else self.gone_since_s + self.expiry_s


def _count(table: dict[str, int], name: str, by: int) -> None:
    table[name] = table.get(name, 0) + by
    if not table[name]:
        del table[name]
