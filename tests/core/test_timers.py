"""Timers: in order of time, and of asking within one instant."""

from __future__ import annotations

from headway.core.timers import Timers


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
