"""Policies: what can be written, what is refused and how, and what rules do over time."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.base.errors import ConfigError
from headway.core.policy.action import Action, ActionKind, Which
from headway.core.policy.condition import AllOf, Amount, AnyOf, Comparison, parse_condition
from headway.core.policy.decision import Decision, DecisionKind
from headway.core.policy.evaluation import PolicyState, evaluate, release, replace_policy
from headway.core.policy.meters.catalogue import METERS
from headway.core.policy.meters.sample import Sample
from headway.core.policy.policy import Policy, parse_policies, parse_policy


def policy_of(*rules: str, head: str = 'name = "p"') -> Policy:
    text = head + "".join(f"\n[[rule]]\n{rule}" for rule in rules)
    return parse_policy(tomllib.loads(text))


def slow(**more) -> Sample:
    """A consumer with records waiting; what else is said of it goes on top."""
    return Sample(**{"lag_records": 100, "lag_bytes": 10_000, **more})


def told(decisions: list[Decision]) -> list[str]:
    return [f"{decision.kind} {decision.rule} {decision.action.kind}" for decision in decisions]


def play(policy: Policy, story: list[tuple[float, Sample]]) -> list[tuple[float, str]]:
    """What the policy decides at which time of the story."""
    state = PolicyState(policy)
    return [(now, said) for now, sample in story for said in told(evaluate(policy, state, sample, now))]


BLOCKED = slow(blocked_time=60.0)
FINE_AGAIN = slow(lag_records=1)

# Conditions: each with a sample for which it holds and one for which it does not.

CONDITIONS = [
    ({"lag_records": 100}, slow(lag_records=101), slow(lag_records=100)),
    ({"lag_records": ">= 100"}, slow(lag_records=100), slow(lag_records=99)),
    ({"lag_records": ">= 10_000"}, slow(lag_records=10_000), slow(lag_records=9_999)),
    ({"lag_bytes": "64MB"}, slow(lag_bytes=64_000_001), slow(lag_bytes=64_000_000)),
    ({"lag_age": "1s"}, slow(lag_age=1.1), slow(lag_age=1.0)),
    ({"drain_rate": "5000B/s"}, slow(drain_rate=4999), slow(drain_rate=5000)),
    ({"drain_rate": "<5000B/s"}, slow(drain_rate=4999), slow(drain_rate=5000)),
    ({"drain_rate": "<= 5kB/s"}, slow(drain_rate=5000), slow(drain_rate=5001)),
    ({"drain_rate": 5000}, slow(drain_rate=0), Sample(drain_rate=0)),
    ({"drain_rate": 5000}, slow(drain_rate=0), slow(drain_rate=0, rate_window=0.1)),
    ({"drain_rate": "> 5000B/s"}, slow(drain_rate=0, rate_window=0.1), slow(drain_rate=0)),
    ({"blocked_time": "30s"}, slow(blocked_time=30.5), slow(blocked_time=30)),
    ({"credit_exhausted_time": "30s"}, slow(credit_exhausted_time=31), slow(blocked_time=31)),
    ({"slow_count": 3}, slow(slow_count=4), slow(slow_count=3)),
    ({"ack_age": "10s"}, Sample(in_flight=1, ack_age=11), Sample(in_flight=1, ack_age=9)),
    ({"pool_share": "50%"}, slow(pool_share=0.51), slow(pool_share=0.5)),
    ({"slow_fraction": ">= 100%"}, slow(slow_fraction=1.0), slow(slow_fraction=0.99)),
    ({"slow_fraction": "< 50%"}, slow(slow_fraction=0.4), slow(slow_fraction=0.5)),
    ({"lag_records": "> 2 x prefetch"}, slow(lag_records=7, prefetch=3), slow(lag_records=6, prefetch=3)),
    ({"lag_records": ">= 1.5 x prefetch"}, slow(lag_records=15, prefetch=10), slow(lag_records=14, prefetch=10)),
    ({"lag_records": "2 x prefetch"}, slow(lag_records=41, prefetch=20), slow(lag_records=10**9, prefetch=0)),
    ({"lag_records": "prefetch + 50"}, slow(lag_records=71, prefetch=20), slow(lag_records=70, prefetch=20)),
    ({"lag_records": "prefetch + 50"}, slow(lag_records=51, prefetch=0), slow(lag_records=50, prefetch=0)),
    ({"lag_age": 1, "lag_records": 10}, slow(lag_age=2, lag_records=11), slow(lag_age=2, lag_records=9)),
    ({"all": [{"lag_age": 1}, {"lag_records": 10}]}, slow(lag_age=2), slow(lag_age=2, lag_records=9)),
    ({"any": [{"lag_age": 1}, {"lag_records": 10}]}, slow(lag_age=0), slow(lag_age=1, lag_records=9)),
    ({"lag_bytes": 5, "any": [{"lag_age": 1}, {"ack_age": 1}]}, slow(ack_age=2), slow(ack_age=2, lag_bytes=5)),
]


@pytest.mark.parametrize(("written", "yes", "no"), CONDITIONS)
def test_conditions(written, yes, no):
    condition = parse_condition(written)
    assert condition.holds(yes)
    assert not condition.holds(no)


def test_qpids_thresholds_exceeding_any_fires():
    """Q1: depth, age and count; several given, any of them."""
    condition = parse_condition(
        {"any": [{"lag_bytes": 4235264}, {"lag_age": "600s"}, {"lag_records": 50}]}
    )
    quiet = Sample(lag_records=50, lag_bytes=4235264, lag_age=600)
    assert not condition.holds(quiet)
    for one in ({"lag_records": 51}, {"lag_bytes": 4235265}, {"lag_age": 600.1}):
        assert condition.holds(msgspec.structs.replace(quiet, **one))


def test_a_condition_reads_back_in_words():
    condition = parse_condition(
        {"lag_age": "30s", "any": [{"lag_records": "> 2 x prefetch"}, {"drain_rate": "<5000B/s"}]}
    )
    assert str(condition) == "lag_age > 30 s and (lag_records > 2 x prefetch or drain_rate < 5 kB/s)"


def test_readings_tell_every_comparison_and_whether_it_held():
    condition = parse_condition({"any": [{"lag_age": "30s"}, {"lag_records": "> 2 x prefetch"}]})
    readings = condition.readings(slow(prefetch=20, lag_age=3.0))
    assert [(r.meter, r.value, r.op, r.threshold, r.held) for r in readings] == [
        ("lag_age", 3.0, ">", 30.0, False),
        ("lag_records", 100, ">", 40.0, True),
    ]


# What cannot be written, and what is said about it.

HEAD = "policy 'market data', rule 2: "
WRONG_RULES = [
    ('when = { lag_rekords = 1 }\nthen = "notify"', "unknown meter 'lag_rekords' (did you mean lag_records?)"),
    ('when = { zzz = 1 }\nthen = "notify"', "unknown meter 'zzz' (known: lag_records, lag_bytes,"),
    ('when = { lag_age = "30" }\nthen = "notify"', 'when.lag_age: "30" is not a duration'),
    ('when = { lag_age = "== 3s" }\nthen = "notify"', "when.lag_age: \"== 3s\": a comparison is one of >, >=, <, <="),
    ('when = { any = [ { lag_bytes = "6 Mb" } ] }\nthen = "notify"', "when.any[1].lag_bytes: \"6 Mb\": unknown unit"),
    ('when = { any = [] }\nthen = "notify"', "when.any: expected a list of conditions such as [ {"),
    ('when = {}\nthen = "notify"', "when: the condition is empty; it would always hold"),
    ('when = "lag"\nthen = "notify"', "when: a condition is a table such as { lag_age = \"30s\" }, not text"),
    ('when = { lag_bytes = "2 x prefetch" }\nthen = "notify"', "only counts of records can be relative to prefetch"),
    ('when = { lag_records = "2 prefetch" }\nthen = "notify"', 'write "2 x prefetch" or "prefetch + 50"'),
    ('when = { lag_records = "0 x prefetch" }\nthen = "notify"', "a multiple of prefetch has to be more than 0"),
    ('when = { drain_rate = 0 }\nthen = "notify"', "when.drain_rate: nothing is less than 0; this can never hold"),
    ('when = { lag_age = ">= 0s" }\nthen = "notify"', '">= 0" always holds; write "> 0"'),
    (
        'when = { slow_fraction = "100%" }\nthen = "block_publishers"',
        'a share is never more than 100%; write ">= 100%"',
    ),
    ('when = { lag_age = "1s" }', "'then' is missing"),
    ('then = "notify"', "'when' is missing"),
    ('when = { lag_age = "1s" }\nthen = "explode"', "unknown action 'explode' (known: notify, conflate,"),
    ('when = { lag_age = "1s" }\nthen = "disconect"', "unknown action 'disconect' (did you mean disconnect?)"),
    ('when = { lag_age = "1s" }\nthen = "notify"\nfro = "1s"', "unknown key 'fro' (did you mean for?)"),
    ('when = { lag_age = "1s" }\nthen = "notify"\nfor = "soon"', 'for: "soon" is not a duration'),
    ('when = { lag_age = "1s" }\nthen = "notify"\nenforce = "no"', "enforce: expected true or false"),
    ('when = { lag_age = "1s" }\nthen = "notify"\ntimes = 0', "times: from 1 to 1,000, not 0"),
    ('when = { lag_age = "1s" }\nthen = "notify"\nretries = 3', 'retries: the tests are spread over "for"'),
    ('when = { lag_age = "1s" }\nthen = "notify"\nwithin = "1h"', "within: says how old the counted times may be"),
    (
        'when = { lag_age = "1s" }\nthen = "notify"\nfor = "1m"\ntimes = 3\nwithin = "1m"',
        "within: is too short for so many times of that length",
    ),
    ('when = { lag_age = "1s" }\nthen = "disconnect"\nuntil = { lag_age = "<1s" }', "no stepping back from disconnect"),
    ('when = { lag_records = 9 }\nthen = "notify"\nuntil = { lag_records = "< 10" }', "its limit should be at most 9"),
    ('when = { lag_records = 9 }\nthen = "notify"\nuntil = { lag_records = 3 }', "points the same way as when"),
    ('when = { drain_rate = 9 }\nthen = "notify"\nuntil = { drain_rate = ">8" }', "its limit should be at least 9 B/s"),
    ('when = { slow_fraction = "<50%" }\nthen = "disconnect"', "holds nothing against the consumer itself"),
    ('when = { lag_records = "<50" }\nthen = "disconnect"', "holds nothing against the consumer itself"),
    (
        'when = { any = [ { lag_age = "1s" }, { slow_fraction = "50%" } ] }\nthen = "disconnect"',
        "holds nothing against the consumer itself",
    ),
    ('when = { lag_age = "1s" }\nthen = { action = "disconnect", hard = true }', "disconnect has no options, found"),
    ('when = { lag_age = "1s" }\nthen = { action = "discard" }', "discard needs which = one of oldest, newest,"),
    ('when = { lag_age = "1s" }\nthen = "discard"', "discard needs which = one of"),
    ('when = { lag_age = "1s" }\nthen = { which = "oldest" }', "then: expected an action such as"),
    ('when = { lag_age = "1s" }\nthen = { action = "discard", which = "old" }', "unknown kind of discard 'old' ("),
    ('when = { lag_age = "1s" }\nthen = { action = "discard", which = "oldest" }', "needs keep_records or keep_bytes"),
    ('when = { lag_age = "1s" }\nthen = { action = "discard", which = "selector" }', 'which = "selector" needs'),
    (
        'when = { lag_age = "1s" }\nthen = { action = "discard", which = "selector", selector = "a > > 1" }',
        "then.selector, character 5:",
    ),
    ('when = { lag_age = "1s" }\nthen = { action = "discard", which = "topics" }', 'which = "topics" needs topics'),
    (
        'when = { lag_age = "1s" }\nthen = { action = "discard", which = "topics", topics = ["a/#/b"] }',
        "then.topics[1]: filter 'a/#/b': '#' must be",
    ),
    (
        'when = { lag_age = "1s" }\nthen = { action = "discard", which = "oldest", keep_records = 1, topics = ["a"] }',
        'then.topics: goes with which = "topics", not with "oldest"',
    ),
    (
        'when = { lag_age = "1s" }\nthen = { action = "discard", which = "oldest", keep_records = "few" }',
        'then.keep_records: "few" is not a whole number',
    ),
    (
        'when = { lag_age = "1s" }\nthen = { action = "delete_subscription", durable = true }',
        "then.durable: the policy is for transient subscriptions only",
    ),
]


@pytest.mark.parametrize(("rule", "says"), WRONG_RULES)
def test_wrong_rules_are_refused_by_policy_number_and_key(rule, says):
    head = 'name = "market data"\nsubscriptions = "transient"'
    with pytest.raises(ConfigError) as caught:
        policy_of('when = { lag_age = "1s" }\nthen = "conflate"', rule, head=head)
    assert str(caught.value).startswith(HEAD)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG_POLICIES = [
    ({}, "a policy needs a name"),
    ({"name": " "}, "a policy needs a name"),
    ("p", "a policy is a table"),
    ({"name": "p", "rules": []}, "policy 'p': unknown key 'rules' (did you mean rule?)"),
    ({"name": "p", "topics": "a/#"}, "policy 'p': topics: expected a list of topic filters"),
    ({"name": "p", "topics": []}, "policy 'p': topics: expected a list of topic filters"),
    ({"name": "p", "topics": ["a", "b/#/c"]}, "policy 'p': topics[2]: filter 'b/#/c': '#' must be the whole of"),
    ({"name": "p", "subscriptions": "some"}, "policy 'p': subscriptions: one of \"transient\", \"durable\", \"all\""),
    ({"name": "p", "rule": {"when": 1}}, "policy 'p': rules are written as [[policy.rule]] tables"),
    ({"name": "p", "rule": ["notify"]}, "policy 'p', rule 1: a rule is a table"),
]


@pytest.mark.parametrize(("written", "says"), WRONG_POLICIES)
def test_wrong_policies_are_refused(written, says):
    with pytest.raises(ConfigError) as caught:
        parse_policy(written)
    assert says in str(caught.value)


def test_two_policies_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="policy 'p' is defined twice"):
        parse_policies([{"name": "p"}, {"name": "p"}])


def test_deep_and_wide_conditions_are_refused():
    deep: dict[str, object] = {"lag_age": 1}
    for _ in range(50):
        deep = {"all": [deep, deep]}
    with pytest.raises(ConfigError, match="nested more than"):
        parse_condition(deep)
    with pytest.raises(ConfigError, match="more than 64 comparisons"):
        parse_condition({"any": [{"lag_age": 1}] * 65})


def test_the_designs_example_reads_as_it_should():
    tables = tomllib.loads("""
        [[policy]]
        name = "market data"
        topics = ["stocks/us/#"]
        subscriptions = "transient"
        [[policy.rule]]
        when = { lag_age = "1s" }
        then = "conflate"
        [[policy.rule]]
        when = { drain_rate = "<5000B/s" }
        for = "500ms"
        retries = 3
        then = "disconnect"
        name = "XAP"
        """)
    (policy,) = parse_policies(tables["policy"])
    assert (policy.name, policy.topics) == ("market data", ("stocks/us/#",))
    assert policy.covers(durable=False)
    assert not policy.covers(durable=True)
    first, second = policy.rules
    assert (first.when, first.then.kind) == (Comparison("lag_age", ">", Amount(1.0)), ActionKind.CONFLATE)
    assert second.when == Comparison("drain_rate", "<", Amount(5000.0))
    assert (second.for_s, second.retries, second.name, second.enforce) == (0.5, 3, "XAP", True)


def test_within_may_be_just_as_long_as_all_the_times():
    policy = policy_of('when = { lag_age = "1s" }\nthen = "notify"\nfor = "20s"\ntimes = 3\nwithin = "1m"')
    assert policy.rules[0].within_s == 60.0


def test_policies_are_values_that_go_through_json():
    when = "{ any = [ { lag_age = 1 }, { all = [ { lag_bytes = 1 }, { ack_age = 2 } ] } ] }"
    policy = policy_of(f'when = {when}\nthen = "notify"')
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy
    assert hash(policy) == hash(msgspec.json.decode(msgspec.json.encode(policy), type=Policy))


COVERS = [("all", True, True), ("durable", True, False), ("transient", False, True)]


@pytest.mark.parametrize(("kind", "durable", "transient"), COVERS)
def test_subscriptions_a_policy_covers(kind, durable, transient):
    policy = parse_policy({"name": "p", "subscriptions": kind})
    assert (policy.covers(durable=True), policy.covers(durable=False)) == (durable, transient)


DISCARDS = [
    ('{ action = "discard", which = "oldest", keep_records = 50 }', 50, None),
    ('{ action = "discard", which = "newest", keep_bytes = "1MB" }', None, 1_000_000),
    ('{ action = "discard", which = "lowest_priority", keep_records = "2 x prefetch" }', 6, None),
    ('{ action = "discard", which = "oldest" }', 53, None),
    ('{ action = "discard", which = "older_per_key" }', None, None),
    ('{ action = "discard", which = "topics", topics = ["a/#"] }', None, None),
    ('{ action = "discard", which = "selector", selector = "price < 3" }', None, None),
]


@pytest.mark.parametrize(("then", "records", "size"), DISCARDS)
def test_what_a_discard_keeps(then, records, size):
    """J1 and J2: a constant on top of prefetch, or a multiple of it (3 x 2 = 6); else what the condition allows."""
    action = policy_of(f'when = {{ lag_records = "prefetch + 50" }}\nthen = {then}').rules[0].then
    assert (action.records_kept(3), action.keep_bytes) == (records, size)


def test_a_multiple_of_no_window_keeps_everything():
    assert Action(ActionKind.DISCARD, Which.OLDEST, Amount(0.0, 2.0)).records_kept(0) is None


def test_delete_spares_durable_subscriptions_unless_told():
    """Q3."""
    when = 'when = { lag_records = 50 }\nthen = '
    assert policy_of(when + '"delete_subscription"').rules[0].then.durable is False
    assert policy_of(when + '{ action = "delete_subscription", durable = true }').rules[0].then.durable is True


# Rules over time.


def test_for_must_hold_without_a_break():
    policy = policy_of('when = { lag_records = 50 }\nfor = "10s"\nthen = "disconnect"')
    small = slow(lag_records=50)
    assert play(policy, [(0, slow()), (9.9, slow()), (10, slow())]) == [(10, "fire 0 disconnect")]
    assert play(policy, [(0, slow()), (9, small), (9.5, slow()), (19, slow()), (19.5, slow())]) == [
        (19.5, "fire 0 disconnect")
    ]


def test_for_is_measured_by_the_clock_not_by_looks():
    """A-MQ's trap: it multiplies sweeps by their period, so one second of slowness can count as sixty."""
    policy = policy_of('when = { lag_records = 50 }\nfor = "30s"\nthen = "disconnect"')
    assert play(policy, [(29 + number / 100, slow()) for number in range(200)]) == []


