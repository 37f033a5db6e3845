"""The journal in seeded worlds of faults and power losses. A failure names its seed."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.store.journal.journal_world import World


@pytest.mark.parametrize("first", range(1, 61, 15))
def test_what_was_confirmed_is_there_whatever_happens(first: int) -> None:
    for seed in range(first, first + 15):
        World(seed).run(50)


def test_much_happens() -> None:
    """A world in which nothing happens finds nothing."""
    counts: Counter[str] = Counter()
    for seed in range(1000, 1015):
        world = World(seed)
        world.run(50)
        counts += world.counts
    wanted = [
        "commits that failed",
        "mends that failed",
        "frees",
        "frees that failed",
        "torn tails",
        "power losses",
        "power losses within an operation",
        "ends of a process",
        "opens that failed",
        "reads while broken",
    ]
    assert not [what for what in wanted if not counts[what]], f"these never came up: {counts}"
