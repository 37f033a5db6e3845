"""Rows over topics that none of the five systems has, one story each (docs/FIVE_SYSTEMS.md)."""

from __future__ import annotations

import pytest
from tests.core.rows import MB, assert_told_why
from tests.core.stage import STUCK, Stage, documented

from headway.core.base.errors import Refused
from headway.core.telemetry import stats

# -- beyond all five ------------------------------------------------------------------------------------------------


def test_beyond_one_stuck_consumer_or_three_hundred_hold_the_same() -> None:
    held = {}
    for stuck in (1, 300):
        stage = Stage(memory="1MB", disk="8MB", max_client_share="100%")
        publisher = stage.client("publisher")
        for n in range(stuck):
            stage.consumer(f"stuck {n}", "t", reads=STUCK)
        fast = stage.consumer("fast", "t")
        for number, _ in enumerate(stage.steps(5)):
            publisher.publish("t", number * 40, 40, size=1000)
        assert len(fast.seen) == 2000
        written = sum(chunk.size for chunk in stage.disk.written)
        held[stuck] = (stage.pool.memory_bytes, stage.pool.disk_bytes, written, len(stage.disk.written))
        assert stage.pool.disk_bytes > 0.9 * MB
    assert held[300] == held[1], "memory, disk, and what was ever written"


