"""The linter of `headway check`: what it finds, where, and what it leaves alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.server.canned import Canned, Ran
from tests.server.test_docs import BLOCKS

from headway.core.policy import Sample, parse_policies
from headway.core.policy.meters.meter import METERS
from headway.core.policy.rules.condition import parse_condition
from headway.server.config.fields import meant
from headway.server.config.linting.linter import _implies, contradiction, lint
from headway.server.config.linting.writable import why_not_writable
from headway.server.config.reading import default_text, parse_settings
from headway.store.toml import BadConfig

ALL = '\n[[policy]]\nname = "all"\n[[policy.rule]]\nwhen = { lag_age = "1h" }\nthen = "notify"\n'


@pytest.fixture(autouse=True)
def nowhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of the config are not tried, for they are not the test's."""
    if request.node.name != "test_folders_are_tried_and_nothing_is_made":
        monkeypatch.setattr("headway.server.config.linting.linter.folders", lambda settings: {})


def found(text: str) -> list[str]:
    return [str(finding) for finding in lint(parse_settings(text))]


def policy(*rules: str, more: str = "") -> str:
    return f'[[policy]]\nname = "p"\n{more}' + "".join(f"[[policy.rule]]\n{rule}\n" for rule in rules)


def test_the_default_has_nothing_to_say_about() -> None:
    assert found("") == []
    assert found(default_text()) == []


@pytest.mark.parametrize("block", BLOCKS)
def test_the_blocks_of_the_documentation_have_no_rule_that_cannot_apply(block: str) -> None:
    wrong = ("never", "governs nobody", "marks one", "character here", "covered by")
    assert not [line for line in found(block) if any(word in line for word in wrong)]


# -- conditions that can never hold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "says"),
    [
        ('{ all = [{ lag_age = "> 30s" }, { lag_age = "< 10s" }] }', "> 30 s and < 10 s exclude each other for"),
        ('{ all = [{ lag_age = ">= 30s" }, { lag_age = "< 30s" }] }', "exclude each other"),
        ("{ all = [{ lag_records = '> 5' }, { lag_records = '< 6' }] }", "exclude each other"),
        ("{ all = [{ lag_records = 'prefetch + 50' }, { lag_records = '< 20' }] }", "exclude each other"),
        ("{ all = [{ drain_rate = '<1kB/s' }, { drain_rate = '>5kB/s' }], lag_age = '1s' }", "exclude each other"),
        ("{ blocked_time = '5s', lag_records = '< 1' }", "needs records that wait"),
        ("{ lag_age = '5s', lag_bytes = '<= 0' }", "needs records that wait"),
    ],
)
def test_bounds_that_exclude_each_other(when: str, says: str) -> None:
    (line,) = found(policy(f'when = {when}\nthen = "notify"'))
    assert line.startswith("line 4: policy 'p', rule 1: when: ")
    assert "can never hold" in line
    assert says in line


def test_a_part_of_a_condition_that_can_never_hold() -> None:
    when = '{ any = [{ lag_age = "30s" }, { blocked_time = "5s", lag_records = "< 1" }] }'
    (line,) = found(policy(f'when = {when}\nthen = "notify"'))
    assert "a part of" in line


@pytest.mark.parametrize(
    "when",
    [
        '{ all = [{ lag_age = "> 10s" }, { lag_age = "< 30s" }] }',
        '{ all = [{ lag_age = ">= 30s" }, { lag_age = "<= 30s" }] }',
        "{ all = [{ lag_records = '> 5' }, { lag_records = '< 7' }] }", "{ ack_age = '5s', lag_records = '< 1' }",
        "{ all = [{ lag_records = '> 50' }, { lag_records = '< 2 x prefetch' }] }",
        "{ all = [{ lag_records = '2 x prefetch' }, { lag_records = '< 20' }] }", '{ pool_share = ">= 100%" }',
    ],
)  # fmt: skip
def test_bounds_that_leave_room(when: str) -> None:
    assert found(policy(f'when = {when}\nthen = "notify"')) == []


