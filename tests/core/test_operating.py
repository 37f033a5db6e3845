"""What an operator has done to a consumer: the moves of policies, once, told and kept with the cause ``operator``."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.stage import Client, Stage
from tests.core.test_moves import stuck

from headway.core.base.errors import Cause, Reason, Refused
from headway.core.consumer.subscription import Subscription
from headway.core.policy.evaluation import outlook

WHO = "operator ann"
KEYED = """
[[topic]]
filter = "{}"
key = "topic"
"""
LIMIT = """
[[policy]]
name = "p"
topics = ["#"]
[[policy.rule]]
when = {{ lag_records = 1 }}
for = "{}"
then = "disconnect"
"""


def publish(stage: Stage, publisher: Client, count: int, keys: int = 1) -> None:
    for number in range(count):
        publisher.publish(f"t/{number % keys}", number)
    stage.turn()


def accounted(subscription: Subscription) -> int:
    """Records that the consumer was sent, or that are counted in a gap."""
    return subscription.delivered.records + subscription.counters.gap_records.total()


def test_a_consumer_that_is_skipped_goes_on_at_the_end_and_is_told_of_the_gap() -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage)
    publish(stage, publisher, 20)
    assert slow.session.half_sent is subscription
    verdict = stage.broker.operating.skip(subscription, WHO, stage.now)
    assert (verdict.cause, verdict.reason, verdict.action.word) == (Cause.OPERATOR, Reason.ADMIN, "skip")
    assert "skipped to the end by operator ann; 18 records" in verdict.text
    slow.reads = inf
    stage.run(1)
    publisher.publish("t/0", 20)
    stage.run(1)
    assert slow.numbers == [0, 1, 2, 20], "the record that was half sent is finished first"
    assert sum(slow.gap_told.values()) == 17
    assert accounted(subscription) == 21
    assert stage.broker.verdicts.last("slow") is verdict
    assert not subscription.case.slow, "a wish of an operator is no sign of slowness"
    assert subscription.case.slow_count == 0


def test_a_consumer_that_is_conflated_once_gets_the_latest_of_each_key() -> None:
    stage = Stage(KEYED.format("t/#"))
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage)
    publish(stage, publisher, 30, keys=3)
    verdict = stage.broker.operating.conflate(subscription, WHO, stage.now)
    assert verdict.action.word == "conflate"
    slow.reads = inf
    stage.run(1)
    publish(stage, publisher, 3, keys=3)
    stage.run(1)
    assert slow.numbers[:3] == [0, 1, 2]
    assert sorted(slow.numbers[3:6]) == [27, 28, 29]
    assert slow.numbers[6:] == [0, 1, 2], "and goes on with every record"
    assert accounted(subscription) == 33


def test_what_cannot_be_done_is_refused_with_the_reason() -> None:
    stage = Stage(KEYED.format("keyed/#"))
    operating = stage.broker.operating
    idle = stage.client("idle").subscribe("t/#", 0)
    keyed = stage.client("keyed").subscribe("keyed/#", 0)
    for move, consumer, why in (
        (operating.skip, idle, "nothing waits"), (operating.conflate, idle, r"a \[\[topic\]\] with a key"),
        (operating.conflate, keyed, "nothing waits"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=why):
            move(consumer, WHO, stage.now)
    worker = stage.client("worker").subscribe("$share/g/t/#", 1)
    with pytest.raises(Refused, match="shares its position"):
        operating.skip(worker, WHO, stage.now)
    with pytest.raises(Refused, match="patience is from"):
        operating.give_patience(idle, 1e9, WHO, stage.now)
    assert stage.broker.verdicts.made == 0, "what is refused is no verdict"


def test_patience_stops_the_rules_for_so_long_and_their_clocks_begin_anew() -> None:
    stage = Stage(LIMIT.format("2s"))
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage)
    publish(stage, publisher, 20)
    stage.run(1)
    (prospect,) = outlook(subscription.case.policy, subscription.case.state, subscription.case.last_sample, stage.now)
    assert prospect.phase == "pending"
    assert 0 < prospect.held_s < 2
    assert prospect.readings[0].value > prospect.readings[0].threshold
    stage.broker.operating.give_patience(subscription, 10, WHO, stage.now)
    (prospect,) = outlook(subscription.case.policy, subscription.case.state, subscription.case.last_sample, stage.now)
    assert prospect.phase == "idle"
    stage.run(11)
    assert slow.connected, "ten seconds of patience, and the rule begins anew behind them"
    stage.run(3)
    assert not slow.connected


def test_patience_can_be_taken_back() -> None:
    stage = Stage(LIMIT.format("1s"))
    publisher = stage.client("publisher")
    slow, subscription = stuck(stage)
    publish(stage, publisher, 20)
    stage.broker.operating.give_patience(subscription, 3600, WHO, stage.now)
    stage.run(3)
    assert slow.connected
    stage.broker.operating.give_patience(subscription, 0, WHO, stage.now)
    stage.run(2)
    assert not slow.connected


def test_whoever_watches_is_told_of_the_move() -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    _, subscription = stuck(stage)
    publish(stage, publisher, 20)
    stage.broker.operating.skip(subscription, WHO, stage.now)
    (told,) = stage.told("operator", "slow")
    assert told["cause"] == "operator"
    assert told["action"] == "skip"
    assert WHO in told["text"]
