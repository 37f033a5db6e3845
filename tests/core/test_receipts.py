"""Receipts: each reader of a record that asks counts once: it got the record, or it is waited for."""

from __future__ import annotations

from tests.core.receipts_stage import asks, nothing_left, only, receipts
from tests.core.stage import STUCK, Stage


def test_nobody_is_owed() -> None:
    stage = Stage()
    asks(stage)
    told = only(stage)
    assert told["took_ms"] == 0
    nothing_left(stage)


def test_who_acknowledges_nothing_has_it_in_the_same_turn() -> None:
    stage = Stage()
    for number in range(3):
        stage.consumer(f"c{number}", "t")
    asks(stage, qos=1)
    assert only(stage, owed=3, got=3)["took_ms"] == 0


def test_who_acknowledges_has_it_at_the_next_tick() -> None:
    stage = Stage()
    for number in range(3):
        stage.consumer(f"c{number}", "t", qos=number)
    asks(stage, qos=1)
    assert len(stage.broker.registry.timers) == 1
    stage.run(0.3)
    assert not len(stage.broker.registry.timers), "nobody waits for its time any more"
    told = only(stage, owed=3, got=3)
    assert (told["topic"], told["client"], told["timeout_ms"]) == ("t", "p", 10_000)
    nothing_left(stage)


def test_who_does_not_read_is_waited_for() -> None:
    stage = Stage()
    stage.consumer("quick", "t")
    stuck = stage.consumer("stuck", "t", reads=STUCK, buffer=300)
    asks(stage, number=0)
    asks(stage, number=1, size=1000)
    stage.run(9)
    assert [one["got"] for one in receipts(stage)] == [2]
    stuck.reads = 1e9
    stage.run(0.5)
    assert [(one["owed"], one["got"], one["state"]) for one in receipts(stage)] == [(2, 2, "complete")] * 2
    nothing_left(stage)


def test_after_its_time_it_says_who_waits() -> None:
    stage = Stage()
    stage.consumer("quick", "#")
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    asks(stage, receipt="2s")
    stage.run(1.9)
    assert not receipts(stage)
    stage.run(0.3)
    only(stage, state="timed_out", owed=2, got=1, waiting=1)
    nothing_left(stage)


def test_an_unacknowledged_delivery_waits() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=1, acks=False)
    asks(stage, qos=1)
    stage.run(1)
    assert len(consumer.seen) == 1
    assert not receipts(stage)
    consumer.acknowledge()
    stage.run(0.3)
    only(stage, owed=1, got=1)


def test_who_is_away_is_owed_and_gets_it_when_it_is_back() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=1, expiry_s=60.0)
    consumer.leave()
    asks(stage, qos=1, receipt="1m")
    stage.run(5)
    assert not receipts(stage)
    consumer.connect()
    stage.run(0.5)
    only(stage, owed=1, got=1)


def test_who_comes_later_is_not_owed() -> None:
    stage = Stage()
    stage.consumer("stuck", "t", reads=STUCK, buffer=10)
    asks(stage, receipt="1s")
    stage.consumer("later", "t", reads=STUCK, buffer=10)
    stage.run(2)
    only(stage, state="timed_out", owed=1, waiting=1)


def test_selectors_and_no_local_keep_it_from_those_it_is_not_for() -> None:
    stage = Stage()
    stage.consumer("picky", "t", options={"selector": "key = 'a'"})
    stage.consumer("other", "t", options={"selector": "key = 'b'"})
    asks(stage, key="a")
    only(stage, owed=1, got=1)


def test_a_shared_group_is_owed_once() -> None:
    stage = Stage()
    for number in range(3):
        stage.consumer(f"c{number}", "$share/g/t", qos=1)
    stage.consumer("other", "$share/h/t", qos=1)
    asks(stage, qos=1)
    stage.run(0.3)
    only(stage, owed=2, got=2)
