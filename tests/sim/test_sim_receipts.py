"""The simulator's seeds with receipts: every record asks for one."""

from __future__ import annotations

import pytest
from tests.sim.receipts import ReceiptWorld, no_limits
from tests.sim.seeds import counts_so_far, run_seed, seeds_of_the_day, steps_of_the_day


@pytest.fixture(autouse=True)
def every_record_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    no_limits(monkeypatch)


@pytest.mark.parametrize("seed", seeds_of_the_day((1, 2, 3, 5, 8, 16, 57)))
def test_seed(seed: int) -> None:
    run_seed(ReceiptWorld, seed, steps_of_the_day(200))


def test_much_happens() -> None:
    counts = counts_so_far(ReceiptWorld, range(1, 5), 150)
    for what in ("complete", "timed_out", "got", "conflated", "discarded", "lost", "waiting"):
        assert counts[f"receipt {what}"], f"{what} never came up: {counts}"
