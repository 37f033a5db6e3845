"""Feeds that come in lumps: a rest between two lumps is no sign that a consumer catches up."""

from __future__ import annotations

from math import inf

import pytest

from headway.core.base import Cause
from headway.core.policy.meters.meter import Meter
from headway.core.policy.meters.sample import Figures, Sample
from headway.core.policy.rules.condition import parse_condition
from headway.core.policy.verdicts import find_cause

SWEEP_S = 0.2
RATE = 100_000
BEHIND = parse_condition({"drain_share": "90%", "catching_up": "5m"})


def fed(every_s: float, takes: float, seconds: float, size: int = 1000) -> list[Sample]:
    """The looks at a reader that takes such a share of a feed which comes once in so many seconds."""
    meter, looks, record = Meter(0.0), [], max(size, int(RATE * every_s) // size * size)
    for number in range(1, round(seconds / SWEEP_S) + 1):
        now = number * SWEEP_S
        end = 500_000 + (1 + int(now / every_s)) * record
        reached = min(end - size, int(now * RATE * takes))
        oldest_s = max(0.0, (reached - 500_000) / RATE)
        looks.append(meter.observe(now, Figures(
            position_bytes=reached, end_bytes=end, lag_records=(end - reached) // size, oldest_time_s=oldest_s,
            lump_bytes=1000,
        )))  # fmt: skip
    return looks


@pytest.mark.parametrize("every_s", [0.4, 0.7, 1.3, 1.9, 2.6, 3.4, 5.0, 7.5])
@pytest.mark.parametrize("takes", [0.55, 0.75])
def test_who_takes_less_than_comes_in_lumps_falls_behind_at_all_times(every_s: float, takes: float) -> None:
    looks = fed(every_s, takes, 90.0)[round(45 / SWEEP_S) :]
    assert [BEHIND.holds(sample) for sample in looks] == [True] * len(looks)


@pytest.mark.parametrize("every_s", [0.4, 1.3, 3.4, 7.5])
def test_what_comes_in_lumps_is_offered_at_the_rate_of_the_lumps(every_s: float) -> None:
    looks = fed(every_s, 0.55, 90.0)[round(45 / SWEEP_S) :]
    assert [sample.offered_rate for sample in looks] == pytest.approx([RATE] * len(looks), rel=0.18)  # a look late


@pytest.mark.parametrize("every_s", [1.3, 3.4, 7.5])
def test_a_rest_of_the_feed_is_no_burst_worked_off(every_s: float) -> None:
    looks = fed(every_s, 0.55, 90.0)[round(45 / SWEEP_S) :]
    assert {find_cause(sample) for sample in looks} == {Cause.OVER_SUBSCRIPTION}


@pytest.mark.parametrize("every_s", [1.3, 3.4, 5.0])
def test_who_takes_more_than_comes_in_lumps_catches_up(every_s: float) -> None:
    looks = fed(every_s, 1.1, 50.0)
    assert not any(BEHIND.holds(sample) for sample in looks)
    assert all(sample.catching_up < inf for sample in looks[round(25 / SWEEP_S) :])


def test_a_feed_that_has_ended_offers_nothing_after_two_of_its_rests() -> None:
    """Who takes all the time then catches up."""
    meter, last = Meter(0.0), Sample()
    for number in range(1, 300):
        now = number * SWEEP_S
        end = 1_000_000 + int(min(now, 40.0) / 2.5) * 250_000
        last = meter.observe(now, Figures(
            position_bytes=int(now * 55_000), end_bytes=end, lag_records=100, oldest_time_s=0.0,
        ))  # fmt: skip
        if now > 46.0:
            assert last.catching_up < inf
    assert last.offered_rate == 0.0
