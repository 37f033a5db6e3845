"""Queues when memory or disk is short: who loses what, who waits, and what is read back from the disk."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.queues_stage import QueueStage, filled
from tests.core.stage import STUCK

from headway.core.log.lanes import lane
from headway.core.queue import dispatch

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
