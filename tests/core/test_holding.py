"""What a client holds unacknowledged: who has stopped to acknowledge, and who only takes long."""

from __future__ import annotations

from math import inf

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import Stage

from headway.core.policy.meters.meter import Holding

RULE = """
[[policy]]
name = "silent"

[[policy.rule]]
when = { unacknowledged_time = "15s" }
then = "notify"
"""


class Worker:
    """A worker that is looked at each second."""

    def __init__(self) -> None:
        self.now, self.acked, self.held = 0.0, 0, 0
        self.holding, self.sent_s = Holding(0.0, 0), 0.0

    def holds(self, seconds: int, held: int) -> float:
        """It holds so many records for so long. Returns for how long it is late then."""
        if not self.held:
            self.sent_s = self.now
        self.held = held
        for _ in range(seconds):
            self.now += 1.0
            self.holding.look(self.now, self.acked, self.held, self.sent_s)
        since = self.holding.late_since(inf)
        return max(0.0, self.now - since)

    def acknowledges(self, count: int) -> None:
        self.acked, self.held = self.acked + count, self.held - count
        self.sent_s = self.now


def test_nobody_is_late_before_the_first_acknowledgement() -> None:
    worker = Worker()
    assert worker.holds(300, 20) == 0.0
    assert worker.holding.late_since(10.0) == inf


def test_who_holds_more_than_usual_and_acknowledges_nothing_is_late_since_then() -> None:
    worker = Worker()
    for _ in range(10):
        worker.holds(1, 1)
        worker.acknowledges(1)
    worker.holds(5, 1)
    assert worker.holds(20, 6) == pytest.approx(20, abs=1.1)


def test_one_job_that_takes_long_is_no_lateness() -> None:
    worker = Worker()
    for _ in range(10):
        worker.holds(1, 1)
        worker.acknowledges(1)
    assert worker.holds(300, 1) == 0.0


def test_a_dozen_that_becomes_full_slowly_is_no_lateness() -> None:
    worker = Worker()
    for _ in range(5):
        for count in range(1, 13):
            worker.holds(1, count)
        worker.acknowledges(12)
    assert worker.holds(120, 11) == 0.0


def test_a_full_window_counts_from_the_last_acknowledgement() -> None:
    worker = Worker()
    for _ in range(5):
        worker.holds(2, 10)
        worker.acknowledges(10)
    worker.holds(8, 10)
    assert worker.holding.late_since(11.0) == pytest.approx(worker.now - 8, abs=1.1)


def test_long_pauses_are_usual_for_who_makes_them_from_the_start() -> None:
    worker = Worker()
    for _ in range(3):
        worker.holds(80, 8)
        worker.acknowledges(8)
    assert worker.holding.usual_pause_s == pytest.approx(80, abs=1.1)


def test_one_pause_out_of_all_proportion_is_not_usual() -> None:
    worker = Worker()
    for seconds in (2, 2, 60, 2):
        worker.holds(seconds, 8)
        worker.acknowledges(8)
    assert worker.holding.usual_pause_s <= 10.0


# -- in a broker ----------------------------------------------------------------------------------------------------


def two_workers(policy: str) -> QueueStage:
    stage = QueueStage(policy)
    owner = stage.peer("owner")
    owner.declare("q")
    for name in ("good", "bad"):
        stage.peer(name).consume("q", 10)
    for number in range(200):
        owner.publish("q", number)
        stage.run(0.1)
    return stage


def told(stage: Stage) -> list[tuple[str, str, str]]:
    return [(one["client"], one["reason"], one["cause"]) for one in stage.told("slow")]


def stops(stage: QueueStage, name: str, seconds: float) -> None:
    """That worker acknowledges nothing any more, and records go on coming."""
    peer = stage.clients[name]
    for key in peer.acks:  # type: ignore[attr-defined]
        peer.acks[key] = False  # type: ignore[attr-defined]
    for number in range(200, 200 + int(seconds * 5)):
        stage.clients["owner"].publish("q", number)  # type: ignore[attr-defined]
        stage.run(0.2)


def test_one_of_two_workers_that_stops_is_found_though_the_other_takes_all_that_comes() -> None:
    stage = two_workers(RULE)
    stops(stage, "bad", 12)
    assert told(stage) == []
    stops(stage, "bad", 8)
    assert told(stage) == [("bad", "ack_age", "application")]


def test_nobody_is_glanced_at_for_whom_no_policy_minds() -> None:
    stage = two_workers(RULE.replace("unacknowledged_time", "lag_age"))
    stops(stage, "bad", 20)
    assert told(stage) == []
    held = [subscription.case.holding for peer in stage.clients.values() if hasattr(peer, "consumers")
            for subscription in peer.consumers.values() if subscription not in stage.broker.registry.watched]
    assert not any(one is not None and one.late_since(inf) < inf for one in held)


def test_who_asked_for_patience_is_not_late() -> None:
    stage = QueueStage(RULE)
    stage.peer("owner").declare("q")
    worker = stage.peer("worker")
    worker.consume("q", 10, acks=False, patience_s=600.0)
    stage.clients["owner"].publish("q", 0)  # type: ignore[attr-defined]
    stage.turn()
    worker.ack(*worker.ids())
    stage.clients["owner"].publish("q", 1, 9)  # type: ignore[attr-defined]
    stage.run(60)
    assert told(stage) == []
