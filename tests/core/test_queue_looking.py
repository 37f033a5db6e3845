"""Pickers of one queue, and of others, beside one that has very much to look at; and queues under pressure whose
consumers select nothing of what waits."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from tests.core.queues_stage import Peer, QueueStage, owner

from headway.core.base.errors import Reason
from headway.core.queue.drops import PURGED_AT_ONCE
from headway.core.queue.picking import picker
from headway.core.routing import registry as overdue
from headway.core.routing.registry import DROPPED_WORK, OVERDUE_WORK


def flush(stage: QueueStage) -> None:
    """One turn of the server's loop."""
    stage.broker.flush(stage.now)
    stage._carry_out()
    for client in list(stage.clients.values()):
        client.read(inf)


def grey(publisher: Peer, queue: str, count: int, priority: int | None = None) -> None:
    for first in range(0, count, 1000):
        publisher.publish(queue, first, min(1000, count - first), user=(("colour", "grey"),), priority=priority)


def red(stage: QueueStage, name: str, queue: str) -> Peer:
    """A consumer of red that has looked at everything."""
    peer = stage.peer(name)
    peer.consume(queue, selector="colour = 'red'")
    while stage.broker.has_work:
        flush(stage)
    return peer


@pytest.mark.parametrize("queue", ["q", "other"])
def test_one_that_has_much_to_look_at_holds_up_no_other(queue: str) -> None:
    """Neither in its queue nor in another one."""
    stage = QueueStage()
    publisher = owner(stage, "q", "other")
    grey(publisher, "q", 20_000)
    healthy = red(stage, "healthy", queue)
    late = stage.peer("late")
    late.consume("q", selector="colour = 'blue' OR colour LIKE '%a%b%c%'")
    for number in range(20_000, 20_010):
        publisher.publish(queue, number, 1, user=(("colour", "red"),))
        for _ in range(2):
            flush(stage)
        assert healthy.numbers[-1:] == [number]
    assert stage.broker.has_work, "the other still looks"


@pytest.mark.parametrize("came_back", [False, True], ids=["passed by a selector", "given back"])
@pytest.mark.parametrize("how", ["discarded", "expired", "purged"])
def test_very_many_that_wait_one_by_one_are_dropped_little_by_little(came_back: bool, how: str) -> None:
    """A policy's discard of 300,000 took a tick of 6.7 s."""
    stage = QueueStage(memory="64MB")
    publisher = owner(stage, ttl_s=3600.0 if how == "expired" else None)
    queue = stage.queue("q")
    grey(publisher, "q", 3000)
    stage.turn()
    if came_back:
        before = stage.peer("before", buffer=10**7)
        before.consume("q", acks=False)
        stage.turn()
        before.leave()
    else:
        red(stage, "red", "q")
    stage.run(1)
    left = [queue.backlog.lag_records]
    assert left == [3000]
    if how == "discarded":
        queue.discards.discard(2990, 0, Reason.DISCARDED)
        left.append(queue.backlog.lag_records)
    elif how == "expired":
        stage.now += 3600.0
        stage.broker.registry.ready_queues[queue] = None
    else:
        most, steps = PURGED_AT_ONCE, queue.purge()
        assert next(steps) >= PURGED_AT_ONCE * DROPPED_WORK, "a turn goes by the work of a step"
        assert queue.backlog.lag_records == 3000 - most
        return
    while stage.broker.has_work:
        flush(stage)
        left.append(queue.backlog.lag_records)
    assert max(then - now for then, now in pairwise(left)) <= OVERDUE_WORK // DROPPED_WORK + 1
    assert left[-1] == (10 if how == "discarded" else 0)


def test_as_many_selectors_as_there_may_be_all_get_to_the_last() -> None:
    stage = QueueStage()
    publisher = owner(stage)
    grey(publisher, "q", 400)
    publisher.publish("q", 400, 64, user=(("colour", "red"),))
    peers = [stage.peer(f"peer {number}") for number in range(64)]
    for number, peer in enumerate(peers):
        peer.consume("q", 1, acks=False, selector=f"colour = 'red' AND number IS NULL AND other{number} IS NULL")
    stage.turn()
    assert sorted(number for peer in peers for number in peer.numbers) == [*range(400, 464)]


def test_what_is_requeued_in_another_queue_comes_at_once() -> None:
    stage = QueueStage()
    publisher = owner(stage, "q", "other")
    grey(publisher, "q", 20_000)
    red(stage, "first", "q")
    healthy = stage.peer("healthy")
    healthy.consume("other", 1, acks=False)
    publisher.publish("other", 0, 1)
    flush(stage)
    stage.peer("late").consume("q", selector="colour = 'blue'")
    for round_ in range(1, 6):
        flush(stage)
        healthy.nack(*healthy.ids(), requeue=True)
        for _ in range(2):
            flush(stage)
        assert len(healthy.numbers) == 1 + round_
    assert stage.broker.has_work, "the other still looks"


