"""Queues and their members: who gets which record, in which order, how often, and what becomes of it.

tests/core/queues_stage.py is the stage. What a queue is called and bound to is in test_queues.py.
"""

from __future__ import annotations

from math import inf

import pytest
from tests.core.queues_stage import Peer, QueueStage, purged
from tests.core.stage import STUCK

from headway.core.base.errors import Reason, Refused
from headway.core.log import lane
from headway.core.queue import dispatch
from headway.core.routing import overdue


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


def filled(stage: QueueStage, count: int = 10, *, size: int = 20, **terms: object) -> Peer:
    """A peer with queue "q", in which records 0 … count - 1 wait."""
    peer = stage.peer("owner")
    peer.declare("q", **terms)
    if count:
        peer.publish("q", 0, count, size=size)
    stage.turn()
    return peer


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
    assert [len(peer.seen) for peer in peers] == pytest.approx([250] * 4, abs=dispatch.PORTION_RECORDS)
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
    stage.broker.registry.woken[stage.queue("q")] = None
    stage.turn()
    assert peer.numbers == list(range(10))


# -- settling -------------------------------------------------------------------------------------------------------


def test_acks_single_and_multiple(stage: QueueStage) -> None:
    filled(stage, 10)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    ids = [one.id for one in peer.seen]
    assert ids == list(range(1, 11))
    peer.ack(ids[4])
    assert peer.channels[1].upto(ids[5]) == [*ids[:4], ids[5]]
    peer.ack_upto(ids[5])
    assert peer.ids() == ids[6:]
    assert peer.channels[1].upto(0) == ids[6:], "0 is all"
    peer.ack_upto(0)
    stage.turn()
    assert not peer.ids()
    assert stage.pool.memory_bytes == 0
    peer.close()
    stage.turn()
    assert stage.queue("q").backlog.lag_records == 0


@pytest.mark.parametrize("delivery_id", [0, 3, 11])
def test_what_is_not_in_flight_cannot_be_settled(stage: QueueStage, delivery_id: int) -> None:
    filled(stage, 10)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    peer.ack(3)
    with pytest.raises(Refused, match=f"^unknown delivery tag {delivery_id}$") as acked:
        peer.ack(delivery_id)
    with pytest.raises(Refused, match=f"^unknown delivery tag {delivery_id}$") as nacked:
        peer.nack(delivery_id, requeue=True)
    assert acked.value.reason is nacked.value.reason is Reason.PRECONDITION_FAILED
    assert len(peer.ids()) == 9


def test_what_is_not_settled_is_kept_and_what_is_settled_let_go_of(stage: QueueStage, monkeypatch: pytest.MonkeyPatch,
                                                                    ) -> None:
    monkeypatch.setattr(lane, "CHUNK_BYTES", 1000)
    filled(stage, 100, size=100)
    held = stage.pool.memory_bytes
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    assert stage.pool.memory_bytes == held, "it may all come back"
    peer.ack_upto(peer.ids()[49])
    stage.turn()
    assert 0.4 * held < stage.pool.memory_bytes < 0.6 * held
    peer.ack_upto(0)
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_given_back_records_take_their_old_place_marked_as_redelivered(stage: QueueStage) -> None:
    filled(stage, 10)
    first, second = stage.peer("first"), stage.peer("second")
    first.consume("q", 6, acks=False)
    stage.turn()
    first.cancel("q")
    second.consume("q", 2, acks=False)
    stage.turn()
    assert second.numbers == [6, 7]
    first.nack(first.id_of(4), requeue=True)
    first.nack(first.id_of(1), first.id_of(3), requeue=True)
    second.acks[1, "q"] = True
    second.ack(*second.ids())
    stage.turn()
    assert second.numbers == [6, 7, 1, 3, 4, 8, 9], "in their old order, before what was behind them"
    assert second.again == [1, 3, 4]
    assert not first.again