def test_an_until_that_can_never_hold() -> None:
    rule = ('when = { lag_age = "30s" }\nuntil = { all = [{ lag_bytes = "< 1kB" }, { lag_bytes = "> 2kB" }] }\n'
            'then = "notify"')  # fmt: skip
    (line,) = found(policy(rule))
    assert line.startswith("line 5: policy 'p', rule 1: until: ")
    assert "never step back" in line


def test_rules_that_count_marks_which_no_rule_makes() -> None:
    by_count = 'when = { slow_count = 3, lag_age = "1s" }\nthen = "disconnect"'
    (line,) = found(policy(by_count))
    assert "put a notify rule" in line
    assert found(policy('when = { lag_age = "1s" }\nthen = "notify"', by_count)) == []


# Whatever a condition says, a sample for which it holds proves that it can.
values = {
    "lag_records": st.integers(0, 8), "lag_bytes": st.integers(0, 8), "lag_age": st.integers(0, 8),
    "blocked_time": st.integers(0, 8), "drain_rate": st.integers(0, 8), "slow_count": st.integers(0, 8),
}  # fmt: skip
samples = st.builds(
    lambda lag, prefetch, flight, judged, **numbers: Sample(
        **{name: value if (lag and numbers["lag_records"]) or name in ("slow_count", "drain_rate") else 0
           for name, value in numbers.items()},
        prefetch=prefetch, in_flight=flight, rate_window=1.0 if judged else 0.0,
    ),
    st.booleans(), st.integers(0, 4), st.integers(0, 3), st.booleans(), **values,
)  # fmt: skip
leaves = st.builds(
    lambda meter, op, value: {meter: f"{op} {value}{'s' if METERS[meter].unit is METERS['lag_age'].unit else ''}"
                              f"{'B/s' if meter == 'drain_rate' else ''}{'B' if meter == 'lag_bytes' else ''}"},
    st.sampled_from(list(values)), st.sampled_from([">", ">=", "<", "<="]), st.integers(1, 6),
) | st.builds(
    lambda op, more: {"lag_records": f"{op} {more}"}, st.sampled_from([">", ">=", "<", "<="]),
    st.sampled_from(["prefetch", "2 x prefetch", "prefetch + 2", "prefetch + 5", "prefetch, else 1",
                     "2 x prefetch, else 4", "prefetch + 5, else 2", "prefetch + 2, else 2"]),
)  # fmt: skip
conditions = st.recursive(
    leaves, lambda inner: st.builds(
        lambda word, parts: {word: parts}, st.sampled_from(["any", "all"]), st.lists(inner, min_size=1, max_size=3)
    ), max_leaves=5,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(conditions, samples)
def test_what_can_never_hold_never_does(mapping: dict[str, object], sample: Sample) -> None:
    condition = parse_condition(mapping)
    if "a part of" not in contradiction(condition) and contradiction(condition):
        assert not condition.holds(sample)


@settings(max_examples=500, deadline=None)
@given(conditions, conditions, samples)
def test_what_is_implied_holds_too(narrow: dict[str, object], wide: dict[str, object], sample: Sample) -> None:
    one, other = parse_condition(narrow), parse_condition(wide)
    assume(sample.lag_bytes >= sample.lag_records)  # a record has a byte
    assume(sample.lag_records or not sample.lag_bytes)  # and a byte belongs to a record
    if _implies(one, other) and one.holds(sample):
        assert other.holds(sample), (str(one), str(other))


# -- rules that come too late ------------------------------------------------------------------------------------------

CUT = 'when = { blocked_time = "10s" }\nthen = "disconnect"'
LATER = 'when = { blocked_time = "30s" }\nthen = "notify"'


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CUT, LATER),
        ('when = { lag_records = "> 0" }\nthen = "disconnect"', 'when = { lag_age = "30s" }\nthen = "disconnect"'),
        ('when = { any = [{ lag_age = "5s" }, { blocked_time = "10s" }] }\nthen = "disconnect"', LATER),
        (CUT, 'when = { blocked_time = "10s", lag_bytes = "1MB" }\nfor = "5s"\nthen = "notify"'),
        ('when = { drain_rate = "<5kB/s" }\nthen = "disconnect"', 'when = { drain_rate = "<1kB/s" }\nthen = "notify"'),
        ('when = { lag_age = "1s" }\nthen = { action = "delete_subscription", durable = true }',
         'when = { lag_age = "1m" }\nthen = { action = "delete_subscription", durable = true }'),
    ],
)  # fmt: skip
def test_a_rule_after_a_wider_enforced_disconnect(first: str, second: str) -> None:
    (line,) = found(policy(first, second))
    assert line.startswith(f"line {4 + first.count(chr(10)) + 1}: policy 'p', rule 2: ")
    assert "rule 1 has ended the subscription before" in line


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CUT + "\nenforce = false", LATER),
        (CUT + "\ntimes = 3", LATER),
        ('when = { blocked_time = "10s" }\nfor = "1m"\nthen = "disconnect"', LATER),
        (CUT, 'when = { blocked_time = "5s" }\nthen = "notify"'),
        (CUT, 'when = { lag_age = "30s" }\nthen = "notify"'),
        ('when = { blocked_time = "10s", lag_bytes = "1MB" }\nthen = "disconnect"', LATER),
        ('when = { blocked_time = "10s" }\nthen = "close_consumer"', LATER),
        # A durable subscription that is away is no longer cut, and goes on to lag.
        ('when = { lag_bytes = "1MB" }\nthen = "disconnect"',
         'when = { lag_bytes = "9MB" }\nthen = { action = "delete_subscription", durable = true }'),
        ('when = { lag_bytes = "1MB" }\nthen = "disconnect"',
         'when = { lag_bytes = "9MB" }\nthen = { action = "discard", which = "oldest" }'),
        ('when = { lag_records = "> prefetch" }\nthen = "disconnect"',
         'when = { lag_records = "> prefetch + 9" }\nthen = "notify"'),
    ],
)  # fmt: skip
def test_a_rule_that_can_be_reached(first: str, second: str) -> None:
    assert found(policy(first, second)) == []


