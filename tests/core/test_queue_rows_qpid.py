"""The rows of Qpid over queues, one story each (test_rows_qpid.py has them over topics)."""

from __future__ import annotations

import pytest
from tests.core.queue_rows import ALL_SLOW, KB, MB, assert_told_why
from tests.core.queues_stage import QueueStage, consumer, owner
from tests.core.stage import STUCK, documented

from headway.core.base.errors import Reason

# -- Qpid -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "seconds", "reason"),
    [(80, 100, 1, Reason.LAG_RECORDS), (50, 100_000, 1, Reason.LAG_BYTES), (30, 1000, 602, Reason.LAG_AGE),
     (40, 1000, 100, None)],
)  # fmt: skip
@pytest.mark.parametrize("how", ["no-ack", "acks", "get"])
def test_q1_depth_age_or_count_any_of_them_fires(count: int, size: int, seconds: int, reason: Reason | None, how: str
                                                 ) -> None:
    stage = QueueStage(documented("Q1"))
    publisher = owner(stage)
    publisher.bind("q", "amq.topic", "stocks.us.ibm")
    if how == "get":
        slow = stage.peer("slow")
        slow.get("q")
    else:
        slow = consumer(stage, "slow", prefetch=1, acks=None if how == "no-ack" else False, reads=STUCK, buffer=100)
    publisher.publish("stocks.us.ibm", 0, count, exchange="amq.topic", size=size)
    stage.run(seconds)
    if reason is None:
        assert slow.connected, "none of the three is exceeded"
        return
    assert_told_why(slow, reason)
    verdict = stage.broker.verdicts.of("slow")[0]
    assert {reading.meter for reading in verdict.readings} == {"lag_bytes", "lag_age", "lag_records"}


def test_q2_a_consumption_rate_to_stay_above() -> None:
    stage = QueueStage(documented("Q2"))
    publisher = owner(stage, "slow", "enough")
    for name in ("slow", "enough"):
        publisher.bind(name, "amq.fanout")
    slow = consumer(stage, "slow", "slow", acks=None, reads=8 * KB)
    enough = consumer(stage, "enough", "enough", reads=13 * KB)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("", number, exchange="amq.fanout", size=1500)  # 15 kB/s
    assert_told_why(slow, Reason.DRAIN_RATE, "taken over", "at least 10 kB/s asked")
    assert enough.connected


@pytest.mark.parametrize("told", [False, True])
def test_q3_deleting_spares_durable_queues_unless_told(told: bool) -> None:
    toml = documented("Q3")
    if told:
        toml = toml.replace('"delete_subscription"', '{ action = "delete_subscription", durable = true }')
    stage = QueueStage(toml)
    publisher = owner(stage, "transient", "shared")
    publisher.declare("durable", durable=True)
    for name in ("transient", "durable"):
        publisher.bind(name, "amq.fanout")
    transient = consumer(stage, "transient", "transient", acks=None, reads=STUCK, buffer=100)
    durable = consumer(stage, "durable", "durable", acks=None, reads=STUCK, buffer=100)
    for number, _ in enumerate(stage.steps(1)):
        publisher.publish("", number * 10, 10, exchange="amq.fanout")
    queues = stage.broker.registry.router.queues
    assert "transient" not in queues
    assert_told_why(transient, Reason.LAG_RECORDS)
    assert ("durable" in queues) is not told
    assert durable.connected is not told
    assert {one["client"] for one in stage.told("slow")} == {"transient", "durable"}, "it is called slow all the same"
    assert {one["client"] for one in stage.told("deleted")} == {"transient"} | ({"durable"} if told else set())
    durable.reads = 1 * MB
    stage.run(1)
    if not told:
        assert durable.numbers == list(range(100))
    else:
        assert stage.pool.memory_bytes == 0
        assert stage.lanes == ["$queue/shared"]


def test_q3_a_queue_that_others_consume_too_is_not_deleted() -> None:
    stage = QueueStage(ALL_SLOW % '"delete_subscription"')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    other = consumer(stage, "other", acks=None, reads=2500)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("q", number, size=500)
    assert not stuck.connected
    assert other.connected
    other.reads = 1 * MB
    stage.run(1)
    assert sorted(stuck.numbers + other.numbers) == list(range(100))


