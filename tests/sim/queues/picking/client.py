"""One connection with its consumers: how it reads, settles, and gives back what it was given."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.core.queue_wire import PLAIN, Delivered, Wrapping
from tests.sim.queues.outlet import QueueOutlet
from tests.sim.queues.picking.truth import Record, Taker, Truth

from headway.core.base.errors import Reason
from headway.core.consumer.channel import Channel
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.request import ConnectRequest, SubscribeRequest, SubscriptionOptions
from headway.core.consumer.session import Session

if TYPE_CHECKING:
    from tests.sim.queues.picking.world import World


class Manner(NamedTuple):
    """How a client treats what it is given."""

    name: str
    share: float = 1.0
    """How much of what it has read it settles at a time."""
    multiple: bool = False
    gives_back: float = 0.0
    releases: float = 0.0
    """How often it gives back what it has not tried."""
    rejects: float = 0.0
    stands_still: float = 0.0
    vanishes: float = 0.0
    healthy: bool = False
    """It reads and settles everything at once."""


HEALTHY = Manner("healthy", healthy=True)
MANNERS = (
    HEALTHY,
    Manner("one by one", share=0.3),
    Manner("multiple", share=0.5, multiple=True),
    Manner("gives back", share=0.5, gives_back=0.3, releases=0.2),
    Manner("rejects", share=0.5, rejects=0.3),
    Manner("stands still", share=0.7, stands_still=0.1),
    Manner("holds", share=0.0),
    Manner("vanishes", share=0.5, vanishes=0.05),
)  # fmt: skip


class Held(NamedTuple):
    """A delivery that its client has not settled."""

    truth: Truth
    record: Record
    taker: Taker | None
    """None: it was asked for."""


class Client:
    def __init__(self, world: World, name: str, manner: Manner) -> None:
        self.world = world
        self.name = f"{manner.name} {name}"
        self.manner = manner
        self.rng = Random(world.rng.random())
        self.takers: dict[str, tuple[Taker, Truth]] = {}
        self.held: dict[int, Held] = {}
        self.read_ids: list[int] = []
        self.still_until_s = self.came_s = 0.0
        self.flows = self.paused = self.asks = self.owes = False
        capacity = self.rng.choice((60, 300, 5000, 100_000))
        self.outlet = QueueOutlet(world.now, capacity, self.rng, world.shy, self._given)
        request = ConnectRequest(self.name, "", protocol="amqp-0-9-1")
        self.session: Session = world.broker.connect(request, self.outlet, world.now)
        self.flows = True
        self._open()

    def _open(self) -> None:
        self.limit = self.rng.choice((NO_LIMIT, NO_LIMIT, 5))
        self.channel = Channel(self.limit, NO_LIMIT, 1, self.session.number)

    @property
    def connected(self) -> bool:
        return self.outlet.open

    # -- consuming --------------------------------------------------------------------------------------------------

    def consume(self, truth: Truth, selector: str | None, prefetch: int, *, alone: bool) -> Taker:
        world, tag = self.world, f"t{self.world.next_name()}"
        taker = Taker(f"{self.name} {tag}", selector, alone=alone)
        request = SubscribeRequest(f"$queue/{truth.queue.name}", PLAIN, qos=1, name=(1, tag), envelope=Wrapping(1, tag),
                                   options=SubscriptionOptions(selector=selector), alone=alone)
        self.takers[tag], self.came_s = (taker, truth), world.now
        taker.subscription = world.broker.queues.consume(self.session, self.channel, truth.queue, request, prefetch,
                                                         world.now)
        truth.came(taker)
        return taker

    def has_room(self, taker: Taker) -> bool:
        """Whether a record that waits for it must be given to it."""
        if not self.connected or self.outlet.blocked or self.outlet.out or not self.flows:
            return False
        mine = sum(held.taker is taker for held in self.held.values())
        return mine < taker.subscription.window.limit and len(self.held) < self.limit

    def _given(self, one: Delivered) -> None:
        """The socket has its first byte."""
        self.world.note("given", self.name, one.tag, one.id, one.number, one.redelivered)
        taker, truth = self.takers[one.tag]
        assert self.has_room(taker) or self.outlet.blocked, f"{taker.name} has no room"
        assert one.id not in self.held
        record = truth.given(taker, one.number, one.redelivered, self.world.now)
        record.session = self.session
        self.held[one.id] = Held(truth, record, taker)
        self.world.count("given")

    def fetch(self, truth: Truth) -> None:
        """Ask for one. From then on it is a member of the queue, who could ask for more."""
        self.asks = True
        if truth.queue.is_behind(self.world.now):
            return  # the server waits until it is not
        request = SubscribeRequest(f"$queue/{truth.queue.name}", PLAIN, qos=1, polling=True,
                                   name=(1, "get", truth.queue.name))
        queues = self.world.broker.queues
        got = queues.get(self.session, self.channel, truth.queue, request, NO_LIMIT, self.world.now)
        if got is None:
            assert len(self.held) >= self.limit or not truth.queue.backlog.lag_records
            return
        number = int(PLAIN.decode(got.frame).payload.split()[0])
        self.world.note("fetches", self.name, got.delivery_id, number)
        record = truth.fetched(number, got.redelivered, self.world.now)
        record.session = self.session
        self.held[got.delivery_id] = Held(truth, record, None)
        self.read_ids.append(got.delivery_id)

    def flow(self, *, active: bool) -> None:
        """The client wants nothing for now, or again."""
        self.flows = active
        for taker, _ in self.takers.values():
            taker.subscription.let_flow(active)
        self.world.broker.registry.wake(self.session)

    # -- reading and settling ---------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Read what there is. Whether there was anything."""
        outlet = self.outlet
        if not self.connected or self.world.now < self.still_until_s:
            return False
        count = outlet.taken - outlet.drained
        if not count and not outlet.waits:
            return False
        outlet.drained += count
        while outlet.unread and outlet.unread[0][0] <= outlet.drained:
            one = outlet.unread.popleft()[1].id
            if one in self.held:  # not settled with others before it was read
                self.read_ids.append(one)
        if outlet.waits:
            outlet.waits = False
            self.world.broker.writable(self.session, self.world.now)
        return True

    def settle(self, share: float) -> bool:
        """Settle some of what it has read, the first of it first. Whether there was any."""
        count = round(len(self.read_ids) * share)
        some, self.read_ids = self.read_ids[:count], self.read_ids[count:]
        if some and self.manner.multiple and self.rng.random() < 0.7:
            some = self.channel.upto(some[-1])
            assert set(some) <= set(self.held)
            self.read_ids = [one for one in self.read_ids if one not in some]
            self._settle(some, "acks")
            return True
        ways = {"tried": self.manner.gives_back, "released": self.manner.releases, "rejects": self.manner.rejects}
        ways["acks"] = 1.0 - sum(ways.values())
        for one in self.rng.sample(some, len(some)):
            self._settle([one], *self.rng.choices(list(ways), list(ways.values())))
        return bool(some)

    def _settle(self, ids: list[int], how: str) -> None:
        self.world.note(how, self.name, ids)
        self.world.count(how)
        for one in ids:
            truth, record, _ = self.held.pop(one)
            if how in ("acks", "rejects"):
                truth.settled(record)
            else:
                truth.back(record, tried=how == "tried")
        queues = self.world.broker.queues
        if how == "acks":
            queues.acknowledge(self.channel, ids)
        else:
            queues.refuse(self.channel, ids, requeue=how != "rejects", failed=how != "released")

    def recover(self) -> None:
        """It wants everything again, whoever is to get it."""
        self.world.note("recovers", self.name)
        self._lose_all(returns=False)
        for _ in self.world.broker.queues.recover(self.channel, self.world.now):
            pass

    def _lose_all(self, *, returns: bool) -> None:
        for truth, record, _ in self.held.values():
            if record.session is self.session:  # else the broker has given it to others
                truth.back(record, tried=True, returns=returns)
        self.held.clear()
        self.read_ids.clear()

    # -- ends -------------------------------------------------------------------------------------------------------

    def cancel(self, tag: str) -> None:
        """What it has not settled stays with its channel."""
        self.world.note("cancels", self.name, tag)
        taker, truth = self.takers[tag]
        truth.left(taker)
        self.world.broker.queues.cancel(taker.subscription, self.world.now)
        if not any(held.taker is taker for held in self.held.values()) and not self.outlet.unread:
            del self.takers[tag]

    def close_channel(self) -> None:
        """All its consumers end, and it opens another channel."""
        self.world.note("closes", self.name)
        channel = self.channel
        self._ended()
        self.world.broker.queues.close_channel(self.session, channel, self.world.now)
        self._open()

    def _ended(self) -> None:
        self._lose_all(returns=True)
        for taker, truth in self.takers.values():
            truth.left(taker)
        self.takers.clear()
        self.outlet.unread.clear()

    def vanish(self, reason: Reason = Reason.CLIENT_GONE) -> None:
        """The connection is gone."""
        self.world.note("vanishes", self.name, reason)
        channel = self.channel
        self._ended()
        self.outlet.open = False
        self.world.clients.remove(self)
        self.world.broker.disconnect(self.session, self.outlet, reason, self.world.now)
        self.world.broker.queues.close_channel(self.session, channel, self.world.now)