def test_without_for_it_fires_at_the_first_look_and_only_once():
    policy = policy_of('when = { blocked_time = "30s" }\nthen = "disconnect"')
    assert play(policy, [(now, BLOCKED) for now in range(5)]) == [(0, "fire 0 disconnect")]


def test_retries_are_so_many_tests_spread_evenly():
    """X2: below the rate, it is tested three times within 500 ms."""
    policy = policy_of('when = { drain_rate = "<5000B/s" }\nfor = "600ms"\nretries = 3\nthen = "disconnect"')
    trickle, fast = slow(drain_rate=100), slow(drain_rate=9000)
    every = [now / 10 for now in range(12)]
    assert play(policy, [(now, trickle) for now in every]) == [(0.6, "fire 0 disconnect")]
    between = [(now, fast if now in (0.1, 0.3, 0.5) else trickle) for now in every]
    assert play(policy, between) == [(0.6, "fire 0 disconnect")]
    for test in (0.2, 0.4, 0.6):
        once_fast = [(now, fast if now == test else trickle) for now in every]
        fires = [pytest.approx(test + 0.1 + 0.6)] if test < 0.6 else []
        assert [now for now, _ in play(policy, once_fast)] == fires


def test_a_late_look_does_not_serve_for_two_tests():
    policy = policy_of('when = { drain_rate = "<5000B/s" }\nfor = "600ms"\nretries = 3\nthen = "disconnect"')
    story = [(now, slow()) for now in (0, 5.0, 5.01, 5.02, 5.1, 5.15, 5.29, 5.3)]
    assert play(policy, story) == [(5.3, "fire 0 disconnect")]