def test_a_record_given_back_may_come_to_the_same_consumer(stage: QueueStage) -> None:
    filled(stage, 2)
    peer = stage.peer("peer")
    peer.consume("q", 1, acks=False)
    stage.turn()
    for times in range(1, 4):
        peer.nack(*peer.ids(), requeue=True)
        stage.turn()
        assert peer.numbers == [0] * (times + 1)
    assert peer.again == [0, 0, 0]
    assert len({one.id for one in peer.seen}) == 4, "each time under another id"
    peer.ack(*peer.ids())
    stage.turn()
    assert peer.numbers == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("how", ["channel", "connection", "recover"])
def test_what_was_not_settled_goes_to_others(stage: QueueStage, how: str) -> None:
    filled(stage, 6)
    gone, heir = stage.peer("gone"), stage.peer("heir")
    gone.consume("q", acks=False)
    stage.turn()
    gone.ack(gone.id_of(2))
    heir.consume("q")
    if how == "channel":
        gone.close()
    elif how == "connection":
        gone.leave()
    else:
        gone.cancel("q")
        gone.recover()
    stage.turn()
    assert heir.numbers == heir.again == [0, 1, 3, 4, 5]
    assert stage.pool.memory_bytes == 0


def test_what_a_consumer_asks_for_once_more_comes_to_it_under_new_ids(stage: QueueStage) -> None:
    filled(stage, 3)
    peer, other = stage.peer("peer"), stage.peer("other")
    made = peer.consume("q", acks=False)
    stage.turn()
    other.consume("q")
    peer.ack(peer.id_of(1))
    peer.recover(requeue=False)
    peer.hears_an_answer()
    stage.turn()
    assert [(one.number, one.redelivered) for one in peer.seen[3:]] == [(0, True), (2, True)]
    assert peer.ids() == [one.id for one in peer.seen[3:]]
    assert made.delivered.records == len(peer.seen)
    peer.ack(*peer.ids())
    stage.turn()
    assert not other.seen
    assert stage.pool.memory_bytes == 0


def test_a_cancelled_consumer_leaves_what_it_has_with_its_channel(stage: QueueStage) -> None:
    filled(stage, 6)
    peer, other = stage.peer("peer"), stage.peer("other")
    peer.consume("q", 3, acks=False)
    stage.turn()
    peer.cancel("q")
    other.consume("q")
    stage.turn()
    assert other.numbers == [3, 4, 5]
    peer.ack(peer.id_of(0))
    peer.nack(peer.id_of(1), requeue=True)
    stage.turn()
    assert other.numbers == [3, 4, 5, 1]
    peer.close()
    stage.turn()
    assert other.numbers == [3, 4, 5, 1, 2]
    assert other.again == [1, 2]
    assert stage.pool.memory_bytes == 0


def test_no_ack_is_settled_when_it_is_sent(stage: QueueStage) -> None:
    filled(stage, 6)
    gone, heir = stage.peer("gone", reads=STUCK), stage.peer("heir")
    gone.consume("q", acks=None)
    stage.turn()
    assert stage.pool.memory_bytes == 0
    gone.leave()
    heir.consume("q")
    stage.turn()
    assert heir.numbers == []


def test_what_comes_back_and_goes_out_without_acks_is_let_go_of(stage: QueueStage) -> None:
    filled(stage, 6)
    gone = stage.peer("gone")
    gone.consume("q", acks=False)
    stage.turn()
    gone.leave()
    heir = stage.peer("heir")
    heir.consume("q", acks=None)
    stage.turn()
    assert heir.numbers == heir.again == list(range(6))
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize("dead_letters", [False, True])
def test_rejected_records_go_to_nobody_or_to_the_dead(stage: QueueStage, dead_letters: bool) -> None:
    filled(stage, 4, dead_letter_exchange="dlx" if dead_letters else None)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    stage.turn()
    peer.nack(peer.id_of(1), peer.id_of(3), requeue=False)
    stage.turn()
    assert stage.counts("q") == {"rejected": 2}
    peer.close()
    stage.turn()
    assert stage.queue("q").backlog.lag_records == 2
    letters = [(one.queue, one.reason, int(one.record.payload.split()[0])) for one in stage.dead]
    assert letters == ([("q", Reason.REJECTED, 1), ("q", Reason.REJECTED, 3)] if dead_letters else [])


