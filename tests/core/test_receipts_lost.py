"""Receipts of records that a reader did not get, and why."""

from __future__ import annotations

import pytest
from tests.core.receipts_stage import POLICY, asks, nothing_left, only, receipts
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import Reason
from headway.core.governance.moves import write_off


def stuck_behind_a_policy(then: str, filter: str = "t/#") -> tuple[Stage, Client]:
    stage = Stage(POLICY % then)
    return stage, stage.consumer("slow", filter, reads=STUCK, buffer=10)


@pytest.mark.parametrize(("then", "expected"), [
    ('{ action = "discard", which = "oldest", keep_records = 1 }', {"discarded": 1, "why": {"discarded": 1}}),
    ('"disconnect"', {"lost": 1, "why": {"subscription_ended": 1}}),
    ('"delete_subscription"', {"lost": 1, "why": {"lag_records": 1}}),
])
def test_a_policy_takes_it_away(then: str, expected: dict[str, object]) -> None:
    stage, slow = stuck_behind_a_policy(then)
    slow.publish("t/0", 0)  # the socket takes a part of this one
    asks(stage, "t/1", 1)
    slow.publish("t/2", 2, 5)
    stage.run(1)
    only(stage, owed=1, **expected)
    nothing_left(stage)


def test_newest_are_discarded() -> None:
    stage, slow = stuck_behind_a_policy('{ action = "discard", which = "newest", keep_records = 3 }')
    slow.publish("t/0", 0, 5)
    stage.run(1)
    asks(stage, "t/1", 5)
    stage.run(1)
    slow.reads = 1e9
    stage.run(1)
    only(stage, owed=1, discarded=1, why={"discarded": 1})


@pytest.mark.parametrize("then", ["conflate", '{ action = "discard", which = "older_per_key" }'])
@pytest.mark.parametrize("replaced", [False, True])
def test_it_is_conflated_if_a_newer_one_replaces_it(then: str, replaced: bool) -> None:
    stage, slow = stuck_behind_a_policy(then if "{" in then else f'"{then}"')
    slow.publish("t/0", 0, 5, size=500)
    asks(stage, "t/a", 5)
    stage.run(1)
    slow.publish("t/a" if replaced else "t/b", 6)
    stage.run(1)
    slow.reads = 1e9
    stage.run(1)
    assert (5 in slow.numbers) is not replaced
    if replaced:
        only(stage, owed=1, conflated=1, why={"conflated": 1})
    else:
        only(stage, owed=1, got=1)
    nothing_left(stage)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_consumer_that_asked_to_be_conflated(qos: int) -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t/#", qos=qos, options={"conflate": "1s"})
    for number in range(4):
        asks(stage, "t/a", number, qos=qos)
    stage.run(3)
    assert consumer.numbers == [3]
    assert [(one["got"], one["conflated"]) for one in receipts(stage)] == [(0, 1)] * 3 + [(1, 0)]
    nothing_left(stage)


def test_it_was_sent_before_conflation_began() -> None:
    stage = Stage(POLICY % '"conflate"')
    slow = stage.consumer("slow", "t/#", qos=1, reads=2000, acks=False, window=1)
    asks(stage, "t/a", 0, qos=1, receipt="1m")
    stage.run(0.5)
    slow.publish("t/a", 1, 5, qos=1)
    stage.run(1)
    assert slow.session.subscriptions["t/#"].conflating
    assert not receipts(stage), "it is not acknowledged yet"
    slow.acknowledge()
    stage.run(0.5)
    only(stage, owed=1, got=1)


def test_a_conflated_delivery_is_acknowledged_after_the_subscription_ended() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t/#", qos=1, acks=False, options={"conflate": "500ms"})
    asks(stage, "t/a", 0, qos=1)
    stage.run(1)
    assert consumer.numbers == [0]
    stage.broker.unsubscribe(consumer.session, "t/#", stage.now)
    stage.run(1)
    assert not receipts(stage)
    consumer.acknowledge()
    stage.run(0.5)
    only(stage, owed=1, got=1)


def test_a_conflated_delivery_is_written_off() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t/#", qos=1, acks=False, options={"conflate": "500ms"})
    asks(stage, "t/a", 0, qos=1)
    stage.run(1)
    (subscription,) = consumer.session.subscriptions.values()
    broker = stage.broker
    write_off(broker.registry, broker._ending, subscription, Reason.MEMORY_LIMIT, stage.now, unreadable=False)
    only(stage, owed=1, lost=1, why={"memory_limit": 1})
    nothing_left(stage)


