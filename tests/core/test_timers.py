"""Timers: in order of time, and of asking within one instant."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.core.stage import Client, Stage

from headway.core.base.deferred import DEAD_MIN, NO_TIMER, RUN_MAX, Timers
from headway.core.consumer.request import Will
from headway.core.message.record import Record


def test_in_order_and_not_before_their_time() -> None:
    timers, called = Timers(), []
    for when, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a again"), (9.0, "never")):
        timers.at(when, lambda now, name=name: called.append((now, name)))
    timers.run(0.5)
    assert called == []
    timers.run(2.0)
    assert called == [(2.0, "a"), (2.0, "a again"), (2.0, "b")]
    timers.run(8.0)
    assert called[3:] == [(8.0, "c")]
    assert len(timers) == 1


def test_an_action_may_ask_for_another() -> None:
    timers, called = Timers(), []

    def again(now: float) -> None:
        called.append(now)
        if len(called) < 4:
            timers.at(now + 1, again)

    timers.at(1.0, again)
    timers.run(1.0)
    assert called == [1.0], "what is asked for later is not due yet"
    timers.run(1.5)
    timers.run(2.0)
    timers.run(10.0)
    assert called == [1.0, 2.0, 10.0]


def test_of_many_that_are_due_some_are_rung_and_the_others_next_time() -> None:
    timers, called = Timers(), []
    for number in range(3 * RUN_MAX):
        timers.at(number / RUN_MAX, lambda _, number=number: called.append(number))
        timers.at(number / RUN_MAX, called.append).cancel()
    for rung in (1, 2, 3):
        timers.run(10.0)
        assert called == list(range(rung * RUN_MAX))
        assert len(timers) == (3 - rung) * RUN_MAX
        assert rung == 3 or timers.next_s <= 10.0, "who asks when there is something to do is told"


def test_what_is_cancelled_does_not_happen_and_takes_up_no_room() -> None:
    timers, called = Timers(), []
    kept = [timers.at(float(when), called.append) for when in range(0, 100, 10)]
    for when in range(10_000):
        timers.at(50.5 + when % 100, called.append).cancel()
        assert len(timers) == len(kept)
        assert timers.places <= 2 * len(kept) + DEAD_MIN + 1
    kept[1].cancel()
    kept[1].cancel()
    timers.run(35.0)
    assert called == [35.0] * 3, "0, 20 and 30"
    kept[2].cancel()  # it has happened
    assert len(timers) == 6
    timers.run(1000.0)
    assert len(called) == 9
    assert len(timers) == timers.places == 0


def test_one_that_is_moved_happens_once() -> None:
    timers, called = Timers(), []
    timer = NO_TIMER
    for when in range(1, 100):
        timer = timers.move(timer, float(when), called.append)
    timers.run(98.0)
    assert not called
    timers.run(99.0)
    assert called == [99.0]


def leases(stage: Stage, client: Client) -> None:
    client.subscribe("t", lease="1h")


def intervals(stage: Stage, client: Client) -> None:
    client.subscribe("t", conflate="1s", key="topic")
    stage.broker.unsubscribe(client.session, "t", stage.now)


def goodbyes(stage: Stage, client: Client) -> None:
    client.leave()
    client.connect()


@pytest.mark.parametrize("what", [leases, intervals, goodbyes])
def test_what_is_said_again_and_again_leaves_no_timers(what: Callable[[Stage, Client], None]) -> None:
    stage = Stage()
    client = stage.client("c", expiry_s=3600.0)
    client.request = msgspec.structs.replace(client.request, will=Will(Record("will", b""), 60.0))
    for _ in range(1000):
        what(stage, client)
    assert stage.broker.registry.timers.places <= 2 * DEAD_MIN


def test_a_lease_that_was_renewed_ends_when_the_last_one_does() -> None:
    stage = Stage()
    client = stage.client("c")
    for _ in range(5):
        client.subscribe("t", lease="10s")
        stage.run(6)
    assert client.session.subscriptions
    stage.run(3)
    assert client.session.subscriptions
    stage.run(2)
    assert not client.session.subscriptions
