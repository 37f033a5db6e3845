"""Expiry of keys: what was not updated for long is deleted, as a client would delete it, some at each tick."""

from __future__ import annotations

import pytest
from tests.core.stage import Stage

from headway.core.log.states import StateTerms
from headway.core.routing import publishing as expiring

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "property:key"\nexpire_s = 10\n'


def test_a_key_that_is_not_updated_is_deleted_and_everybody_is_told() -> None:
    stage = Stage(TOPIC)
    (state,) = stage.broker.registry.router.states
    live = stage.consumer("live", "t/#")
    watcher = stage.consumer("watcher", "t/#", options={"selector": "priority > 4", "out_of_focus": "true"})
    publisher = stage.client("publisher")
    for key in "ab":
        publisher.publish("t/x", 1, key=key, priority=5 if key == "a" else 1)
    stage.run(6)
    publisher.publish("t/x", 2, key="b")
    stage.run(5)
    assert [(seen.event, seen.key, seen.figures.get("headway-why")) for seen in live.seen] == [
        (None, None, None)] * 3 + [("delete", "a", "expired")]  # fmt: skip
    assert len(watcher.seen) == 2
    assert (watcher.seen[-1].event, watcher.seen[-1].figures["headway-why"]) == ("out_of_focus", "expired")
    assert len(state) == 1
    stage.run(30)
    assert (len(state), state.records, len(live.seen)) == (0, 0, 5), "deletes are forgotten after as long"
    state.check()


def test_some_at_each_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiring, "EXPIRE_MAX", 3)
    stage = Stage(TOPIC)
    (state,) = stage.broker.registry.router.states
    for number in range(10):
        stage.monitor.publish("t/x", number, key=str(number))
    stage.now += 11
    left = []
    for _ in range(5):
        stage.tick()
        left.append(len(state))
    assert left == [7, 4, 1, 0, 0]


def test_a_reload_begins_and_ends_it() -> None:
    stage = Stage(TOPIC)
    (state,) = stage.broker.registry.router.states
    stage.monitor.publish("t/x", 1, key="a")
    stage.broker.declare_states([StateTerms("t/#", "property:key")], stage.now)
    stage.run(20)
    assert len(state) == 1
    stage.broker.declare_states([StateTerms("t/#", "property:key", expire_s=10)], stage.now)
    stage.run(1)
    assert len(state) == 0
