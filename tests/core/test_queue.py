"""Queues and their consumers: who gets which record, within which window, and in which order.

tests/core/queues_stage.py is the stage. What a queue is called and bound to is in test_queues.py; how records are
settled, expire and are dropped is in files beside this one.
"""

from __future__ import annotations

from math import inf

import pytest
from tests.core.queues_stage import QueueStage, filled, purged
from tests.core.stage import STUCK

from headway.core.base.errors import Reason, Refused


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


# -- who gets what --------------------------------------------------------------------------------------------------


def test_competing_consumers_take_turns_and_each_record_goes_to_one(stage: QueueStage) -> None:
    owner = filled(stage, 0)
    peers = [stage.peer(f"c{n}") for n in range(3)]
    for peer in peers:
        peer.consume("q")
    for first in range(0, 300, 3):
        owner.publish("q", first, 3)
        stage.turn()
    assert sorted(number for peer in peers for number in peer.numbers) == list(range(300))
    assert [len(peer.seen) for peer in peers] == [100, 100, 100]
    for peer in peers:
        assert peer.numbers == sorted(peer.numbers)
        assert not peer.again


def test_a_burst_is_shared_too(stage: QueueStage) -> None:
    owner = filled(stage, 0)
    peers = [stage.peer(f"c{n}") for n in range(4)]
    for peer in peers:
        peer.consume("q")
    owner.publish("q", 0, 1000)
    stage.turn()
    assert [len(peer.seen) for peer in peers] == [250] * 4
    assert sorted(number for peer in peers for number in peer.numbers) == list(range(1000))


def test_a_stuck_member_gets_no_more_than_it_has_and_others_get_the_rest(stage: QueueStage) -> None:
    owner = filled(stage, 0)
    stuck, fast = stage.peer("stuck", reads=STUCK, buffer=500), stage.peer("fast")
    stuck.consume("q", acks=None)
    fast.consume("q", acks=None)
    for first in range(0, 1000, 10):
        owner.publish("q", first, 10, size=50)
        stage.turn()
    assert len(stuck.outlet.out) < 200, "the rest of one record, and nothing behind it"
    assert stage.pool.memory_bytes == 0
    stuck.reads = inf
    stage.turn()
    assert sorted(stuck.numbers + fast.numbers) == list(range(1000))
    assert 2 <= len(stuck.seen) < 10


def test_a_large_record_half_taken_is_finished_before_the_next(stage: QueueStage) -> None:
    owner = filled(stage, 0)
    slow = stage.peer("slow", reads=1000, buffer=300)
    slow.consume("q", acks=None)
    owner.publish("q", 0, 5, size=900)
    stage.turn()
    assert 0 < len(slow.outlet.out) < 1000
    stage.run(10)
    assert slow.numbers == list(range(5))
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize("consumers", [1, 2, 3])
@pytest.mark.parametrize("acks", [None, True])
def test_more_than_a_turn_takes_goes_out_in_the_next(stage: QueueStage, consumers: int, acks: bool | None) -> None:
    """Whatever is left at the end of a turn waits, also if it is in the last chunk."""
    owner = filled(stage, 0)
    peers = [stage.peer(f"c{n}", buffer=10**9) for n in range(consumers)]
    for peer in peers:
        peer.consume("q", acks=acks)
    for size in (900, 1000, 1100, 1200):
        first = size * 10_000
        owner.publish("q", first, 1100, size=size)
        stage.turn()
        got = sorted(number for peer in peers for number in peer.numbers)
        assert got == list(range(first, first + 1100)), f"{1100 - len(got)} lost"
        for peer in peers:
            peer.seen.clear()
    assert stage.pool.memory_bytes == 0


def test_a_queue_without_consumers_keeps_its_records_for_whoever_comes(stage: QueueStage) -> None:
    filled(stage, 100)
    assert stage.queue("q").backlog.lag_records == 100
    assert stage.pool.memory_bytes > 2000
    late = stage.peer("late")
    late.consume("q")
    stage.turn()
    assert late.numbers == list(range(100))
    assert stage.pool.memory_bytes == 0


# -- windows --------------------------------------------------------------------------------------------------------


