"""Deferred work of one client does not hold up that of others."""

from __future__ import annotations

from tests.core.queues_stage import QueueStage
from tests.core.stage import Stage

from headway.core.base.deferred import DEFERRED_WORK_MAX, PORTION_WORK, DeferredWork, WorkSteps

MANY = 3000


def some(done: list[str], name: str, count: int, work: int = 1) -> WorkSteps:
    for number in range(count):
        done.append(f"{name}{number}")
        yield work


def test_clients_take_turns_of_a_portion_each() -> None:
    deferred, done = DeferredWork(4 * PORTION_WORK), list[str]()
    deferred.begin(some(done, "a", 40, PORTION_WORK), 1.0, client="a")
    assert done == ["a0", "a1", "a2", "a3"]
    deferred.begin(some(done, "b", 3, PORTION_WORK // 2), 1.0, client="b")
    deferred.begin(some(done, "c", 1), 1.0, client="c")
    del done[:]
    deferred.turn(2.0)
    assert done == ["a4", "b0", "b1", "c0", "a5", "b2", "a6"]


def test_what_one_client_has_begun_is_done_in_its_order() -> None:
    deferred, done = DeferredWork(4 * PORTION_WORK), list[str]()
    for name in "abc":
        deferred.begin(some(done, name, 10, PORTION_WORK // 2), 1.0, client="one")
    while deferred.begun:
        deferred.turn(2.0)
    assert done == [f"{name}{number}" for name in "abc" for number in range(10)]


def test_what_a_step_begins_is_of_its_client_and_comes_after_it() -> None:
    deferred, done = DeferredWork(PORTION_WORK), list[str]()

    def outer() -> WorkSteps:
        deferred.begin(some(done, "inner", 100, PORTION_WORK), 1.0)
        done.append("outer")
        yield PORTION_WORK

    deferred.begin(outer(), 1.0, client="one")
    assert list(deferred.begun) == ["one"]
    deferred.begin(some(done, "other", 1), 1.0, client="two")
    deferred.turn(1.0)
    deferred.turn(1.0)
    assert done == ["outer", "inner0", "other0", "inner1"]


def test_work_that_fails_is_dropped_and_all_other_work_is_done() -> None:
    deferred, done = DeferredWork(), list[str]()

    def bad() -> WorkSteps:
        yield DEFERRED_WORK_MAX
        raise ValueError

    deferred.begin(bad(), 1.0, client="one")
    deferred.begin(some(done, "a", 1), 1.0, client="one")
    deferred.begin(some(done, "b", 1), 1.0, client="two")
    for _ in range(3):
        try:
            deferred.turn(1.0)
        except ValueError:
            done.append("failed")
    assert sorted(done) == ["a0", "b0", "failed"]
    assert not deferred.begun


def test_a_client_of_one_subscription_leaves_at_once_beside_one_of_very_many() -> None:
    stage = Stage(memory="64MB")
    heavy, light = stage.client("heavy"), stage.client("light")
    for number in range(MANY):
        heavy.subscribe(f"t/{number}", 1)
    light.subscribe("own", 1)
    stage.turn()
    light_one = next(iter(light.session.subscriptions.values()))
    heavy.leave()
    light.leave()
    turns = 0
    while not light_one.ended:
        stage.broker.flush(stage.now)
        turns += 1
    assert turns <= 1, "it waits for no more than the turn that is under way"
    assert stage.broker.registry.deferred.begun, "the other is not done by far"


def test_queues_that_one_client_deletes_do_not_hold_up_a_channel_that_another_closes() -> None:
    stage = QueueStage(memory="64MB")
    heavy, light = stage.peer("heavy"), stage.peer("light")
    for number in range(MANY // 10):
        heavy.declare(f"q{number}")
        for part in range(10):
            heavy.consume(f"q{number}", tag=f"{number} {part}")
    light.declare("own")
    member = light.consume("own")
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
    for number in range(MANY // 10):
        stage.broker.queues.delete(stage.queue(f"q{number}"), stage.now, by=heavy.session)
    light.close()
    turns = 0
    while not member.ended:
        stage.broker.flush(stage.now)
        turns += 1
    assert turns <= 1
    assert stage.broker.registry.deferred.begun


def test_clients_that_wait_are_asked_again_one_in_a_turn_and_keep_the_order_of_their_work() -> None:
    deferred, done, asked, open_ = DeferredWork(), list[str](), list[str](), set[str]()

    def waits(name: str) -> WorkSteps:
        while name not in open_:
            asked.append(name)
            yield 0
        done.append(name)
        yield 1

    for name in "abc":
        deferred.begin(waits(name), 1.0, client=name)
    assert asked == ["a", "b", "c"]
    deferred.begin(some(done, "behind b", 1), 1.0, client="b")
    deferred.begin(some(done, "d", 1), 1.0, client="d")
    assert done == ["d0"]
    del asked[:]
    for _ in range(3):
        assert deferred
        deferred.turn(2.0)
    assert asked == ["a", "b", "c"]
    open_ |= {"b", "c"}
    for _ in range(3):
        deferred.turn(2.0)
    assert done == ["d0", "b", "behind b0", "c"]
    assert len(deferred) == 1


def test_at_the_end_what_waits_is_done_as_soon_as_it_can_be() -> None:
    deferred, done = DeferredWork(PORTION_WORK), list[str]()

    def waits(name: str, upto: int) -> WorkSteps:
        while len(done) < upto:
            yield 0
        yield PORTION_WORK
        done.append(name)

    deferred.begin(waits("last", 2), 1.0, client="a", whole=True)
    deferred.begin(waits("left half done", 3), 1.0, client="a")
    deferred.begin(waits("middle", 1), 1.0, client="b", whole=True)
    deferred.begin(waits("first", 0), 1.0, client="c", whole=True)
    deferred.finish()
    assert done == ["first", "middle", "last"]
    assert not deferred
