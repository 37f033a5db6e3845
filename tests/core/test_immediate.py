"""Immediate messages: whether a consumer of a queue would take one more record at once."""

from __future__ import annotations

from tests.core.queue_wire import run_of
from tests.core.queues_stage import QueueStage, reader

ASKED = run_of("q", [b"asked"], exchange="")


def test_a_consumer_takes_what_comes_at_once_though_more_was_published_in_this_turn() -> None:
    stage = QueueStage()
    peer = stage.peer("peer")
    peer.declare("q")
    consumer = reader(stage, "q", acks=None)
    stage.turn()
    for first in range(2):
        assert stage.broker.intake.takes_at_once(ASKED, stage.now)
        peer.publish("q", first)
    stage.turn()
    assert consumer.numbers == [0, 1]


def test_a_consumer_whose_window_is_full_takes_nothing_at_once() -> None:
    stage = QueueStage()
    peer, worker = stage.peer("peer"), stage.peer("worker")
    peer.declare("q")
    assert not stage.broker.intake.takes_at_once(ASKED, stage.now)
    worker.consume("q", prefetch=1, acks=False)
    assert stage.broker.intake.takes_at_once(ASKED, stage.now)
    peer.publish("q", 0)
    assert not stage.broker.intake.takes_at_once(ASKED, stage.now)
