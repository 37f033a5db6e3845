"""A reload goes through all subscriptions in slices: no turn does more for many of them than for a few."""

from __future__ import annotations

import gc
import tomllib
from collections.abc import Callable

import pytest
from tests.core.guarded_stage import EVERYTHING, Guarded
from tests.core.queues_stage import QueueStage
from tests.core.stage import SHARED, STUCK, Client, Stage, documented
from tests.core.test_idle import steps

from headway.core.allowance import UNLIMITED, Allowances, UserLimits
from headway.core.base.deferred import DeferredWork
from headway.core.base.errors import Reason, Refused
from headway.core.consumer.effects import Disconnect
from headway.core.consumer.request import NO_WILL, ConnectRequest, SubscribeRequest, Will
from headway.core.log.states import StateTerms
from headway.core.message.record import Record
from headway.core.permission import ALL_RIGHTS, Identity, Operation, Permission
from headway.core.policy.evaluation import parse_trials
from headway.core.policy.rules.rule import Policy, parse_policies
from headway.core.routing import registry
from headway.wire.mqtt.dialect import MqttDialect

FEW, MANY = 240, 960
"""Subscriptions; the few are more than a turn's share, too."""
EACH = 8
SHARE = 320
LINES_A_TURN = 16_000
"""Of Python; all of the few, in one turn, are more."""
LAG = """
[[policy]]
name = "lag"
[[policy.rule]]
when = { lag_records = %d }
then = "disconnect"
"""


@pytest.fixture(autouse=True)
def _the_share_of_a_turn_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "DeferredWork", lambda *_: DeferredWork(SHARE))


def policies(records: int) -> tuple[Policy, ...]:
    return parse_policies(tomllib.loads(LAG % records)["policy"])