@pytest.mark.parametrize("how", ["nack", "leave", "get"])
@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_record_comes_back_so_often_and_no_more(stage: QueueStage, dead_letters: bool, limit: int, how: str) -> None:
    """It is given to consumers once more than it may come back."""
    filled(stage, 1, dead_letter_exchange="dlx" if dead_letters else None, returns_max=limit)
    given = 0
    while stage.queue("q").backlog.lag_records and given < 10:
        peer = stage.peer(f"peer {given}")
        if how == "get":
            assert peer.get("q") is not None
        else:
            peer.consume("q", acks=False)
        stage.turn()
        assert [*peer.numbers] == [0] or how == "get"
        given += 1
        if how == "leave":
            peer.leave()
        else:
            peer.nack(peer.id_of(0), requeue=True)
            peer.leave()
        stage.turn()
    assert given == limit + 1
    assert stage.counts("q") == {"delivery_limit": 1}
    assert [(one.queue, one.reason) for one in stage.dead] == [("q", Reason.DELIVERY_LIMIT)] * dead_letters
    assert stage.pool.memory_bytes == 0


def test_only_what_comes_back_too_often_goes(stage: QueueStage) -> None:
    filled(stage, 4, returns_max=1)
    peer = stage.peer("peer")
    peer.consume("q", acks=False)
    for _ in range(2):
        stage.turn()
        peer.nack(peer.id_of(1), peer.id_of(2), requeue=True)
    stage.turn()
    peer.leave()
    stage.turn()
    heir = stage.peer("heir")
    heir.consume("q", acks=None)
    stage.turn()
    assert heir.numbers == [0, 3]
    assert stage.counts("q") == {"delivery_limit": 2}


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


# -- how long -------------------------------------------------------------------------------------------------------


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


# -- how many -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("terms", [{"records_max": 5}, {"bytes_max": 5 * 15}])
def test_too_much_and_the_oldest_are_dropped(stage: QueueStage, terms: dict[str, int], dead_letters: bool) -> None:
    owner = filled(stage, 0, dead_letter_exchange="dlx" if dead_letters else None, **terms)
    for number in range(0, 12, 2):
        owner.publish("q", number, 2, size=15)
        stage.turn()
    kept = stage.queue("q").backlog.lag_records
    assert kept == 5, "what counts is bodies"
    assert stage.counts("q") == {"queue_length": 12 - kept}
    assert [int(one.record.payload.split()[0]) for one in stage.dead] == (
        list(range(12 - kept)) if dead_letters else []
    )
    peer = stage.peer("peer")
    peer.consume("q")
    stage.turn()
    assert peer.numbers == list(range(12 - kept, 12))
    assert stage.pool.memory_bytes == 0


def test_a_burst_goes_to_who_is_ready_before_anything_is_dropped(stage: QueueStage) -> None:
    owner = filled(stage, 0, records_max=3)
    peer = stage.peer("peer")
    peer.consume("q", 4, acks=False)
    owner.publish("q", 0, 10)
    stage.turn()
    assert peer.numbers == [0, 1, 2, 3], "what is in flight does not count"
    assert stage.queue("q").backlog.lag_records == 3
    peer.acks[1, "q"] = True
    peer.ack_upto(0)
    stage.turn()
    assert peer.numbers == [0, 1, 2, 3, 7, 8, 9]


def test_what_comes_back_to_a_full_queue_counts(stage: QueueStage) -> None:
    owner = filled(stage, 3, records_max=3)
    peer = stage.peer("peer")
    peer.consume("q", 3, acks=False)
    stage.turn()
    peer.cancel("q")
    owner.publish("q", 3, 3)
    stage.turn()
    peer.close()
    stage.turn()
    assert stage.queue("q").backlog.lag_records == 3
    assert stage.counts("q") == {"queue_length": 3}
    heir = stage.peer("heir")
    heir.consume("q")
    stage.turn()
    assert heir.numbers == [3, 4, 5]


