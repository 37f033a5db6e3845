"""What is idle costs nothing: as many steps of the interpreter, whether a thousand lanes stand by or many more."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.core.stage import STUCK, Stage

from headway.core.effects import Spill

FEW, MANY = 1000, 4000
FILTERS_EACH = 20


def steps(work: Callable[[], object]) -> int:
    """Lines of Python executed by ``work``, each turn of a loop counted."""
    count = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def crowd(lanes: int, *, records: int, **pool: str) -> Stage:
    """So many lanes, of clients that are away and stay so; ``records`` wait in each. One client is there, and stuck."""
    stage = Stage(**(pool or {"memory": "1GB", "disk": "1GB", "max_client_share": "100%"}))
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


@pytest.mark.parametrize("disk", ["1GB", "0B"])
def test_a_tick_while_the_memory_is_short(disk: str) -> None:
    """What the idle hold is below the mark in both; one lane is what there is to send to disk, or to give up."""
    few, many = (
        a_tick(crowd(lanes, records=0, memory="200KB", disk=disk, max_client_share="100%")) for lanes in (FEW, MANY)
    )
    assert many < few + 100, "more than numbers that take a line more to write"


def test_a_write_that_failed() -> None:
    def of(lanes: int) -> int:
        stage = crowd(lanes, records=0, memory="200KB", disk="1GB", max_client_share="100%")
        stage.clients["publisher"].publish("busy", 0, 250, size=1000)
        stage.broker.flush(stage.now)
        lane, chunks = next((e.lane, e.chunks) for e in stage.broker.take_effects() if isinstance(e, Spill))
        stage.now += 5
        return steps(lambda: stage.broker.spilled(lane, chunks[0], chunks[0].size, None, "no room", stage.now))

    assert of(MANY) < of(FEW) + 100