def test_a_prefetch_for_each_consumer(stage: QueueStage) -> None:
    owner = filled(stage, 20)
    two, five = stage.peer("two"), stage.peer("five")
    two.consume("q", 2, acks=False)
    five.consume("q", 5, acks=False)
    stage.turn()
    assert (len(two.seen), len(five.seen)) == (2, 5)
    two.ack(two.ids()[0])
    stage.turn()
    assert (len(two.seen), len(five.seen)) == (3, 5), "one for one"
    assert owner.session.number not in (two.session.number, five.session.number)
    assert stage.queue("q").backlog.lag_records == 12


def test_a_prefetch_for_all_consumers_of_a_channel(stage: QueueStage) -> None:
    peer = filled(stage, 20)
    peer.declare("r")
    peer.publish("r", 100, 20)
    consumer = stage.peer("consumer")
    consumer.channel(1, limit=4)
    consumer.channel(2, limit=3)
    consumer.consume("q", 3, acks=False)
    consumer.consume("r", acks=False)
    consumer.consume("q", tag="other channel", channel=2, acks=False)
    stage.turn()
    assert len(consumer.of("q")) <= 3
    assert len(consumer.of("q")) + len(consumer.of("r")) == 4
    assert len(consumer.of("other channel", 2)) == 3
    consumer.ack(*consumer.ids())
    stage.turn()
    assert len(consumer.seen) == 4 + 3 + 4, "credit is free for either consumer"
    assert not set(consumer.ids()) & {one.id for one in consumer.seen[:7] if one.channel == 1}


def test_a_consumer_that_settles_nothing_has_no_window(stage: QueueStage) -> None:
    filled(stage, 100)
    peer = stage.peer("no-ack")
    peer.channel(1, limit=2)
    peer.consume("q", 1, acks=None)
    stage.turn()
    assert peer.numbers == list(range(100))
    assert not peer.ids()


def test_channel_flow(stage: QueueStage) -> None:
    filled(stage, 10)
    peer = stage.peer("peer")
    consumer = peer.consume("q", 3)
    consumer.let_flow(False)
    stage.turn()
    assert not peer.seen
    consumer.let_flow(True)
    stage.broker.registry.wake(consumer.session)
    stage.turn()
    assert peer.numbers == list(range(10))


# -- by asking ------------------------------------------------------------------------------------------------------


def test_get_says_what_it_is_and_how_many_more_there_are(stage: QueueStage) -> None:
    filled(stage, 3)
    peer = stage.peer("peer")
    found = [peer.get("q") for _ in range(4)]
    assert [(one[0].number, one[0].redelivered, one[1]) for one in found if one] == [
        (0, False, 2), (1, False, 1), (2, False, 0),
    ]
    assert found[3] is None
    peer.nack(peer.id_of(1), requeue=True)
    again = peer.get("q")
    assert again is not None
    assert (again[0].number, again[0].redelivered, again[1]) == (1, True, 0)
    peer.ack_upto(0)
    stage.turn()
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize("acks", [None, True])
def test_what_was_got_is_let_go_of(stage: QueueStage, acks: bool | None) -> None:
    filled(stage, 5)
    peer = stage.peer("peer")
    for _ in range(5):
        assert stage.pool.memory_bytes
        assert peer.get("q", acks=acks) is not None
        stage.turn()
    assert stage.pool.memory_bytes == 0
    assert not peer.ids()


def test_what_was_got_without_settling_never_comes_back(stage: QueueStage) -> None:
    filled(stage, 2)
    peer = stage.peer("peer")
    peer.get("q", acks=None)
    got = peer.get("q", acks=False)
    assert got is not None
    peer.leave()
    heir = stage.peer("heir")
    heir.consume("q")
    stage.turn()
    assert heir.numbers == heir.again == [1]


def test_who_asks_is_no_consumer(stage: QueueStage) -> None:
    peer = filled(stage, 0, auto_delete=True)
    asking = stage.peer("asking")
    assert asking.get("q") is None
    assert stage.queue("q").members.consumers == []
    peer.publish("q", 0, 5)
    stage.turn()
    assert asking.seen == [], "it gets nothing without asking"
    peer.consume("q", exclusive=True)
    stage.turn()
    assert peer.numbers == list(range(5))


def test_a_got_record_is_in_a_consumers_order(stage: QueueStage) -> None:
    filled(stage, 6)
    peer = stage.peer("peer")
    peer.consume("q", 2, acks=False)
    stage.turn()
    got = peer.get("q")
    assert got is not None
    assert (got[0].number, got[1]) == (2, 3)
    peer.ack_upto(0)
    stage.turn()
    assert [one.number for one in peer.seen if one.tag] == [0, 1, 3, 4]


