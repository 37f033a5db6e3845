"""Policies by listener: they hold for whoever came through it, from the subscription or the return on."""

from __future__ import annotations

import tomllib

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import ConfigError
from headway.core.policy import parse_policy, parse_trials

DESK = """
name = "desk"
listeners = ["desk", "floor"]
[[policy.rule]]
when = { lag_records = 10 }
then = "notify"
"""
TWO = f"""
[[policy]]
{DESK}

[[policy]]
name = "everybody"
[[policy.rule]]
when = {{ lag_records = 30 }}
then = "notify"
"""


def policies(client: Client) -> list[str]:
    return [one.case.policy.name for one in client.session.subscriptions.values()]


def told(stage: Stage) -> dict[str, str]:
    return {one["client"]: one["policy"] for one in stage.told("slow")}


@pytest.mark.parametrize("listeners", ['"desk"', "[]", "[1]", '[""]', "{}"])
def test_listeners_are_a_list_of_names(listeners: str) -> None:
    with pytest.raises(ConfigError, match="policy 'p': listeners: expected a list of listeners' names such as"):
        parse_policy(tomllib.loads(f'name = "p"\nlisteners = {listeners}'))


def test_a_policy_with_listeners_is_for_who_came_through_them() -> None:
    stage = Stage(TWO)
    for name in ("desk", "floor", "web", ""):
        stage.consumer(f"at {name}", "t", reads=STUCK, buffer=100, listener=name)
    stage.client("publisher").publish("t", 0, 20)
    stage.run(1)
    assert told(stage) == {"at desk": "desk", "at floor": "desk"}
    stage.client("publisher").publish("t", 20, 20)
    stage.run(1)
    assert told(stage)["at web"] == told(stage)["at "] == "everybody"


def test_a_client_that_comes_back_through_another_listener_gets_its_policy() -> None:
    stage = Stage(TWO)
    client = stage.consumer("c", "t", reads=STUCK, buffer=100, listener="web", expiry_s=60.0)
    client.subscribe("u")
    stage.client("publisher").publish("t", 0, 20)
    stage.run(1)
    assert told(stage) == {}
    client.leave()
    back = stage.client("c", reads=STUCK, buffer=100, listener="desk", expiry_s=60.0)
    stage.turn()
    assert policies(back) == ["desk", "desk"], "one that keeps up has it, too"
    stage.run(1)
    assert told(stage) == {"c": "desk"}
    back.leave()
    stage.run(1)
    assert policies(back) == ["desk", "desk"], "while it is away it is as it was"
    again = stage.client("c", reads=STUCK, buffer=100, listener="web", expiry_s=60.0)
    stage.run(1)
    assert policies(again) == ["everybody", "everybody"]
    assert [one["client"] for one in stage.told("recovered")] == ["c"], "the old rule has stepped back"


def test_clients_that_come_back_by_turns_are_gone_through_once_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.core.governance.turn.POLICY_WORK", 400)
    stage = Stage(TWO)
    for number in range(20):
        listener = ("desk", "web")[number % 2]
        client = stage.client("c", reads=STUCK, listener=listener, expiry_s=60.0)
        if not number:
            for topic in range(600):
                client.subscribe(f"t/{topic}")
        stage.broker.flush(stage.now)
        assert len(stage.broker.registry.deferred) <= 2
        client.leave()
    back = stage.client("c", reads=STUCK, listener="desk", expiry_s=60.0)
    while stage.broker.registry.deferred.begun:
        stage.turn()
    stage.turn()
    while stage.broker.registry.deferred.begun:
        stage.turn()
    assert set(policies(back)) == {"desk"}


def test_a_reload_gives_each_the_policy_of_its_listener() -> None:
    stage = Stage()
    clients = [stage.consumer(f"at {name}", "t", listener=name) for name in ("desk", "web")]
    stage.broker.set_policies(tuple(map(parse_policy, tomllib.loads(TWO)["policy"])), stage.now)
    stage.run(1)
    assert [policies(client) for client in clients] == [["desk"], ["everybody"]]


def test_consumers_of_a_queue_have_each_the_policy_of_its_listener() -> None:
    stage = QueueStage(TWO)
    owner = stage.peer("owner", listener="web")
    owner.declare("q")
    at = {name: stage.peer(f"at {name}", listener=name) for name in ("desk", "web")}
    for peer in at.values():
        peer.consume("q", 1, acks=False)
    names = {name: next(iter(peer.session.subscriptions.values())).case.policy.name for name, peer in at.items()}
    assert names == {"desk": "desk", "web": "everybody"}


def test_a_trial_with_listeners_judges_who_came_through_them() -> None:
    stage = Stage()
    stage.broker.set_trials(parse_trials([tomllib.loads(DESK.replace("policy.rule", "rule"))]))
    for name in ("desk", "web"):
        stage.consumer(f"at {name}", "t", reads=STUCK, buffer=100, listener=name)
    stage.client("publisher").publish("t", 0, 20)
    stage.run(1)
    assert {one.client for one in stage.broker.governor.trials.after(0, 100)} == {"at desk"}
