"""Message groups whose owners are slow: the others go on, nobody is called slow for what only an owner can take, and
what an owner leaves comes in its old order."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from tests.core.queues_stage import Peer, QueueStage, owner
from tests.core.test_queue_groups import check, put

from headway.core.queue import dispatch
from headway.core.queue.picking import groups, picking
from headway.core.queue.picking import groups as reserved
from headway.core.queue.picking.picker import Picker
from headway.core.telemetry.stats import account


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> QueueStage:
    monkeypatch.setattr(groups, "RESERVED_MAX", 20)
    monkeypatch.setattr(reserved, "RESERVED_EACH", 4)
    return QueueStage()


def one_slow_owner(stage: QueueStage, publisher: Peer, count: int = 40) -> tuple[Peer, Peer]:
    """The first has the group "a", so many messages of it to come, and a window of one; the other has room."""
    slow, other = stage.peer("slow"), stage.peer("other")
    slow.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    other.consume("q")
    put(publisher, range(1, count), "a")
    stage.run(1)
    return slow, other


def take_all(stage: QueueStage, peer: Peer) -> None:
    while peer.ids():
        peer.ack(*peer.ids())
        stage.run(0.1)


def test_a_slow_owner_holds_up_only_its_group_however_much_waits_for_it(stage: QueueStage) -> None:
    publisher = owner(stage)
    slow, other = one_slow_owner(stage, publisher)
    put(publisher, range(40, 50), "b")
    put(publisher, range(50, 55), None)
    stage.run(1)
    assert other.numbers == [*range(40, 55)]
    assert slow.numbers == [0]
    assert not stage.broker.has_work, "nothing goes round meanwhile"
    check(stage)
    take_all(stage, slow)
    assert slow.numbers == [*range(40)], "in the order of the queue, also what was passed over"
    check(stage)
    known = stage.queue("q").picking.groups
    assert known is not None
    assert (known.reserved, known.passed, known._count) == ({}, 0, 0)


def test_what_was_passed_over_goes_to_the_next_owner_in_its_order(stage: QueueStage) -> None:
    publisher = owner(stage)
    slow, other = one_slow_owner(stage, publisher)
    slow.ack(*slow.ids())
    stage.run(1)
    slow.leave()
    stage.run(1)
    assert other.numbers == [*range(1, 40)]
    check(stage)


def test_what_was_passed_over_behind_the_end_of_its_group_goes_to_one_consumer(stage: QueueStage) -> None:
    publisher = owner(stage)
    slow, other = one_slow_owner(stage, publisher, 30)
    put(publisher, range(30, 31), "a", -1)
    put(publisher, range(31, 41), "a")
    stage.run(1)
    while 30 not in slow.numbers:
        assert other.numbers == []
        slow.ack(*slow.ids())
        stage.run(0.1)
    stage.run(1)
    assert other.numbers == [*range(31, 41)]
    assert slow.numbers == [*range(31)]
    check(stage)


def test_an_owner_with_much_passed_over_never_seems_to_have_nothing(stage: QueueStage) -> None:
    """Whoever has a full window and no lag is called idle, and not slow."""
    publisher = owner(stage)
    slow, _ = one_slow_owner(stage, publisher, 60)
    for left in range(59, 0, -1):
        assert 0 < slow.consumers[1, "q"].lag_records <= left
        slow.ack(*slow.ids())
        stage.turn()
    assert slow.consumers[1, "q"].lag_records == 0


def test_many_slow_owners_are_passed_over_as_one_is(stage: QueueStage) -> None:
    publisher = owner(stage)
    slow = [stage.peer(f"slow {number}") for number in range(10)]
    for number, peer in enumerate(slow):
        peer.consume("q", 1, acks=False)
        put(publisher, range(number, number + 1), f"group {number}")
        stage.run(0.1)
    other = stage.peer("other")
    other.consume("q")
    for number in range(10, 310):
        put(publisher, range(number, number + 1), f"group {number % 10}")
    put(publisher, range(310, 320), "b")
    stage.run(1)
    assert other.numbers == [*range(310, 320)]
    known = stage.queue("q").picking.groups
    assert known is not None
    assert known._count <= 20 + 4 * 10
    for peer in slow:
        take_all(stage, peer)
    assert [peer.numbers for peer in slow] == [[*range(number, 310, 10)] for number in range(10)]
    check(stage)


def test_a_look_for_one_owner_passes_others_messages_again(stage: QueueStage) -> None:
    """With selectors, pickers are at different places; each owner gets its own in order."""
    publisher = owner(stage)
    red, blue = stage.peer("red"), stage.peer("blue")
    red.consume("q", 1, acks=False, selector="colour = 'red' OR colour = 'any'")
    put(publisher, range(1), "a", colour="red")
    stage.run(1)
    blue.consume("q", 1, acks=False, selector="colour = 'blue' OR colour = 'any'")
    put(publisher, range(1, 2), "b", colour="blue")
    stage.run(1)
    for number in range(2, 102):
        put(publisher, range(number, number + 1), "ab"[number % 2], colour="any")
    stage.run(1)
    take_all(stage, red)
    take_all(stage, blue)
    assert (red.numbers, blue.numbers) == ([*range(0, 102, 2)], [*range(1, 102, 2)])
    check(stage)


def test_nobody_lags_for_what_only_an_owner_can_take(stage: QueueStage) -> None:
    """Its picker has found it, and nobody has had room since: with a full window it would be called slow for it."""
    publisher = owner(stage)
    slow, other = stage.peer("slow"), stage.peer("other")
    slow.consume("q", 1, acks=False)
    put(publisher, range(1), "a")
    stage.run(1)
    other.consume("q", 1, acks=False)
    put(publisher, range(1, 10), "a")
    put(publisher, range(10, 11), "b")
    put(publisher, range(11, 20), "a")
    put(publisher, range(20, 22), None)
    stage.run(1)
    assert other.numbers == [10]
    member = other.consumers[1, "q"]
    assert account(member)[::2] == (1, 0, 2)
    other.ack(*other.ids())
    stage.run(1)
    other.ack(*other.ids())
    stage.run(1)
    assert other.numbers == [10, 20, 21]
    assert (member.has_more, member.oldest_time()) == (False, inf)


def test_what_an_owner_leaves_was_not_skipped_by_the_others(stage: QueueStage) -> None:
    publisher = owner(stage)
    slow, other = one_slow_owner(stage, publisher, 15)
    late = stage.peer("late")
    late.consume("q", 1, acks=False)
    assert account(other.consumers[1, "q"])[::2] == (0, 0, 0)
    slow.leave()
    stage.run(1)
    assert sorted(other.numbers + late.numbers) == [*range(15)]
    for peer, theirs in ((other, late), (late, other)):
        assert account(peer.consumers[1, "q"])[::2] == (len(peer.numbers), len(theirs.numbers), 0)


def test_an_owner_is_not_blamed_for_another_lane_of_its_queue(stage: QueueStage) -> None:
    """Records have the same numbers there. What nobody selects gives way where memory is short."""
    publisher, slow, other = owner(stage), stage.peer("slow"), stage.peer("other")
    slow.consume("q", 1, acks=False, selector="colour = 'red'")
    other.consume("q", selector="colour = 'red'")
    put(publisher, range(10), None, colour="grey")
    stage.run(1)
    old = stage.queue("q").feed.lane.first
    publisher.exchange("e", "topic")
    publisher.bind("q", "e", "k")
    put(publisher, range(10, 20), "a", colour="red")
    stage.run(1)
    if other.numbers:
        other.cancel("q")
        assert len(other.numbers) == 10
        put(publisher, range(20, 21), "c", colour="red")
        stage.run(1)
        other.consume("q", selector="colour = 'red'")
        put(publisher, range(21, 30), "c", colour="red")
        stage.run(1)
    queue, member = stage.queue("q"), slow.consumers[1, "q"]
    assert member.lag_records == 9
    assert queue.nobody_selects(old)
    assert queue.picking.takers(old, list(queue.members)) == []
    new = queue.feed.lane.first
    assert not queue.nobody_selects(new)
    assert queue.picking.takers(new, list(queue.members)) == [member]


def test_what_its_groups_owner_does_not_select_gives_way(stage: QueueStage) -> None:
    """As nobody can have it while that one lives."""
    publisher, red, blue = owner(stage), stage.peer("red"), stage.peer("blue")
    red.consume("q", selector="colour = 'red'")
    put(publisher, range(1), "a", colour="red")
    stage.run(1)
    blue.consume("q", selector="colour = 'blue'")
    put(publisher, range(1, 40), "a", colour="blue")
    stage.run(1)
    queue = stage.queue("q")
    assert queue.nobody_selects(queue.feed.lane.first)
    put(publisher, range(40, 50), "b", colour="blue")
    stage.run(1)
    assert blue.numbers == [*range(40, 50)]
    red.leave()
    stage.run(1)
    assert blue.numbers == [*range(40, 50), *range(1, 40)]


def test_a_consumer_that_is_to_get_everything_gets_the_groups_too(stage: QueueStage) -> None:
    publisher = owner(stage)
    slow, other = one_slow_owner(stage, publisher)
    other.leave()
    alone = stage.peer("alone")
    alone.consume("q", alone=True)
    stage.run(1)
    assert alone.numbers == [*range(1, 40)]
    slow.ack(*slow.ids())
    put(publisher, range(40, 45), "a")
    stage.run(1)
    assert (slow.numbers, alone.numbers) == ([0], [*range(1, 45)])
    check(stage)


def test_a_message_that_was_dropped_ends_no_group(stage: QueueStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner never got it."""
    monkeypatch.setattr(dispatch, "PORTION_RECORDS", 1)
    publisher, red, other = owner(stage), stage.peer("red"), stage.peer("other")
    put(publisher, range(1), None, colour="blue")
    red.consume("q", 1, acks=False, selector="colour = 'red'")
    put(publisher, range(1, 2), "a", colour="red")
    publisher.publish("q", 2, ttl_s=0.3, user=(("JMSXGroupID", "a"), ("JMSXGroupSeq", "-1"), ("colour", "red")))
    put(publisher, range(3, 6), "a", colour="red")
    stage.run(1)
    other.consume("q", 5, acks=False, selector="colour = 'red'")
    red.ack(*red.ids())
    stage.run(1)
    assert (red.numbers, other.numbers) == ([1, 3], [])


