"""Candidates: grids, presets, and every mistake in a file at once."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from headway.core.base.errors import ConfigError
from headway.core.policy import METERS, Look, plugged_meter
from headway.core.policy.rules.rule import parse_policies
from headway.pipeline.lab.plans.candidates import PRESETS, as_recorded, expand, load_plan, parse_plan
from headway.server.config.reading import default_text
from headway.store.toml import BadConfig, policy_text

GRID = """
[[candidate]]
name = "cut"
[candidate.pool]
memory = { one_of = ["64MB", "128MB"] }
[[candidate.policy]]
name = "all"
[[candidate.policy.rule]]
when = { blocked_time = { range = ["1s", "16s"], steps = 3 } }
for = "2s"
then = "disconnect"
"""


def test_a_grid_is_every_combination_and_names_what_differs() -> None:
    plan = parse_plan(GRID)
    assert [candidate.name for candidate in plan.candidates] == [
        "as it ran", "nothing",
        "cut: memory=64MB, blocked_time=1s", "cut: memory=64MB, blocked_time=4s", "cut: memory=64MB, blocked_time=16s",
        "cut: memory=128MB, blocked_time=1s", "cut: memory=128MB, blocked_time=4s",
        "cut: memory=128MB, blocked_time=16s",
    ]  # fmt: skip
    middle = plan.candidates[3]
    assert middle.pool.memory_bytes == 64_000_000
    assert str(middle.policies[0].rules[0].when) == "blocked_time > 4 s"
    assert parse_policies(tomllib.loads(middle.toml)["policy"]) == middle.policies


@pytest.mark.parametrize(
    ("ends", "steps", "values"),
    [
        (["500ms", "8s"], 3, ["500ms", "2s", "8s"]),
        (["100ms", "900ms"], 3, ["100ms", "300ms", "900ms"]),
        (["<1kB/s", "<100kB/s"], 3, ["<1kB/s", "<10000B/s", "<100kB/s"]),
        (["1MB", "4MB"], 3, ["1MB", "2000000B", "4MB"]),
        (["1%", "4%"], 3, ["1%", "2%", "4%"]),
        ([10, 1000], 3, [10, 100, 1000]),
        (["> 10", "> 1000"], 3, ["> 10", ">100", "> 1000"]),
    ],
)
def test_a_range_goes_in_equal_proportions_in_its_own_unit(ends: list, steps: int, values: list) -> None:
    assert [table["a"] for _, table in expand({"a": {"range": ends, "steps": steps}})] == values


def test_grids_of_one_name_are_told_apart() -> None:
    table = {"rule": [{"for": {"one_of": [1, 2]}}, {"for": {"one_of": [3]}}]}
    assert [name for name, _ in expand(table)] == ["rule.1.for=1, rule.2.for=3", "rule.1.for=2, rule.2.for=3"]


def test_the_presets_say_what_the_originals_say() -> None:
    plan = parse_plan(f"presets = {list(PRESETS)}")
    rules = {c.name: [str(rule.when) for p in c.policies for rule in p.rules] for c in plan.candidates}
    assert rules.pop("headway's default")
    assert rules == {
        "as it ran": [], "nothing": [],
        "XAP's defaults": ["drain_rate < 5 kB/s"],
        "AMPS's defaults": [],
        "ActiveMQ's defaults": ["lag_records >= 32,766"],
        "A-MQ's abortSlowConsumerStrategy": ["credit_exhausted_time > 30 s or blocked_time > 30 s"],
        "A-MQ's constantPendingMessageLimitStrategy, 50": ["lag_records > 50"],
        "Qpid's slow consumer policy": ["lag_bytes > 4.24 MB or lag_age > 10 min or lag_records > 50"],
    }  # fmt: skip
    by_name = {candidate.name: candidate for candidate in plan.candidates}
    xap = by_name["XAP's defaults"].policies[0].rules[0]
    assert (xap.for_s, xap.retries, xap.then.kind) == (0.5, 3, "disconnect")
    assert (by_name["AMPS's defaults"].pool.disk_bytes, by_name["AMPS's defaults"].pool.client_share) == (10**9, 0.5)
    assert by_name["headway's default"].policies == parse_policies(tomllib.loads(default_text())["policy"])
    for candidate in plan.candidates:
        assert parse_policies(tomllib.loads(candidate.toml).get("policy", [])) == candidate.policies


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "there is nothing to compare"),
        ("presets = ['xp']", "presets: unknown preset 'xp' (did you mean xap?)"),
        ("candidates = 1", "unknown key 'candidates' (did you mean candidate?)"),
        ("a = = 1", "is not TOML"),
        ("presets = ['xap']\n[goal]\nmemroy = 1", "goal: unknown key 'memroy' (did you mean memory?)"),
        ("presets = ['xap']\n[goal]\nstall = 'long'", "goal: "),
        ("[[candidate]]\npolicy = []", "candidate[1]: needs a name"),
        ("[[candidate]]\nname = 'nothing'", "candidate 'nothing': is always there"),
        ("[[candidate]]\nname = 'a'\nrule = 1", "candidate 'a': unknown key 'rule'"),
        ("[[candidate]]\nname = 'a'\n[[candidate]]\nname = 'a'", "candidate 'a': there are two"),
        ("[[candidate]]\nname = 'a'\npool = { memory = '10%' }", "candidate 'a': pool.memory: write a size"),
        ("[[candidate]]\nname = 'a'\npool = { memory = { one_of = [] } }", "one_of: expected a list of values"),
        ("[[candidate]]\nname = 'a'\npool = { memory = { range = ['1s', '2MB'], steps = 2 } }", "not of one kind"),
        ("[[candidate]]\nname = 'a'\npool = { memory = { range = ['2MB', '1MB'], steps = 2 } }", "to a larger one"),
        ("[[candidate]]\nname = 'a'\npool = { memory = { range = ['1MB', '2MB'], steps = 1 } }", "steps: a whole"),
        ("[[candidate]]\nname = 'a'\npool = { memory = { range = [1, 9], steps = 200 }, "
         "disk = { range = [1, 9], steps = 200 } }", "its grid has 40,000 points"),
        ("[[candidate]]\nname = 'a'\n[[candidate.policy]]\nname = 'p'\n[[candidate.policy.rule]]\n"
         "when = { lag_rekords = 1 }\nthen = 'notify'", "candidate 'a': policy 'p', rule 1: unknown meter"),
        ("[[candidate]]\nname = 'a'\n[[candidate.policy]]\nname = 'p'\n[[candidate.policy.rule]]\nwhen = { lag_records "
         "= 1 }\nthen = { action = 'discard', which = 'older_per_key' }", "'older_per_key' cannot be replayed"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(text: str, line: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_plan(text, "file.toml: ")
    assert len(caught.value.lines) == 1
    assert caught.value.lines[0].startswith("file.toml: ")
    assert line in caught.value.lines[0]


def test_all_mistakes_are_found_at_once(tmp_path) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_plan("presets = ['xp']\nx = 1\n[goal]\ny = 1\n[[candidate]]\nname = 'nothing'")
    assert len(caught.value.lines) == 4
    with pytest.raises(BadConfig, match="cannot be read: no such file"):
        load_plan(tmp_path / "none.toml")


def test_what_ran_and_cannot_be_replayed_only_tells() -> None:
    rule = {"when": {"lag_records": 5}, "then": {"action": "discard", "which": "topics", "topics": ["a"]}}
    policies, notes = as_recorded([{"name": "p", "rule": [rule]}])
    assert not policies[0].rules[0].enforce
    assert len(notes) == 1
    with pytest.raises(ConfigError):
        as_recorded([{"name": ""}])


def test_what_was_plugged_in_is_not_replayed_and_a_line_says_so() -> None:
    rules = [
        {"when": {"any": [{"lag_age": "1s"}, {"quiet": "> 5"}]}, "then": "disconnect"},
        {"when": {"lag_age": "1s"}, "then": {"action": "my.shed", "keep": 5}},
        {"when": {"lag_age": "2s"}, "then": "disconnect"},
    ]
    policies, notes = as_recorded([{"name": "p", "rule": rules}])
    assert [str(rule.then.kind) for rule in policies[0].rules] == ["notify", "notify", "disconnect"]
    assert policies[0].rules[0].when.leaves()[0].amount.base > 10**12
    assert notes == [
        "policy 'p', rule 1: meter 'quiet' was plugged in and is not replayed: samples do not have it",
        "policy 'p', rule 2: action 'my.shed' was plugged in and is not replayed; the rule only tells",
    ]


def test_a_candidate_cannot_use_what_is_plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    class Quiet:
        unit = "seconds"

        def measure(self, look: Look, now: float) -> float:
            return 0.0

    monkeypatch.setitem(METERS, "quiet", plugged_meter("quiet", Quiet(), "test 1"))
    candidate = """
