"""Priorities of destinations: what a client that is behind is sent first, and that the others are never forgotten."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.rows import KB
from tests.core.stage import STUCK, Stage

from headway.core.delivery.rendering import BATCH_BYTES

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
    for number, _ in enumerate(stage.steps(40)):
        for topic in topics:
            publisher.publish(topic, number * 10, 10, size=1000)
    got = {topic: [seen.topic for seen in slow.seen].count(topic) for topic in topics}
    assert got["ticks/0"] > 0
    assert got["orders/new"] == pytest.approx(5 * got["ticks/0"], rel=0.5)
    assert got["alerts/fire"] == pytest.approx(37 * got["ticks/0"], rel=0.5)


@pytest.mark.parametrize("window", [1, 3, 10, 50])
@pytest.mark.parametrize("at_once", [False, True])
def test_clients_that_acknowledge_are_sent_to_by_priority_as_well(window: int, at_once: bool) -> None:
    stage = Stage(URGENT, memory="64MB")
    slow = stage.client("slow", acks=False, window=window, buffer=1_000_000)
    topics = ("ticks/0", "orders/new", "alerts/fire")
    for topic in topics:
        slow.subscribe(topic, 1)
        stage.client("publisher").publish(topic, 0, 8000, qos=1)
    stage.turn()
    for _ in range(3000 // window if at_once else 3000):
        slow.acknowledge(window if at_once else 1)
        stage.broker.flush(stage.now)
        slow.read(inf)
    got = {topic: [seen.topic for seen in slow.seen].count(topic) for topic in topics}
    assert got["ticks/0"] > 0
    assert got["orders/new"] == pytest.approx(5 * got["ticks/0"], rel=0.6)
    assert got["alerts/fire"] == pytest.approx(37 * got["ticks/0"], rel=0.6)


@pytest.mark.parametrize(("qos", "size"), [(1, 1000), (0, 200)])
def test_alerts_come_first_however_many_others_wait(qos: int, size: int) -> None:
    """Small records that need no acknowledgement are joined, which are turns as well."""
    stage = Stage(URGENT, memory="64MB")
    publisher = stage.client("publisher")
    slow = stage.client("slow", reads=20 * KB, buffer=2000)
    topics = [f"ticks/{number}" for number in range(200)]
    for topic in (*topics, "alerts/fire"):
        slow.subscribe(topic, qos=1)
    late = []
    for number, _ in enumerate(stage.steps(40)):
        for topic in topics if number % 10 == 0 else ():
            publisher.publish(topic, 0, 5 if number == 0 else 1, size=size, qos=qos)
        if number % 3 == 0:
            publisher.publish("alerts/fire", number, qos=1)
        got = [seen for seen in slow.seen if seen.topic == "alerts/fire"]
        late.append(number // 3 + 1 - len(got))
    assert max(late) <= 1 + BATCH_BYTES / (20 * KB) / 0.3, "only what was written for it comes first"
    assert len(slow.seen) - len(got) > 500, "and the others"


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


@pytest.mark.parametrize("names", [("a", "b"), ("urgent.a", "urgent.b", "c", "d")])
def test_queues_of_one_window_take_turns(names: tuple[str, ...]) -> None:
    """Whoever came first took all of the window, for as long as there was more."""
    stage = QueueStage(URGENT)
    owner = stage.peer("owner")
    peer = stage.peer("peer")
    peer.channel(1, 5)
    for name in names:
        owner.declare(name)
        owner.publish(name, 0, 1000, size=50)
        peer.consume(name, acks=False)
    for _ in range(200):
        stage.turn()
        peer.read(inf)
        peer.ack(*list(peer.channels[1].in_flight))
    got = Counter(seen.tag for seen in peer.seen)
    for same in (("a", "b"), ("urgent.a", "urgent.b"), ("c", "d")):
        if same[0] in names:
            assert got[same[0]] == pytest.approx(got[same[1]], rel=0.3)
    assert min(got[name] for name in names) > 20
    if "c" in names:
        assert got["urgent.a"] > 3 * got["c"]


def test_shared_groups_of_one_window_take_turns() -> None:
    stage = Stage(memory="64MB")
    client = stage.client("client", acks=False, window=10, buffer=1_000_000)
    for name in "ab":
        client.subscribe(f"$share/g/{name}", 1)
        stage.client("publisher").publish(name, 0, 1000, qos=1)
    for _ in range(100):
        stage.turn()
        client.acknowledge(10)
    got = Counter(seen.topic for seen in client.seen)
    assert got["a"] == pytest.approx(got["b"], rel=0.1)


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
