"""The simulator's seeds for every day: a handful of worlds, each another mix of clients, policies, pools and disks.

A failure names its seed; ``HEADWAY_SEED=n pytest tests/sim`` runs that one again, ``python -m tests.sim`` runs many.
"""

from __future__ import annotations

import pytest
from tests.sim.away import AwayWorld
from tests.sim.crowd import CrowdWorld
from tests.sim.limited import LimitedWorld
from tests.sim.pools import PoolsWorld
from tests.sim.seeds import (
    assert_same_everywhere,
    counts_of,
    counts_so_far,
    run_seed,
    seeds_of_the_day,
    steps_of_the_day,
)
from tests.sim.world import World

from headway.core.consumer import Session
from headway.core.delivery import rendering as delivery
from headway.core.governance import moves
from headway.core.message.record import Durability, Run
from headway.core.routing import publishing as appending
from headway.core.routing.matching import router

SEEDS = (2, 8, 10, 12, 26, 29, 34, 36, 38, 40)
"""Of the first forty: in these everything happens that happens in any."""


@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS))
def test_seed(seed: int) -> None:
    run_seed(World, seed, steps_of_the_day(300))


@pytest.mark.parametrize("seed", seeds_of_the_day(SEEDS[:4]))
def test_records_that_are_spread_over_lanes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As only those to very many are: a lane in each turn."""
    monkeypatch.setattr(router, "WIDE_WORK", 1)
    monkeypatch.setattr(appending, "LANE_WORK", 1500)
    run_seed(World, seed, steps_of_the_day(300))


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 4)))
def test_records_that_are_shared_but_for_their_ids(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As only those are that are larger than any here."""
    monkeypatch.setattr(delivery, "LARGE_BYTES", 300)
    run_seed(World, seed, steps_of_the_day(200))


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 4)))
def test_little_room_and_durable_subscribers_who_are_away(seed: int) -> None:
    run_seed(AwayWorld, seed, steps_of_the_day(200))


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 7)))
def test_few_bytes_in_flight_for_all_clients_of_one_user(seed: int) -> None:
    run_seed(LimitedWorld, seed, steps_of_the_day(150))


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 7)))
def test_topics_with_little_room_of_their_own(seed: int) -> None:
    run_seed(PoolsWorld, seed, steps_of_the_day(150))


def test_topics_have_room_of_their_own() -> None:
    counts = counts_so_far(PoolsWorld, range(1, 7), 150)
    assert min(counts["a topic's pool was over its limit"], counts["a topic had records on its disk"]) > 0


def test_clients_wait_for_their_users_limit() -> None:
    assert counts_so_far(LimitedWorld, range(1, 7), 150)["waits for its user"] > 20


def test_what_was_promised_and_is_given_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "durability", Durability.TRANSIENT)
    for seeds in ((5, 1, 2), (6, 3, 4)):
        with pytest.raises(AssertionError):  # most often "promised and not given"
            counts_of(AwayWorld, seeds, 200)


@pytest.mark.parametrize("seed", seeds_of_the_day(range(1, 5)))
def test_memory_is_full_of_what_nobody_reads(seed: int) -> None:
    run_seed(CrowdWorld, seed, steps_of_the_day(200))


def test_clients_with_much_in_several_subscriptions_go() -> None:
    assert counts_so_far(CrowdWorld, range(1, 5), 200)["one that holds much in several goes"] > 5


def test_a_smaller_client_that_goes_first_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when lanes are ranked, and not clients."""
    monkeypatch.setattr(Session, "memory_bytes", 0)
    with pytest.raises(AssertionError, match="goes with"):
        counts_of(CrowdWorld, range(1, 5), 200)


def test_a_discard_after_which_as_much_waits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was when records were left out only in the place where they would have been sent."""
    monkeypatch.setattr(moves, "_leave_out", lambda *_: iter(()))
    for seed in (10, 29):
        with pytest.raises(AssertionError, match=r"wait for .*, after .*DISCARD"):
            counts_of(World, (seed,), 300)


def test_same_seed_same_run() -> None:
    assert_same_everywhere(World, "tests.sim")


def test_much_happens() -> None:
    """A simulator in which nothing happens finds nothing."""
    counts = counts_so_far(World, SEEDS[4:], 150)  # these alone show all of it
    for what in ("spills", "pauses", "fire discard", "fire disconnect", "clear discard", "disconnected taken_over"):
        assert counts[what], f"{what} never came up: {counts}"
