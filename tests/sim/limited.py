"""A world in which some clients are one user's, which may have few bytes in flight."""

from __future__ import annotations

from tests.sim.client import Client
from tests.sim.world import World

from headway.core.allowance import UNLIMITED, Allowance, UserLimits
from headway.core.permission import Identity

OVERHEAD_BYTES = 500
"""Of a record, besides the longest payload. The last record may go beyond the limit."""


class LimitedWorld(World):
    """The limit is for those who are not healthy: a healthy client waits for nobody of its user."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.most = self.rng.choice((1, 1_000, 5_000))
        self.broker.registry.allowances.take([UserLimits("limit[1]", in_flight_bytes=self.most)], {})

    def allowance_of(self, client: Client) -> Allowance:
        if client.manner.healthy:
            return UNLIMITED
        return self.broker.registry.allowances.of(Identity("ann"))

    def turn(self) -> None:
        super().turn()
        registry = self.broker.registry
        ann = registry.allowances.of(Identity("ann"))
        assert ann is not UNLIMITED
        sessions = list(registry.numbers.values())
        counted = sum(one.channel.in_flight_bytes.total for one in sessions if one.allowance is ann)
        assert ann.in_flight_bytes == counted, "each delivery in flight is counted once"
        assert ann.in_flight_bytes < self.most + self.size_max + OVERHEAD_BYTES, "more than one record beyond the limit"
        for one in sessions:
            sizes = one.channel.in_flight_bytes._sizes
            assert one.allowance is not ann or sizes.keys() == set(one.channel.in_flight.values()), "of these"
        assert not ann.waiting or ann.room <= 0, "nobody waits while there is room"
        assert all(number in registry.numbers for number in ann.waiting), "nobody waits who has ended"
        self.counts["waits for its user"] = registry.allowances.counts["in_flight_bytes"]
