"""The journal in seeded worlds of faults and power losses. A failure names its seed."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.store.journal import journal_world
from tests.store.journal.journal_world import World

from headway.store.journal.segments import segment as index


@pytest.mark.parametrize("first", range(1, 61, 15))
def test_what_was_confirmed_is_there_whatever_happens(first: int) -> None:
    for seed in range(first, first + 15):
        World(seed).run(50)


@pytest.mark.parametrize("first", range(2001, 2031, 15))
def test_where_indexes_are_thinned_to_little_it_is_the_same(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + 15):
        monkeypatch.setattr(journal_world, "SEGMENT_BYTES", (2_000, 10_000, 30_000)[seed % 3])
        monkeypatch.setattr(index, "THIN_BYTES", (300, 1500, 6000)[seed // 3 % 3])
        world = World(seed)
        world.run(50)
        counts += world.counts
    assert counts["thinned entries"] > 50


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
        "stops",
        "clean stops",
        "damage that was told",
    ]
    assert not [what for what in wanted if not counts[what]], f"these never came up: {counts}"
