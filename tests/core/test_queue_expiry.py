"""Records of a queue that live only for a while."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import QueueStage, filled

from headway.core.base.errors import Reason
from headway.core.routing import registry as overdue


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


def test_records_of_a_queue_live_so_long(stage: QueueStage) -> None:
    owner = filled(stage, 3, ttl_s=2.0)
    stage.run(1)
    owner.publish("q", 3, 2)
    stage.run(0.9)
    assert stage.queue("q").backlog.lag_records == 5
    stage.run(0.3)
    assert stage.queue("q").backlog.lag_records == 2, "without anybody asking"
    assert stage.counts("q") == {"expired": 3}
    peer = stage.peer("peer")
    peer.consume("q")
    stage.turn()
    assert peer.numbers == [3, 4]
    assert stage.pool.memory_bytes == 0


def test_a_record_lives_as_long_as_its_publisher_says_or_the_queue_if_that_is_less(stage: QueueStage) -> None:
    owner = filled(stage, 0, ttl_s=3.0)
    owner.publish("q", 0, ttl_s=1.0)
    owner.publish("q", 1, ttl_s=5.0)
    owner.publish("q", 2)
    stage.run(1.1)
    assert stage.queue("q").backlog.lag_records == 2
    stage.run(2)
    assert stage.queue("q").backlog.lag_records == 0
    assert stage.counts("q") == {"expired": 3}
    assert stage.pool.memory_bytes == 0


def test_what_has_expired_is_not_handed_out_wherever_it_waits(stage: QueueStage) -> None:
    """Behind a record that lives on it is still there, and nobody gets it."""
    owner = filled(stage, 0)
    for number in range(6):
        owner.publish("q", number, ttl_s=None if number % 2 == 0 else 1.0)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    assert peer.numbers == list(range(6))
    peer.close()  # now they are out of the lane's order
    stage.run(2)
    again = stage.peer("again")
    again.consume("q")
    stage.turn()
    assert again.numbers == [0, 2, 4]
    assert stage.counts("q") == {"expired": 3}


def test_expired_records_of_a_lower_priority_are_not_handed_out(stage: QueueStage) -> None:
    owner = filled(stage, 0, priorities=5)
    owner.publish("q", 0, priority=5)
    owner.publish("q", 1, priority=1, ttl_s=1.0)
    owner.publish("q", 2, priority=0)
    stage.run(2)
    peer = stage.peer("peer")
    peer.consume("q")
    stage.turn()
    assert peer.numbers == [0, 2]
    assert stage.counts("q") == {"expired": 1}


def test_what_is_in_flight_does_not_expire_but_what_comes_back_late_does(stage: QueueStage) -> None:
    filled(stage, 3, ttl_s=1.0, dead_letter_exchange="dlx")
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.run(2)
    assert stage.counts("q") == {}
    peer.ack(peer.id_of(0))
    peer.nack(peer.id_of(1), requeue=True)
    stage.turn()
    assert peer.numbers == [0, 1, 2]
    assert stage.counts("q") == {"expired": 1}
    assert [(one.reason, one.record.payload[:1]) for one in stage.dead] == [(Reason.EXPIRED, b"1")]


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("ttl", ["of the queue", "of the records"])
def test_however_many_expire_at_once_none_is_handed_out(stage: QueueStage, monkeypatch: pytest.MonkeyPatch, ttl: str,
                                                        asks: bool) -> None:
    """More than are dropped one by one in a turn, and somebody is ready before the clock rings."""
    monkeypatch.setattr(overdue, "OVERDUE_WORK", 10)
    owner = filled(stage, 1, ttl_s=0.3 if ttl == "of the queue" else None)
    peer, asking = stage.peer("peer"), stage.peer("asking")
    peer.consume("q", 1, acks=False)
    stage.turn()
    owner.publish("q", 1, 100, ttl_s=0.3 if ttl == "of the records" else None)
    stage.turn()
    stage.now += 0.3  # no tick
    owner.publish("q", 101, 2)
    if asks:
        got = asking.get("q", acks=None)
        assert got is not None
        assert got[0].number == 101
    peer.ack(*peer.ids())
    stage.turn()
    assert peer.numbers == [0, 102 if asks else 101]
    assert stage.counts("q") == {"expired": 100}


def test_no_lifetime_at_all_is_enough_for_who_waits_for_it(stage: QueueStage) -> None:
    owner = filled(stage, 0)
    owner.publish("q", 0, ttl_s=0.0)
    stage.turn()
    assert stage.counts("q") == {"expired": 1}
    peer = stage.peer("peer")
    peer.consume("q", 2, acks=False)
    stage.turn()
    owner.publish("q", 1, 3, ttl_s=0.0)
    stage.turn()
    assert peer.numbers == [1, 2]
    assert stage.counts("q") == {"expired": 2}
    peer.ack_upto(0)
    stage.turn()
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize("rebound", [False, True])
def test_what_came_while_nobody_was_ready_expires_too(stage: QueueStage, rebound: bool) -> None:
    """Neither a consumer nor a clock looked at it in between."""
    owner = filled(stage, 3)
    if rebound:
        owner.bind("q", "amq.direct", "k")
    peer, asking = stage.peer("peer"), stage.peer("asking")
    peer.consume("q", 1, acks=False)
    stage.turn()
    owner.publish("q", 3, 5, ttl_s=0.5)
    stage.run(1)
    found = [asking.get("q", acks=None) for _ in range(3)]
    assert [one[0].number for one in found if one] == [1, 2]
    peer.ack_upto(0)
    stage.turn()
    assert peer.numbers == [0]
    assert stage.counts("q") == {"expired": 5}


def test_what_comes_back_from_a_lane_that_was_left_expires_too(stage: QueueStage) -> None:
    owner = filled(stage, 20)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    owner.publish("q", 20, 5, ttl_s=0.5)
    stage.turn()
    owner.bind("q", "amq.direct", "k")
    stage.run(1)
    peer.acks[1, "q"] = True
    peer.nack(peer.id_of(22), requeue=True)
    stage.turn()
    assert peer.again == []
    assert stage.counts("q") == {"expired": 1}