def test_what_only_transient_subscriptions_do_not_reach_is_said_so() -> None:
    rules = ('when = { lag_bytes = "1MB" }\nthen = "disconnect"', 'when = { lag_bytes = "9MB" }\nthen = "notify"')
    (line,) = found(policy(*rules))
    assert "no transient subscription ever reaches it" in line
    transient = found(policy(*rules, more='subscriptions = "transient"\n') + ALL)
    assert [line for line in transient if "it can never be reached" in line]
    assert not [line for line in found(policy(*rules, more='subscriptions = "durable"\n') + ALL) if "reach" in line]


# -- policies ----------------------------------------------------------------------------------------------------------


def named(name: str, topics: str, more: str = "") -> str:
    rule = '[[policy.rule]]\nwhen = { lag_age = "1m" }\nthen = "notify"\n'
    return f'[[policy]]\nname = "{name}"\ntopics = {topics}\n{more}{rule}'


def test_a_policy_behind_a_wider_one() -> None:
    (line,) = found(named("wide", '["#"]') + named("narrow", '["stocks/us/#"]'))
    assert line.startswith("line 7: policy 'narrow': it governs nobody")
    assert "'wide' comes first" in line
    assert found(named("narrow", '["stocks/us/#"]') + named("wide", '["#"]')) == []


def test_a_policy_behind_two_that_cover_it_together() -> None:
    kinds = [named(kind, '["#"]', f'subscriptions = "{kind}"\n') for kind in ("transient", "durable")]
    (line,) = found("".join(kinds) + named("late", '["a/b"]'))
    assert "'transient' and 'durable' comes first" in line
    assert found(kinds[0] + named("late", '["#"]')) == []


def test_a_policy_behind_those_of_its_listeners() -> None:
    tables = '[listeners.a]\nurl = "mqtt://127.0.0.1:1"\n[listeners.b]\nurl = "mqtt://127.0.0.1:2"\n'
    by_a, by_b = (named(f"by {name}", '["#"]', f'listeners = ["{name}"]\n') for name in "ab")
    (line,) = found(tables + by_a + by_b + named("late", '["x"]', 'listeners = ["a", "b"]\n') + ALL)
    assert "policy 'late': it governs nobody" in line
    assert "'by a' and 'by b' comes first" in line
    assert found(tables + by_a + named("late", '["x"]', 'listeners = ["a", "b"]\n') + ALL) == [], "b is left"
    assert found(tables + by_a + by_b + ALL) == [], "there are clients of the admin API, and queues of nobody"
    (line,) = found(tables + by_a + named("http", '["#"]', 'listeners = ["http"]\n'))
    assert "none of them is for all subscriptions of clients of b (" in line


