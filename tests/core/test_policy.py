"""Policies as written: conditions, rules, and what is refused."""

from __future__ import annotations

import tomllib
from math import inf

import msgspec
import pytest
from tests.core.policies import policy_of, slow

from headway.core.base.errors import ConfigError
from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.condition import Amount, Comparison, parse_condition
from headway.core.policy.rules.rule import Action, ActionKind, Policy, Which, parse_policies, parse_policy

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
    ({"lag_records": "2 x prefetch, else 50"}, slow(lag_records=51, prefetch=0), slow(lag_records=50, prefetch=0)),
    ({"lag_records": "2 x prefetch, else 50"}, slow(lag_records=7, prefetch=3), slow(lag_records=6, prefetch=3)),
    ({"lag_records": "prefetch + 5, else 1_000"}, slow(lag_records=1001), slow(lag_records=1000)),
    ({"lag_records": "prefetch, else 0"}, slow(lag_records=1), slow(lag_records=0)),
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
    ('when = { lag_records = "2 x prefetch, else" }\nthen = "notify"', '", else 1000" behind it for clients without'),
    ('when = { lag_records = "2 x prefetch, else many" }\nthen = "notify"', "many"),
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
    ('when = { lag_age = "1s" }\nthen = { action = "disconnect", hard = true }', "unknown option of disconnect"),
    ('when = { lag_age = "1s" }\nthen = { action = "offline", hard = true }', "offline has no options, found"),
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
    ('{ action = "discard", which = "oldest", keep_records = 50 }', 50, inf),
    ('{ action = "discard", which = "newest", keep_bytes = "1MB" }', inf, 1_000_000),
    ('{ action = "discard", which = "lowest_priority", keep_records = "2 x prefetch" }', 6, inf),
    ('{ action = "discard", which = "oldest" }', 53, inf),
    ('{ action = "discard", which = "older_per_key" }', inf, inf),
    ('{ action = "discard", which = "topics", topics = ["a/#"] }', inf, inf),
    ('{ action = "discard", which = "selector", selector = "price < 3" }', inf, inf),
]


@pytest.mark.parametrize(("then", "records", "size"), DISCARDS)
def test_what_a_discard_keeps(then, records, size):
    """J1 and J2: a constant on top of prefetch, or a multiple of it (3 x 2 = 6); else what the condition allows."""
    action = policy_of(f'when = {{ lag_records = "prefetch + 50" }}\nthen = {then}').rules[0].then
    assert (action.records_kept(3), action.bytes_kept) == (records, size)


def test_a_multiple_of_no_window_keeps_everything_or_what_is_said_for_such_clients():
    assert Action(ActionKind.DISCARD, Which.OLDEST, Amount(0.0, 2.0)).records_kept(0) == inf
    assert Action(ActionKind.DISCARD, Which.OLDEST, Amount(0.0, 2.0, 50.0)).records_kept(0) == 50
    condition = parse_condition({"lag_records": "prefetch + 5, else 50"})
    assert str(condition) == "lag_records > prefetch + 5, else 50"


def test_delete_spares_durable_subscriptions_unless_told():
    """Q3."""
    when = 'when = { lag_records = 50 }\nthen = '
    assert policy_of(when + '"delete_subscription"').rules[0].then.durable is False
    assert policy_of(when + '{ action = "delete_subscription", durable = true }').rules[0].then.durable is True