def test_an_idle_consumer_is_never_slow():
    rules = [f'when = {{ {meter} = "> 0" }}\nthen = "notify"' for meter in ("slow_count", "ack_age", "pool_share")]
    policy = policy_of(*rules, 'when = { drain_rate = "<5000B/s" }\nthen = "disconnect"')
    assert play(policy, [(0, Sample(slow_count=9, ack_age=9, pool_share=1.0))]) == []
    blocked = policy_of('when = { slow_fraction = ">= 100%" }\nthen = "block_publishers"')
    assert play(blocked, [(0, Sample(slow_fraction=1.0))]) == []
    assert play(blocked, [(0, slow(slow_fraction=1.0))]) == [(0, "fire 0 block_publishers")]


def test_supply_that_is_low_does_not_feed_a_rate_floor():
    policy = policy_of('when = { drain_rate = "<5000B/s" }\nfor = "500ms"\nretries = 3\nthen = "disconnect"')
    assert play(policy, [(now / 5, slow(drain_rate=10.0, rate_window=0.0)) for now in range(100)]) == []


def test_clocks_restart_when_the_lag_was_gone_between_looks():
    """Redis' trap: each look finds eight megabytes, a minute apart; each time they had just come."""
    policy = policy_of('when = { lag_bytes = "1MB" }\nfor = "50s"\nthen = "disconnect"')
    monthly = [(60.0 * minute, slow(lag_bytes=8_000_000, waited=0.2)) for minute in range(20)]
    assert play(policy, monthly) == []
    stuck = [(60.0 * minute, slow(lag_bytes=8_000_000, waited=60.0 * minute + 0.2)) for minute in range(3)]
    assert play(policy, stuck) == [(60.0, "fire 0 disconnect")]


