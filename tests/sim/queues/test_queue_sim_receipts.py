"""The seeds of the simulator for queues, with receipts: every record asks for one."""

from __future__ import annotations

import pytest
from tests.sim.queues.receipts import QueueReceiptWorld
from tests.sim.receipts import no_limits
from tests.sim.seeds import counts_so_far, run_seed, seeds_of_the_day, steps_of_the_day


@pytest.fixture(autouse=True)
def every_record_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    no_limits(monkeypatch)


@pytest.mark.parametrize("seed", seeds_of_the_day(range(4, 8)))
def test_seed(seed: int) -> None:
    run_seed(QueueReceiptWorld, seed, steps_of_the_day(200))


def test_much_happens() -> None:
    counts = counts_so_far(QueueReceiptWorld, range(5, 8), 150)
    for what in ("got", "dead_lettered", "lost", "waiting"):
        assert counts[f"receipt {what}"], f"{what} never came up: {counts}"
