"""Message groups when what was reserved for their owners is gone, when a queue reads another lane, and when there are
more groups than are known by name."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.queues_stage import Peer, QueueStage, owner, purged
from tests.core.test_queue_groups import check, consumers, put

from headway.core.queue.picking import groups


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> QueueStage:
    monkeypatch.setattr(groups, "RESERVED_MAX", 20)
    return QueueStage()


def red_and_blue(stage: QueueStage, publisher: Peer) -> tuple[Peer, Peer]:
    """Who owns the group "a", and selects red; who selects blue."""
    red, blue = stage.peer("red"), stage.peer("blue")
    red.consume("q", selector="colour = 'red'")
    put(publisher, range(1), "a", colour="red")
    stage.run(1)
    blue.consume("q", selector="colour = 'blue'")
    return red, blue


def test_what_was_purged_takes_no_room_among_what_its_owner_does_not_select(stage: QueueStage) -> None:
    publisher = owner(stage)
    red, blue = red_and_blue(stage, publisher)
    put(publisher, range(1, 41), "a", colour="blue")
    stage.run(1)
    assert blue.numbers == []
    assert purged(stage.queue("q")) == 40
    put(publisher, range(50, 60), "a", colour="blue")
    put(publisher, range(60, 70), "b", colour="blue")
    stage.run(1)
    assert (red.numbers, blue.numbers) == ([0], [*range(60, 70)])
    red.leave()
    stage.run(1)
    assert blue.numbers == [*range(60, 70), *range(50, 60)]
    check(stage)


def test_what_was_purged_takes_no_room_among_what_waits_for_a_stuck_owner(stage: QueueStage) -> None:
    publisher, stuck = owner(stage), stage.peer("stuck")
    stuck.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    healthy = consumers(stage, 1)[0]
    put(publisher, range(1, 41), "a")
    stage.run(1)
    assert purged(stage.queue("q")) == 40
    assert not stuck.consumers[1, "q"].has_more, "nothing waits for it, so its full window is no trouble"
    put(publisher, range(50, 55), "a")
    put(publisher, range(55, 60), "b")
    stage.run(1)
    assert healthy.numbers == [*range(55, 60)]
    stuck.ack(*stuck.ids())
    stage.run(1)
    assert stuck.numbers == [0, 50]
    check(stage)


def test_what_waits_for_the_owner_of_a_group_makes_no_other_consumer_late(stage: QueueStage) -> None:
    """A policy or a full pool would cut the healthy one for what the stuck one does not take."""
    publisher, stuck = owner(stage), stage.peer("stuck")
    stuck.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    healthy = consumers(stage, 1)[0]
    put(publisher, range(1, 2), "a")
    first_s = stage.now
    stage.run(1)
    put(publisher, range(2, 40), "a")
    stage.run(1)
    assert healthy.consumers[1, "q"].oldest_time() == inf
    assert stuck.consumers[1, "q"].oldest_time() == first_s, "its own that waits longest, also if that is reserved"
    assert stage.queue("q").picking.groups.passed, "there are more than are reserved"


def test_what_is_reserved_is_wanted(stage: QueueStage) -> None:
    """Otherwise it would be the first to be given up where memory is short."""
    publisher, stuck = owner(stage), stage.peer("stuck")
    stuck.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    consumers(stage, 1)
    put(publisher, range(1, 10), "a")
    stage.run(1)
    queue = stage.queue("q")
    assert not queue.nobody_selects(queue.feed.lane.first)
    stuck.leave()
    stage.run(1)
    assert queue.backlog.lag_records == 0


def test_what_came_back_from_an_owner_and_is_gone_is_not_enough() -> None:
    stage = QueueStage()
    publisher, stuck, healthy = owner(stage), stage.peer("stuck"), stage.peer("healthy")
    stuck.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.turn()
    healthy.consume("q", 1, acks=False)
    put(publisher, range(1, 201), "a")
    put(publisher, range(201, 202), "b")
    stage.run(1)
    assert healthy.numbers == [201]
    stuck.leave()
    stage.turn()
    purged(stage.queue("q"))
    put(publisher, range(300, 301), "a")
    healthy.ack(*healthy.ids())
    stage.turn()
    assert healthy.numbers == [201, 300]


def test_a_message_that_is_fetched_and_given_back_takes_up_one_place(stage: QueueStage) -> None:
    publisher = owner(stage)
    _, blue = red_and_blue(stage, publisher)
    put(publisher, range(1, 2), "a", colour="blue")
    stage.run(1)
    fetching = stage.peer("fetching")
    for _ in range(30):
        got = fetching.get("q")
        assert got is not None
        fetching.nack(got[0].id, requeue=True)
        stage.run(0.2)
    put(publisher, range(2, 5), "b", colour="blue")
    stage.run(1)
    assert blue.numbers == [2, 3, 4]


def test_a_queue_that_is_bound_anew_keeps_the_groups_that_wait_in_its_old_lane() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    for number in range(20):
        put(publisher, range(number, number + 1), "a")
    publisher.exchange("e", "topic")
    publisher.bind("q", "e", "k")
    peers = consumers(stage, 3)
    stage.run(1)
    assert sorted(len(peer.numbers) for peer in peers) == [0, 0, 20]


def test_the_end_of_a_group_that_shares_its_number_leaves_the_others_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    monkeypatch.setattr(groups, "BUCKETS", 1)
    stage = QueueStage()
    publisher = owner(stage)
    peers = consumers(stage, 3, acks=False)
    sent: list[str] = []
    for group, sequence in (("x", 1), ("y", 1), ("g", 1), ("h", 1), ("g", -1), ("z", 1), ("h", 2)):
        put(publisher, range(len(sent), len(sent) + 1), group, sequence)
        sent.append(group)
        stage.run(0.3)
    holders = [peer.name for peer in peers for number in peer.numbers if sent[number] == "h"]
    assert len(holders) == 2
    assert len(set(holders)) == 1, "the first of them is not settled yet"
