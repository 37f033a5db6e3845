"""How far a subscriber was sent everything: what it is told when it renews its lease."""

from __future__ import annotations

from tests.core.stage import STUCK, Stage

TOPIC = '[[topic]]\nfilter = "k/#"\nkey = "topic"\n'


def test_nothing_waits() -> None:
    stage = Stage(TOPIC)
    publisher, reader = stage.client("publisher"), stage.client("reader")
    subscription = reader.subscribe("k/#")
    publisher.publish("k/a", 0, 5)
    publisher.publish("other", 0, 2)
    stage.run(1)
    assert subscription.sent_upto(stage.broker.registry.sequence, stage.now) == (7, 0.0)


def test_what_waits_is_not_sent_and_has_an_age() -> None:
    stage = Stage(TOPIC)
    publisher, reader = stage.client("publisher"), stage.client("reader", reads=STUCK, buffer=250)
    subscription = reader.subscribe("k/#", offsets="true")
    publisher.publish("k/a", 0, 5)
    stage.run(3)
    upto = subscription.sent_upto(stage.broker.registry.sequence, stage.now)
    assert upto is not None
    assert 1 <= upto[0] < 5, "some fit into the socket"
    assert upto[0] == 5 - subscription.lag_records
    assert 2.9 <= upto[1] <= 3.1


def test_a_snapshot_that_is_being_sent_is_no_measure() -> None:
    stage = Stage(TOPIC)
    publisher, reader = stage.client("publisher"), stage.client("reader", reads=STUCK, buffer=250)
    for number in range(2000):
        publisher.publish(f"k/{number}", number)
    stage.run(1)
    subscription = reader.subscribe("k/#", snapshot="true")
    stage.run(1)
    assert subscription.has_more
    assert subscription.sent_upto(stage.broker.registry.sequence, stage.now) is None
    reader.reads = float("inf")
    stage.run(1)
    assert subscription.sent_upto(stage.broker.registry.sequence, stage.now) == (stage.broker.registry.sequence, 0.0)


def test_what_an_interval_holds_back_is_as_old_as_the_interval_at_most() -> None:
    stage = Stage(TOPIC)
    publisher, reader = stage.client("publisher"), stage.client("reader")
    subscription = reader.subscribe("k/#", conflate="10s")
    publisher.publish("k/a", 0, 5)
    stage.run(1)
    assert subscription.sent_upto(stage.broker.registry.sequence, stage.now) == (0, 10.0)
    stage.run(10)
    assert subscription.sent_upto(stage.broker.registry.sequence, stage.now) == (stage.broker.registry.sequence, 0.0)
