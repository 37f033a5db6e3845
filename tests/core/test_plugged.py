"""Meters and actions that were plugged in, on the stage: they measure, they decide, they fail, and nobody is hurt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.core.stage import STUCK, Client, Stage

from headway.core.base import ConfigError, Names, Reason
from headway.core.policy import (
    ACTIONS,
    CONDITIONS,
    METERS,
    Look,
    MeterInfo,
    Move,
    move,
    parse_policy,
    parse_trials,
    plugged_action,
    plugged_condition,
    plugged_meter,
    tell,
)


class Waiting:
    """How many records wait, as a plug-in sees it."""

    unit = "count"

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.error: Exception | None = None
        self.answer: object = ...

    def measure(self, look: Look, now: float) -> float | None:
        self.looks.append(look)
        if self.error is not None:
            raise self.error
        return look.sample.lag_records if self.answer is ... else self.answer  # type: ignore[return-value]


class Shed:
    conflates = False

    def __init__(self) -> None:
        self.options = {"keep": 10, "why": ""}
        self.asked: list[tuple[Look, dict[str, object]]] = []
        self.answer: object = None

    def act(self, look: Look, options: dict[str, object], now: float) -> list[Move]:
        self.asked.append((look, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer  # type: ignore[return-value]
        return [move("discard", "too much", which="oldest", keep_records=options["keep"])]


class Crowded:
    """Whether more records wait than a limit."""

    def __init__(self) -> None:
        self.options = {"limit": 20, "strict": False}
        self.asked: list[dict[str, object]] = []
        self.answer: object = ...

    def holds(self, look: Look, options: dict[str, object], now: float) -> bool:
        self.asked.append(options)
        held = look.sample.lag_records > options["limit"]  # type: ignore[operator]
        return held if self.answer is ... else self.answer  # type: ignore[return-value]


@pytest.fixture
def condition() -> Iterator[Crowded]:
    crowded = Crowded()
    CONDITIONS["my.crowded"] = plugged_condition("my.crowded", crowded, "test 1")
    yield crowded
    del CONDITIONS["my.crowded"]
    METERS.made.clear()


@pytest.fixture
def meter() -> Iterator[Waiting]:
    waiting = Waiting()
    METERS["waiting"] = plugged_meter("waiting", waiting, "test 1")
    yield waiting
    del METERS["waiting"]


@pytest.fixture
def action() -> Iterator[Shed]:
    shed = Shed()
    ACTIONS["my.shed"] = plugged_action("my.shed", shed, "test 1")
    yield shed
    del ACTIONS["my.shed"]


def policy(when: str = 'waiting = "> 20"', then: str = '"notify"', more: str = "") -> str:
    return f'[[policy]]\nname = "p"\n[[policy.rule]]\nwhen = {{ {when} }}\nthen = {then}\n{more}'


def stuck_behind(config: str, records: int = 50) -> tuple[Stage, Client]:
    stage = Stage(config)
    slow, publisher = stage.client("slow", reads=STUCK, buffer=200), stage.client("publisher")
    slow.subscribe("t/#")
    publisher.publish("t/1", 0, records)
    stage.run(1.0)
    return stage, slow


def test_a_plugged_in_meter_is_measured_for_a_trial_too_and_its_action_is_not_asked(
    meter: Waiting, action: Shed
) -> None:
    stage = Stage("")
    stage.broker.set_trials(parse_trials([
        {"name": "t", "rule": [{"when": {"waiting": "> 20"}, "then": "my.shed"}]},
    ]))  # fmt: skip
    slow, publisher = stage.client("slow", reads=STUCK, buffer=200), stage.client("publisher")
    slow.subscribe("t/#")
    publisher.publish("t/1", 0, 50)
    stage.run(1.0)
    assert len(stage.broker.governor.trials.of("slow")) == 1
    assert meter.looks
    assert not action.asked


def test_a_plugged_in_meter_is_compared_like_any_other(meter: Waiting) -> None:
    stage, _ = stuck_behind(policy('waiting = "> 20"'))
    (told,) = stage.told("slow", "slow")
    assert (told["reason"], told["action"]) == (Reason.PLUGIN, "notify")
    verdict = stage.broker.verdicts.of("slow")[-1]
    assert [(one.meter, one.threshold, one.held) for one in verdict.readings] == [("waiting", 20, True)]
    assert verdict.text.startswith(f"slow on t/#: waiting {int(verdict.readings[0].value)} (limit 20) while ")
    assert verdict.sample.plugged == {"waiting": verdict.sample.lag_records}


def test_it_is_told_who_it_is_in_plain_values_once_a_look(meter: Waiting) -> None:
    stage, _ = stuck_behind(policy('any = [{ waiting = "> 20" }, { waiting = ">= 40", lag_records = 5 }]', more=(
        'until = { waiting = "< 3" }'
    )))  # fmt: skip
    look = meter.looks[-1]
    assert (look.client, look.filter, look.protocol, look.durable, look.connected, look.policy, look.user) == (
        "slow", "t/#", "mqtt5", False, True, "p", "",
    )  # fmt: skip
    assert look.wall_s == stage.now + stage.broker.registry.wall_offset_s
    before = len(meter.looks)
    stage.tick()
    assert len(meter.looks) == before + 1
    with pytest.raises(AttributeError):
        look.client = "another"  # type: ignore[misc]


def test_where_no_policy_names_it_nobody_asks_it(meter: Waiting) -> None:
    stuck_behind(policy("lag_records = 20"))
    assert meter.looks == []


@pytest.mark.parametrize("answer", [None, "many", float("nan"), float("inf"), True, [1]])
def test_a_meter_without_a_value_finds_nothing(meter: Waiting, answer: object) -> None:
    meter.answer = answer
    stage, _ = stuck_behind(policy('lag_records = 5, any = [{ waiting = "> 0" }, { waiting = "<= 100" }]'))
    assert stage.told("slow", "slow") == []
    failures = stage.broker.governor.plugged.failures["waiting"]
    assert failures == 0 if answer is None else failures > 2


def test_a_meter_that_raises_is_as_if_it_had_no_value_and_the_others_are_judged(meter: Waiting) -> None:
    meter.error = ZeroDivisionError("of mine")
    second = '[[policy.rule]]\nwhen = { lag_records = 20 }\nthen = "disconnect"'
    stage, slow = stuck_behind(policy('waiting = "> 0"', more=second))
    assert not slow.connected
    assert [one.rule for one in stage.broker.verdicts.of("slow")] == [2]
    assert [(one.name, str(one.error)) for one in stage.failed] == [("waiting", "of mine")]


def test_what_fails_is_told_once_and_counted_each_time(meter: Waiting) -> None:
    meter.error = ValueError()
    stage, _ = stuck_behind(policy())
    stage.run(2.0)
    assert len(stage.failed) == 1
    assert stage.broker.governor.plugged.failures["waiting"] == len(meter.looks) > 5
    meter.error = None
    stage.run(1.0)
    assert len(stage.told("slow", "slow")) == 1


def test_a_plugged_in_condition_is_asked_with_its_options_and_is_a_reading(condition: Crowded) -> None:
    stage, _ = stuck_behind(policy('"my.crowded" = { limit = 30 }'))
    verdict = stage.broker.verdicts.of("slow")[-1]
    assert verdict.reason is Reason.PLUGIN
    name = "my.crowded(limit = 30, strict = False)"
    assert [(reading.meter, reading.value) for reading in verdict.readings] == [(name, 1.0)]
    assert f"{name} holds" in verdict.text
    assert condition.asked[0] == {"limit": 30, "strict": False}
    for when, fires in [
        ('"my.crowded" = { limit = 60 }', False), ('"my.crowded" = true', True),
        ('"my.crowded" = true, lag_records = 60', False),
        ('any = [{ "my.crowded" = true }, { lag_records = 60 }]', True),
    ]:  # fmt: skip
        assert bool(stuck_behind(policy(when))[0].broker.verdicts.of("slow")) is fires, when


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_a_condition_that_fails_does_not_hold_and_is_told_by_its_name(condition: Crowded, answer: object) -> None:
    condition.answer = answer
    stage, _ = stuck_behind(policy('"my.crowded" = true'))
    assert not stage.broker.verdicts.of("slow")
    assert set(stage.broker.governor.plugged.failures) == {"my.crowded"}


@pytest.mark.parametrize(("written", "says"), [
    (5, "when.my.crowded: expected true, or a table of its options: limit, strict"),
    ({"limt": 5}, "when.my.crowded: unknown option 'limt' (did you mean limit?)"),
    ({"limit": "5"}, "when.my.crowded.limit: expected something like 20, not '5'"),
])  # fmt: skip
def test_a_mistake_in_a_condition_says_what_it_takes(condition: Crowded, written: object, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_policy({"name": "p", "rule": [{"when": {"my.crowded": written}, "then": "notify"}]})
    assert says in str(error.value)
    with pytest.raises(ConfigError, match=r"did you mean my\.crowded\?"):
        parse_policy({"name": "p", "rule": [{"when": {"my.crowde": True}, "then": "notify"}]})


def test_a_plugged_in_action_has_done_what_it_answers(meter: Waiting, action: Shed) -> None:
    stage, slow = stuck_behind(policy(then='{ action = "my.shed", keep = 5 }'))
    look, options = action.asked[0]
    assert (look.client, look.sample.plugged["waiting"] > 20) == ("slow", True)  # type: ignore[index]
    assert options == {"keep": 5, "why": ""}
    verdict = stage.broker.verdicts.of("slow")[0]
    assert verdict.text.endswith(
        "its oldest waiting records discarded down to 5 records (too much), as my.shed has it, by policy 'p', rule 1"
    )
    assert verdict.action.word == stage.told("slow", "slow")[0]["action"] == "my.shed"
    assert stage.stats(slow).lag_records == 5


def test_what_lasts_lasts_until_the_rule_steps_back(meter: Waiting, action: Shed) -> None:
    action.answer = [move("discard", which="newest", keep_records=5)]
    stage, slow = stuck_behind(policy(then='"my.shed"', more='until = { waiting = "< 3" }'))
    stage.clients["publisher"].publish("t/1", 50, 30)
    stage.run(1.0)
    assert stage.stats(slow).lag_records < 50
    slow.reads = float("inf")
    stage.run(1.0)
    assert len(action.asked) == 1
    assert len(stage.told("recovered", "slow")) == 1
    text = stage.broker.verdicts.of("slow")[-1].text
    assert text.endswith("; no longer as my.shed has it (policy 'p', rule 1)")
    stage.clients["publisher"].publish("t/1", 80, 10)
    stage.run(1.0)
    assert slow.numbers[-10:] == [*range(80, 90)]


def test_it_may_disconnect_and_its_words_are_the_last_ones(meter: Waiting, action: Shed) -> None:
    action.answer = [tell("enough", level=3), move("disconnect", "come back at night")]
    stage, slow = stuck_behind(policy(then='"my.shed"'))
    (told,) = stage.told("told", "slow")
    assert (told["text"], told["action"], told["details"]) == ("enough", "my.shed", {"level": 3})
    assert slow.goodbye is not None
    assert "told (enough), disconnected (come back at night), as my.shed has it," in str(slow.goodbye)


def test_after_the_last_move_nothing_more_is_done_but_told(meter: Waiting, action: Shed) -> None:
    action.answer = [move("delete_subscription"), move("delete_subscription"), move("conflate"), tell("so it is")]
    action.conflates = True
    ACTIONS["my.shed"] = plugged_action("my.shed", action, "test 1")  # type: ignore[arg-type]
    stage, slow = stuck_behind(policy(then='"my.shed"'))
    assert not slow.connected, "it would wait for ever for what comes no more"
    assert len(stage.told("deleted", "slow")) == len(stage.told("told", "slow")) == 1


def test_it_conflates_if_it_says_that_it_may(meter: Waiting, action: Shed) -> None:
    action.answer = [move("conflate")]
    stage, slow = stuck_behind(policy(then='"my.shed"'))
    assert "conflates = True" in stage.broker.verdicts.of("slow")[-1].text
    action.conflates = True
    ACTIONS["my.shed"] = plugged_action("my.shed", action, "test 1")  # type: ignore[arg-type]
    stage, slow = stuck_behind(policy(then='"my.shed"'))
    assert stage.stats(slow).state == "conflating"


@pytest.mark.parametrize(
    "answer", [RuntimeError("of\nmine"), ["disconnect"], 7, [tell("x", y=object())], [tell("")] * 17]
)
def test_an_action_that_fails_does_nothing_and_says_so(meter: Waiting, action: Shed, answer: object) -> None:
    action.answer = answer
    second = '[[policy.rule]]\nwhen = { lag_records = 20 }\nfor = "1s"\nthen = "disconnect"'
    stage, slow = stuck_behind(policy(then='"my.shed"', more=second))
    verdict = stage.broker.verdicts.of("slow")[0]
    assert "; my.shed failed and did nothing (" in verdict.text
    assert "\n" not in verdict.text
    assert [one.name for one in stage.failed] == ["my.shed"]
    stage.run(1.0)
    assert not slow.connected


def test_a_dry_run_does_not_ask_it(meter: Waiting, action: Shed) -> None:
    stage, _ = stuck_behind(policy(then='"my.shed"', more="enforce = false"))
    assert action.asked == []
    assert "; my.shed would have been asked what to do by policy" in stage.broker.verdicts.of("slow")[-1].text


def test_durable_subscriptions_are_spared_unless_it_says_otherwise(meter: Waiting, action: Shed) -> None:
    action.answer = [move("delete_subscription")]
    stage = Stage(policy(then='"my.shed"'))
    slow, publisher = stage.client("slow", reads=STUCK, buffer=200, expiry_s=60.0), stage.client("publisher")
    subscription = slow.subscribe("t/#")
    publisher.publish("t/1", 0, 50)
    stage.run(1.0)
    assert not subscription.ended
    assert "nothing done, as my.shed has it," in stage.broker.verdicts.of("slow")[-1].text


@pytest.mark.parametrize(("when", "then", "message"), [
    ({"wating": 5}, "notify", "unknown meter 'wating' (did you mean waiting?)"),
    ({"zzz": 5}, "notify", "slow_fraction, waiting, all, any)"),
    ({"lag_age": "5s"}, "my.shef", "unknown action 'my.shef' (did you mean my.shed?)"),
    ({"lag_age": "5s"}, "plugin", "unknown action 'plugin' (known: notify, conflate,"),
    ({"lag_age": "5s"}, {"action": "my.shed", "kep": 5}, "unknown option of my.shed 'kep' (did you mean keep?)"),
    ({"lag_age": "5s"}, {"action": "my.shed", "keep": "5"}, "then.keep: expected something like 10, not '5'"),
])  # fmt: skip
def test_a_mistake_says_what_there_is(meter: Waiting, action: Shed, when: object, then: object, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_policy({"name": "p", "rule": [{"when": when, "then": then}]})
    assert message in str(error.value)


def test_built_in_names_are_not_looked_up_among_the_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look reads a file of every installed distribution."""
    for names in (METERS, CONDITIONS, ACTIONS):
        monkeypatch.setattr(names, "elsewhere", lambda: pytest.fail("it was looked up"))
    when = {"all": [{"lag_age": "5s"}, {"any": [{"blocked_time": "5s"}, {"lag_records": 10}]}]}
    parse_policy({"name": "p", "rule": [{"when": when, "then": "notify"}]})