def test_a_queue_behind_a_pattern_of_names() -> None:
    (line,) = found(named("a", '["$queue/jobs/#"]') + named("b", '["$queue/jobs.eu"]') + ALL)
    assert "policy 'b': it governs nobody" in line


def test_some_topics_of_a_policy_are_covered_before() -> None:
    (line,) = found(named("a", '["a/#"]') + named("b", '["a/b", "c/#"]') + ALL)
    assert line.startswith("line 9: policy 'b', topics: a/b: covered by 'a' already")


def test_a_default_that_a_file_switched_off() -> None:
    (line,) = found(named("narrow", '["stocks/#"]'))
    assert line.startswith("line 1: policy: the default policy is switched off")
    assert "(covered: stocks/#)" in line
    (line,) = found(named("narrow", '["#"]', 'subscriptions = "durable"\n'))
    assert "for all transient subscriptions" in line
    assert any("(covered: none)" in line for line in found("policy = []\n"))


def test_a_policy_without_rules() -> None:
    (line,) = found('[[policy]]\nname = "p"\n')
    assert line.startswith("line 1: policy 'p': it has no rules")


# -- wildcards of others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter", "written"),
    [
        (">", "#"), ("*", "+"), ("**", "#"), ("stocks.us.*", "stocks/us/+"), ("stocks.us.>", "stocks/us/#"),
        ("stocks/us/>", "stocks/us/#"), ("stocks/**", "stocks/#"), ("stocks/*/open", "stocks/+/open"),
        ("stocks/**/open", "stocks/#"), ("stocks.+.open", "stocks/+/open"), ("stocks.#", "stocks/#"),
        ("$queue/*", "$queue/+"), ("$queue/orders.>", "$queue/orders/#"), ("$queue/orders.*", "$queue/orders/+"),
        ("$queue/orders.#", "$queue/orders/#"), ("stocks/%", "stocks/+"),
    ],
)  # fmt: skip
def test_wildcards_of_other_systems_with_what_mqtt_writes(filter: str, written: str) -> None:
    assert meant(filter).endswith(f'write "{written}"')


@pytest.mark.parametrize(
    "filter", ["#", "+", "stocks/+/open", "stocks/us/#", "a.b.c", "v1.2/a", "$SYS/#", "$queue/my.queue", "", "a>b", "/"]
)
def test_filters_that_mean_what_they_say(filter: str) -> None:
    assert meant(filter) == ""


def test_a_star_within_a_level_is_no_wildcard_anywhere() -> None:
    assert "a part of a level" in meant("display-*")


def test_every_place_of_a_filter_is_looked_at() -> None:
    discard = 'when = { lag_age = "1s" }\nthen = { action = "discard", which = "topics", topics = ["a/*"] }'
    text = f'[[topic]]\nfilter = "b.*"\n{policy(discard)}'
    assert [line.partition(": ")[2].partition(": ")[0] for line in found(text)] == [
        "topic[1].filter", "policy 'p', rule 1, then",
    ]  # fmt: skip
    (line,) = found(named("p", '["stocks.us.>"]') + ALL)
    assert line.startswith("line 3: policy 'p', topics: \"stocks.us.>\": > is a wildcard elsewhere")


def test_a_conflated_topic_without_a_key_is_told_of() -> None:
    text = '[[topic]]\nfilter = "prices/#"\n%sconflate = "500ms"\n'
    (line,) = found(text % "")
    assert line.startswith("line 3: topic[1].conflate: there is no key, so subscribers get the latest record of each")
    assert found(text % 'key = "topic"\n') == found(text % 'key = "/symbol"\n') == []


