"""The seeds for every day of the simulator for queues: each a world with other queues, bindings, parties and policies.

A failure names its seed; ``HEADWAY_SEED=n pytest tests/sim/queues`` runs that one again, ``python -m tests.sim.queues``
runs many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.sim.queues.world import World

from headway.core import drops, handing, queue

ROOT = Path(__file__).parents[3]
STEPS = int(os.environ.get("HEADWAY_STEPS", "200"))
SEEDS = [int(os.environ["HEADWAY_SEED"])] if "HEADWAY_SEED" in os.environ else list(range(1, 61))
HAPPENS = (
    "spills", "pauses", "refused", "returned", "queues ended", "cancelled", "asked to close", "dead letter expired",
    "dead letter rejected", "dead letter queue_length", "disconnected", "channel closed",
)  # fmt: skip
"""What the counts of a few worlds together must begin with."""


@pytest.fixture(autouse=True)
def real_sizes_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each world sets sizes of its own; tests/sim/conftest.py has those that are not of queues alone."""
    for module, name in (
        (queue, "BATCH_BYTES"), (handing, "BATCH_BYTES"), (queue, "PUMP_BYTES"), (queue, "PORTION_RECORDS"),
        (drops, "DROPS_MAX"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))


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
            [sys.executable, "-m", "tests.sim.queues", "--seeds", "2", "--first", "1001", "--steps", "200", "--hash"],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        hashes.add("\n".join(line for line in answer.stdout.splitlines() if len(line.split()) == 2))
    assert len(hashes) == 1
    assert len(hashes.pop()) > 2 * 64, "no hashes were printed"


def test_much_happens() -> None:
    """A simulator in which nothing happens finds nothing."""
    counts: Counter[str] = Counter()
    for seed in range(101, 121):
        world = World(seed)
        world.run(150)
        counts.update(world.counts)
    missing = [what for what in HAPPENS if not any(known.startswith(what) for known in counts)]
    assert not missing, f"{missing} never came up: {counts}"