def test_what_is_no_plug_in_is_refused() -> None:
    with pytest.raises(ConfigError, match="it is not a meter: a meter has measure"):
        plugged_meter("m", object(), "")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it is not an action: an action has act"):
        plugged_action("a", object(), "")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it is not a condition: a condition has holds"):
        plugged_condition("c", object(), "")  # type: ignore[arg-type]


def test_a_move_is_built_in_and_complete(action: Shed) -> None:
    for mistake in ({"action": "my.shed"}, {"action": "discard", "which": "oldest"}, {"action": "vanish"}):
        with pytest.raises(ConfigError):
            move(**mistake)


def test_what_is_elsewhere_is_loaded_when_it_is_named_and_replaces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load() -> MeterInfo:
        loaded.append("late")
        return plugged_meter("late", Waiting(), "test 1")

    names = Names("meter", {"lag_age": METERS["lag_age"]}, beside=("all",))
    monkeypatch.setattr(names, "elsewhere", lambda: {"late": load, "lag_age": load})
    with pytest.raises(ConfigError, match=r"unknown meter 'zzz' \(known: lag_age, late, all\)"):
        names.find("zzz")
    assert not loaded
    assert names.find("late") is names.find("late")
    assert names.find("lag_age").plugged is None
    assert loaded == ["late"]