def test_times_counts_separate_times():
    """J3: abort when slow so often; each time is one for which the condition held long enough."""
    policy = policy_of('when = { lag_records = 50 }\nfor = "1s"\ntimes = 3\nthen = "disconnect"')
    story = []
    for start in (0, 10, 20, 30):
        story += [(start, slow()), (start + 1, slow()), (start + 2, slow()), (start + 3, slow(lag_records=1))]
    assert play(policy, story) == [(21, "fire 0 disconnect")]
    too_short = [(start + part, sample) for start in range(9) for part, sample in ((0, slow()), (0.9, FINE_AGAIN))]
    assert play(policy, too_short) == []


def test_trembling_around_the_limit_is_one_time():
    policy = policy_of('when = { lag_records = 50 }\ntimes = 2\nthen = "disconnect"')
    trembling = [(now, slow(lag_records=51 if now % 2 else 45)) for now in range(50)]
    assert play(policy, trembling) == []
    assert play(policy, [*trembling, (50, slow(lag_records=40)), (51, slow())]) == [(51, "fire 0 disconnect")]


def test_times_that_are_separated_by_a_gone_lag_between_looks_count():
    policy = policy_of('when = { lag_bytes = "1MB" }\ntimes = 3\nthen = "disconnect"')
    story = [(60.0 * minute, slow(lag_bytes=8_000_000, waited=0.2)) for minute in range(4)]
    assert play(policy, story) == [(120.0, "fire 0 disconnect")]