def test_a_limit_of_nothing(stage: QueueStage) -> None:
    owner = filled(stage, 0, records_max=0)
    owner.publish("q", 0, 5)
    stage.turn()
    assert stage.queue("q").backlog.lag_records == 0
    peer = stage.peer("peer")
    peer.consume("q")
    owner.publish("q", 5, 5)
    stage.turn()
    assert peer.numbers == list(range(5, 10)), "it goes to whoever is there"


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


# -- when room is wanted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("disk", ["0B", "300KB"])
def test_a_queue_nobody_consumes_loses_its_oldest_when_room_is_wanted(disk: str) -> None:
    """Of what nobody was promised."""
    stage = QueueStage(memory="200KB", disk=disk, max_client_share="100%")
    owner = filled(stage, 0)
    healthy = stage.peer("healthy")
    healthy.declare("h")
    healthy.consume("h")
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000, qos=0) is not None:
            sent += 10
        healthy.publish("h", sent)
    reason = "disk_limit" if disk != "0B" else "memory_limit"
    dropped = stage.counts("q")[reason]
    assert dropped > 100
    assert sent > 500, "publishers go on"
    assert stage.counts("q") == {reason: dropped}
    assert stage.queue("q").backlog.lag_records == sent - dropped
    assert healthy.connected
    peer = stage.peer("peer")
    peer.consume("q")
    stage.run(1)
    assert peer.numbers == list(range(dropped, sent)), "the newest are there, in order"


@pytest.mark.parametrize("disk", ["0B", "300KB"])
@pytest.mark.parametrize("given_back", [False, True])
def test_a_queue_nobody_consumes_keeps_what_was_promised_and_its_publishers_wait(disk: str, given_back: bool) -> None:
    stage = QueueStage(memory="200KB", disk=disk)
    owner = filled(stage, 20, size=1000)
    if given_back:
        peer = stage.peer("peer", buffer=10**6)
        peer.consume("q", acks=False)
        stage.turn()
        peer.leave()
    healthy, other = stage.peer("healthy"), stage.peer("other")
    healthy.declare("h")
    healthy.consume("h")
    sent, answered = 20, 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000) is not None:
            sent += 10
        if other.publish("h", answered, size=1000) is not None:
            answered += 1
    assert owner.paused
    assert 50 < sent < 500
    assert stage.counts("q") == {}
    assert stage.queue("q").backlog.lag_records == sent
    assert len(healthy.seen) == answered == 200, "nobody else waits for it"
    heir = stage.peer("heir")
    heir.consume("q")
    stage.run(1)
    assert heir.numbers == list(range(sent))
    assert not owner.paused


