"""The rows of Qpid over topics, one story each (docs/five-systems/QPID.md)."""

from __future__ import annotations

import pytest
from tests.core.rows import KB, MB, assert_told_why
from tests.core.stage import STUCK, Stage, documented

# -- Qpid -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "seconds", "reason"),
    [(80, 100, 1, "80 waiting"), (50, 100_000, 1, "waited in 5"), (30, 1000, 602, "had waited"), (40, 1000, 500, "")],
)
def test_q1_depth_age_or_count_any_of_them_fires(count: int, size: int, seconds: int, reason: str) -> None:
    stage = Stage(documented("Q1"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "stocks/us/ibm", reads=STUCK)
    publisher.publish("stocks/us/ibm", 0, count, size=size)
    stage.run(seconds)
    if not reason:
        assert slow.connected, "none of the three is exceeded"
        shown = stage.stats(slow)
        assert 0 < shown.lag_records <= count, "and all three are shown"
        assert shown.lag_bytes == pytest.approx(size * shown.lag_records, rel=0.1)
        assert shown.lag_age_ms == pytest.approx(1000 * seconds, abs=1000)
        return
    assert_told_why(slow)
    verdict = stage.broker.verdicts.of("slow")[0]
    expected = {"80 waiting": "lag_records", "waited in 5": "lag_bytes", "had waited": "lag_age"}[reason]
    assert verdict.reason == expected
    assert {reading.meter for reading in verdict.readings} == {"lag_bytes", "lag_age", "lag_records"}


def test_q2_a_consumption_rate_to_stay_above() -> None:
    stage = Stage(documented("Q2"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=8 * KB)
    enough = stage.consumer("enough", "t", reads=12 * KB)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("t", number, size=1500)  # 15 kB/s
    assert_told_why(slow, "taken over", "at least 10 kB/s asked")
    assert enough.connected


@pytest.mark.parametrize("told", [False, True])
def test_q3_deleting_spares_durable_subscriptions_unless_told(told: bool) -> None:
    toml = documented("Q3")
    if told:
        toml = toml.replace('"delete_subscription"', '{ action = "delete_subscription", durable = true }')
    stage = Stage(toml)
    publisher = stage.client("publisher")
    transient = stage.consumer("transient", "t", reads=STUCK)
    durable = stage.consumer("durable", "t", 1, reads=STUCK, expiry_s=3600)
    for number, _ in enumerate(stage.steps(1)):
        publisher.publish("t", number * 10, 10, qos=1)
    assert stage.stats_of("transient") == []
    assert_told_why(transient)
    assert bool(stage.stats_of("durable")) is not told
    assert {one["client"] for one in stage.told("slow")} == {"transient", "durable"}, "it is called slow all the same"
    durable.reads = 1 * MB
    stage.run(1)
    if not told:
        assert durable.numbers == list(range(100))