def test_the_ends_of_many_groups_have_nobody_look_through_the_queue_again(
    stage: QueueStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look_at = [0], Picker.look_at

    def count(self: Picker, *args: Any) -> None:
        looks[0] += 1
        look_at(self, *args)

    monkeypatch.setattr(Picker, "look_at", count)
    publisher, slow, other = owner(stage), stage.peer("slow"), stage.peer("other")
    slow.consume("q", 30, acks=False)
    for number in range(30):
        put(publisher, range(number, number + 1), f"group {number}")
    stage.run(1)
    other.consume("q")
    for number in range(30, 330):
        put(publisher, range(number, number + 1), f"group {number % 30}", 1 if number < 300 else -1)
    stage.run(1)
    assert (len(slow.numbers), other.numbers) == (30, [])
    while len(slow.numbers) < 330:
        slow.ack(slow.ids()[0])
        stage.turn()
    assert slow.numbers == [*range(330)]
    assert looks[0] < 3 * 330


def test_an_owner_behind_many_that_are_stuck_gets_what_is_its(
    stage: QueueStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So few of its queue's consumers are asked in a round."""
    monkeypatch.setattr(dispatch, "ROUND_MEMBERS", 2)
    monkeypatch.setattr(picking, "RESERVED_FOR", 2)
    publisher = owner(stage)
    stuck = [stage.peer(f"stuck {number}") for number in range(6)]
    for number, peer in enumerate(stuck):
        peer.consume("q", 1, acks=False)
        put(publisher, range(number, number + 1), f"group {number}")
        stage.run(0.1)
    last = stage.peer("last")
    last.consume("q", 5, acks=False)
    put(publisher, range(6, 7), "a")
    stage.run(0.1)
    for number in range(4):
        stage.peer(f"idle {number}").consume("q")
    put(publisher, range(7, 8), "a")
    stage.run(0.1)
    assert next(reversed(stage.queue("q").members)) is last.consumers[1, "q"], "it had its turn last"
    for number in range(6):
        put(publisher, range(10 + number, 11 + number), f"group {number}")
    put(publisher, range(20, 22), "a")
    stage.run(0.1)
    assert last.numbers == [6, 7, 20, 21]
