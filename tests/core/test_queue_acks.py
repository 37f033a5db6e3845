"""Policies by what consumers of queues have not acknowledged: exhausted credit, late acknowledgements."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import QueueStage, consumer, owner
from tests.core.stage import STUCK

ACK_TIMEOUT = """
[[policy]]
name = "ack timeout"

[[policy.rule]]
when = { ack_age = "5s" }
then = { action = "return", older = "5s" }
"""


# -- credit ---------------------------------------------------------------------------------------------------------

CREDIT = """
[[policy]]
name = "credit"

[[policy.rule]]
when = { credit_exhausted_time = "2s" }
then = "notify"

[[policy]]
name = "socket"

[[policy.rule]]
when = { blocked_time = "2s" }
then = "notify"
"""


@pytest.mark.parametrize("window", ["of the consumer", "of the channel"])
def test_credit_is_exhausted_while_records_wait_and_its_window_is_full(window: str) -> None:
    stage = QueueStage(CREDIT)
    publisher = owner(stage)
    peer = stage.peer("peer")
    peer.channel(1, limit=5 if window == "of the channel" else 2**62)
    made = peer.consume("q", 5 if window == "of the consumer" else 2**62, acks=False)
    publisher.publish("q", 0, 5)
    stage.run(5)
    assert stage.told("slow") == [], "its window is full, and nothing waits"
    publisher.publish("q", 5)
    stage.run(1)
    assert made.case.last_sample.credit_exhausted_time == pytest.approx(1, abs=0.3), "from then on"
    assert made.case.last_sample.blocked_time == 0
    stage.run(1.4)
    (told,) = stage.told("slow")
    assert told["reason"] == "credit_exhausted"
    peer.ack(peer.ids()[0])
    stage.run(0.4)
    assert [one["client"] for one in stage.told("recovered")] == ["peer"]
    publisher.publish("q", 6)
    stage.run(1)
    assert made.case.last_sample.credit_exhausted_time == pytest.approx(1, abs=0.3), "and counted anew"


def test_a_blocked_socket_is_not_exhausted_credit() -> None:
    stage = QueueStage(CREDIT)
    publisher = owner(stage)
    peer = stage.peer("peer", reads=STUCK, buffer=300)
    made = peer.consume("q", 50, acks=False)
    publisher.publish("q", 0, 40)
    stage.run(5)
    assert made.case.last_sample.blocked_time > 4
    assert made.case.last_sample.credit_exhausted_time == 0
    assert stage.told("slow") == []


def test_credit_given_back_by_another_consumers_ack_is_the_channels() -> None:
    """Two consumers of one channel's window: what either settles lets both go on."""
    stage = QueueStage(CREDIT)
    publisher = owner(stage, "q", "r")
    peer = stage.peer("peer")
    peer.channel(1, limit=2)
    peer.consume("q", acks=False)
    peer.consume("r", acks=False)
    publisher.publish("q", 0, 2)
    stage.turn()
    publisher.publish("r", 10, 2)
    stage.run(3)
    assert [one["filter"] for one in stage.told("slow")] == ["$queue/r"]
    peer.ack(peer.ids()[0])
    stage.turn()
    assert peer.of("r") == [10]
    stage.run(0.4)
    assert len(stage.told("recovered")) == 1


# -- late acknowledgements ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [0, 4])
def test_what_takes_too_long_to_acknowledge_goes_to_others_and_the_consumer_lives_on(waiting: int) -> None:
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    slow = consumer(stage, "slow", prefetch=3, acks=False)
    publisher.publish("q", 0, 3 + waiting)
    stage.run(1)
    fast = consumer(stage, "fast")
    stage.run(3.5)
    assert slow.numbers == [0, 1, 2]
    assert fast.numbers == list(range(3, 3 + waiting))
    stage.run(1.5)
    assert fast.numbers == [*range(3, 3 + waiting), 0, 1, 2]
    assert fast.again == [0, 1, 2], "in order, marked"
    assert slow.connected
    assert [one["records"] for one in stage.told("returned", "slow")] == [3]
    assert stage.pool.memory_bytes == 0
    publisher.publish("q", 10, 3)
    stage.run(1)
    assert slow.numbers == [0, 1, 2], "it gets no more before it settles"
    assert fast.numbers[-3:] == [10, 11, 12]
    fast.cancel("q")
    publisher.publish("q", 20, 5)
    stage.run(1)
    slow.ack(slow.id_of(1))
    stage.run(0.2)
    assert slow.numbers == [0, 1, 2], "late, and accepted; it has more to settle"
    slow.nack(slow.id_of(0), requeue=True)
    stage.run(0.2)
    assert slow.numbers == [0, 1, 2], "what it gives back it had not any more"
    slow.acks[1, "q"] = True
    slow.ack_upto(0)
    stage.run(0.2)
    assert slow.numbers == [0, 1, 2, 20, 21, 22, 23, 24]
    assert not slow.again
    assert stage.queue("q").backlog.lag_records == 0
    assert stage.pool.memory_bytes == 0


