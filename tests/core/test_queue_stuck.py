"""A queue whose members are all stuck: nobody looks at each of them for each record."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

from tests.core.queues_stage import QueueStage, filled
from tests.core.test_idle import steps

from headway.core.delivery.fanout import PUMP_BYTES
from headway.core.queue.dispatch import BATCH_BYTES
from headway.core.queue.members import WATCHED_AT_ONCE


def stuck(members: int, **terms: Any) -> QueueStage:
    """A queue with so many members, each of which holds one record that it does not settle; one more record waits."""
    stage = QueueStage(memory="64MB")
    filled(stage, 0, **terms)
    for number in range(members):
        stage.peer(f"stuck {number}").consume("q", 1, acks=False)
    stage.clients["owner"].publish("q", 0, members + 1)
    run_out(stage)
    return stage


def run_out(stage: QueueStage) -> None:
    while stage.broker.has_work:
        stage.broker.flush(stage.now)


def lines_of_a_settlement(members: int) -> int:
    stage = stuck(members)
    peer = stage.clients["stuck 0"]
    stage.clients["owner"].publish("q", members + 1, 100)
    run_out(stage)

    def settle() -> None:
        for _ in range(20):
            peer.ack(*peer.ids())
            stage.broker.flush(stage.now)
            peer.read(inf)

    lines = steps(settle)
    assert len(peer.seen) == 21, "it gets the next record for each that it settles"
    return lines


def test_a_settlement_costs_no_look_at_all_other_members_that_are_busy() -> None:
    assert lines_of_a_settlement(400) <= lines_of_a_settlement(20) + 200


def lines_of_records_beyond_the_limit(members: int) -> int:
    stage = stuck(members, records_max=1)

    def publish() -> None:
        for number in range(20):
            stage.clients["owner"].publish("q", members + 1 + number)
            stage.broker.flush(stage.now)

    return steps(publish)


def test_a_record_for_a_full_queue_costs_no_look_at_all_members_that_are_stuck() -> None:
    assert lines_of_records_beyond_the_limit(400) <= lines_of_records_beyond_the_limit(20) + 200


def test_very_many_members_that_all_read_share_what_one_queue_hands_out_in_a_turn() -> None:
    stage = QueueStage(memory="64MB")
    owner = filled(stage, 0)
    peers = [stage.peer(f"{number}", buffer=10**7) for number in range(400)]
    for peer in peers:
        peer.consume("q")
    run_out(stage)
    owner.publish("q", 0, 800, size=10_000)
    queue = stage.queue("q")
    before = queue.backlog.handed_bytes
    stage.broker.flush(stage.now)
    assert PUMP_BYTES <= queue.backlog.handed_bytes - before <= PUMP_BYTES + BATCH_BYTES
    run_out(stage)
    stage.turn()
    seen = [len(peer.seen) for peer in peers]
    assert sum(seen) == 800
    assert min(seen) >= 1, "a portion has one record more or less, by what waited when it was given"
    assert max(seen) <= 3


def test_one_member_takes_no_more_than_its_queue_may_hand_out_in_a_turn() -> None:
    stage = QueueStage(memory="64MB")
    owner = filled(stage, 0)
    stage.peer("peer", buffer=10**7).consume("q")
    owner.publish("q", 0, 400, size=10_000)
    queue = stage.queue("q")
    stage.broker.flush(stage.now)
    assert PUMP_BYTES <= queue.backlog.handed_bytes <= PUMP_BYTES + BATCH_BYTES


def test_the_governor_comes_to_look_at_very_many_stuck_members_little_by_little() -> None:
    stage = QueueStage(memory="64MB")
    owner = filled(stage, 0)
    members = [stage.peer(f"stuck {number}").consume("q", 1, acks=False) for number in range(200)]
    run_out(stage)
    owner.publish("q", 0, 201)
    watched, counts = stage.broker.registry.watched, [0]
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
        counts.append(len(watched))
    assert all(member in watched for member in members)
    assert max(more - less for less, more in pairwise(counts)) == WATCHED_AT_ONCE


def test_members_that_the_governor_has_left_alone_are_looked_at_again_when_records_wait() -> None:
    stage = QueueStage(memory="64MB")
    owner = filled(stage, 0)
    peers = [stage.peer(f"p{number}") for number in range(3)]
    members = [peer.consume("q", 1, acks=False) for peer in peers]
    watched = stage.broker.registry.watched
    for first in (0, 4):
        owner.publish("q", first, 4)
        stage.turn()
        assert all(member in watched for member in members)
        stage.turn()
        peers[0].ack(*peers[0].ids())
        stage.turn()
        for peer in peers:
            peer.ack(*peer.ids())
        stage.run(1)
        assert not watched


def lines_of_a_discard(members: int) -> int:
    """Lines of Python of one look at a slow member, whose policy discards if all members are slow."""
    stage = QueueStage("""
    [[policy]]
    name = "few"
    [[policy.rule]]
    when = { lag_records = 1 }
    then = { action = "discard", which = "oldest", keep_records = 10 }
    """, memory="64MB")  # fmt: skip
    owner = filled(stage, 0)
    made = [stage.peer(f"stuck {number}").consume("q", 1, acks=False) for number in range(members)]
    owner.publish("q", 0, members + 5)
    stage.run(3)
    assert stage.queue("q").members.all_slow
    governor = stage.broker.governor
    return steps(lambda: governor._look(made[0], stage.now, {}))


def test_a_look_at_one_of_very_many_slow_members_is_no_look_at_all_of_them() -> None:
    assert lines_of_a_discard(200) <= lines_of_a_discard(20) + 20


def lines_of_a_binding(members: int, slow: int = 0) -> int:
    """Lines of Python of a change of a queue's bindings."""
    stage = QueueStage(memory="64MB")
    owner = filled(stage, 0)
    made = [stage.peer(f"p{number}").consume("q", 1, acks=False) for number in range(members)]
    for member in made[:slow]:
        member.case.meter.mark_slow(stage.now)
        stage.broker.registry.totals.count_slow(member, 1)
    run_out(stage)
    queue = stage.queue("q")
    before = queue.feed
    lines = steps(lambda: owner.bind("q", "amq.direct", "key"))
    assert queue.feed is not before
    assert all(member.feed is queue.feed and member.cursor.lane is queue.feed.lane for member in made)
    totals = stage.broker.registry.totals
    assert totals.consumers[queue.feed.key.filter] == members
    assert (queue.feed.slow, totals.slow_consumers[queue.feed.key.filter], totals.slow) == (slow, slow, slow)
    return lines


def test_a_binding_of_a_queue_visits_none_of_its_members() -> None:
    assert lines_of_a_binding(400) <= lines_of_a_binding(20) + 20
    assert lines_of_a_binding(400, slow=30) <= lines_of_a_binding(20, slow=10) + 20
