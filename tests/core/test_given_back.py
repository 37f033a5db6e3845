"""Very many records that were given back to a queue: what is done with one of them is no work with all."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from tests.core.lanes import append, lane
from tests.core.queues_stage import Peer, QueueStage, filled
from tests.core.test_idle import steps

from headway.core.base.deferred import DeferredWork
from headway.core.log.lanes.cursor import Cursor
from headway.core.queue.dispatch import OLDER_WAIT_S
from headway.core.queue.queue import Queue
from headway.core.routing import registry

FEW, MANY = 500, 4000


def given_back(count: int) -> tuple[Peer, Queue]:
    """So many records have come back because their consumer, who is there, took too long to settle them."""
    stage = QueueStage(memory="64MB")
    owner, peer = stage.peer("owner"), stage.peer("peer")
    queue = owner.declare("q")
    peer.consume("q", acks=False)
    owner.publish("q", 0, count)
    stage.run(1)
    assert len(peer.numbers) == count
    (member,) = queue.members
    member.let_flow(False)
    assert len(queue.unsettled.requeue_late(member, stage.now, 0.0)) == count
    while stage.broker.registry.deferred.begun:
        stage.broker.registry.deferred.turn(stage.now)
    assert queue.backlog.lag_records == count
    return peer, queue


def late(peer: Peer) -> list[int]:
    return list(peer.channel().timed_out)


def settle_one_late(peer: Peer, queue: Queue) -> None:
    peer.ack(250)


def look_for_a_chunk(peer: Peer, queue: Queue) -> None:
    chunk = queue.feed.lane.tail
    assert queue.backlog.wants(chunk)
    assert queue.backlog.oldest_wanted(chunk) is queue.feed.lane.first


@pytest.mark.parametrize("work", [settle_one_late, look_for_a_chunk])
def test_one_of_many(work: Callable[[Peer, Queue], None]) -> None:
    def of(count: int) -> int:
        given = given_back(count)
        return steps(lambda: work(*given))

    few, many = of(FEW), of(MANY)
    assert many <= few + 50


def test_a_deletion_does_not_look_at_what_waits() -> None:
    few, many = (steps(queue.drops.forget) for _, queue in (given_back(FEW), given_back(MANY)))
    assert many <= few + 50


def test_what_is_settled_late_is_given_to_nobody() -> None:
    peer, queue = given_back(100)
    for delivery_id in [late(peer)[at] for at in (0, *range(40, 60), 99)]:
        peer.ack(delivery_id)
    assert queue.backlog.lag_records == 78
    assert queue.backlog.lag_bytes == sum(record.size for record in queue.backlog.requeued if 0 < record.number < 99
                                          and not 40 <= record.number < 60)  # fmt: skip
    other = peer.stage.peer("other")
    other.consume("q")
    peer.stage.run(1)
    assert other.numbers == [*range(1, 40), *range(60, 99)]
    assert queue.backlog.lag_records == queue.backlog.lag_bytes == 0
    assert not queue.backlog.requeued.chunks
    assert not queue.backlog.requeued.by_key
    assert not queue.backlog.requeued._stale


def test_a_purge_has_steps() -> None:
    peer, queue = given_back(1000)
    peer.publish("q", 1000, 50)
    peer.stage.turn()
    for delivery_id in late(peer)[500:520]:
        peer.ack(delivery_id)
    before, most, purge = queue.backlog.lag_records, 0, queue.purge()
    assert before == 1030
    for work in purge:
        most, before = max(most, before - queue.backlog.lag_records), queue.backlog.lag_records
        assert work > 0
    assert most <= 128
    assert queue.backlog.lag_records == 0


def test_a_purge_ends_with_its_queue() -> None:
    peer, queue = given_back(1000)
    purge = queue.purge()
    next(purge)
    peer.delete("q")
    assert list(purge) == []


def test_shares_of_a_lane_are_as_much_work_as_its_cursors_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(records: int) -> int:
        filled = lane()
        cursors = [Cursor(filled) for _ in range(5)]
        append(filled, *[60_000] * records)
        cursors[1].skip_to(records // 2)
        assert len(list(filled.chunks())) >= records
        held: list[float] = []
        found = steps(lambda: held.extend(filled.held_shares().values()))
        assert sum(share * len(chunk.cursors_here) for chunk, share in filled.held_shares().items()) == pytest.approx(
            records * 60_000
        )
        return found

    assert of(2000) == of(50)


@pytest.mark.parametrize("how", ["leaves", "closes its channel"])
def test_what_a_member_that_is_gone_had_comes_before_what_is_fresh(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It comes back over some turns, and another consumer has room for all of it, and more."""
    monkeypatch.setattr(registry, "DeferredWork", lambda *_: DeferredWork(16))
    stage = QueueStage()
    filled(stage, 50)
    gone = stage.peer("gone")
    gone.consume("q", 20, acks=False)
    stage.turn()
    assert len(gone.seen) == 20
    if how == "leaves":
        gone.leave()
    else:
        gone.close()
    assert stage.broker.registry.deferred
    other = stage.peer("other")
    other.consume("q", 30)
    stage.turn()
    stage.run(2)
    assert [seen.number for seen in other.seen] == list(range(50))


def test_fresh_records_do_not_wait_for_what_comes_back_after_much_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client that is gone had another queue, and held very many of its records."""
    monkeypatch.setattr(registry, "DeferredWork", lambda *_: DeferredWork(16))
    stage = QueueStage(memory="64MB")
    owner = filled(stage, 1)
    owner.declare("large")
    owner.publish("large", 0, 2000)
    gone = stage.peer("gone")
    for name in ("large", "q"):
        gone.consume(name, acks=False)
    stage.turn()
    assert len(gone.seen) == 2001
    gone.leave()
    other = stage.peer("other")
    other.consume("q")
    owner.publish("q", 1, 5)
    while not other.seen:
        assert stage.broker.registry.deferred.begun
        stage.broker.flush(stage.now)
        other.read(inf)
        stage.now += 0.01
    assert stage.now < 1000 + OLDER_WAIT_S + 0.5
    assert other.seen[0].number == 1, "not the one that has yet to come back"
    stage.run(10)
    assert sorted(seen.number for seen in other.seen) == list(range(6))
