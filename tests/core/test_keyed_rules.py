"""Rules with ``keyed = true``: only for who is owed no more than the latest record of each key."""

from __future__ import annotations

import pytest
from tests.core.stage import STUCK, Stage

POLICY = """
    [[policy]]
    name = "p"
    [[policy.rule]]
    keyed = true
    when = { lag_records = 20 }
    then = "conflate"
    [[policy.rule]]
    when = { lag_records = 40 }
    then = "notify"
"""
TOPIC = """
    [[topic]]
    filter = "prices/#"
    key = "property:key"
"""


@pytest.mark.parametrize(("topic", "expiry_s", "actions"), [
    pytest.param("prices/a", 0.0, {"conflate", "notify"}, id="a topic with keys"),
    pytest.param("prices/a", 3600.0, {"notify"}, id="durable: it is owed every record"),
    pytest.param("orders/a", 0.0, {"notify"}, id="no keys"),
])  # fmt: skip
def test_only_who_is_owed_the_latest_of_each_key_is_conflated(topic: str, expiry_s: float, actions: set[str]) -> None:
    stage = Stage(TOPIC + POLICY)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", topic, reads=STUCK, buffer=500, expiry_s=expiry_s)
    for number in range(100):
        publisher.publish(topic, number, key="k")
    stage.run(1)
    assert {told["action"] for told in stage.told("slow", "slow")} == actions
    slow.reads = 1e9
    stage.run(2)
    assert slow.numbers[-1] == 99
    assert (len(slow.numbers) == 100) == ("conflate" not in actions)


@pytest.mark.parametrize(("policy", "states"), [(POLICY, 1), (POLICY.replace("keyed = true", ""), 2)])
def test_no_state_is_kept_for_topics_without_keys(policy: str, states: int) -> None:
    stage = Stage(TOPIC + policy)
    stage.consumer("one", "orders/#")
    stage.consumer("two", "prices/#")
    assert len(stage.broker.registry.router.states) == states
