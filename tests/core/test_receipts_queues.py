"""Receipts of records in queues and shared groups: one of the members counts for all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.receipts_stage import asks, nothing_left, of_a_queue, only, receipts
from tests.core.stage import STUCK, Stage

from headway.core.message.record import ReceiptRequest

ASKED = ReceiptRequest(10.0)


@pytest.mark.parametrize(("acks", "got"), [(True, 1), (None, 1), (False, 0)])
def test_a_queue_is_owed_once(acks: bool | None, got: int) -> None:
    stage, peer = of_a_queue()
    for number in range(2):
        stage.peer(f"c{number}").consume("q", acks=acks)
    peer.publish("q", 0, receipt=ASKED)
    stage.run(1)
    if got:
        only(stage, owed=1, got=1)
    else:
        assert not receipts(stage)
        stage.run(10)
        only(stage, owed=1, waiting=1, state="timed_out")


def test_what_comes_back_to_a_queue_waits() -> None:
    stage, peer = of_a_queue()
    first = stage.peer("first")
    first.consume("q", acks=False)
    peer.publish("q", 0, receipt=ASKED)
    stage.run(1)
    first.leave()
    stage.run(1)
    assert not receipts(stage)
    stage.peer("second").consume("q")
    stage.run(1)
    only(stage, owed=1, got=1)
    nothing_left(stage)


@pytest.mark.parametrize(("terms", "dead"), [({}, False), ({"dead_letter_exchange": "x"}, True)])
def test_a_rejected_record(terms: dict[str, Any], dead: bool) -> None:
    stage, peer = of_a_queue(**terms)
    consumer = stage.peer("c")
    consumer.consume("q", acks=False)
    peer.publish("q", 0, receipt=ASKED)
    stage.run(1)
    consumer.nack(1, requeue=False)
    expected = {"dead_lettered": 1} if dead else {"lost": 1}
    only(stage, owed=1, why={"rejected": 1}, **expected)


@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize(("terms", "reason"), [({"records_max": 1}, "queue_length"), ({"ttl_s": 1.0}, "expired")])
def test_a_queue_leaves_it_out(terms: dict[str, Any], reason: str, dead: bool) -> None:
    stage, peer = of_a_queue(**terms, dead_letter_exchange="x" if dead else None)
    peer.publish("q", 0, receipt=ASKED)
    peer.publish("q", 1)
    stage.run(2)
    only(stage, owed=1, why={reason: 1}, **({"dead_lettered": 1} if dead else {"lost": 1}))


def test_a_full_queue_refuses_it() -> None:
    stage, peer = of_a_queue(records_max=1, refuses=True)
    peer.publish("q", 0)
    peer.publish("q", 1, receipt=ASKED)
    only(stage, owed=1, lost=1, why={"queue_length": 1})


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_a_queue_is_purged_or_deleted(how: str) -> None:
    stage, peer = of_a_queue()
    peer.publish("q", 0, receipt=ASKED)
    stage.turn()
    if how == "delete":
        peer.delete("q")
    else:
        list(stage.queue("q").purge())
    only(stage, owed=1, lost=1, why={"purged": 1})
    nothing_left(stage)


def test_a_queue_and_topics_together() -> None:
    stage, peer = of_a_queue()
    peer.bind("q", "amq.topic", "t")
    stage.consumer("mqtt", "t")
    stage.peer("c").consume("q")
    asker = stage.client("asker")
    asker.publish("t", 0, receipt="true", qos=1)
    stage.run(1)
    (told,) = receipts(stage, "asker")
    assert (told["owed"], told["got"], told["timeout_ms"]) == (2, 2, 30_000)


def test_the_end_of_a_group() -> None:
    stage = Stage()
    member = stage.consumer("c", "$share/g/t", reads=STUCK, buffer=10)
    member.publish("t", 0)
    asks(stage, number=1)
    stage.turn()
    stage.broker.unsubscribe(member.session, "$share/g/t", stage.now)
    only(stage, owed=1, lost=1, why={"subscription_ended": 1})
    nothing_left(stage)


def test_the_end_of_a_group_that_was_sent_it() -> None:
    """The client keeps what it was sent, and no group is left to give it to another."""
    stage = Stage()
    member = stage.consumer("c", "$share/g/t", qos=1, acks=False)
    asks(stage, qos=1)
    stage.run(0.5)
    assert not receipts(stage)
    stage.broker.unsubscribe(member.session, "$share/g/t", stage.now)
    only(stage, owed=1, got=1)


def test_what_a_member_holds_that_has_unsubscribed_is_owed_until_it_settles_that() -> None:
    stage = Stage()
    stage.client("other", expiry_s=1000.0).subscribe("$share/g/t", 1)
    stage.clients["other"].leave()
    member = stage.client("member", acks=False)
    member.subscribe("$share/g/t", 1)
    asks(stage, qos=1)
    stage.turn()
    assert member.numbers == [0]
    stage.broker.unsubscribe(member.session, "$share/g/t", stage.now)
    stage.run(1)
    assert not receipts(stage)
    member.acknowledge()
    stage.run(0.5)
    only(stage, owed=1, got=1)
