"""The seeds for every day of the simulator for queues whose consumers select and own groups.

A failure names its seed; ``HEADWAY_SEED=n pytest tests/sim/queues/picking`` runs that one again, ``python -m
tests.sim.queues.picking`` runs many.
"""

from __future__ import annotations

import pytest
from tests.sim.queues.picking.world import World
from tests.sim.seeds import assert_same_everywhere, run_seed, seeds_of_the_day, steps_of_the_day

SEEDS = range(1, 13)


@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS))
def test_seed(seed: int) -> None:
    run_seed(World, seed, steps_of_the_day(100))


def test_same_seed_same_run() -> None:
    assert_same_everywhere("tests.sim.queues.picking")