CUT_BEYOND_50 = """
[[policy]]
name = "p"
topics = ["%s"]
[[policy.rule]]
when = { lag_records = "> 50" }
then = "disconnect"
"""


@pytest.mark.parametrize(
    ("topics", "governed"),
    [
        ("$queue/q", ["q"]), ("$queue/+", ["q", "r", "s"]), ("$queue/other", []),
        ("$exchange/amq.direct/a/b", ["q"]), ("$exchange/amq.direct/#", ["q", "r"]), ("$exchange/amq.direct/a", []),
        ("$exchange/amq.topic/x/#", ["s"]), ("$exchange/+/x/+", ["s"]), ("x/#", ["s"]), ("x/+", ["s"]), ("a/b", []),
        ("x/1", []), ("#", ["q", "r", "s"]),
    ],
)  # fmt: skip
def test_q5_policies_by_queue_by_exchange_and_key_and_by_topic(topics: str, governed: list[str]) -> None:
    stage = QueueStage(CUT_BEYOND_50 % topics)
    publisher = owner(stage, "q", "r", "s")
    for name, source, key in (("q", "amq.direct", "a.b"), ("r", "amq.direct", "c"), ("s", "amq.topic", "x.*")):
        publisher.bind(name, source, key)
    stuck = {name: consumer(stage, name, name, acks=None, reads=STUCK, buffer=100) for name in ("q", "r", "s")}
    for source, key in (("amq.direct", "a.b"), ("amq.direct", "c"), ("amq.topic", "x.1")):
        publisher.publish(key, 0, 60, exchange=source)
    stage.run(1)
    assert [name for name, peer in stuck.items() if not peer.connected] == governed


def test_q5_a_consumer_may_ask_for_another_policy_and_durable_queues_have_theirs() -> None:
    stage = QueueStage("""
    [[policy]]
    name = "durable ones"
    subscriptions = "durable"

    [[policy.rule]]
    when = { lag_records = "> 500" }
    then = "disconnect"

    [[policy]]
    name = "all"

    [[policy.rule]]
    when = { lag_records = "> 50" }
    then = "disconnect"

    [[policy]]
    name = "patient"
    topics = ["none"]
    """)
    publisher = owner(stage, "q")
    publisher.declare("d", durable=True)
    plain = consumer(stage, "plain", acks=None, reads=STUCK, buffer=100)
    durable = consumer(stage, "durable", "d", acks=None, reads=STUCK, buffer=100)
    asks = stage.peer("asks", reads=STUCK, buffer=100)
    asks.consume("q", acks=None, policy="patient")
    for name in ("q", "d"):
        publisher.publish(name, 0, 100)
    stage.run(1)
    assert_told_why(plain, Reason.LAG_RECORDS, "policy 'all'")
    assert durable.connected
    assert asks.connected
    publisher.publish("d", 100, 500)
    stage.run(1)
    assert_told_why(durable, Reason.LAG_RECORDS, "policy 'durable ones'")


@pytest.mark.parametrize(
    ("topics", "governed"),
    [
        ("$queue/orders/#", ["orders", "orders.eu", "orders.eu.new"]), ("$queue/orders/+", ["orders.eu"]),
        ("$queue/+/eu", ["orders.eu"]), ("$queue/orders.eu", ["orders.eu"]),
        ("$queue/+", ["orders", "orders.eu", "orders.eu.new", "ordersx"]),
    ],
)  # fmt: skip
def test_q5_policies_by_patterns_of_queue_names(topics: str, governed: list[str]) -> None:
    stage = QueueStage(CUT_BEYOND_50 % topics)
    names = ("orders", "orders.eu", "orders.eu.new", "ordersx")
    publisher = owner(stage, *names)
    stuck = {name: consumer(stage, name, name, acks=None, reads=STUCK, buffer=100) for name in names}
    for name in names:
        publisher.publish(name, 0, 60)
    stage.run(1)
    assert [name for name, peer in stuck.items() if not peer.connected] == governed
