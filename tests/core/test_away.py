"""The rows for subscribers that are away: depth, age and count act on what waits for them, too; and who lost something
by it is told when it comes.

Away is a durable MQTT session without a connection, and a durable queue without a consumer.
"""

from __future__ import annotations

import pytest
from tests.core.queues_stage import Peer, QueueStage
from tests.core.stage import Stage

from headway.core.base.errors import Reason, Refused

KB, MB = 1000, 1_000_000

CONDITIONS = {
    "count": ('lag_records = "> 100"', Reason.LAG_RECORDS),
    "depth": ('lag_bytes = "> 30KB"', Reason.LAG_BYTES),
    "age": ('lag_age = "> 3s"', Reason.LAG_AGE),
}
"""The three of Qpid (Q1)."""


def policy(when: str, then: str) -> str:
    return f"""
    [[policy]]
    name = "away"
    topics = ["#"]

    [[policy.rule]]
    when = {{ {when} }}
    then = {then}
    """


DELETE = '{ action = "delete_subscription", durable = true }'
KEEP_TEN = '{ action = "discard", which = "oldest", keep_records = 10 }'


# -- topics -----------------------------------------------------------------------------------------------------------


def away(stage: Stage) -> None:
    """A durable subscriber, who has left."""
    reader = stage.consumer("reader", "t", 1, expiry_s=3600)
    reader.leave()


@pytest.mark.parametrize("kind", CONDITIONS)
def test_q1_count_depth_and_age_delete_a_durable_subscription_whose_client_is_away(kind: str) -> None:
    when, reason = CONDITIONS[kind]
    stage = Stage(policy(when, DELETE))
    publisher = stage.client("publisher")
    away(stage)
    for number, _ in enumerate(stage.steps(8)):
        publisher.publish("t", number * 3, 3, qos=1, size=300)
    assert stage.stats_of("reader") == []
    assert stage.pool.memory_bytes == 0, "and nothing is held for it"
    (told,) = stage.told("deleted")
    assert (told["client"], told["filter"]) == ("reader", "t")
    assert stage.broker.verdicts.of("reader")[-1].reason is reason


def test_q3_a_durable_subscription_is_spared_unless_told() -> None:
    stage = Stage(policy('lag_records = "> 100"', '"delete_subscription"'))
    publisher = stage.client("publisher")
    away(stage)
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("t", number * 10, 10, qos=1)
    (kept,) = stage.stats_of("reader")
    assert kept.lag_records == 10 * (number + 1)
    assert stage.broker.deletion_notice("reader") is None


def test_q4_its_client_is_told_once_when_it_comes_back() -> None:
    stage = Stage(policy('lag_records = "> 100"', DELETE))
    publisher = stage.client("publisher")
    away(stage)
    for number, _ in enumerate(stage.steps(3)):
        publisher.publish("t", number * 20, 20, qos=1)
    text = stage.broker.deletion_notice("reader")
    assert text is not None
    assert "(limit 100)" in text
    assert stage.broker.deletion_notice("reader") is None


def test_a2_what_waits_for_who_is_away_goes_to_disk_and_comes_back() -> None:
    stage = Stage(policy('lag_bytes = "> 50KB"', '"offline"'), memory="8MB", disk="8MB")
    publisher = stage.client("publisher")
    away(stage)
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("t", number * 100, 100, size=1000, qos=1)
    (held,) = stage.stats_of("reader")
    assert held.lag_bytes > 1 * MB
    assert stage.pool.disk_bytes > 0.9 * held.lag_bytes
    assert stage.pool.memory_bytes < held.lag_bytes / 5
    again = stage.consumer("reader", "t", 1, expiry_s=3600)
    stage.run(2)
    assert again.numbers == list(range(100 * (number + 1)))


def test_j1_a_pending_limit_holds_for_who_is_away() -> None:
    stage = Stage(policy('lag_records = "> 20"', KEEP_TEN))
    publisher = stage.client("publisher")
    away(stage)
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("t", number * 10, 10, qos=1)
    (kept,) = stage.stats_of("reader")
    assert kept.lag_records <= 30
    assert kept.gap_records["discarded"] + kept.lag_records == 10 * (number + 1)


