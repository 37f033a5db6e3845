"""Moves: what each action leaves a consumer, at record boundaries, with every record accounted for."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from tests.core.stage import STUCK, Client, Stage
from tests.core.test_idle import steps

from headway.core.consumer.subscription import Subscription
from headway.core.delivery.fanout import start_conflating
from headway.core.governance.moves import discard, stop_discarding
from headway.core.policy.rules.rule import parse_action


def stuck(stage: Stage, filter: str = "t/#", **options: str) -> tuple[Client, Subscription]:
    client = stage.client("slow", reads=STUCK, buffer=250)
    return client, client.subscribe(filter, 0, **options)


def act(stage: Stage, subscription: Subscription, **action: Any) -> None:
    discard(subscription, parse_action({"action": "discard", **action}), stage.broker.registry, stage.now)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ({"which": "oldest", "keep_records": 5}, [0, 1, 2, *range(15, 30)]),
        ({"which": "oldest", "keep_records": 0}, [0, 1, 2, *range(20, 30)]),
        ({"which": "oldest", "keep_bytes": 330}, [0, 1, 2, *range(17, 30)]),
        ({"which": "newest", "keep_records": 5}, [*range(8)]),
        ({"which": "newest", "keep_bytes": 216}, [*range(5)]),
        ({"which": "newest", "keep_bytes": 215}, [*range(4)]),
        ({"which": "topics", "topics": ["t/1"]}, [0, 1, 2, *range(4, 20, 2), *range(20, 30, 2)]),
        ({"which": "selector", "selector": "topic = 't/0'"}, [0, 1, 2, *range(3, 30, 2)]),
    ],
)
def test_discards(action: dict[str, Any], expected: list[int]) -> None:
    """Records 0, 1 and part of 2 are in the socket's buffer; the rest of 20 waits; 10 more come while it lasts."""
    stage = Stage()
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage)
    for number in range(20):
        publisher.publish(f"t/{number % 2}", number)
    stage.turn()
    assert slow.session.half_sent is subscription, "the story needs a record that is half sent"
    act(stage, subscription, **action)
    for number in range(20, 30):
        publisher.publish(f"t/{number % 2}", number)
    stage.turn()
    slow.reads = inf
    stage.run(1)
    stop_discarding(subscription, parse_action({"action": "discard", **action}), stage.broker.registry, stage.now)
    publisher.publish("t/0", 30)
    publisher.publish("t/1", 31)
    stage.run(1)
    assert slow.numbers == [*expected, 30, 31]
    left_out = 30 - len(expected)
    assert sum(slow.gap_told.values()) == left_out == subscription.counters.gap_records.total()
    assert sum(publisher.session.lost_records.values()) == left_out
    assert stage.stats(slow).delivered_records == len(slow.numbers)


def test_only_the_newest_of_each_key() -> None:
    stage = Stage('[[topic]]\nfilter = "t"\nkey = "property:key"')
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage, "t", snapshot="true")
    for number in range(30):
        publisher.publish("t", number, key=f"k{number % 4}")
    stage.turn()
    act(stage, subscription, which="older_per_key")
    publisher.publish("t", 30, key="k9")
    slow.reads = inf
    stage.run(1)
    sent = slow.numbers[:-5]
    assert sent == list(range(len(sent)))
    assert slow.numbers[-5:] == [26, 27, 28, 29, 30]
    assert subscription.counters.gap_records.total() == 31 - len(slow.numbers)


@pytest.mark.parametrize("while_behind", [True, False])
def test_conflating_and_back(while_behind: bool) -> None:
    stage = Stage('[[topic]]\nfilter = "t"\nkey = "property:key"')
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage, "t", snapshot="true")
    slow.reads = STUCK if while_behind else inf
    publish = iter(range(1000))

    def burst(count: int) -> None:
        for _ in range(count):
            number = next(publish)
            publisher.publish("t", number, key=f"k{number % 3}")
        stage.run(0.2)

    burst(20)
    start_conflating(subscription, stage.now)
    assert subscription.gating_bytes == 0
    burst(20)
    slow.reads = inf
    stage.run(1)
    assert slow.numbers[-3:] == [37, 38, 39], "the latest of each key, oldest first"
    subscription.conflation.stop(subscription)
    burst(20)
    assert slow.numbers[-20:] == list(range(40, 60)), "every record again"
    assert slow.numbers == sorted(set(slow.numbers))
    assert len(slow.numbers) + subscription.counters.gap_records.total() == 60
    assert stage.pool.memory_bytes == stage.pool.state_bytes


def test_the_rest_of_a_record_goes_before_anything_else() -> None:
    stage = Stage()
    publisher, slow = stage.client("publisher"), stage.client("slow", reads=STUCK, buffer=250)
    slow.subscribe("t")
    slow.subscribe("u")
    publisher.publish("t", 0, 10)
    publisher.publish("u", 100, 2)
    stage.turn()
    assert stage.broker.unsubscribe(slow.session, "t", stage.now)
    slow.reads = inf
    stage.run(1)
    assert slow.numbers == [0, 1, 2, 100, 101]


def test_the_lowest_priority_of_very_many_is_found_little_by_little() -> None:
    """A turn's share of lines; all that waits, in one look, took seven million. Of the others the oldest go."""
    stage = Stage()
    publisher, (slow, subscription) = stage.client("publisher"), stuck(stage)
    for first in range(0, 10_000, 500):
        publisher.publish("t/0", first, 500, size=20, priority=3 if first == 7_500 else 5)
        stage.turn()
    lines = [steps(lambda: act(stage, subscription, which="lowest_priority", keep_records=10))]
    act(stage, subscription, which="lowest_priority", keep_records=10)  # the next look changes nothing
    while stage.broker.has_work:
        lines.append(steps(lambda: stage.broker.flush(stage.now)))
    assert max(lines) < 250_000, lines
    assert sum(lines) > 4 * max(lines)
    assert subscription.lag_records == 10
    slow.reads = inf
    stage.run(1)
    assert slow.numbers[-10:] == list(range(9_990, 10_000))
    assert len(slow.numbers) + sum(slow.gap_told.values()) == 10_000


def test_a_discard_that_is_over_before_the_lowest_priority_is_found_leaves_out_nothing_that_comes_later() -> None:
    stage = Stage()
    publisher, (slow, subscription) = stage.client("publisher"), stuck(stage)
    for first in range(0, 10_000, 500):
        publisher.publish("t/0", first, 500, size=20, priority=3)
        stage.turn()
    act(stage, subscription, which="lowest_priority", keep_records=10)
    assert stage.broker.registry.deferred.begun
    slow.reads = inf  # it reads faster than is searched
    slow.read(inf)
    action = parse_action({"action": "discard", "which": "lowest_priority", "keep_records": 10})
    stop_discarding(subscription, action, stage.broker.registry, stage.now)
    stage.run(1)
    assert not stage.broker.has_work
    publisher.publish("t/0", 10_000, priority=0)
    stage.run(1)
    assert slow.numbers[-1] == 10_000
    assert slow.numbers == sorted(set(slow.numbers))
    assert len(slow.numbers) + sum(slow.gap_told.values()) == 10_001
