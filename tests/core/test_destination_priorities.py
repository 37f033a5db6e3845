"""Priorities of destinations: what a client that is behind is sent first, and that the others are never forgotten."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.rows import KB
from tests.core.stage import STUCK, Stage

URGENT = """
[[topic]]
filter = "alerts/#"
priority = 9
[[topic]]
filter = "orders/#"
priority = 1
[[topic]]
filter = "$queue/urgent/#"
priority = 5
"""
TICKS = [f"ticks/{number}" for number in range(6)]


@pytest.mark.parametrize("alerts", ["alerts/fire", "else/fire"])
def test_a_client_that_is_behind_gets_alerts_first(alerts: str) -> None:
    stage = Stage(URGENT)
    publisher = stage.client("publisher")
    slow = stage.client("slow", reads=STUCK, buffer=500)
    for topic in (*TICKS, alerts):
        slow.subscribe(topic)
    for number in range(100):
        for topic in TICKS:
            publisher.publish(topic, number, size=1000)
    stage.turn()
    publisher.publish(alerts, 0)
    stage.turn()
    slow.reads = 100 * KB
    stage.run(20)
    assert len(slow.seen) == 601
    place = [seen.topic for seen in slow.seen].index(alerts)
    assert (place <= 2) is alerts.startswith("alerts"), "behind what its socket had already"


def test_destinations_share_a_slow_client_by_their_priorities_and_none_waits_for_ever() -> None:
    stage = Stage(URGENT, memory="64MB")
    publisher = stage.client("publisher")
    slow = stage.client("slow", reads=50 * KB, buffer=500)
    topics = ("alerts/fire", "orders/new", "ticks/0")
    for topic in topics:
        slow.subscribe(topic)
    for number, _ in enumerate(stage.steps(60)):
        for topic in topics:
            publisher.publish(topic, number * 10, 10, size=1000)
    got = {topic: [seen.topic for seen in slow.seen].count(topic) for topic in topics}
    assert got["alerts/fire"] > 5 * got["orders/new"] > 10 * got["ticks/0"] > 0


def test_a_client_of_two_queues_gets_the_urgent_ones_first_and_the_others_now_and_then() -> None:
    stage = QueueStage(URGENT)
    owner = stage.peer("owner")
    for name in ("usual", "urgent.work"):
        owner.declare(name)
    slow = stage.peer("slow", reads=STUCK, buffer=500)
    for name in ("usual", "urgent.work"):
        slow.consume(name, acks=None)
    for name in ("usual", "urgent.work"):
        owner.publish(name, 0, 600, size=1000)
    stage.turn()
    slow.reads = 20 * KB
    stage.run(20)
    got = [seen.tag for seen in slow.seen]
    assert got.count("urgent.work") > 4 * got.count("usual") > 0


def test_a_turn_serves_destinations_of_priority_first() -> None:
    stage = Stage(URGENT)
    publisher = stage.client("publisher")
    order: list[str] = []
    fanout = stage.broker.fanout
    flush = fanout.flush
    stage.consumer("ticks", "ticks/0")
    stage.consumer("orders", "orders/new")
    stage.consumer("alerts", "alerts/fire")
    fanout.flush = lambda feed, now: (order.append(feed.key.filter), flush(feed, now))  # type: ignore[method-assign,assignment,func-returns-value]
    for topic in ("ticks/0", "orders/new", "alerts/fire"):
        publisher.publish(topic, 0)
    stage.turn()
    assert [one for one in order if not one.startswith("$")][:3] == ["alerts/fire", "orders/new", "ticks/0"]