# -- queues -----------------------------------------------------------------------------------------------------------


def deserted(stage: QueueStage) -> Peer:
    """Who publishes to a durable queue that nobody consumes."""
    publisher = stage.peer("publisher")
    publisher.declare("q", durable=True)
    return publisher


@pytest.mark.parametrize("kind", CONDITIONS)
def test_q1_count_depth_and_age_delete_a_durable_queue_nobody_consumes(kind: str) -> None:
    when, reason = CONDITIONS[kind]
    stage = QueueStage(policy(when, DELETE))
    publisher = deserted(stage)
    for number, _ in enumerate(stage.steps(8)):
        if "q" in stage.broker.registry.router.queues:
            publisher.publish("q", number * 3, 3, size=300)
    assert "q" not in stage.broker.registry.router.queues
    assert stage.pool.memory_bytes == 0
    assert stage.broker.verdicts.of("$queue/q")[-1].reason is reason
    assert [one["client"] for one in stage.told("deleted")] == ["$queue/q"]


@pytest.mark.parametrize("how", ["declares", "consumes", "asks"])
def test_q4_who_wants_it_next_is_told_why_it_is_gone_and_only_once(how: str) -> None:
    stage = QueueStage(policy('lag_records = "> 100"', DELETE))
    publisher = deserted(stage)
    for number, _ in enumerate(stage.steps(3)):
        if "q" in stage.broker.registry.router.queues:
            publisher.publish("q", number * 50, 50)
    comes = stage.peer("comes")
    wants = {
        "declares": lambda: comes.declare("q", durable=True),
        "consumes": lambda: stage.broker.queues.queue(comes.session, "q"),
        "asks": lambda: stage.broker.queues.queue(comes.session, "q"),
    }
    with pytest.raises(Refused, match="limit 100") as told:
        wants[how]()
    assert told.value.reason is Reason.LAG_RECORDS
    comes.declare("q", durable=True)
    assert comes.broker.queues.queue(comes.session, "q").backlog.lag_records == 0


def test_q3_a_durable_queue_nobody_consumes_is_spared_unless_told() -> None:
    stage = QueueStage(policy('lag_records = "> 100"', '"delete_subscription"'))
    publisher = deserted(stage)
    for number, _ in enumerate(stage.steps(3)):
        publisher.publish("q", number * 50, 50)
    reader = stage.peer("reader")
    reader.consume("q")
    stage.run(2)
    assert reader.numbers == list(range(50 * (number + 1)))
    assert stage.told("deleted") == []


def test_j1_a_pending_limit_holds_for_a_queue_nobody_consumes() -> None:
    stage = QueueStage(policy('lag_records = "> 20"', KEEP_TEN))
    publisher = deserted(stage)
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("q", number * 10, 10)
    queue = stage.queue("q")
    assert queue.backlog.lag_records <= 30
    assert stage.counts("q")["discarded"] + queue.backlog.lag_records == 10 * (number + 1)
    reader = stage.peer("reader")
    reader.consume("q")
    assert not queue.placeholder.here, "somebody is there"
    stage.run(1)
    last = 10 * (number + 1)
    assert reader.numbers == list(range(last - len(reader.numbers), last))


def test_who_stands_in_is_gone_with_the_first_consumer_and_comes_back_with_the_last() -> None:
    stage = QueueStage(policy('lag_records = "> 20"', '"notify"'))
    publisher = deserted(stage)
    publisher.publish("q", 0, 50)
    stage.run(1)
    queue = stage.queue("q")
    (placeholder,) = queue.placeholder.here
    assert placeholder.case.slow
    assert stage.broker.registry.totals.slow == 1
    reader = stage.peer("reader")
    reader.consume("q")
    stage.run(1)
    assert not queue.placeholder.here
    assert stage.broker.registry.totals.slow == 0
    reader.cancel("q")
    publisher.publish("q", 50, 50)
    stage.run(1)
    assert queue.placeholder.here
