"""The simulator's seeds for every day: a handful of worlds, each another mix of clients, policies, pools and disks.

A failure names its seed; ``HEADWAY_SEED=n pytest tests/sim`` runs that one again, ``python -m tests.sim`` runs many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.world import World

ROOT = Path(__file__).parent.parent.parent
STEPS = int(os.environ.get("HEADWAY_STEPS", "300"))
SEEDS = [int(os.environ["HEADWAY_SEED"])] if "HEADWAY_SEED" in os.environ else list(range(1, 41))


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int) -> None:
    world = World(seed)
    try:
        world.run(STEPS)
    except BaseException:
        print(f"HEADWAY_SEED={seed} HEADWAY_STEPS={STEPS}: the last events were")
        print("\n".join(world.trail))
        raise


def test_same_seed_same_run() -> None:
    """Also across processes whose sets and dicts of strings are ordered otherwise."""
    hashes = set()
    for salt in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-m", "tests.sim", "--seeds", "2", "--first", "1001", "--steps", "200", "--hash"],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        hashes.add("\n".join(line for line in answer.stdout.splitlines() if len(line.split()) == 2))
    assert len(hashes) == 1
    assert len(hashes.pop()) > 2 * 64, "no hashes were printed"


def test_much_happens() -> None:
    """A simulator in which nothing happens finds nothing."""
    counts: dict[str, int] = {}
    for seed in range(1, 9):
        world = World(seed)
        world.run(150)
        for what, count in world.counts.items():
            counts[what] = counts.get(what, 0) + count
    for what in ("spills", "pauses", "fire discard", "fire disconnect", "clear discard", "disconnected taken_over"):
        assert counts.get(what), f"{what} never came up: {counts}"