def test_who_selects_by_priority_gets_something_while_more_comes_than_can_be_looked_at() -> None:
    stage = QueueStage()
    publisher = owner(stage, priorities=5)
    peers = [stage.peer(f"peer {number}") for number in range(4)]
    for number, peer in enumerate(peers):
        peer.consume("q", 10, selector=" OR ".join(f"n = {number}{one}" for one in range(30)) + " OR colour = 'red'")
    for number in range(0, 20_000, 200):
        publisher.publish("q", number, 198, user=(("colour", "grey"),), priority=1)
        publisher.publish("q", number + 198, 2, user=(("colour", "red"),), priority=4)
        flush(stage)
    assert sum(len(peer.numbers) for peer in peers) > 150


def test_a_picker_finds_no_more_than_is_enough_among_what_is_sorted() -> None:
    stage = QueueStage()
    publisher = owner(stage, priorities=5)
    grey(publisher, "q", 3000, priority=2)
    stage.turn()
    for number in range(3):
        stage.peer(f"peer {number}").consume("q", 1, acks=False, selector=f"colour <> '{number}'")
    stage.turn()
    found = [picker.lag_records for picker in stage.queue("q").picking.pickers.values() if picker.looks]
    assert len(found) == 3
    assert max(found) <= 64


@pytest.mark.parametrize("how", ["single active", "bound anew"])
def test_what_nobody_selects_gives_way_and_others_go_on(how: str) -> None:
    stage = QueueStage(memory="300kB", disk="0")
    publisher = owner(stage, single_active=how == "single active")
    canary, hears = stage.peer("canary"), stage.peer("hears")
    canary.declare("c")
    hears.consume("c")
    for colour in ("blue", "green"):
        stage.peer(colour).consume("q", selector=f"colour = '{colour}'")
    publisher.exchange("e", "topic")
    sent = 0
    for round_ in range(30):
        if round_ == 1 and how == "bound anew":
            publisher.bind("q", "e", "k")
        for _ in range(5):
            publisher.publish("q", round_, 10, size=2000, qos=0, user=(("colour", "red"),))
        sent += canary.publish("c", sent, 1) is not None
        stage.run(1)
    assert (sent, hears.numbers) == (30, [*range(30)])
    assert stage.counts("q")["memory_limit"] > 500


def test_what_came_back_does_not_overtake_what_was_not_looked_at_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """One picker is far ahead, and its member gives all back. Another picker, which has found nothing of it before,
    finds the records in their order."""
    monkeypatch.setattr(picker, "FOUND_ENOUGH", 3)
    stage = QueueStage()
    publisher = owner(stage)
    late = stage.peer("late")
    late.consume("q", 8, acks=False, selector="n > 0")
    for number in range(1, 40):
        colour = "red" if number > 20 else "blue"
        publisher.publish("q", number, 1, user=(("n", str(number)), ("colour", colour)))
    stage.run(1)
    red = stage.peer("red")
    red.consume("q", 100, acks=False, selector="colour = 'red'")
    stage.run(1)
    assert red.numbers == list(range(21, 40))
    for delivery in red.ids():
        red.nack(delivery, requeue=True)
    red.leave()
    while len(late.numbers) < 39:
        stage.run(0.1)
        late.ack(*late.ids())
    assert late.numbers == list(range(1, 40))


def test_all_that_is_given_back_at_once_comes_before_what_was_found_ahead() -> None:
    """A picker that had found enough looked at the first of them alone, and the others were overtaken."""
    stage = QueueStage()
    publisher, red = owner(stage), stage.peer("red")
    red.consume("q", 10, acks=False, selector="colour = 'red'")
    for number in range(300):
        publisher.publish("q", number, user=(("colour", "red"),))
    stage.run(1)
    red.ack(red.id_of(0))
    stage.run(1)
    assert red.numbers == [*range(11)]
    red.nack(*red.ids(), requeue=True)
    stage.run(1)
    assert red.numbers[11:] == [*range(1, 11)]


def test_what_expires_behind_the_next_one_is_dropped_once() -> None:
    """Asked what a drop costs, the queue requeued the first one that stood, which was then taken twice."""
    stage = QueueStage()
    publisher, red = owner(stage), stage.peer("red")
    red.consume("q", 3, acks=False, selector="colour = 'red'")
    publisher.publish("q", 0, 4, user=(("colour", "red"),))
    stage.turn()
    publisher.publish("q", 4, 20, ttl_s=0.5, user=(("colour", "red"),))
    publisher.publish("q", 24, user=(("colour", "red"),))
    stage.run(1)
    red.ack(*red.ids())
    stage.turn()
    assert red.numbers == [0, 1, 2, 3, 24]
    assert stage.counts("q") == {"expired": 20}


def test_who_comes_to_more_expired_ones_than_a_turn_may_drop_goes_on_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overdue, "OVERDUE_WORK", 40)
    monkeypatch.setattr(picker, "LOOKED_WORK", 1)
    stage = QueueStage()
    publisher, red = owner(stage, dead_letter_exchange="dead"), stage.peer("red")
    grey(publisher, "q", 1)
    red.consume("q", 1, acks=False, selector="colour = 'red'")
    publisher.publish("q", 1, user=(("colour", "red"),))
    publisher.publish("q", 2, 20, ttl_s=0.5, user=(("colour", "red"),))
    publisher.publish("q", 22, user=(("colour", "red"),))
    stage.run(1)
    red.ack(*red.ids())
    stage.turn()
    assert red.numbers == [1, 22]
    assert stage.counts("q") == {"expired": 20}
