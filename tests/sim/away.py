"""A world with little room, and durable subscribers who are away for long: what was promised to them has to stay."""

from __future__ import annotations

from tests.sim.chance import Manner
from tests.sim.client import Client
from tests.sim.subscribing import subscribe
from tests.sim.world import World

from headway.core.consumer.request import SubscribeRequest
from headway.core.policy.rules.rule import Policy
from headway.wire.mqtt.dialect import MqttDialect

TRAVELS = Manner("travels")


class AwayWorld(World):
    """No policies and no states: nothing leaves but for want of room."""

    STATES = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.pool.memory_limit, self.pool.disk_limit = rng.choice((20_000, 50_000)), rng.choice((0, 30_000))
        self.disk.full, self.disk.unreadable, self.readable = rng.choice((0.0, 0.3, 1.0)), 0.0, True
        self.size_max = 2000
        self.travellers = [Traveller(self, 100 + number, TRAVELS) for number in range(3)]
        self.clients += self.travellers

    def _policies(self) -> tuple[Policy, ...]:
        return ()

    def settle(self) -> None:
        for traveller in self.travellers:
            if traveller.stream is None:
                traveller.connect(clean=False)
        super().settle()

    def _act(self, client: Client) -> None:
        if isinstance(client, Traveller):
            client.act()
        else:
            super()._act(client)


def subscribe_plainly(client: Client, filter: str, qos: int) -> None:
    """Subscribes without options, and to nothing that is retained; to ``#`` if its subscriptions carry identifiers."""
    dialect = MqttDialect(client.version, qos, 1 if client.marks else None, False, False)
    subscribe(client, filter, SubscribeRequest(filter, dialect, None, qos, send_retained="never"))


class Traveller(Client):
    """Subscribes once, and comes and goes."""

    def __init__(self, world: World, number: int, manner: Manner) -> None:
        super().__init__(world, number, manner)
        self.expiry_s = 60.0
        self.packet_bytes_max = 2**28

    def act(self) -> None:
        world, rng = self.world, self.world.rng
        if self.stream is None:
            if world.now >= self.away_until_s and self.connect(clean=False) and not self.models:
                subscribe_plainly(self, "#", rng.choice((1, 2)))
            return
        self.read(1e12)
        self.acknowledge()
        if rng.random() < 0.3:
            self.away_until_s = world.now + rng.choice((0.5, 3.0, 10.0))
            self.vanish()