def test_within_forgets_old_times():
    policy = policy_of('when = { lag_records = 50 }\ntimes = 3\nwithin = "1h"\nthen = "disconnect"')

    def at(*hours: float) -> list[tuple[float, Sample]]:
        return [(hour * 3600 + part, sample) for hour in hours for part, sample in ((0, slow()), (1, Sample()))]

    assert play(policy, at(0, 0.6, 1.2, 1.8, 2.4)) == []
    assert play(policy, at(0, 0.4, 0.9)) == [(0.9 * 3600, "fire 0 disconnect")]


@pytest.mark.parametrize("kind", ["notify", "conflate", "offline", "block_publishers"])
def test_stateful_actions_step_back_with_hysteresis(kind):
    policy = policy_of(f'when = {{ lag_records = 50 }}\nthen = "{kind}"')
    story = [(0, slow()), (1, slow(lag_records=45)), (2, slow(lag_records=55)), (3, slow(lag_records=40)), (4, slow())]
    assert play(policy, story) == [(0, f"fire 0 {kind}"), (3, f"clear 0 {kind}"), (4, f"fire 0 {kind}")]


@pytest.mark.parametrize("kind", ["close_consumer", "disconnect", "delete_subscription"])
def test_actions_done_once_end_without_a_clear(kind):
    policy = policy_of(f'when = {{ lag_records = 50 }}\nthen = "{kind}"')
    story = [(0, slow()), (1, slow()), (2, slow(lag_records=1)), (3, slow())]
    assert play(policy, story) == [(0, f"fire 0 {kind}"), (3, f"fire 0 {kind}")]