def test_it_expires() -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    slow.publish("t", 0)
    stage.turn()
    asks(stage, number=1, expiry_s=1)
    stage.run(3)
    slow.reads = 1e9
    stage.run(1)
    only(stage, owed=1, lost=1, why={"expired": 1})


def test_it_is_too_large_for_a_client() -> None:
    stage = Stage()
    client = stage.client("narrow")
    client.session.max_packet_bytes = 200
    client.subscribe("t")
    asks(stage, size=500)
    only(stage, owed=1, lost=1, why={"too_large_for_client": 1})


def test_the_subscription_ends() -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    asks(stage)
    stage.turn()
    stage.broker.unsubscribe(slow.session, "t", stage.now)
    only(stage, owed=1, got=1)  # half of it was sent, and the rest is on its way
    asks(stage, number=1)
    slow.subscribe("t")
    asks(stage, number=2)
    stage.broker.unsubscribe(slow.session, "t", stage.now)
    assert receipts(stage)[-1]["why"] == {"subscription_ended": 1}


@pytest.mark.parametrize("later", [False, True])
def test_the_session_ends_without_an_acknowledgement(later: bool) -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=1, acks=False)
    asks(stage, qos=1)
    stage.turn()
    if later:
        stage.broker.unsubscribe(consumer.session, "t", stage.now)
    consumer.leave()
    only(stage, owed=1, lost=1, why={"unacknowledged": 1})
    nothing_left(stage)


def test_a_client_that_confirmed_the_arrival_has_it() -> None:
    stage = Stage()
    consumer = stage.consumer("c", "t", qos=2, acks=False)
    asks(stage, qos=2)
    stage.turn()
    (delivery_id,) = consumer.session.channel.in_flight
    stage.broker.on_pubrec(consumer.session, delivery_id)
    consumer.leave()
    only(stage, owed=1, got=1)


def test_the_pool_is_full() -> None:
    stage = Stage(memory="40KB", disk="0")
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    slow.publish("t", 0)
    asks(stage, number=1)
    other = stage.client("other")
    for number in range(60):
        other.publish("t", number, size=1000)
        stage.run(0.2)
    (told,) = receipts(stage)
    assert told["lost"] == 1
    assert set(told["why"]) <= {"memory_limit", "client_share", "subscription_ended"}


@pytest.mark.parametrize("read", [True, False])
def test_a_replaced_subscription_hands_it_over(read: bool) -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=10)
    slow.publish("t", 0, size=100_000)
    stage.turn()
    asks(stage, number=1)
    slow.subscribe("t", 1)
    asks(stage, number=2)
    stage.run(1)
    assert not receipts(stage)
    if read:
        slow.reads = 1e9
        stage.run(1)
        assert slow.numbers == [0, 1, 2]
        assert [(one["owed"], one["got"]) for one in receipts(stage)] == [(1, 1)] * 2
    else:
        stage.broker.unsubscribe(slow.session, "t", stage.now)
        assert [one["why"] for one in receipts(stage)] == [{"subscription_ended": 1}] * 2
    nothing_left(stage)


def test_a_snapshot_repeats_what_the_replaced_subscription_was_owed() -> None:
    stage = Stage()
    slow = stage.consumer("slow", "t", qos=1, reads=STUCK, buffer=10, acks=False, options={"snapshot": "true"})
    slow.publish("t", 0, size=100_000)
    stage.turn()
    asks(stage, number=1, qos=1)
    slow.subscribe("t", 1, snapshot="true", offsets="true")
    slow.reads = 1e9
    stage.run(1)
    assert slow.numbers == [0, 1, 1]
    slow.acknowledge(1)
    stage.run(1)
    only(stage, owed=1, got=1)
    slow.leave()
    nothing_left(stage)


def test_a_delivery_of_a_pass_is_acknowledged_after_the_subscription_was_replaced() -> None:
    stage = Stage(POLICY % '{ action = "discard", which = "older_per_key" }')
    slow = stage.consumer("slow", "t/#", qos=1, reads=2000, acks=False, window=2)
    for number in range(4):
        slow.publish("t/0", number, qos=1)
    asks(stage, "t/a", 4, qos=1)
    stage.run(1)
    assert slow.numbers == [0, 1]
    slow.acknowledge(2)
    stage.run(1)
    assert slow.numbers == [0, 1, 3, 4]
    slow.publish("t/0", 5, 2, qos=1)
    stage.run(0.1)
    slow.subscribe("t/#", 0)
    stage.run(1)
    assert not receipts(stage)
    slow.acknowledge(5)
    stage.run(1)
    only(stage, owed=1, got=1)
