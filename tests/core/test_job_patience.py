"""Job patience: a message says for how long its job may take, and whoever gets it from a queue has that time."""

from __future__ import annotations

import pytest
from tests.core.queues_stage import Peer, QueueStage, owner

from headway.core.consumer import Subscription

STRICT = """
[[policy]]
name = "strict"
patience_max = "60s"

[[policy.rule]]
when = { any = [
    { ack_age = "2s" }, { credit_exhausted_time = "2s" }, { lag_age = "2s" },
] }
then = "notify"
"""


def stage_with(policies: str) -> QueueStage:
    made = QueueStage(policies)
    made.peer("keeper").declare("q")
    return made


def worker(stage: QueueStage, prefetch: int = 1, patience_s: float | None = None) -> tuple[Peer, Subscription]:
    peer = stage.peer("worker")
    return peer, peer.consume("q", prefetch, acks=False, patience_s=patience_s)


def publish(stage: QueueStage, *patience: str | None) -> None:
    """One message after the other, which ask for so much."""
    for number, asked in enumerate(patience):
        owner(stage).publish("q", number, patience=asked)
    stage.turn()


def slow(stage: QueueStage) -> list[str]:
    return [one["client"] for one in stage.told("slow")]


def test_whoever_gets_a_long_job_has_the_time_that_the_message_asks_for() -> None:
    stage = stage_with(STRICT)
    peer, made = worker(stage)
    publish(stage, "40s", None)
    assert peer.numbers == [0]
    stage.run(39)
    assert slow(stage) == []
    sample = made.case.last_sample
    assert (sample.ack_age, sample.lag_age, sample.credit_exhausted_time) == (0, 0, 0)
    assert sample.patience_left == pytest.approx(1, abs=0.3)


def test_the_next_job_has_no_time_of_that() -> None:
    stage = stage_with(STRICT)
    peer, _ = worker(stage)
    publish(stage, "40s", None, None)
    stage.run(10)
    peer.ack(peer.id_of(0))
    stage.run(1.5)
    assert slow(stage) == []
    stage.run(1.5)
    assert slow(stage) == ["worker"]


def test_a_job_of_which_nothing_is_said_is_late_beside_one_with_patience() -> None:
    stage = stage_with(STRICT)
    worker(stage, prefetch=5)
    publish(stage, "40s", None)
    stage.run(3)
    assert slow(stage) == ["worker"]


def test_the_job_goes_back_when_its_time_is_over_and_no_other_does() -> None:
    stage = stage_with("")
    peer, made = worker(stage, prefetch=5)
    publish(stage, "20s", None, "50s")
    stage.run(19)
    assert len(made.channel.in_flight) == 3
    stage.run(2)
    assert len(made.channel.in_flight) == 2
    (told,) = stage.told("slow")
    assert (told["reason"], told["action"]) == ("ack_age", "return")
    assert "1 of its records held beyond the 20 s of patience its message asked for" in told["text"]
    heir = stage.peer("heir")
    heir.consume("q")
    stage.run(1)
    assert (heir.numbers, heir.again) == ([0], [0])
    peer.ack(peer.id_of(0))
    stage.run(1)
    assert made.window.used == 2


def test_who_gets_it_next_has_the_same_time() -> None:
    stage = stage_with("")
    worker(stage)
    publish(stage, "20s")
    stage.run(21)
    heir = stage.peer("heir")
    made = heir.consume("q", 1, acks=False)
    stage.run(19)
    assert made.channel.in_flight
    stage.run(2)
    assert not made.channel.in_flight


@pytest.mark.parametrize(("own_s", "asked", "held_s"), [(10.0, "30s", 30), (30.0, "10s", 30), (None, "5m", 60)])
def test_the_longer_of_two_patiences_counts_as_far_as_the_policy_grants_it(
    own_s: float | None, asked: str, held_s: int
) -> None:
    stage = stage_with(STRICT)
    _, made = worker(stage, patience_s=own_s)
    publish(stage, asked, None)
    stage.run(held_s - 1)
    assert slow(stage) == []
    assert made.channel.in_flight
    stage.run(2)
    assert not made.channel.in_flight


def test_where_the_policy_grants_no_patience_the_message_gets_none() -> None:
    stage = stage_with(STRICT.replace("60s", "0s"))
    worker(stage)
    publish(stage, "40s", None)
    stage.run(3)
    assert slow(stage) == ["worker"]


def test_a_return_of_old_records_leaves_those_with_patience() -> None:
    rule = 'when = { ack_age = "3s" }\nthen = { action = "return", older = "3s" }'
    stage = stage_with(f'[[policy]]\nname = "return"\n[[policy.rule]]\n{rule}')
    _, made = worker(stage, prefetch=5)
    publish(stage, "20s", None, None)
    stage.run(5)
    assert [one["records"] for one in stage.told("returned")] == [2]
    assert len(made.channel.in_flight) == 1


@pytest.mark.parametrize("asked", ["soon", "", "20"])
def test_what_cannot_be_understood_is_no_patience(asked: str) -> None:
    stage = stage_with(STRICT)
    worker(stage)
    publish(stage, asked, None)
    stage.run(3)
    assert slow(stage) == ["worker"]


def test_a_chunk_knows_the_patience_of_each_of_its_records() -> None:
    stage = stage_with("")
    publish(stage, None, None, "20s", "20s", None, "5m")
    (queue,) = stage.broker.registry.router.queues.values()
    chunk = queue.feed.lane.first
    chunk.check()
    assert [chunk.patience_s(index) for index in range(len(chunk))] == [0, 0, 20, 20, 0, 300]
