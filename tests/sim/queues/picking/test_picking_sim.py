"""The seeds for every day of the simulator for queues whose consumers select and own groups, and what it has to find.

A failure names its seed; ``HEADWAY_SEED=n pytest tests/sim/queues/picking`` runs that one again, ``python -m
tests.sim.queues.picking`` runs many.
"""

from __future__ import annotations

import pytest
from tests.sim.queues.picking.faults import FAULTS, Fault
from tests.sim.queues.picking.world import World
from tests.sim.seeds import assert_same_everywhere, counts_of, run_seed, seeds_of_the_day, steps_of_the_day

SEEDS = (8, 10, 13, 14, 19, 20)


@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS))
def test_seed(seed: int) -> None:
    run_seed(World, seed, steps_of_the_day(100))


@pytest.mark.parametrize(("fault", "seed"), FAULTS.items(), ids=[fault.__name__ for fault in FAULTS])
def test_fault_is_found(fault: Fault, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch.setattr)
    for one in (seed, *range(1, 31)):
        try:
            counts_of(World, (one,), 100)
        except AssertionError:
            return
    pytest.fail("nothing is wrong, it says")


def test_same_seed_same_run() -> None:
    assert_same_everywhere(World, "tests.sim.queues.picking", 40)
