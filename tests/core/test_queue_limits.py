"""Queues that hold only so many records or bytes."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import QueueStage, filled
from tests.core.stage import STUCK


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("terms", [{"records_max": 5}, {"bytes_max": 5 * 15}])
def test_too_much_and_the_oldest_are_dropped(stage: QueueStage, terms: dict[str, int], dead_letters: bool) -> None:
    owner = filled(stage, 0, dead_letter_exchange="dlx" if dead_letters else None, **terms)
    for number in range(0, 12, 2):
        owner.publish("q", number, 2, size=15)
        stage.turn()
    kept = stage.queue("q").backlog.lag_records
    assert kept == 5, "what counts is bodies"
    assert stage.counts("q") == {"queue_length": 12 - kept}
    assert [int(one.record.payload.split()[0]) for one in stage.dead] == (
        list(range(12 - kept)) if dead_letters else []
    )
    peer = stage.peer("peer")
    peer.consume("q")
    stage.turn()
    assert peer.numbers == list(range(12 - kept, 12))
    assert stage.pool.memory_bytes == 0


def test_a_burst_goes_to_who_is_ready_before_anything_is_dropped(stage: QueueStage) -> None:
    owner = filled(stage, 0, records_max=3)
    peer = stage.peer("peer")
    peer.consume("q", 4, acks=False)
    owner.publish("q", 0, 10)
    stage.turn()
    assert peer.numbers == [0, 1, 2, 3], "what is in flight does not count"
    assert stage.queue("q").backlog.lag_records == 3
    peer.acks[1, "q"] = True
    peer.ack_upto(0)
    stage.turn()
    assert peer.numbers == [0, 1, 2, 3, 7, 8, 9]


def test_what_comes_back_to_a_full_queue_counts(stage: QueueStage) -> None:
    owner = filled(stage, 3, records_max=3)
    peer = stage.peer("peer")
    peer.consume("q", 3, acks=False)
    stage.turn()
    peer.cancel("q")
    owner.publish("q", 3, 3)
    stage.turn()
    peer.close()
    stage.turn()
    assert stage.queue("q").backlog.lag_records == 3
    assert stage.counts("q") == {"queue_length": 3}
    heir = stage.peer("heir")
    heir.consume("q")
    stage.turn()
    assert heir.numbers == [3, 4, 5]


def test_a_limit_of_nothing(stage: QueueStage) -> None:
    owner = filled(stage, 0, records_max=0)
    owner.publish("q", 0, 5)
    stage.turn()
    assert stage.queue("q").backlog.lag_records == 0
    peer = stage.peer("peer")
    peer.consume("q")
    owner.publish("q", 5, 5)
    stage.turn()
    assert peer.numbers == list(range(5, 10)), "it goes to whoever is there"


@pytest.mark.parametrize("kind", ["slow", "disconnected", "receipt"])
def test_a_full_queue_of_advisories_keeps_the_broker_from_nothing(kind: str) -> None:
    """It refuses them, and there is nobody to be told so."""
    stage = QueueStage("""
        [[policy]]
        name = "strict"
        topics = ["t"]
        [[policy.rule]]
        when = { blocked_time = "1s" }
        then = "disconnect"
    """)
    watcher = filled(stage, 0, refuses=True, records_max=1)
    watcher.bind("q", "amq.topic", f"$SYS.headway.{kind}.*")
    stuck = [stage.consumer(f"stuck{number}", "t", reads=STUCK, buffer=1000) for number in range(3)]
    for number in range(20):
        stage.clients.get("p", stage.client("p")).publish("t", number, size=500, receipt="1s")
    stage.run(5)
    assert not any(client.connected for client in stuck)
    assert stage.queue("q").backlog.lag_records == 1
