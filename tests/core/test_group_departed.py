"""What a member of an MQTT group has not acknowledged when its subscription ends before its session."""

from __future__ import annotations

import pytest
from tests.core.stage import Client, Stage

from headway.core.base.errors import Reason
from headway.core.consumer.subscription import DEPARTED_MIN
from headway.core.queue.queue import Queue, queue_of

FILTER = "$share/g/t"
COUNT = 20


def departed(stage: Stage, qos: int = 1, *, expiry_s: float = 1000.0, others: bool = True) -> tuple[Client, Queue]:
    """A client that was sent records and has unsubscribed since. Another member of its group is away, or there is none.
    """
    if others:
        other = stage.client("other", expiry_s=1000.0)
        other.subscribe(FILTER, qos)
        other.leave()
    member = stage.client("member", expiry_s=expiry_s, acks=False)
    queue = queue_of(member.subscribe(FILTER, qos).reader.queue)
    stage.client("publisher").publish("t", 0, COUNT, qos=qos)
    stage.turn()
    assert member.numbers == list(range(COUNT))
    stage.broker.unsubscribe(member.session, FILTER, stage.now)
    return member, queue


def other_gets(stage: Stage) -> list[int]:
    """In any order."""
    other = stage.clients["other"]
    other.connect()
    stage.run(1)
    return sorted(other.numbers)


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_sent_again_to_its_client_that_comes_back(qos: int, others: bool) -> None:
    stage = Stage()
    member, _ = departed(stage, qos, others=others)
    member.leave()
    member.acks = True
    member.connect()
    stage.run(1)
    assert member.numbers == 2 * list(range(COUNT))
    assert member.session.channel.used == 0
    if others:
        assert other_gets(stage) == []
    stage.check()


def test_what_its_client_settles_nobody_else_gets() -> None:
    stage = Stage()
    member, queue = departed(stage)
    member.acknowledge(COUNT)
    member.leave()
    assert other_gets(stage) == []
    assert queue.backlog.unacknowledged == 0
    stage.check()


@pytest.mark.parametrize("expiry_s", [0.0, 5.0])
def test_the_others_get_it_when_the_session_ends(expiry_s: float) -> None:
    stage = Stage()
    member, _ = departed(stage, expiry_s=expiry_s)
    member.leave()
    stage.run(10)
    assert other_gets(stage) == list(range(COUNT))
    assert not stage.clients["publisher"].session.lost_records
    stage.check()


def test_what_is_delivered_exactly_once_is_lost_then_and_counted() -> None:
    stage = Stage()
    member, _ = departed(stage, 2, expiry_s=0.0)
    member.leave()
    stage.run(1)
    assert other_gets(stage) == []
    assert stage.clients["publisher"].session.lost_records == {Reason.SUBSCRIPTION_ENDED: COUNT}
    stage.check()


def test_a_member_that_leaves_with_its_session_takes_what_is_delivered_exactly_once_along() -> None:
    """Also where it was copied from the lane, and nobody has looked at its QoS."""
    stage = Stage()
    other = stage.client("other", expiry_s=1000.0)
    other.subscribe(FILTER, 2)
    other.leave()
    member = stage.client("member", acks=False)
    member.subscribe(FILTER, 2)
    stage.client("publisher").publish("t", 0, COUNT, qos=2)
    stage.turn()
    assert member.numbers == list(range(COUNT))
    member.leave()
    stage.run(1)
    assert other_gets(stage) == []
    assert stage.clients["publisher"].session.lost_records == {Reason.SUBSCRIPTION_ENDED: COUNT}


def test_those_who_have_settled_all_are_not_kept() -> None:
    stage = Stage()
    other = stage.client("other", expiry_s=1000.0)
    queue = queue_of(other.subscribe(FILTER, 1).reader.queue)
    other.leave()
    member = stage.client("member", acks=False)
    publisher = stage.client("publisher")
    for number in range(5 * DEPARTED_MIN):
        member.subscribe(FILTER, 1)
        publisher.publish("t", number, 1, qos=1)
        stage.turn()
        stage.broker.unsubscribe(member.session, FILTER, stage.now)
        member.acknowledge()
    assert member.numbers == list(range(5 * DEPARTED_MIN))
    assert len(queue.members.departed) <= DEPARTED_MIN + 1
    assert len(member.session.departed) <= DEPARTED_MIN + 1