# -- purging --------------------------------------------------------------------------------------------------------


def test_purging_forgets_what_waits_and_not_what_is_in_flight(stage: QueueStage) -> None:
    owner = filled(stage, 10, dead_letter_exchange="dlx")
    peer = stage.peer("peer")
    peer.consume("q", 3, acks=False)
    stage.turn()
    peer.nack(peer.id_of(1), requeue=True)
    assert purged(stage.queue("q")) == 8
    owner.publish("q", 10)
    peer.ack(peer.id_of(0))
    stage.turn()
    assert peer.numbers == [0, 1, 2, 10]
    assert stage.counts("q") == {"purged": 8}
    assert stage.dead == [], "what is purged has no second chance"
    peer.ack_upto(0)
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_a_purged_queue_holds_nothing(stage: QueueStage) -> None:
    filled(stage, 10)
    assert stage.pool.memory_bytes
    assert purged(stage.queue("q")) == 10
    stage.turn()
    assert stage.pool.memory_bytes == 0
    assert stage.queue("q").backlog.lag_records == stage.queue("q").backlog.lag_bytes == 0


# -- in which order -------------------------------------------------------------------------------------------------


def test_higher_priorities_first_and_in_order_within_each(stage: QueueStage) -> None:
    owner = filled(stage, 0, priorities=3)
    for number, priority in enumerate((0, 2, 1, None, 3, 9, 2)):
        owner.publish("q", number, priority=priority)
    stage.turn()
    peer = stage.peer("peer")
    peer.consume("q", 1)
    stage.turn()
    assert peer.numbers == [4, 5, 1, 6, 2, 0, 3], "more than the highest is the highest, none is 0"
    assert not peer.again
    assert stage.pool.memory_bytes == 0


def test_what_comes_back_has_its_priority_still(stage: QueueStage) -> None:
    owner = filled(stage, 0, priorities=3)
    for number, priority in enumerate((0, 3, 1)):
        owner.publish("q", number, priority=priority)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    peer.cancel("q")
    owner.publish("q", 3, priority=2)
    peer.close()
    got = [peer.get("q") for _ in range(4)]
    assert [(one[0].number, one[0].redelivered) for one in got if one] == [
        (1, True), (3, False), (2, True), (0, True),
    ]


def test_a_single_active_consumer_gets_everything_until_it_is_gone(stage: QueueStage) -> None:
    owner = filled(stage, 0, single_active=True)
    first, second = stage.peer("first"), stage.peer("second")
    first.consume("q", 2, acks=False)
    second.consume("q")
    owner.publish("q", 0, 5)
    stage.turn()
    assert first.numbers == [0, 1]
    assert second.numbers == [], "though the first has no room"
    first.ack(first.id_of(0))
    stage.turn()
    assert first.numbers == [0, 1, 2]
    first.cancel("q")
    stage.turn()
    assert second.numbers == [3, 4]
    first.close()
    stage.turn()
    assert second.numbers == [3, 4, 1, 2]


def test_an_exclusive_consumer_is_the_only_one(stage: QueueStage) -> None:
    filled(stage, 0)
    first, second = stage.peer("first"), stage.peer("second")
    first.consume("q")
    with pytest.raises(Refused) as refused:
        second.consume("q", exclusive=True)
    assert refused.value.reason is Reason.NOT_AUTHORIZED
    first.cancel("q")
    second.consume("q", exclusive=True)
    with pytest.raises(Refused):
        first.consume("q")
    second.cancel("q")
    first.consume("q")


# -- what is in the way ---------------------------------------------------------------------------------------------


def test_a_reply_in_the_outlet_does_not_stop_the_queue_for_good(stage: QueueStage) -> None:
    """A refusing queue hands out in the middle of a turn, when answers may not have gone yet."""
    owner = filled(stage, 0, records_max=2, refuses=True)
    peer = stage.peer("peer")
    peer.consume("q", acks=None)
    stage.turn()
    peer.hears_an_answer()
    assert peer.outlet.out
    assert [owner.publish("q", number).accepted for number in range(3)] == [1, 1, 0]  # type: ignore[union-attr]
    stage.turn()
    assert not peer.outlet.out
    assert peer.numbers == [0, 1]
    assert stage.pool.memory_bytes == 0