def test_a_rate_floor_eases_upwards_and_when_supply_is_low():
    policy = policy_of('when = { drain_rate = "<1000B/s" }\nthen = "notify"')
    story = [(0, slow(drain_rate=10)), (1, slow(drain_rate=1100)), (2, slow(drain_rate=1200))]
    assert play(policy, story) == [(0, "fire 0 notify"), (2, "clear 0 notify")]
    assert play(policy, [*story[:2], (2, slow(drain_rate=10, rate_window=0.0))])[-1] == (2, "clear 0 notify")


def test_until_says_when_to_step_back():
    policy = policy_of('when = { lag_records = 50 }\nuntil = { lag_records = "< 10" }\nthen = "conflate"')
    story = [(0, slow()), (1, slow(lag_records=10)), (2, slow(lag_records=9))]
    assert play(policy, story) == [(0, "fire 0 conflate"), (2, "clear 0 conflate")]


def test_until_that_holds_beside_when_does_not_flap():
    policy = policy_of('when = { lag_age = "1s" }\nuntil = { lag_records = "< 10" }\nthen = "conflate"')
    few = slow(lag_age=2, lag_records=5)
    assert play(policy, [(now, few) for now in range(9)]) == [(0, "fire 0 conflate")]


def test_whoever_is_idle_again_is_released_whatever_until_says():
    """Pulsar's trap: a consumer that stays blocked after it recovered."""
    policy = policy_of('when = { lag_age = "1s" }\nuntil = { drain_rate = "> 1MB/s" }\nthen = "notify"')
    story = [(0, slow(lag_age=2)), (1, slow()), (2, Sample())]
    assert play(policy, story) == [(0, "fire 0 notify"), (2, "clear 0 notify")]


