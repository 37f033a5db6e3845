"""Patience: who asked for time is not slow while it holds a job, and gives the job up when the time is over."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from tests.core.queues_stage import Peer, QueueStage, owner
from tests.core.stage import Stage

from headway.core.base.errors import ConfigError
from headway.core.consumer import Subscription
from headway.core.policy.evaluation import parse_trials
from headway.core.policy.meters.meter import Meter
from headway.core.policy.meters.sample import Figures, Sample
from headway.core.policy.rules.condition import parse_condition
from headway.core.policy.rules.rule import parse_policy

STRICT = """
[[policy]]
name = "strict"
patience_max = "60s"

[[policy.rule]]
when = { any = [
    { ack_age = "2s" }, { credit_exhausted_time = "2s" }, { blocked_time = "2s" }, { lag_age = "2s" },
    { drain_rate = "<5000B/s" }, { drain_share = "50%" }, { catching_up = "1m" },
] }
then = "disconnect"
"""
"""Everything that a full window leads to."""


def at_a_job(
    stage: QueueStage, patience_s: float | None, waiting: int = 10, prefetch: int = 1
) -> tuple[Peer, Subscription]:
    """Who holds the first record of "q", in which others wait."""
    peer = stage.peer("worker")
    made = peer.consume("q", prefetch, acks=False, patience_s=patience_s)
    owner(stage).publish("q", 0, waiting)
    stage.turn()
    assert peer.numbers == list(range(min(prefetch, waiting)))
    return peer, made


def stage_with(policies: str) -> QueueStage:
    made = QueueStage(policies)
    made.peer("keeper").declare("q")
    return made


@pytest.fixture
def stage() -> QueueStage:
    return stage_with(STRICT)


# -- while it lasts -------------------------------------------------------------------------------------------------


def test_who_asked_for_patience_is_not_slow_at_a_long_job(stage: QueueStage) -> None:
    peer, made = at_a_job(stage, 40.0)
    for _ in range(39):
        stage.run(1)
        stage.peer("another").publish("q", 100, 5)
    sample = made.case.last_sample
    assert stage.told("slow") == []
    assert peer.connected
    assert sample.credit_exhausted
    assert (sample.credit_exhausted_time, sample.ack_age, sample.lag_age) == (0, 0, 0)
    assert sample.patience_left == pytest.approx(1, abs=0.3)


def test_who_did_not_ask_is_slow_at_once(stage: QueueStage) -> None:
    peer, _ = at_a_job(stage, None)
    stage.run(3)
    assert not peer.connected


def test_an_acknowledged_job_leaves_nothing_behind(stage: QueueStage) -> None:
    """What waited meanwhile has not waited for a slow consumer."""
    peer, made = at_a_job(stage, 40.0)
    for number in range(4):
        stage.run(30)
        peer.ack(peer.id_of(number))
        stage.run(0.6)
        assert peer.numbers == list(range(number + 2)), "and is at the next one, with time of its own"
    assert stage.told("slow") == []
    assert made.case.last_sample.patience_left == pytest.approx(39.4, abs=0.3)


def test_what_it_has_not_asked_patience_for_is_judged() -> None:
    """How much may wait is a limit of memory, whoever is at fault."""
    stage = stage_with('[[policy]]\nname = "much"\n[[policy.rule]]\nwhen = { lag_records = 50 }\nthen = "notify"')
    at_a_job(stage, 40.0, waiting=100)
    stage.run(2)
    (told,) = stage.told("slow")
    assert told["cause"] == "application"
    assert "it is at a long job, with patience for 39" in told["text"]


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_return_of_old_records_waits_for_the_patience(prefetch: int) -> None:
    rule = 'when = { lag_records = "> 0" }\nthen = { action = "return", older = "1s" }'
    stage = stage_with(f'[[policy]]\nname = "return"\n[[policy.rule]]\n{rule}')
    at_a_job(stage, 10.0, 5, prefetch)
    stage.run(9)
    assert stage.told("returned") == []
    stage.run(2)
    assert [one["records"] for one in stage.told("returned")] == [prefetch]


# -- when it is over ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("waiting", "prefetch"), [(1, 1), (1, 10), (10, 1)])
def test_the_job_goes_back_when_the_time_is_over(waiting: int, prefetch: int) -> None:
    """Also if nothing waits, no rule is about acknowledgements, or there is no policy."""
    stage = stage_with("")
    peer, made = at_a_job(stage, 40.0, waiting, prefetch)
    stage.run(39)
    assert made.channel.in_flight
    stage.run(1.6)
    assert not made.channel.in_flight
    heir = stage.peer("heir")
    heir.consume("q")
    stage.run(1)
    assert heir.numbers == list(range(waiting))
    assert heir.again == [0]
    (told,) = stage.told("slow")
    assert (told["client"], told["reason"], told["cause"], told["action"]) == (
        "worker", "ack_age", "application", "return"
    )  # fmt: skip
    assert "1 of its records held beyond the 40 s of patience it asked for" in told["text"]
    assert "acknowledgements are late, the oldest outstanding for 40" in told["text"] or waiting > 1
    assert [one["records"] for one in stage.told("returned")] == [1]
    peer.ack(1)
    stage.run(1)
    assert made.window.used == 0
    assert not made.case.slow


def test_only_what_was_sent_so_long_ago_goes_back() -> None:
    stage = stage_with("")
    _, made = at_a_job(stage, 40.0, 1, 10)
    stage.run(30)
    owner(stage).publish("q", 1)
    stage.run(11)
    assert [one.sent_s for one in made.channel.in_flight.values()] == [pytest.approx(stage.now - 11, abs=0.3)]
    stage.run(28)
    assert made.channel.in_flight, "the second has its own time"
    stage.run(2)
    assert not made.channel.in_flight


def test_a_policy_judges_from_then_on() -> None:
    """Its window stays full: what it was excused for does not come back at once."""
    rule = 'when = { credit_exhausted_time = "2s" }\nthen = "disconnect"'
    stage = stage_with(f'[[policy]]\nname = "credit"\n[[policy.rule]]\n{rule}')
    peer, _ = at_a_job(stage, 40.0)
    stage.run(41.5)
    assert peer.connected
    assert [one["action"] for one in stage.told("slow")] == ["return"]
    stage.run(2)
    assert not peer.connected


# -- how much is granted --------------------------------------------------------------------------------------------


def test_nobody_gets_more_than_the_policy_grants(stage: QueueStage) -> None:
    _, made = at_a_job(stage, 3600.0, 1)
    assert made.patience_s == 60.0
    stage.run(59)
    assert made.channel.in_flight
    stage.run(2)
    assert not made.channel.in_flight


def test_who_acknowledges_nothing_has_no_use_for_it(stage: QueueStage) -> None:
    assert stage.peer("peer").consume("q", acks=None, patience_s=10.0).patience_s == 0


def test_a_subscription_to_topics_has_patience_for_its_full_window() -> None:
    """Its records go to nobody else, so when the time is over it is slow, and no more."""
    stage = Stage(STRICT)
    client = stage.client("reader", window=2, acks=False)
    made = client.subscribe("t", 1, patience="40s")
    stage.client("publisher").publish("t", 0, 10, qos=1)
    stage.run(39)
    assert client.connected
    assert made.case.last_sample.patience_left > 0
    stage.run(4)
    assert not client.connected


def test_patience_max_is_a_time_and_not_for_trials() -> None:
    assert parse_policy({"name": "p"}).patience_max_s == 3600
    assert parse_policy({"name": "p", "patience_max": "20m"}).patience_max_s == 1200
    with pytest.raises(ConfigError, match=r"policy 'p': patience_max: .* is not a duration"):
        parse_policy({"name": "p", "patience_max": "long"})
    with pytest.raises(ConfigError, match=r"policy 'p': unknown key 'patience' .did you mean patience_max"):
        parse_policy({"name": "p", "patience": "20m"})
    with pytest.raises(ConfigError, match="trial 'p': unknown key 'patience_max'"):
        parse_trials([{"name": "p", "patience_max": "20m"}])


# -- the meter ------------------------------------------------------------------------------------------------------


def look(meter: Meter, now: float, *, patient_until: float = -inf, excused: bool = True) -> Sample:
    figures = Figures(
        position_bytes=1000, end_bytes=1000 + int(now * 100_000), lag_records=10, oldest_time_s=0.0,
        blocked_since=1.0, credit_exhausted_since=1.0, oldest_unacked_s=1.0, in_flight=1, patient_until=patient_until,
        excused=excused,
    )  # fmt: skip
    return meter.observe(now, figures)


def test_each_clock_begins_when_the_patience_is_over() -> None:
    floor = parse_condition({"any": [{"drain_rate": "5000B/s"}, {"drain_share": "50%"}, {"catching_up": "1m"}]})
    meter = Meter(0.0)
    for step in range(1, 100):
        sample = look(meter, step * 0.2, patient_until=20.0)
        assert (sample.ack_age, sample.credit_exhausted_time, sample.blocked_time, sample.lag_age) == (0, 0, 0, 0)
        assert not floor.holds(sample)
    for step in range(1, 10):
        sample = look(meter, 20 + step * 0.2, patient_until=20.0)
    for seen in (sample.ack_age, sample.credit_exhausted_time, sample.blocked_time, sample.lag_age):
        assert seen == pytest.approx(1.8)
    assert floor.holds(sample)
    assert sample.patience_left == 0


def test_a_job_that_leaves_room_excuses_no_socket() -> None:
    sample = look(Meter(0.0), 10.0, patient_until=20.0, excused=False)
    assert (sample.ack_age, sample.patience_left) == (0, 10.0)
    assert (sample.blocked_time, sample.lag_age) == (9.0, 10.0)


# -- the default ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience_s", [120.0, None])
def test_the_default_policy_is_patient_with_who_asked(patience_s: float | None) -> None:
    file = Path(__file__).parents[2] / "src" / "headway" / "server" / "config" / "defaults.toml"
    stage = stage_with(file.read_text()[file.read_text().index("\n[[policy]]") :])
    made = at_a_job(stage, patience_s, 100)[1]
    for number in range(110):
        stage.peer("another").publish("q", 100 + number)
        stage.run(1)
    told = [(one["reason"], one["cause"]) for one in stage.told("slow")]
    assert told[:1] == ([] if patience_s else [("credit_exhausted", "application")])
    assert (made.case.last_sample.patience_left > 0) == (patience_s is not None)