def test_everything_up_to_a_delivery_is_settled_with_what_was_returned() -> None:
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    slow = consumer(stage, "slow", prefetch=6, acks=False)
    publisher.publish("q", 0, 2)
    stage.run(4)
    publisher.publish("q", 2, 4)
    stage.run(1)
    fast = consumer(stage, "fast")
    stage.run(1)
    assert fast.numbers == [0, 1]
    assert slow.channels[1].upto(slow.id_of(3)) == [slow.id_of(number) for number in range(4)]
    slow.ack_upto(slow.id_of(3))
    fast.leave()
    publisher.publish("q", 6, 10)
    stage.turn()
    assert slow.numbers == list(range(10)), "room for four more"


def test_who_has_room_left_gets_nothing_either_before_it_settles() -> None:
    """Least of all what it has just been relieved of."""
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    slow, other = consumer(stage, "slow", prefetch=10, acks=False), consumer(stage, "other")
    publisher.publish("q", 0, 2)
    stage.run(6)
    assert len(slow.seen) == 1
    assert sorted(other.numbers) == [0, 1]
    publisher.publish("q", 2, 10)
    stage.run(1)
    assert len(slow.seen) == 1
    slow.ack_upto(0)
    publisher.publish("q", 12, 10)
    stage.turn()
    assert 4 <= len(slow.seen) <= 8


def test_who_settles_late_what_nobody_else_was_given_has_settled_it() -> None:
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    only = consumer(stage, "only", prefetch=1, acks=False)
    publisher.publish("q", 0, 2)
    stage.run(6)
    assert stage.queue("q").backlog.lag_records == 2
    assert only.numbers == [0]
    only.ack(only.id_of(0))
    stage.run(0.2)
    assert only.numbers == [0, 1], "nobody else had been given the first, and nobody needs it any more"
    assert stage.queue("q").backlog.lag_records == 0


def test_each_is_returned_when_it_is_too_old() -> None:
    """Also while others of the same consumer are nearly so."""
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    slow = consumer(stage, "slow", prefetch=8, acks=False)
    for number, _ in enumerate(stage.steps(4)):
        if number % 5 == 0:
            publisher.publish("q", number // 5)
    assert slow.numbers == list(range(8))
    fast = consumer(stage, "fast")
    came: dict[int, float] = {}
    for now in stage.steps(8):
        came |= {number: round(now - 1000, 1) for number in fast.numbers if number not in came}
    assert fast.numbers == list(range(8))
    for number, at in came.items():
        assert 5.0 <= at - (0.1 + number / 2) <= 5.4, came
    assert slow.connected


def test_recovering_settles_what_was_returned_too() -> None:
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    slow = consumer(stage, "slow", prefetch=2, acks=False)
    publisher.publish("q", 0, 3)
    stage.run(6)
    assert slow.numbers == [0, 1]
    slow.acks[1, "q"] = True
    slow.recover()
    stage.run(0.2)
    assert slow.numbers == [0, 1, 0, 1, 2]
    assert slow.again == [0, 1]


def test_a_got_record_is_returned_as_well() -> None:
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    publisher.publish("q", 0, 2)
    asking = stage.peer("asking")
    asking.get("q")
    fast = consumer(stage, "fast")
    stage.run(6)
    assert fast.numbers == [1, 0]
    assert fast.again == [0]
    asking.ack(asking.id_of(0))
    assert asking.connected


def test_a_channel_that_closes_after_a_return_gives_nothing_back_twice() -> None:
    stage = QueueStage(ACK_TIMEOUT)
    publisher = owner(stage)
    slow = consumer(stage, "slow", prefetch=2, acks=False)
    publisher.publish("q", 0, 2)
    stage.run(4)
    fast = consumer(stage, "fast")
    stage.run(2)
    assert fast.numbers == [0, 1]
    slow.close()
    stage.run(1)
    assert fast.numbers == [0, 1]
    assert stage.pool.memory_bytes == 0