@pytest.mark.parametrize("given_back", [False, True])
def test_room_is_found_in_a_lane_that_a_queue_has_left(given_back: bool) -> None:
    """What waits in two lanes is dropped where the room is wanted."""
    stage = QueueStage(memory="210KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0)
    owner.publish("q", 0, 180, size=1000, qos=0)
    if given_back:
        peer = stage.peer("peer", buffer=10**6)
        peer.consume("q", acks=False)
        stage.turn()
        peer.leave()
    owner.bind("q", "amq.direct", "k")
    sent = 180
    held = []
    for _ in stage.steps(20):
        if owner.publish("k", sent, exchange="amq.direct", size=1000, qos=0) is not None:
            sent += 1
        held.append(stage.pool.memory_bytes)
    assert sent == 380, "publishers go on"
    assert 100_000 < min(held) < max(held) < 200_000, "no more is dropped than has to be"
    dropped = stage.counts("q")["memory_limit"]
    assert stage.queue("q").backlog.lag_records == sent - dropped
    heir = stage.peer("heir")
    heir.consume("q")
    stage.run(1)
    assert heir.numbers == list(range(dropped, sent))


def test_a_queue_whose_consumers_are_stuck_is_given_up_with_them_and_no_other() -> None:
    stage = QueueStage(memory="200KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0)
    healthy = stage.peer("healthy")
    healthy.declare("h")
    healthy.consume("h")
    stuck = [stage.peer(f"stuck {n}", reads=STUCK, buffer=1000) for n in range(2)]
    for peer in stuck:
        peer.consume("q", 10, acks=False)
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000, qos=0) is not None:
            sent += 10
        healthy.publish("h", sent)
    assert [peer.connected for peer in stuck] == [False, False]
    assert healthy.connected
    assert stage.counts("q")["memory_limit"] > 0, "nobody is left, and more comes"
    assert stage.pool.memory_bytes <= 220_000


def test_who_stands_by_is_not_given_up_with_who_is_stuck() -> None:
    stage = QueueStage(memory="200KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0, single_active=True)
    stuck, standby = stage.peer("stuck", reads=STUCK, buffer=1000), stage.peer("standby", buffer=10**6)
    stuck.consume("q", acks=None)
    standby.consume("q", acks=None)
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000) is not None:
            sent += 10
    assert not stuck.connected
    assert standby.connected
    assert standby.numbers == list(range(sent - len(standby.seen), sent)), "it is its turn"
    assert stage.counts("q") == {}


def test_what_a_cancelled_consumer_does_not_settle_does_not_stop_everybody() -> None:
    stage = QueueStage(memory="200KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0)
    peer = stage.peer("peer", buffer=10**6)
    peer.consume("q", acks=False)
    owner.publish("q", 0, 150, size=1000, qos=0)
    stage.turn()
    peer.cancel("q")
    sent = 150
    for _ in stage.steps(20):
        if owner.publish("q", sent, 5, size=1000, qos=0) is not None:
            sent += 5
    assert sent > 500, "publishers do not wait for ever"


@pytest.mark.parametrize("single_active", [False, True])
def test_a_disk_that_takes_nothing_hits_only_who_stands_in_the_way(single_active: bool) -> None:
    """Neither who stands by nor, while it takes records, who shares a queue with one that is stuck."""
    stage = QueueStage(memory="200KB", disk="8MB", max_client_share="100%")
    stage.disk.full = 1.0
    owner = filled(stage, 0, single_active=single_active)
    stuck, other = stage.peer("stuck", reads=STUCK, buffer=1000), stage.peer("other", reads=50_000, buffer=2000)
    for peer in (stuck, other):
        peer.consume("q", acks=None)
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000) is not None:
            sent += 10
    assert stage.disk.failures > 0
    assert other.connected
    assert stuck.connected is not single_active


def test_while_somebody_takes_records_nobody_is_given_up() -> None:
    stage = QueueStage(memory="200KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0)
    stuck, slow = stage.peer("stuck", reads=STUCK, buffer=1000), stage.peer("slow", reads=50_000, buffer=2000)
    for peer in (stuck, slow):
        peer.consume("q", acks=None)
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000) is not None:
            sent += 10
    assert stuck.connected
    assert slow.connected
    assert stage.counts("q") == {}
    assert sent * 1000 < 1_500_000, "the publisher waits"


@pytest.mark.parametrize("who", ["asked once", "paused", "stands by", "was relieved"])
def test_who_gets_nothing_anyway_does_not_keep_a_queue_from_being_given_up(who: str) -> None:
    stage = QueueStage("""
    [[policy]]
    name = "ack timeout"

    [[policy.rule]]
    when = { ack_age = "500ms" }
    then = "return"
    """, memory="200KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0, single_active=who == "stands by")
    if who == "stands by":
        stage.peer("stuck", reads=STUCK, buffer=1000).consume("q", acks=None)
        stage.peer("next").consume("q")
    elif who == "was relieved":
        owner.publish("q", 0, 1, qos=0)
        stage.peer("relieved").consume("q", 10, acks=False)
        stage.run(1)
    elif who == "paused":
        stage.peer("paused").consume("q").let_flow(False)
    else:
        stage.peer("asked once").get("q")
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000, qos=0) is not None:
            sent += 10
    assert sent > 500, "publishers do not wait for ever"


def test_a_slow_consumer_of_one_queue_does_not_hold_the_lane_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one has in flight for too long keeps old chunks; it is given up when room is wanted, others are not."""
    monkeypatch.setattr(lane, "CHUNK_BYTES", 4000)
    stage = QueueStage(memory="200KB", disk="0B", max_client_share="100%")
    owner = filled(stage, 0)
    holds, works = stage.peer("holds"), stage.peer("works")
    holds.consume("q", 1, acks=False)
    works.consume("q", 10)
    sent = 0
    for _ in stage.steps(20):
        if owner.publish("q", sent, 10, size=1000) is not None:
            sent += 10
    assert not holds.connected
    assert works.connected
    assert sent == 2000
    assert sorted(set(works.numbers)) == list(range(2000)), "what it held went to the other"
    assert works.again == holds.numbers


# -- read back ------------------------------------------------------------------------------------------------------


def test_spilled_records_come_in_order_and_whole() -> None:
    stage = QueueStage(memory="100KB", disk="8MB", max_client_share="100%")
    owner = filled(stage, 0)
    for first in range(0, 1000, 20):
        owner.publish("q", first, 20, size=500)
        stage.run(0.2)
    assert stage.pool.disk_bytes > 300_000
    assert stage.pool.memory_bytes <= 100_000
    peers = [stage.peer(f"c{n}") for n in range(2)]
    for peer in peers:
        peer.consume("q", 7)
    stage.run(1)
    assert sorted(peers[0].numbers + peers[1].numbers) == list(range(1000))
    for peer in peers:
        assert peer.numbers == sorted(peer.numbers)
    assert stage.pool.memory_bytes == stage.pool.disk_bytes == 0
    assert not stage.disk.held


def test_what_was_in_flight_while_it_was_spilled_is_let_go_of_when_it_is_settled() -> None:
    """Its chunk was sealed under the queue that stands at its end."""
    stage = QueueStage(memory="30KB", disk="8MB", max_client_share="100%")
    owner = filled(stage, 0)
    owner.declare("other")
    holds = stage.peer("holds")
    holds.consume("q", acks=False)
    owner.publish("q", 0, 20, size=800)
    stage.turn()
    owner.publish("other", 100, 15, size=800)
    stage.run(1)
    assert 10_000 < stage.pool.disk_bytes < 20_000
    holds.ack_upto(0)
    stage.turn()
    assert stage.pool.disk_bytes == 0
    assert not stage.disk.held
    assert stage.pool.memory_bytes == stage.queue("other").backlog.lag_bytes


def test_what_is_to_be_discarded_and_cannot_be_read_is_no_accident() -> None:
    stage = QueueStage("""
    [[policy]]
    name = "some of it"

    [[policy.rule]]
    when = { lag_records = "> 10" }
    then = { action = "discard", which = "selector", selector = "priority < 5" }
    """, memory="20KB", disk="8MB", max_client_share="100%")
    owner = filled(stage, 0)
    peer = stage.peer("peer", reads=STUCK, buffer=600)
    peer.consume("q", acks=None)
    for first in range(0, 100, 20):
        owner.publish("q", first, 20, size=500, priority=3 if first % 40 else 7)
        stage.run(0.2)
    assert stage.pool.disk_bytes > 0
    stage.disk.unreadable = 1.0
    peer.reads = inf
    stage.run(1)
    assert stage.counts("q")["spill_failed"] > 0
    assert stage.queue("q").backlog.lag_records == 0
    assert stage.pool.memory_bytes == stage.pool.disk_bytes == 0


def test_what_cannot_be_read_back_is_counted_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(dispatch, "BATCH_BYTES", 2000)
    stage = QueueStage(memory="20KB", disk="8MB", max_client_share="100%")
    owner = filled(stage, 0)
    for first in range(0, 100, 20):
        owner.publish("q", first, 20, size=500)
        stage.run(0.2)
    assert stage.pool.disk_bytes > 0
    stage.disk.unreadable = 1.0
    with pytest.raises(OSError, match="Input/output"):
        stage.peer("asking").get("q")
    assert stage.queue("q").backlog.lag_records == 100, "nothing has changed"
    peer = stage.peer("peer")
    peer.consume("q")
    stage.run(1)
    lost = stage.counts("q")["spill_failed"]
    assert 0 < lost < 100
    assert peer.numbers == list(range(lost, 100))
    assert stage.pool.memory_bytes == stage.pool.disk_bytes == 0
