"""Replacing a subscription loses nothing: what the old one had not been given comes first (MQTT 5, 3.8.4)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.stage import STUCK, Stage


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"qos": 0}, {"qos": 1}),
        ({"qos": 1}, {"qos": 0}),
        ({"qos": 1}, {"qos": 2, "offsets": "true"}),
        ({"qos": 0}, {"qos": 0, "policy": "other"}),
        ({"qos": 0}, {"qos": 0, "selector": "topic LIKE 't/%'"}),
    ],
)
def test_what_waits_is_delivered_once_and_in_order(before: dict[str, Any], after: dict[str, Any]) -> None:
    stage = Stage('[[policy]]\nname = "other"')
    publisher, slow = stage.client("publisher"), stage.client("slow", reads=STUCK, window=5)
    slow.subscribe("t/#", **before)
    publisher.publish("t/1", 0, 60, qos=1)
    stage.run(0.5)
    assert slow.session.subscriptions["t/#"].lag_records > 20
    slow.subscribe("t/#", **after)
    publisher.publish("t/1", 60, 40, qos=1)
    stage.run(0.5)
    slow.reads = float("inf")
    stage.run(1)
    assert slow.numbers == list(range(100))
    assert slow.gap_told == {}
    assert stage.pool.memory_bytes == 0, "the old subscription is gone, and what it held"
    assert len(stage.broker.registry.router.feeds) == 2, "the new one's feed and the monitor's"


def test_if_the_client_goes_before_it_was_given_everything_the_rest_is_counted() -> None:
    stage = Stage()
    publisher, slow = stage.client("publisher"), stage.client("slow", reads=STUCK)
    slow.subscribe("t", 0)
    publisher.publish("t", 0, 60, size=200)
    stage.run(0.5)
    given = slow.session.subscriptions["t"].delivered.records
    slow.subscribe("t", 1)
    slow.leave()
    stage.turn()
    assert sum(publisher.session.lost_records.values()) == 60 - given - 1, "all but what was sent and the one half sent"
    assert stage.pool.memory_bytes == 0


def test_replaced_twice_in_a_row() -> None:
    stage = Stage()
    publisher, slow = stage.client("publisher"), stage.client("slow", reads=STUCK)
    for qos in (0, 1, 2, 0):
        slow.subscribe("t", qos)
        publisher.publish("t", publisher.session.published_records, 30, size=200)
        stage.run(0.2)
    slow.reads = float("inf")
    stage.run(1)
    assert slow.numbers == list(range(120))
    assert stage.pool.memory_bytes == 0
