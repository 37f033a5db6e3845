"""What consumers of a queue settle, give back and reject, and what becomes of it."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import QueueStage, filled
from tests.core.stage import STUCK

from headway.core.base.errors import Reason, Refused
from headway.core.log.lanes import lane


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


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
