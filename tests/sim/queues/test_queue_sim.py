"""The seeds for every day of the simulator for queues: each a world with other queues, bindings, parties and policies.

A failure names its seed; ``HEADWAY_SEED=n pytest tests/sim/queues`` runs that one again, ``python -m tests.sim.queues``
runs many.
"""

from __future__ import annotations

import pytest
from tests.sim.queues.world import World
from tests.sim.seeds import assert_same_everywhere, counts_so_far, run_seed, seeds_of_the_day, steps_of_the_day

from headway.core.queue.drops import Discards
from headway.core.routing import publishing as appending
from headway.core.routing.matching import router

HAPPENS = (
    "spills", "pauses", "refused", "returned", "queues ended", "cancelled", "asked to close", "dead letter expired",
    "dead letter rejected", "dead letter queue_length", "disconnected", "channel closed",
)  # fmt: skip
"""What the counts of a few worlds together must begin with."""


SEEDS = (6, 13, 15, 16, 18, 19, 22, 26, 28, 32, 34, 35, 36, 39, 44, 56, 57, 58)
"""Of the first sixty: in these everything happens, mostly twice, that happens in any."""


@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS))
def test_seed(seed: int) -> None:
    run_seed(World, seed, steps_of_the_day(200))


@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS[:4]))
def test_records_that_are_spread_over_lanes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As only those to very many are: a lane in each turn."""
    monkeypatch.setattr(router, "WIDE_WORK", 1)
    monkeypatch.setattr(appending, "LANE_WORK", 1500)
    run_seed(World, seed, steps_of_the_day(200))


def test_a_discard_after_which_as_much_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was when records were left out only in the place where they would have been handed out."""
    monkeypatch.setattr(Discards, "_newest", lambda *_: iter(()))
    with pytest.raises(AssertionError, match=r"wait in queue .*, after .*DISCARD"):
        run_seed(World, 101, 200)


def test_same_seed_same_run() -> None:
    assert_same_everywhere(World, "tests.sim.queues")


def test_much_happens() -> None:
    """A simulator in which nothing happens finds nothing."""
    counts = counts_so_far(World, SEEDS, 200)
    missing = [what for what in HAPPENS if not any(known.startswith(what) for known in counts)]
    assert not missing, f"{missing} never came up: {counts}"
