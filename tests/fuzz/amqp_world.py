"""World: the broker that the actors meet, and what holds in it at any time and when they are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count, cycle
from typing import Any

from pamqp.commands import Basic, Exchange, Queue
from tests.fuzz.amqp_actors import Actor, Step
from tests.fuzz.amqp_moves import EXCHANGES, QUEUES
from tests.fuzz.amqp_steps import MESSAGE_MAX, STEPS
from tests.server.amqp_stage import Client, House

from headway.server.connections.linger import LINGER_S

POLICIES = """
[[policy]]
name = "slow"
topics = ["$queue/slow"]
[[policy.rule]]
when = { lag_records = 3 }
then = "disconnect"

[[policy]]
name = "shy"
topics = ["$queue/shy"]
[[policy.rule]]
when = { lag_records = 3 }
then = "close_consumer"

[[policy]]
name = "late"
topics = ["$queue/late"]
[[policy.rule]]
when = { ack_age = "1s" }
then = "return"

[[policy]]
name = "gate"
topics = ["$queue/gate"]
[[policy.rule]]
when = { lag_records = 3 }
then = "block_publishers"
"""
IN_FLIGHT_MAX = 30


class World:
    def __init__(self, sizes: list[int], drawn: Callable[[], int]) -> None:
        self.house = House(POLICIES)
        table = self.house.settings.listeners["amqp"]
        limits = {"packet_bytes_given": MESSAGE_MAX, "in_flight_given": IN_FLIGHT_MAX}
        self.house.settings.listeners["amqp"] = table.model_copy(update=limits)
        self.sizes = cycle(sizes or [1 << 20])
        self.drawn = drawn
        self.bodies: set[bytes] = set()
        self.heard: Counter[str] = Counter()
        self.numbers = count(1)
        self.consumed: set[Any] = set()
        """Queues that have had a consumer."""
        first = Client(self.house, "first")
        for name, arguments in QUEUES.items():
            first.declare(name, arguments)
        for name, kind in EXCHANGES.items():
            assert first.say(Exchange.Declare(exchange=name, exchange_type=kind)) == ["1 Exchange.DeclareOk"]
        for name in ("plain", "limit"):
            first.say(Queue.Bind(queue=name, exchange="fan"), Queue.Bind(queue=name, exchange="to", routing_key="#"))
        first.leave()
        self.actors = [Actor(self, number) for number in range(3)]

    def settle(self) -> None:
        for actor in self.actors:
            actor.breathe()
        self.house.run()
        for actor in self.actors:
            actor.hear()
        for actor in self.actors:
            credit_is_counted(actor)
        self.consumed |= {queue for queue in self.house.queues.values() if queue.members.consumers}

    def take(self, step: Step) -> None:
        actor = self.actors[step.who]
        if actor.gone:
            self.settle()
            actor.connect()
        STEPS[step.what](actor, step)
        if step.waits:
            self.settle()


def credit_is_counted(actor: Actor) -> None:
    """Whatever is in flight is counted once for its channel, and once for the connection; and the client knows it."""
    peer, lives = actor.client.peer, actor.watch.lives
    cores = [channel.core for channel in peer.channels.values()]
    for core in cores:
        assert core.used == len(core.in_flight) + len(core.timed_out)
        life = lives.get(core.number)
        if life is not None and not life.unsure and not life.closed and actor.up_to_date:
            assert {*core.in_flight, *core.timed_out} == {*life.unsettled, *life.put_off}
    if peer.session is not None:
        assert peer.session.channel.used == sum(core.used for core in cores)


def works(house: House) -> Client:
    """Whoever comes now finds everything in order."""
    client = Client(house, "bystander")
    client.declare("bystander")
    assert client.put("bystander", b"1") == []
    assert client.say(Basic.Get(queue="bystander")) == ["1 Basic.GetOk 1 1 0"]
    assert client.say(Basic.Ack(1), Queue.Delete(queue="bystander")) == ["1 Queue.DeleteOk 0"]
    return client


def nothing_is_left(world: World) -> None:
    house = world.house
    registry, router = house.broker.registry, house.broker.registry.router
    assert not registry.sessions
    assert not registry.numbers
    assert not registry.owned
    assert not registry.backpressure.waiting
    assert not house.connections
    for queue in house.queues.values():
        assert queue.owner is None, queue.name
        assert not queue.members, queue.name
        assert not (queue.terms.auto_delete and queue in world.consumed), queue.name
        assert queue.backlog.unacknowledged == 0
    last = Client(house, "last")
    for name in list(house.queues):
        [answer] = last.say(Queue.Delete(queue=name))
        assert answer.startswith("1 Queue.DeleteOk")
    last.leave()
    house.pass_time(0.5)
    assert not router.feeds, list(router.feeds)
    pool = house.broker.registry.pools[""]
    if pool.memory_bytes:  # last words to who does not read
        house.pass_time(LINGER_S)
    assert pool.memory_bytes == 0
    homes = house.broker.queues.feeds.homes
    for place in (registry.watched, registry.ready_queues, registry.put_off, registry.dirty, registry.unused, homes):
        assert not place
    assert not +registry.totals.consumers
    assert not +registry.totals.slow_consumers
    for name, found in router.exchanges.by_name.items():
        assert all(binding.destination.kind == "exchange" for binding in found.bindings.all), name
