"""Every subscriber's image of a keyed topic is true, after every step (image.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sim.images.world import STEPS, World
from tests.sim.seeds import (
    assert_same_everywhere,
    counts_of,
    counts_so_far,
    run_seed,
    seeds_of_the_day,
    steps_of_the_day,
)

from headway.core.delivery import rendering as batch
from headway.core.forms import Deltas
from headway.core.live import live_query
from headway.core.live import live_query as head
from headway.core.log import states as focus
from headway.core.log import states as state
from headway.core.log.states import StatePass, everything


@pytest.fixture(autouse=True)
def deletes_max(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "DELETES_MAX", state.DELETES_MAX)  # worlds set these
    monkeypatch.setattr(focus, "LOST_MAX", focus.LOST_MAX)
    monkeypatch.setattr(batch, "BATCH_BYTES", batch.BATCH_BYTES)
    monkeypatch.setattr(live_query, "DELETES_MAX", live_query.DELETES_MAX)
    monkeypatch.setattr(head, "SPARE_RECORDS", head.SPARE_RECORDS)


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 13)))
def test_seed(seed: int) -> None:
    run_seed(World, seed, steps_of_the_day(STEPS))


def test_same_seed_same_run() -> None:
    assert_same_everywhere(World, "tests.sim.images")


def test_much_happens() -> None:
    counts = counts_so_far(World, range(1, 13), 80)
    pages = "checks of pages", "pages read a record", "pages read out_of_focus"
    kinds = ("reads delete", "reads a record", "reads snapshot_end", "reads out_of_focus", "reads delta")
    others = ("queries", "resumes", "snapshots", "checks in full", "checks in part", "patches merged", "reloads",
              "conflated by the topic")  # fmt: skip
    for what in (*kinds, *others, *pages):
        assert counts[what] > 10, f"{what} hardly came up: {counts}"


def _no_deletes(old: Callable[..., StatePass]) -> Callable[..., StatePass]:
    return lambda self, after, upto, accept=everything, focus=None: StatePass(self, after, upto, accept, focus, 10**9)


def test_a_pass_without_deletes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker can fail: conflated consumers would keep what is no more."""
    monkeypatch.setattr(state.State, "read", _no_deletes(state.State.read))
    with pytest.raises(AssertionError):
        counts_of(World, range(1, 13), STEPS)


def test_a_delta_of_what_a_subscriber_does_not_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker can fail: who joins would get deltas of what was there before."""
    monkeypatch.setattr(Deltas, "raise_floor", lambda self, sequence: None)
    with pytest.raises(AssertionError):
        counts_of(World, range(5, 13), STEPS)