def test_a_filter_that_is_refused_is_told_what_was_meant() -> None:
    for text in ('[[policy]]\nname = "p"\ntopics = ["stocks.#"]\n', '[[topic]]\nfilter = "stocks.#"\n'):
        with pytest.raises(BadConfig, match=r'write "stocks/#"'):
            parse_settings(text)


# -- paths -------------------------------------------------------------------------------------------------------------


def tree(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in [folder, *folder.rglob("*")])


def test_folders_are_tried_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_bytes(b"")
    text = (f'[pool]\ndisk_path = "{tmp_path}/there"\n[journal]\npath = "{tmp_path}/new/er"\n'
            f'[telemetry]\npath = "{tmp_path}/file"\n[history]\npath = "{tmp_path}/file/below"\n')  # fmt: skip
    before = tree(tmp_path)
    lines = found(text)
    assert tree(tmp_path) == before
    assert [line.partition(f"{tmp_path}")[0] for line in lines] == [
        "line 6: telemetry.path: ", "line 8: history.path: ",
    ]  # fmt: skip
    assert all("is not a folder" in line or "not a directory" in line for line in lines)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert why_not_writable(tmp_path) == "permission denied"
    assert "permission denied" in why_not_writable(tmp_path / "below")


def test_a_folder_that_cannot_be_written_by_anybody() -> None:
    assert why_not_writable(Path("/proc/self")) != ""
    assert why_not_writable(Path("/proc/self/below")) != ""


def test_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert why_not_writable(tmp_path / "link") == f"{tmp_path}/link is a link to nowhere"


# -- the command -------------------------------------------------------------------------------------------------------


def test_check_warns_and_strict_refuses(tmp_path: Path) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(policy(CUT, LATER))
    ran = Ran("check", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert f"warning: {file}: line 6: policy 'p', rule 2: it can never be reached" in ran.out
    assert ran.out.endswith(f"{file} is valid, with 1 warning.\n")
    assert Ran("check", "--strict", str(file)).code == 2
    file.write_text("")
    assert Ran("check", "--strict", str(file)).code == 0


def test_check_against_a_broker_names_who_would_have_no_policy(tmp_path: Path, broker: Canned) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(named("p", '["a/#"]') + ALL)
    rows = [{"client": f"c{number}", "filter": "$queue/x"} for number in range(12)]
    broker.answers["preview"] = 200, {"hits": [], "consumers": 53, "uncovered": rows, "uncovered_total": 1012}
    ran = Ran("check", str(file), "--against", broker.url)
    assert ran.code == 0
    assert "1012 of the 53 consumers there are now would have none: c0 ($queue/x), c1 ($queue/x)" in ran.out
    assert "and 1002 more" in ran.out
    assert Ran("check", str(file), "--against", broker.url, "--strict").code == 2


def test_findings_of_rules_hold_for_policies_however_they_are_written() -> None:
    rule = '{ when = { blocked_time = "10s" }, then = "disconnect" }'
    later = '{ when = { blocked_time = "30s" }, then = "notify" }'
    (line,) = found(f'policy = [{{ name = "p", rule = [{rule}, {later}] }}]\n')
    assert line.startswith("policy 'p', rule 2: it can never be reached"), "without a line"
    assert parse_policies([{"name": "p"}])


def test_lines_are_found_beside_texts_of_many_lines() -> None:
    view = '[views.v]\nsql = """\n[[policy]]\nname = 1\n"""\ntopic = "v"\nkey = "k"\n[journal]\n'
    lines = found(view + policy(CUT, LATER))
    assert [line.partition(":")[0] for line in lines] == ["line 14"]


def test_trials_are_looked_at_too() -> None:
    trial = named("t", '["a.*"]').replace("policy", "trial")
    never = '[[trial.rule]]\nwhen = { blocked_time = "5s", lag_records = "< 1" }\nthen = "notify"\n'
    lines = found(trial + never)
    assert [line.partition(" can ")[0].partition(" is a wild")[0] for line in lines] == [
        "line 3: trial 't', topics: \"a.*\": *",
        "line 8: trial 't', rule 2: when: blocked_time > 5 s and lag_records < 1",
    ]  # fmt: skip