[[candidate]]
name = "c"
[[candidate.policy]]
name = "p"
[[candidate.policy.rule]]
when = { quiet = "5s" }
then = "disconnect"
"""
    with pytest.raises(BadConfig, match="rule 1: meter 'quiet' is plugged in and cannot be replayed"):
        parse_plan(candidate)


def test_odd_names_survive_being_written() -> None:
    tables = [{"name": 'a "b" \\ \u0007', "topics": ["x/+"], "rule": [{"when": {"lag_age": 1.5}, "then": "notify"}]}]
    assert tomllib.loads(policy_text(tables)) == {"policy": tables}


def test_the_documented_example_is_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "LAB.md").read_text()
    [block] = re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    plan = parse_plan(block)
    assert "cut the blocked: blocked_time=5s, for=2s" in [candidate.name for candidate in plan.candidates]
    assert plan.goal.memory_bytes == 64_000_000


def test_what_a_grid_is_about_is_named_by_its_rule_where_that_tells_more() -> None:
    rules = [{"name": name, "when": {"lag_age": {"one_of": ["1s", "2s"]}}} for name in ("slow", "gone")]
    names = [name for name, _ in expand({"policy": [{"name": "all", "rule": rules}]})]
    assert names[1] == "slow lag_age=1s, gone lag_age=2s"