def test_ladders_act_in_order_and_step_back_by_themselves():
    policy = policy_of(
        'when = { lag_age = "1s" }\nthen = "notify"',
        'when = { lag_age = "5s" }\nthen = "conflate"',
        'when = { lag_age = "30s" }\nthen = "disconnect"',
    )
    ages = [0.5, 2, 6, 6, 4.5, 3.9, 0.7]
    assert play(policy, [(now, slow(lag_age=age)) for now, age in enumerate(ages)]) == [
        (1, "fire 0 notify"),
        (2, "fire 1 conflate"),
        (5, "clear 1 conflate"),
        (6, "clear 0 notify"),
    ]
    assert [said for _, said in play(policy, [(0, slow(lag_age=31))])] == [
        "fire 0 notify", "fire 1 conflate", "fire 2 disconnect",
    ]  # fmt: skip


def test_nothing_follows_an_enforced_disconnect_but_a_dry_one_is_followed():
    rules = 'when = { lag_age = "1s" }\nthen = "disconnect"', 'when = { lag_age = "1s" }\nthen = "notify"'
    old = slow(lag_age=2)
    assert play(policy_of(*rules), [(0, old)]) == [(0, "fire 0 disconnect")]
    dry = policy_of(rules[0] + "\nenforce = false", rules[1])
    assert play(dry, [(0, old)]) == [(0, "fire 0 disconnect"), (0, "fire 1 notify")]
    assert [d.enforced for d in evaluate(dry, PolicyState(dry), old, 0)] == [False, True]


def test_all_slow_blocks_the_publisher_and_few_slow_are_acted_on():
    """A5."""
    policy = policy_of(
        'when = { slow_fraction = ">= 100%" }\nthen = "block_publishers"',
        'when = { slow_fraction = "< 50%", blocked_time = "30s" }\nthen = "disconnect"',
    )
    assert play(policy, [(0, slow(blocked_time=31, slow_fraction=1.0))]) == [(0, "fire 0 block_publishers")]
    assert play(policy, [(0, slow(blocked_time=31, slow_fraction=0.1))]) == [(0, "fire 1 disconnect")]
    assert play(policy, [(0, slow(blocked_time=29, slow_fraction=0.1))]) == []


def test_the_brokers_lateness_is_not_charged():
    policy = policy_of(
        'when = { lag_records = 50 }\nfor = "10s"\nthen = "disconnect"',
        'when = { lag_records = 50 }\nfor = "9s"\nretries = 3\nthen = "notify"',
    )
    state = PolicyState(policy)
    assert evaluate(policy, state, slow(), 0) == []
    state.shift(20.0)
    said = [(now, what) for now in range(21, 31) for what in told(evaluate(policy, state, slow(), now))]
    assert said == [(29, "fire 1 notify"), (30, "fire 0 disconnect")]


def test_settled_says_when_looking_may_stop():
    policy = policy_of('when = { lag_records = 50 }\nfor = "1s"\nthen = "notify"')
    state = PolicyState(policy)
    seen = []
    for now, sample in [(0, FINE_AGAIN), (1, slow()), (2, slow()), (3, Sample())]:
        evaluate(policy, state, sample, now)
        seen.append((state.settled, list(state.active())))
    assert seen == [(True, []), (False, []), (False, [0]), (True, [])]


def test_decisions_carry_what_they_rest_on():
    when = 'when = { slow_fraction = "<50%", lag_records = 50 }'
    policy = policy_of(when + '\nfor = "2s"\nname = "deep"\nthen = "notify"')
    state = PolicyState(policy)
    evaluate(policy, state, slow(), 0)
    (fired,) = evaluate(policy, state, slow(), 3)
    assert (fired.kind, fired.window_s, fired.held_s, fired.rule_name) == (DecisionKind.FIRE, 2.0, 3.0, "deep")
    assert fired.leading is not None
    assert (fired.leading.meter, fired.leading.value, fired.leading.threshold) == ("lag_records", 100, 50)
    (cleared,) = evaluate(policy, state, Sample(), 10)
    assert (cleared.kind, cleared.held_s) == (DecisionKind.CLEAR, 7.0)


