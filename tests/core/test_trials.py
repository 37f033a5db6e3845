"""Trials: policies that judge beside the policy in force, from the same samples, and change nothing."""

from __future__ import annotations

import tomllib

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Stage

from headway.core.base.errors import ConfigError
from headway.core.policy import DecisionKind, Sample, Trial, Verdict, parse_trials, try_out

TWO = """
[[trial]]
name = "soon"
[[trial.rule]]
when = { blocked_time = "1s" }
then = "disconnect"

[[trial]]
name = "late"
topics = ["prices/#"]
[[trial.rule]]
when = { blocked_time = "3s" }
then = "notify"

[[trial]]
name = "others"
topics = ["orders/#"]
[[trial.rule]]
when = { blocked_time = "1s" }
then = "notify"
"""


def _stage(text: str = TWO, policy: str = "") -> Stage:
    stage = Stage(policy)
    stage.broker.set_trials(parse_trials(tomllib.loads(text)["trial"]))
    return stage


def _stuck(stage: Stage, seconds: float) -> None:
    client = stage.client("c", reads=STUCK)
    client.subscribe("prices/#")
    publisher = stage.client("p")
    for number in range(round(seconds)):
        publisher.publish("prices/a", number * 100, 100, size=1000)
        stage.run(1.0)


def _fired(stage: Stage) -> list[tuple[str, float]]:
    verdicts: list[Verdict] = stage.broker.governor.trials.after(0, 100)
    return [(one.policy, one.held_s) for one in verdicts if one.kind is DecisionKind.FIRE]


def test_each_trial_that_covers_a_consumer_judges_it_and_nothing_is_done() -> None:
    stage = _stage()
    _stuck(stage, 6)
    assert [name for name, _ in _fired(stage)] == ["soon", "late"]
    assert stage.clients["c"].connected
    assert not list(stage.broker.verdicts)
    assert all(not verdict.enforced for verdict in stage.broker.governor.trials.of("c"))
    assert not next(iter(stage.broker.registry.sessions["c"].subscriptions.values())).case.slow


def test_a_trial_judges_also_whom_the_policy_in_force_ends_at_the_same_look() -> None:
    stage = _stage(policy="""
        [[policy]]
        name = "cut"
        [[policy.rule]]
        when = { blocked_time = "1s" }
        then = "disconnect"
    """)
    _stuck(stage, 6)
    assert not stage.clients["c"].connected
    assert [name for name, _ in _fired(stage)] == ["soon"]


def test_who_is_away_cannot_be_disconnected_by_a_trial_either() -> None:
    trial = '[[trial]]\nname = "t"\n[[trial.rule]]\nwhen = { lag_records = 10 }\nthen = '
    stage = _stage(f'{trial}"disconnect"\n' + trial.replace('"t"', '"u"') + '"close_consumer"')
    client = stage.client("c", expiry_s=3600)
    client.subscribe("prices/#", qos=1)
    client.leave()
    publisher = stage.client("p")
    for number in range(5):
        publisher.publish("prices/a", number * 100, 100, size=1000, qos=1)
        stage.run(1.0)
    assert _fired(stage) == []


def test_a_reload_keeps_the_trials_that_stay_the_same() -> None:
    stage = _stage()
    _stuck(stage, 6)
    fresh = parse_trials(tomllib.loads(TWO.replace("3s", "4s"))["trial"])
    stage.broker.set_policies(stage.broker.registry.policies, stage.now, fresh)
    stage.run(1.0)
    assert [name for name, _ in _fired(stage)] == ["soon", "late", "late"]


def test_members_of_a_queue_that_goes_by_other_names_get_other_trials() -> None:
    stage = QueueStage()
    stage.broker.set_trials(parse_trials(tomllib.loads("""
        [[trial]]
        name = "orders"
        topics = ["$exchange/e/orders"]
        [[trial.rule]]
        when = { lag_records = 10 }
        then = "notify"
    """)["trial"]))
    owner, worker = stage.peer("owner"), stage.peer("worker")
    owner.declare("q")
    owner.exchange("e")
    worker.consume("q", 1, acks=False)
    owner.publish("q", 0, 50)
    stage.run(2.0)
    assert _fired(stage) == []
    owner.bind("q", "e", "orders")
    stage.run(2.0)
    assert [name for name, _ in _fired(stage)] == ["orders"]


def test_without_trials_a_consumer_has_none() -> None:
    stage = Stage("")
    _stuck(stage, 3)
    assert next(iter(stage.broker.registry.sessions["c"].subscriptions.values())).case.trials == ()


def test_a_trial_counts_its_own_findings() -> None:
    (policy,) = parse_trials(tomllib.loads("""
        [[trial]]
        name = "often"
        [[trial.rule]]
        when = { blocked_time = "1s" }
        then = "notify"
        [[trial.rule]]
        when = { slow_count = 1 }
        then = "disconnect"
    """)["trial"])
    trial, fired = Trial(policy, 0.0), []
    for at, blocked_s in enumerate((2.0, 0.0, 2.0, 2.0)):
        sample = Sample(lag_records=1, lag_bytes=1, blocked_time=blocked_s, waited=9.0)
        fired += [(at, one.rule) for one in trial.evaluate(sample, at, 0.0) if one.kind is DecisionKind.FIRE]
    assert fired == [(0, 0), (2, 0), (3, 1)]


def test_the_clocks_of_trials_leave_out_the_brokers_lateness() -> None:
    (policy,) = parse_trials(tomllib.loads("""
        [[trial]]
        name = "held"
        [[trial.rule]]
        when = { lag_records = 1 }
        for = "2s"
        then = "notify"
    """)["trial"])
    sample = Sample(lag_records=5, lag_bytes=5, waited=9.0)
    trial = Trial(policy, 0.0)
    assert not trial.evaluate(sample, 0.0, 0.0)
    assert not trial.evaluate(sample, 3.0, 2.0), "of these three seconds two were the broker's"
    assert trial.evaluate(sample, 4.0, 2.0)


def test_trials_that_stay_go_on_and_others_begin() -> None:
    old = parse_trials(tomllib.loads(TWO)["trial"])
    new = parse_trials(tomllib.loads(TWO.replace("3s", "4s"))["trial"])
    running = try_out(old, (), 0.0)
    after = try_out(new, running, 0.0)
    assert [one is other for one, other in zip(running, after, strict=True)] == [True, False, True]


def test_trials_that_compare_ages_of_acknowledgements_have_their_consumers_watched() -> None:
    rule = '[[trial]]\nname = "n"\n[[trial.rule]]\nwhen = {{ {} = "1s" }}\nthen = "notify"\n'
    parsed = [parse_trials(tomllib.loads(rule.format(meter))["trial"]) for meter in ("ack_age", "lag_age")]
    assert [any(one.minds_acks for one in trials) for trials in parsed] == [True, False]


@pytest.mark.parametrize(("table", "said"), [
    ({"rule": []}, "a trial needs a name"),
    ({"name": "x", "rules": []}, "trial 'x': "),
    ({"name": "x", "rule": [{"when": {"blocked_tim": 1}, "then": "notify"}]}, "trial 'x', rule 1: "),
])  # fmt: skip
def test_errors_name_the_trial(table: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_trials([table])
