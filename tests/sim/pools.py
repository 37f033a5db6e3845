"""A world in which some topics have pools of their own, with little room, and the broker has much."""

from __future__ import annotations

from random import Random

from tests.sim.world import World

from headway.core.log.lanes.pool import Pool

WITH_POOLS = ("a/+", "b/#")


class PoolsWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.pool.memory_limit = 2_000_000

    def _pools(self, pool: Pool) -> dict[str, Pool]:
        rng = Random(f"pools {self.seed}")
        self.of_topics = [
            Pool(f"topic {filter}", rng.choice((20_000, 60_000)), rng.choice((0, 100_000)), 1.0, topic=filter)
            for filter in WITH_POOLS
        ]
        return {"": pool} | {one.name: one for one in self.of_topics}

    def step(self) -> None:
        super().step()
        for pool in self.of_topics:
            if pool.memory_bytes > pool.memory_limit:
                self.count("a topic's pool was over its limit")
            if pool.disk_bytes:
                self.count("a topic had records on its disk")