def test_beyond_conflation_on_demand_costs_nothing_and_gives_the_latest_of_each_key() -> None:
    stage = Stage(documented("Ladder"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "positions/#", reads=STUCK)
    fast = stage.consumer("fast", "positions/#")
    for number, _ in enumerate(stage.steps(20)):
        publisher.publish("positions/a", number * 50, 50, size=200, key=f"plane {number % 10}")
    lanes_bytes = stage.pool.memory_bytes - stage.pool.state_bytes
    assert lanes_bytes <= 64 * 1024, "it is stuck still, and no more than a chunk waits"
    assert stage.stats(stuck).held_bytes == 0
    before = 10  # records that its socket held
    stuck.reads = 1 * MB
    stage.run(1)
    latest = [number * 50 + 49 for number in range(190, 200)]
    assert stuck.numbers[-10:] == latest, "the latest of each of the ten keys, the oldest change first"
    assert len(stuck.seen) <= 10 + before
    publisher.publish("positions/a", 20_000, key="plane 0")
    stage.run(1)
    gap = sum(stuck.gap_told.values())
    assert len(stuck.seen) + gap == 10_001, "what it was not given is counted and announced"
    assert set(stuck.gap_told) == {"conflated"}
    assert len(fast.seen) == 10_001


def test_beyond_a_verdict_is_kept_after_the_disconnect_and_names_what_was_measured() -> None:
    stage = Stage(documented("M4"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(31)
    assert not stuck.connected
    stage.run(300)
    verdict = stage.broker.verdicts.of("stuck")[-1]
    assert (verdict.policy, verdict.rule, verdict.reason, verdict.cause) == ("age limit", 1, "lag_age", "application")
    assert verdict.readings[0].value > verdict.readings[0].threshold == 30
    assert verdict.text in stuck.goodbye.reason  # type: ignore[union-attr,operator]


def test_beyond_a_dry_run_does_everything_but_the_deed() -> None:
    stage = Stage(documented("Dry"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(10)
    assert stuck.connected
    (told,) = stage.told("slow", "stuck")
    assert told["enforced"] is False
    assert told["action"] == "disconnect"
    assert "would have been disconnected" in told["text"]
    stuck.reads = 1 * MB
    stage.run(1)
    assert len(stuck.seen) == 100


def test_beyond_the_publishers_counters_show_what_consumers_were_not_given() -> None:
    stage = Stage(documented("J1"))
    mine, theirs = stage.client("mine"), stage.client("theirs")
    slow = stage.consumer("slow", "t", 1, window=10, acks=False, buffer=100_000, reads=1 * MB)
    stage.consumer("fast", "t", 1)
    for number, _ in enumerate(stage.steps(2)):
        mine.publish("t", number * 10, 5, qos=1)
        theirs.publish("t", number * 10 + 5, 5, qos=1)
    stage.run(1)
    slow.acks = True
    slow.acknowledge(10)
    stage.run(1)
    lost = {one.client: one.lost_records for one in stats.publishers(stage.broker, stage.now)}
    assert lost == {"mine": {"discarded": 70}, "theirs": {"discarded": 70}}
    assert slow.gap_told == {"discarded": 140}
    assert stats.whole(stage.broker).gap_records == {"discarded": 140}


def test_beyond_a_ladder_steps_up_and_back_by_itself() -> None:
    stage = Stage(documented("Ladder"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "positions/#", 1, reads=STUCK, acks=False)
    number = 0
    for _ in range(2):
        slow.reads = STUCK
        for _ in stage.steps(8):
            publisher.publish("positions/a", number, 10, key=f"plane {number % 5}", qos=1)
            # Never idle, so that it is the thresholds that decide.
            slow.acknowledge(len(slow.session.channel.in_flight) - 1)
            number += 10
        assert stage.stats(slow).state == "conflating"
        slow.reads = 1 * MB
        stage.run(2)
        slow.acknowledge(len(slow.session.channel.in_flight) - 1)
        first = number
        for _ in stage.steps(2):
            publisher.publish("positions/a", number, 10, key=f"plane {number % 5}", qos=1)
            # Never idle, so that it is the thresholds that decide.
            slow.acknowledge(len(slow.session.channel.in_flight) - 1)
            number += 10
        stage.run(0.5)
        assert slow.numbers[-(number - first) :] == list(range(first, number)), "every record again"
        assert not stage.stats(slow).slow
    assert [one["action"] for one in stage.told("slow", "slow")] == ["notify", "conflate"] * 2
    assert sorted(one["action"] for one in stage.told("recovered", "slow")) == ["conflate"] * 2 + ["notify"] * 2


def test_beyond_who_flaps_is_readmitted_ever_later() -> None:
    stage = Stage(documented("Flap") + documented("M4"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=STUCK)
    for shut_out_s in (0.0, 1.0, 2.0, 4.0):
        publisher.publish("t", 0, 100)
        stage.run(31)
        assert not slow.connected
        if shut_out_s:
            assert f"readmitted in {shut_out_s:g} s" in str(slow.goodbye and slow.goodbye.reason)
            with pytest.raises(Refused, match="disconnected for slowness") as refused:
                slow.connect()
            assert refused.value.reason == "flapping"
            waits_s = refused.value.retry_after_s
            assert shut_out_s - 1 < waits_s <= shut_out_s
            stage.run(waits_s - 0.2)
            with pytest.raises(Refused):
                slow.connect()
            stage.run(0.2)
        slow.connect()
        slow.subscribe("t")
    stage.run(601)  # long enough without trouble
    publisher.publish("t", 0, 100)
    stage.run(31)
    assert not slow.connected
    slow.connect()  # at once: all was forgiven


def test_beyond_held_shares_add_up_to_what_is_held() -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    clients = [
        stage.consumer(f"{topic} {n}", topic, reads=n * 7000) for topic in ("a", "b") for n in range(6)
    ]
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("a", number, 10, size=1000)
        publisher.publish("b", number, 3, size=1000)
    shares = {one.client: one.held_bytes for one in stats.consumers(stage.broker, stage.now)}
    assert sum(shares.values()) == pytest.approx(stage.pool.memory_bytes, abs=len(shares))
    assert stage.pool.memory_bytes > 1 * MB
    lags = {one.client: one.lag_bytes for one in stats.consumers(stage.broker, stage.now)}
    assert shares["a 0"] > shares["a 3"], "who is further back answers for more"
    assert sum(lags.values()) > 2 * stage.pool.memory_bytes, "what a buffer per client would have held"
    assert all(client.connected for client in clients)


def test_beyond_nobody_is_judged_for_the_brokers_own_lateness() -> None:
    stage = Stage(documented("M4"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 100)
    stage.run(28)
    stage.hang(20)
    assert stuck.connected
    stage.run(1)
    assert stuck.connected, "48 seconds by the clock, 20 of them the broker's own"
    assert stats.whole(stage.broker).loop_late_s == pytest.approx(20, abs=0.3)
    stage.run(3)
    assert_told_why(stuck, "had waited 30.")


def test_beyond_slow_fraction_counts_the_consumers_of_the_same_filter() -> None:
    stage = Stage(documented("A5"))
    publisher = stage.client("publisher")
    for n in range(4):
        stage.consumer(f"stuck {n}", "t", reads=STUCK)
    fast = [stage.consumer(f"fast {n}", "t") for n in range(4)]
    more = [stage.consumer(f"elsewhere {n}", "other") for n in range(20)]
    for number, _ in enumerate(stage.steps(8)):
        publisher.publish("t", number, 10)
    assert publisher.paused, "four of eight are half, whoever reads something else"
    assert all(one.connected for one in (*fast, *more))
    for n in range(4):  # more come, and the same four are few
        stage.consumer(f"late {n}", "t")
    stage.run(1)
    assert not publisher.paused
    assert [stage.clients[f"stuck {n}"].connected for n in range(4)] == [False] * 4
    one = stage.consumer("one more", "t", reads=STUCK)
    for number, _ in enumerate(stage.steps(8)):
        assert publisher.publish("t", number, 10)
    assert not one.connected, "one of nine: who is gone counts no more"
