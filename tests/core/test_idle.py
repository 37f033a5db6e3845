"""Idle lanes cost nothing: the interpreter takes as many steps beside hundreds of them as beside many more."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.core.stage import STUCK, Stage

from headway.core.consumer.effects import Spill
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import HIGH_WATER
from headway.core.telemetry import stats

FEW, MANY = 600, 1800
FILTERS_EACH = 10


def steps(work: Callable[[], object]) -> int:
    """Lines of Python executed by ``work``, each turn of a loop counted.

    The collector waits meanwhile: the last lines of what other tests have left behind would count."""
    count = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def crowd(lanes: int, *, records: int, disk: str = "1GB") -> Stage:
    """So many lanes, of clients that are away and stay so; ``records`` wait in each. One client is there, and stuck."""
    stage = Stage(memory="1GB", disk=disk, max_client_share="100%")
    for number in range(lanes // FILTERS_EACH):
        away = stage.client(f"away {number}", expiry_s=3600.0)
        for part in range(FILTERS_EACH):
            away.subscribe(f"idle/{number}/{part}", 1)
        away.leave()
        del stage.clients[away.name]
    stage.consumer("stuck", "busy", reads=STUCK, buffer=500)
    publisher = stage.client("publisher")
    for number in range(lanes // FILTERS_EACH if records else 0):
        for part in range(FILTERS_EACH):
            publisher.publish(f"idle/{number}/{part}", 0, records, size=20, qos=1)
    stage.turn()
    stage.tick()
    return stage


def short(stage: Stage) -> Stage:
    """Some 180 kB more, and its memory is above the mark."""
    stage.pool.memory_limit = int((stage.pool.memory_bytes + 180_000) / HIGH_WATER)
    return stage


def a_tick(stage: Stage) -> int:
    """The third: few are not looked at for the second time yet."""
    publisher = stage.clients["publisher"]
    publisher.publish("busy", 0, 100, size=1000)
    stage.run(0.2)
    publisher.publish("busy", 100, 100, size=1000)
    stage.now += 0.2
    return steps(lambda: stage.broker.tick(stage.now))


@pytest.mark.parametrize("records", [0, 1])
def test_a_tick(records: int) -> None:
    few, many = (a_tick(crowd(lanes, records=records)) for lanes in (FEW, MANY))
    assert many < few + 100, "more than numbers that take a line more to write"


def test_a_tick_that_comes_late() -> None:
    """The clocks of all who are watched are put right when each is looked at."""

    def of(lanes: int) -> int:
        stage = crowd(lanes, records=1)
        stage.now += 5.0
        return steps(lambda: stage.broker.tick(stage.now))

    assert of(MANY) < of(FEW) + 100


@pytest.mark.parametrize("disk", ["1GB", "0B"])
def test_a_tick_while_the_memory_is_short(disk: str) -> None:
    """What the idle hold is below the mark in both; one lane is what there is to send to disk, or to give up."""
    few, many = (
        a_tick(short(crowd(lanes, records=0, disk=disk))) for lanes in (FEW, MANY)
    )
    assert many < few + 100, "more than numbers that take a line more to write"


@pytest.mark.parametrize("most", [0, 600])
def test_a_slice_of_who_there_is(most: int) -> None:
    def of(lanes: int) -> list[int]:
        stage = crowd(lanes, records=1)
        slices = stats.Census(stage.broker, stage.now, most).slices()
        return [steps(lambda: next(slices, None)) for _ in range(lanes // 256 + 3)]

    few, many = of(FEW), of(MANY)
    assert max(many) < max(few) + 1000
    assert sum(map(bool, many)) > sum(map(bool, few)), "more slices, none of them larger"


def test_the_totals_are_those_of_all_counted_one_by_one() -> None:
    stage = crowd(100, records=3)
    for name in ("a", "b"):
        stage.consumer(name, "busy")
    stage.clients["publisher"].publish("busy", 0, 7)
    stage.run(1)
    before = stats.whole(stage.broker)
    assert (before.subscriptions, before.delivered_records) == (100 + 2 + 1 + 1, 14 + len(stage.monitor.seen) + 4)
    stage.clients["a"].leave()
    assert stats.whole(stage.broker).delivered_records == before.delivered_records, "counted twice, or lost"


def test_a_write_that_failed() -> None:
    def of(lanes: int) -> int:
        stage = short(crowd(lanes, records=0))
        stage.clients["publisher"].publish("busy", 0, 250, size=1000)
        stage.broker.flush(stage.now)
        lane, chunks = next((e.lane, e.chunks) for e in stage.broker.take_effects() if isinstance(e, Spill))
        stage.now += 5
        return steps(lambda: stage.broker.spilled(lane, chunks[0], chunks[0].size, None, "no room", stage.now))

    assert of(MANY) < of(FEW) + 100


def test_a_slice_of_who_lags_most_looks_at_their_lane_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look goes through all chunks of the lane that have cursors."""
    stage, consumers = Stage(), 3 * stats.CLOSE_SLICE
    for number in range(consumers):
        stage.consumer(f"stuck {number}", "busy", reads=STUCK, buffer=500)
    stage.client("publisher").publish("busy", 0, 100, size=1000)
    stage.turn()
    looks: list[Lane] = []
    look = Lane.held_shares
    monkeypatch.setattr(Lane, "held_shares", lambda lane: looks.append(lane) or look(lane))
    census = stats.Census(stage.broker, stage.now, consumers)
    slices = sum(1 for _ in census.slices())
    assert len(census.consumers) == consumers
    assert len(looks) <= slices + 1