def crowd(stage: Stage, subscriptions: int, **options: str) -> list[Client]:
    clients = [stage.client(f"c{number}") for number in range(subscriptions // EACH)]
    for number, client in enumerate(clients):
        for part in range(EACH):
            client.subscribe(f"t/{number}/{part}", 1, **options)
    stage.turn()
    return clients


def lines(stage: Stage, work: Callable[[], object]) -> list[int]:
    """Lines of Python that the work takes, and each of the turns after it until nothing is left to do."""
    found = [steps(work)]
    while stage.broker.has_work:
        found.append(steps(lambda: stage.broker.flush(stage.now)))
    return found


def narrowed(subscriptions: int) -> list[int]:
    """Permissions that allow less, and nothing less of what there is."""
    guarded = Guarded(EVERYTHING)
    crowd(guarded.stage, subscriptions)
    return lines(guarded.stage, lambda: guarded.reload(Permission(publish=("a",), subscribe=("t/#",))))


def revoked(subscriptions: int) -> list[int]:
    guarded = Guarded(EVERYTHING)
    clients = crowd(guarded.stage, subscriptions)
    found = lines(guarded.stage, lambda: guarded.reload(Permission(subscribe=("u/#",))))
    assert not any(client.session.subscriptions for client in clients)
    return found


def governed(subscriptions: int) -> list[int]:
    stage = Stage(LAG % 10)
    clients = crowd(stage, subscriptions)
    fresh = policies(20)
    found = lines(stage, lambda: stage.broker.set_policies(fresh, stage.now))
    cases = [one.case for client in clients for one in client.session.subscriptions.values()]
    assert {case.policy for case in cases} == {fresh[0]}
    return found


def limited(subscriptions: int) -> list[int]:
    """Limits for clients without subscriptions."""
    stage = Stage()
    clients = [stage.client(f"c{number}") for number in range(2 * subscriptions)]
    allowances = stage.broker.registry.allowances
    allowances.take((UserLimits("limit[1]", connections=100_000),), {})
    ann = allowances.of(Identity("ann"))
    assert ann is not UNLIMITED
    found = lines(stage, lambda: stage.broker.set_allowances(lambda _: ann, stage.now))
    assert ann.connections == len(clients) + 1, "the monitor's, too"
    return found


def conflated(subscriptions: int) -> list[int]:
    """A ``[[topic]]`` that is conflated from now on."""
    stage = Stage()
    stage.broker.declare_state(StateTerms("t/#"))
    clients = crowd(stage, subscriptions)
    terms = StateTerms("t/#", conflate_s=1.0)
    found = lines(stage, lambda: stage.broker.declare_states([terms], stage.now))
    every = [one.conflation for client in clients for one in client.session.subscriptions.values()]
    assert {(one.every_s, one.by_topic, one.by_clock) for one in every} == {(1.0, "t/#", True)}
    return found


@pytest.mark.parametrize("reload", [narrowed, revoked, governed, limited, conflated])
def test_a_reload_takes_many_turns_of_one_size(reload: Callable[[int], list[int]]) -> None:
    few, many = reload(FEW), reload(MANY)
    assert max(few) < LINES_A_TURN, few
    assert max(many) < LINES_A_TURN, many
    assert sum(many) > 2 * sum(few), "it did all of it"


def test_what_is_as_before_costs_nothing() -> None:
    guarded = Guarded(EVERYTHING, toml=LAG % 10)
    clients = crowd(guarded.stage, FEW)
    versions = [one.case.policies_version for one in clients[0].session.subscriptions.values()]
    equal = policies(10)
    same = lines(guarded.stage, lambda: guarded.stage.broker.set_policies(equal, guarded.stage.now))
    assert sum(same) < 300
    assert [one.case.policies_version for one in clients[0].session.subscriptions.values()] == versions
    guarded.reload(EVERYTHING)
    guarded.finish()
    wider = lines(guarded.stage, lambda: guarded.reload(EVERYTHING, Permission(publish=("more",))))
    assert sum(wider) < 100 * len(clients) + 500, "nobody has lost anything, so no subscription is looked at"


# -- permissions -------------------------------------------------------------------------------------------------------


def test_new_actions_are_judged_by_the_new_permissions_at_once() -> None:
    guarded = Guarded(EVERYTHING)
    crowd(guarded.stage, FEW)
    late = guarded.client("late", 3)
    guarded.reload(Permission(subscribe=("u/#",)))
    assert late.connected, "its turn comes later"
    assert len(late.session.subscriptions) == 3
    with pytest.raises(Refused) as refused:
        late.subscribe("t/more")
    assert refused.value.reason is Reason.NOT_AUTHORIZED
    assert late.session.rights is not ALL_RIGHTS
    assert not late.session.rights.may_publish("u/x")
    assert late.session.rights.may(Operation.SUBSCRIBE, "u/x")
    guarded.finish()
    assert not late.connected
    assert guarded.over[-1] == len(guarded.over)


def test_a_will_of_a_client_that_was_not_judged_yet_is_not_published() -> None:
    guarded = Guarded(EVERYTHING)
    watcher = guarded.client("watcher")
    watcher.subscribe("wills/#")
    crowd(guarded.stage, FEW)
    late = guarded.client("late")
    late.session.will = Will(Record("wills/late", b"0"))
    guarded.reload(Permission(subscribe=("#",)))
    assert late.session.will is not NO_WILL
    late.leave()
    guarded.finish()
    guarded.stage.turn()
    assert watcher.seen == []


def test_a_reload_that_overtakes_another_is_what_holds_in_the_end() -> None:
    guarded = Guarded(EVERYTHING)
    clients = crowd(guarded.stage, FEW)
    keeper = guarded.client("keeper", 3, expiry_s=3600.0)
    guarded.reload(Permission(subscribe=("t/keeper/#",)))
    guarded.turn()
    assert clients[0].goodbye is not None, "its turn was the first"
    assert clients[-1].connected
    guarded.reload(Permission(subscribe=("t/0/#", "t/29/#")))
    guarded.finish()
    assert [client.name for client in clients if client.connected] == ["c29"], "c0 is not called back"
    assert not keeper.connected
    assert not keeper.session.subscriptions
    assert guarded.over == [1, 2], "one round, and it was over once"


def test_what_was_made_between_two_reloads_is_judged_by_the_second() -> None:
    """It was allowed by the first, which nobody was judged by before the second came."""
    guarded = Guarded(Permission(publish=("#",), subscribe=("t/#",)))
    crowd(guarded.stage, FEW)
    late = guarded.client("late", 1)
    guarded.reload(Permission(subscribe=("t/#", "u/#")))
    # More is allowed, so every visit is short; but none has come to this client.
    guarded.stage.broker.registry.rounds._left = 0
    late.subscribe("u/x")
    guarded.reload(Permission(publish=("#",), subscribe=("t/#",)))
    guarded.finish()
    assert not late.connected
    assert late.goodbye is not None


def test_reloads_in_a_row_leave_nobody_out() -> None:
    """Each comes before the round of the one before is over; the round goes on where it was. A round that began anew
    would look at the first clients again and again."""
    guarded = Guarded(EVERYTHING)
    crowd(guarded.stage, MANY)
    last = guarded.client("last")
    last.subscribe("u/x")
    for number in range(20):
        guarded.reload(Permission(subscribe=("t/#" if number % 2 else "t/+/+",)))
        assert len(guarded.stage.broker.registry.rounds) == 1, "no queue of reloads"
        guarded.turn()
        if not last.connected:
            return
    raise AssertionError("the last client is not judged")


def test_a_session_is_not_resumed_while_what_was_revoked_ends() -> None:
    guarded = Guarded(EVERYTHING)
    keeper = guarded.client("keeper", 200, expiry_s=3600.0)
    keeper.subscribe("kept")
    guarded.reload(Permission(publish=("#",), subscribe=("kept",)))
    while keeper.connected:
        guarded.turn()
    assert 1 < len(keeper.session.subscriptions) <= 201
    with pytest.raises(Refused) as refused:
        keeper.connect()
    assert refused.value.retry_after_s
    guarded.finish()
    assert list(keeper.session.subscriptions) == [keeper.session.subscriptions["kept"].request.key]
    request = ConnectRequest("keeper", "", False, 3600.0, protocol="mqtt5")
    assert guarded.stage.broker.connect(request, keeper.outlet, guarded.stage.now) is keeper.session


def test_what_was_sent_and_not_acknowledged_of_a_revoked_topic_is_not_sent_again() -> None:
    guarded = Guarded(EVERYTHING)
    stage = guarded.stage
    keeper = stage.client("keeper", expiry_s=3600.0, acks=False)
    keeper.subscribe("secret", 1)
    keeper.subscribe("kept", 1)
    publisher = stage.client("publisher")
    publisher.publish("secret", 1, 3, qos=1)
    publisher.publish("kept", 4, 2, qos=1)
    stage.turn()
    assert keeper.numbers == [1, 2, 3, 4, 5]
    guarded.reload(Permission(publish=("#",), subscribe=("kept",)))
    guarded.finish()
    assert not keeper.connected
    keeper.connect()
    stage.turn()
    assert keeper.numbers == [1, 2, 3, 4, 5, 4, 5]


def test_a_client_is_told_some_denials_and_how_many_more() -> None:
    guarded = Guarded(EVERYTHING)
    client = guarded.client("c", 100)
    ends: list[Disconnect] = []
    guarded.reload(Permission(publish=("#",)))
    while guarded.stage.broker.has_work or not ends:
        guarded.stage.broker.flush(guarded.stage.now)
        ends += [one for one in guarded.stage.broker.take_effects() if isinstance(one, Disconnect)]
    assert ends[0].session is client.session
    assert ends[0].text.count("may not subscribe to") == 16
    assert ends[0].text.endswith("; and 84 more")


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_consumer_is_judged_by_its_new_policy_at_the_next_look() -> None:
    """It is the last whom the round comes to."""
    stage = Stage(LAG % 10)
    crowd(stage, FEW)
    stuck = stage.consumer("stuck", "busy", reads=STUCK, buffer=100)
    stage.client("publisher").publish("busy", 0, 9)
    stage.turn()
    stage.broker.set_policies(policies(5), stage.now)
    assert next(iter(stuck.session.subscriptions.values())).case.policy.name == "lag"
    stage.broker.governor.sweep(stage.now)
    stage._carry_out()
    assert stuck.goodbye is not None or not stuck.connected


def test_other_policies_make_no_objects_for_who_keeps_up() -> None:
    """What replaces as many objects as it frees looks like nothing to Python's collector, which then finds a hundred
    thousand at once."""
    stage = Stage(LAG % 10)
    crowd(stage, FEW)
    fresh = policies(5)
    gc.collect()  # what is there is old from now on; gc.unfreeze() would bring back what conftest.py has set aside
    gc.disable()
    try:
        stage.broker.set_policies(fresh, stage.now)
        while stage.broker.has_work:
            stage.broker.flush(stage.now)
        made = len(gc.get_objects(generation=0))
    finally:
        gc.enable()
    assert made < FEW, f"{made} objects for {FEW} consumers"


def test_topics_that_a_reload_declares_have_a_state_for_whom_waits() -> None:
    rule = '[[policy]]\nname = "p"\n[[policy.rule]]\nwhen = { lag_records = 10 }\nthen = "conflate"\nkeyed = true\n'
    stage = Stage(rule)
    clients = crowd(stage, FEW)
    found = lines(stage, lambda: stage.broker.declare_states([StateTerms("t/#")], stage.now))
    assert max(found) < LINES_A_TURN
    subscriptions = [one for client in clients for one in client.session.subscriptions.values()]
    assert {None if one.conflation.state is None else one.conflation.state.filter for one in subscriptions} == {"t/#"}
    assert lines(stage, lambda: stage.broker.declare_states([StateTerms("t/#")], stage.now))[0] < 100


def test_each_topic_that_a_reload_declares_costs_the_same_however_many_there_are() -> None:
    def each(topics: int) -> float:
        stage = Stage()
        states = [StateTerms(f"t/{number}", "/k", expire_s=9.0) for number in range(topics)]
        found = lines(stage, lambda: stage.broker.declare_states(states, stage.now))
        assert max(found) < LINES_A_TURN
        assert set(stage.broker.registry.router.expiring) == set(stage.broker.registry.router.states)
        return sum(found) / topics

    assert each(320) < 1.2 * each(80)


def test_limits_that_are_as_before_are_no_change() -> None:
    allowances = Allowances()
    limits, groups = (UserLimits("limit[1]", connections=1),), {"g": ["ann"]}
    assert not allowances.take((), groups)
    assert allowances.take(limits, groups)
    assert not allowances.take(limits, {"g": ["ann"]})
    assert allowances.take(limits, {"g": ["bob"]})
    assert allowances.take((), {})


def test_verdicts_of_trials_that_are_no_more_are_forgotten() -> None:
    stage = Stage()
    trial = '[[trial]]\nname = "%s"\n[[trial.rule]]\nwhen = { lag_records = 5 }\nthen = "notify"\n'
    for name in ("one", "two", "three"):
        stage.broker.set_policies((), stage.now, parse_trials(tomllib.loads(trial % name)["trial"]))
        stage.consumer(f"stuck {name}", "busy", reads=STUCK, buffer=100)
        stage.client("publisher").publish("busy", 0, 20)
        stage.run(1.0)
        assert stage.broker.governor.trials.made_by(name)
    assert list(stage.broker.governor.trials._books) == ["three"]


def test_the_placeholder_of_a_queue_gets_the_new_policy() -> None:
    stage = QueueStage(LAG.replace('"disconnect"', '"notify"') % 10)
    owner = stage.peer("owner")
    owner.declare("q", durable=True)
    owner.publish("q", 0, 8)
    stage.run(1.0)
    assert not list(stage.broker.verdicts)
    fresh = parse_policies(tomllib.loads(LAG.replace('"disconnect"', '"notify"') % 5)["policy"])
    stage.broker.set_policies(fresh, stage.now)
    stage.run(1.0)
    assert [one.filter for one in stage.broker.verdicts] == ["$queue/q"]


# -- states ------------------------------------------------------------------------------------------------------------


def given_states(states: int) -> int:
    """Lines of Python that a subscription with a state takes where there are so many already."""
    stage = Stage()
    client = stage.client("c")
    dialect = MqttDialect(5, 1, None, True, False)
    for number in range(states):
        client.subscribe(f"of/{number}", snapshot="true")
    options = next(iter(client.session.subscriptions.values())).request.options
    request = SubscribeRequest("another", dialect, SHARED, 1, options=options)
    return steps(lambda: stage.broker.subscribe(client.session, request, stage.now))


def test_a_state_is_found_among_many_without_a_look_at_each() -> None:
    assert given_states(600) < given_states(60) + 100


@pytest.mark.parametrize("keeps", [False, True])
def test_who_was_asked_to_close_is_not_cut_for_it_once_it_has_another_policy(keeps: bool) -> None:
    """An operator who takes a policy back takes back what it has asked."""
    stage = Stage(documented("J4"))
    deaf = stage.consumer("deaf", "t", 1, window=5, acks=False)
    stage.client("publisher").publish("t", 0, 100, qos=1)
    stage.run(31)
    assert stage.asked_to_close == ["deaf"]
    assert deaf.connected
    same = parse_policies(tomllib.loads(documented("J4"))["policy"])
    stage.broker.set_policies(same if keeps else (), stage.now)
    stage.run(10)
    assert deaf.connected == (not keeps), "the same policy again changes nothing"
