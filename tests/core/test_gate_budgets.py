"""Publishers who were held back go on little by little, and what holds them back is found without a look at all."""

from __future__ import annotations

import re
from pathlib import Path

from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Stage
from tests.core.test_idle import steps

from headway.core.base.deferred import DEFERRED_WORK_MAX
from headway.core.consumer.effects import Resume
from headway.core.routing.backpressure import CAUSES, RESUME_WORK

MANY = 3000


def test_very_many_publishers_go_on_little_by_little() -> None:
    stage = QueueStage(memory="64MB")
    registry = stage.broker.registry
    sessions = [stage.peer(f"p{number}").session for number in range(MANY)]
    stage.turn()
    for session in sessions:
        registry.backpressure.pause(session, stage.pool, stage.now)
    stage.broker.take_effects()
    registry.backpressure.resume(stage.pool, stage.now)
    told = [stage.broker.take_effects()]
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
        told.append(stage.broker.take_effects())
    assert max(map(len, told)) == DEFERRED_WORK_MAX // RESUME_WORK
    assert [effect.session for effects in told for effect in effects if isinstance(effect, Resume)] == sessions
    assert not any(session.paused_by for session in sessions)


def test_publishers_that_come_and_leave_while_they_are_held_back_leave_nothing_behind() -> None:
    """One that comes again and again would otherwise fill the memory, for as long as something holds it back."""
    stage = QueueStage(memory="64MB")
    backpressure = stage.broker.registry.backpressure
    for number in range(20):
        peer = stage.peer(f"p{number}")
        backpressure.pause(peer.session, stage.pool, stage.now)
        backpressure.pause(peer.session, backpressure.wide, stage.now)
        counts = backpressure.by_cause
        assert (backpressure.publishers, counts["memory"], counts["wide_record"]) == (1, 1, 1)
        peer.leave()
        assert not backpressure.waiting
    assert (backpressure.publishers, sum(backpressure.by_cause.values())) == (0, 0)


def test_the_guide_says_of_every_cause_what_to_do() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "OPERATIONS.md").read_text()
    section = guide.split("### What holds a publisher back")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(CAUSES.values())


def test_a_gate_that_only_its_own_client_has_left_is_found_without_a_look_at_all_who_wait() -> None:
    def of(publishers: int) -> int:
        stage = Stage("""
        [[policy]]
        name = "block"
        topics = ["t"]
        [[policy.rule]]
        when = { lag_records = 1 }
        then = "block_publishers"
        """)  # fmt: skip
        own = stage.consumer("own", "t", 1, reads=STUCK, buffer=0)
        other = stage.consumer("other", "t", 1, reads=STUCK, buffer=0)
        waiting = [own, *(stage.client(f"p{number}") for number in range(publishers))]
        for _ in range(2):
            waiting[1].publish("t", 0, 3, qos=1)
            stage.run(1)
        for client in waiting:
            client.publish("t", 9, qos=1)
        assert all(client.session.paused_by for client in waiting)
        gate = other.session.subscriptions["t"]
        lines = steps(lambda: stage.broker._ending.open_gate(gate, stage.now))
        assert [client for client in waiting if not client.session.paused_by] == [own]
        return lines

    assert of(200) <= of(20) + 50


def test_a_queue_that_many_members_gate_is_asked_once_whether_it_holds_publishers_back() -> None:
    def of(members: int) -> int:
        stage = QueueStage()
        consumer, publisher = stage.peer("consumer"), stage.peer("publisher")
        queue = consumer.declare("q")
        for number in range(members):
            queue.feed.gates[consumer.consume("q", tag=f"tag {number}")] = stage.now
        assert queue.feed.holds_back(publisher.session)
        consumer.consume("q", tag="takes records")
        lines = steps(lambda: queue.feed.holds_back(publisher.session))
        assert not queue.feed.gated
        return lines

    assert of(200) <= 20 * of(20)