def test_release_steps_everything_back():
    policy = policy_of('when = { lag_age = 1 }\nthen = "conflate"', 'when = { lag_age = 1 }\nthen = "close_consumer"')
    state = PolicyState(policy)
    evaluate(policy, state, slow(lag_age=2), 0)
    assert told(release(policy, state, slow(lag_age=2), 5)) == ["clear 0 conflate"]
    assert state.settled


def test_a_reload_keeps_the_clocks_of_rules_that_stayed():
    stays = 'when = { lag_records = 50 }\nfor = "10s"\nthen = "disconnect"'
    goes = 'when = { lag_records = 50 }\nthen = "notify"'
    old, new = policy_of(goes, stays), policy_of(stays, 'when = { lag_age = "9s" }\nthen = "conflate"')
    state = PolicyState(old)
    evaluate(old, state, slow(), 0)
    state, decisions = replace_policy(old, state, new, slow(), 5)
    assert told(decisions) == ["clear 0 notify"]
    assert told(evaluate(new, state, slow(), 9)) == []
    assert told(evaluate(new, state, slow(), 10)) == ["fire 0 disconnect"]


# Whatever happens.

samples = st.builds(
    Sample,
    lag_records=st.sampled_from([0, 0, 1, 40, 45, 50, 51, 1000]),
    lag_age=st.floats(0, 20),
    drain_rate=st.floats(0, 10_000),
    in_flight=st.integers(0, 1),
    ack_age=st.floats(0, 20),
    slow_fraction=st.floats(0, 1),
    rate_window=st.sampled_from([0.0, 1.0]),
    waited=st.one_of(st.none(), st.floats(0, 30)),
)
stories = st.lists(st.tuples(st.floats(0.01, 5.0), samples), max_size=60)
MANY = policy_of(
    'when = { lag_records = 50 }\nthen = "notify"',
    'when = { lag_age = "5s" }\nfor = "3s"\nthen = "conflate"\nuntil = { lag_age = "<1s" }',
    'when = { drain_rate = "<5000B/s" }\nfor = "2s"\nretries = 3\nthen = "close_consumer"',
    'when = { any = [ { ack_age = "9s" }, { lag_records = 40 } ] }\ntimes = 3\nwithin = "30s"\nthen = "offline"',
    'when = { slow_fraction = ">= 90%" }\nthen = "block_publishers"',
)


@given(stories)
def test_fires_and_clears_alternate_and_the_same_story_gives_the_same_decisions(story):
    clock, timed = 0.0, []
    for wait, sample in story:
        clock += wait
        timed.append((clock, sample))
    said = play(MANY, timed)
    assert said == play(MANY, timed)
    for index, rule in enumerate(MANY.rules):
        kinds = [what.split()[0] for _, what in said if what.split()[1] == str(index)]
        if rule.then.kind.stateful:
            assert kinds == ["fire", "clear"] * (len(kinds) // 2) + ["fire"] * (len(kinds) % 2)
        else:
            assert "clear" not in kinds


@given(stories)
def test_an_idle_look_settles_everything(story):
    state, clock = PolicyState(MANY), 0.0
    for wait, sample in story:
        clock += wait
        evaluate(MANY, state, sample, clock)
    evaluate(MANY, state, Sample(slow_fraction=1.0), clock + 1)
    assert state.settled


@given(stories, st.floats(0.1, 100))
def test_lateness_that_is_shifted_away_changes_nothing(story, late):
    plain, shifted, clock = PolicyState(MANY), PolicyState(MANY), 0.0
    half = len(story) // 2
    for number, (wait, sample) in enumerate(story):
        clock += wait
        if number == half:
            shifted.shift(late)
        one = told(evaluate(MANY, plain, sample, clock))
        assert one == told(evaluate(MANY, shifted, sample, clock + (late if number >= half else 0.0)))


@given(samples, st.sampled_from(sorted(METERS)), st.sampled_from([">", ">=", "<", "<="]), st.floats(0, 100))
def test_easing_only_ever_makes_a_condition_easier(sample, meter, op, limit):
    condition = Comparison(meter, op, Amount(limit))
    for whole in (condition, AllOf((condition, condition)), AnyOf((condition,))):
        assert not whole.holds(sample) or whole.holds(sample, 0.2)
