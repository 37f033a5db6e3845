"""Scoring and recommending, on totals made up for the purpose."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from headway.core.base.errors import ConfigError
from headway.pipeline.lab.plans.candidates import Candidate, Goal, parse_plan, with_policies
from headway.pipeline.lab.run import _predicted, recommend, recommended_toml
from headway.pipeline.lab.score import Score, _mark_pareto, judge
from headway.pipeline.lab.tasks import RecordedRun
from headway.server.config.reading import parse_settings

RUN = RecordedRun("r", 0, 60.0, 10, 64_000_000, 10**9, 0.5, 0.2, 1.0, (), ({"name": "x", "rule": []},), ())
DEFAULT = Goal()
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def one(name: str, kind: str = "grid", **totals: int | float) -> Score:
    return Score(name, kind, 10, **totals)  # type: ignore[arg-type]


def best(*scores: Score, goal: Goal = DEFAULT) -> tuple[str, str]:
    limits = judge(scores, goal, {"r": RUN})
    found = recommend(scores, limits)
    assert [score.candidate for score in scores if score.recommended] == [found.score.candidate]
    return found.score.candidate, found.sentence


def test_by_false_verdicts_then_missed_then_the_time_to_find_then_the_cost() -> None:
    ran = one("as it ran", "ran", disk_peak_bytes=600_000_000)
    assert best(ran, one("a", false_verdicts=1), one("b", hit=2, missed=9)) == (
        "b", "of the 2 that keep to the goal, it has the fewest false verdicts (0; the next 1)",
    )  # fmt: skip
    assert best(ran, one("a", missed=1), one("b", hit=2, find_ms=9000.0)) == (
        "b", "of the 2 that keep to the goal, it has the fewest missed (0; the next 1)",
    )  # fmt: skip
    assert best(ran, one("a", find_ms=30_200.0), one("b", hit=2, find_ms=5100.0)) == (
        "b",
        "of the 2 that keep to the goal, it has the shortest time to find who never catches up (5 s; the next 30 s)",
    )
    assert best(ran, one("a", find_ms=5400.0), one("b", hit=2, find_ms=5100.0))[0] == "a", "as quick, and none is hit"
    assert best(ran, one("a")) == ("a", "it is the only one that keeps to the goal")
    assert best(ran, one("a", hit=2, records_lost=5), one("b", hit=2, records_conflated=4))[0] == "b"
    assert best(ran, one("a", hit=2, memory_peak_bytes=5), one("b", hit=2, memory_peak_bytes=4))[0] == "b"
    assert best(ran, one("a", producer_stall_ms=1.0), one("b", hit=9))[0] == "b", "no stall, unless it is allowed"
    assert best(ran, one("a", producer_stall_ms=1.0), one("b", hit=9), goal=Goal(stall_s=1.0))[0] == "a"


def test_nothing_may_win_and_so_may_what_ran() -> None:
    assert best(one("as it ran", "ran", hit=1), one("nothing", "nothing"), one("a", hit=1)) == (
        "nothing", "of the 3 that keep to the goal no policy does better than none: nobody is missed",
    )  # fmt: skip
    assert best(one("as it ran", "ran"), one("nothing", "nothing")) == (
        "as it ran", "of the 2 that keep to the goal none does better than what ran: leave it as it is",
    )  # fmt: skip


def test_leaving_it_as_it_is_does_not_win_over_who_finds_those_that_are_missed() -> None:
    ran, nothing = one("as it ran", "ran", missed=2), one("nothing", "nothing", missed=2)
    assert best(ran, nothing, one("tells", find_ms=10_000.0))[0] == "tells"
    assert best(ran, nothing, one("tells", find_ms=10_000.0, false_verdicts=1))[0] == "as it ran"


def test_the_stuck_have_to_be_cut_in_time_where_the_goal_says_so() -> None:
    tells, cuts = one("tells", stuck=1, cut_stuck_worst_ms=50_000.0), one("cuts", hit=1, cut_stuck_worst_ms=9000.0)
    for within_s, name in ((None, "tells"), (10.0, "cuts"), (5.0, "cuts")):
        tells.recommended = cuts.recommended = False
        assert best(tells, cuts, goal=Goal(cut_stuck_s=within_s))[0] == name, within_s
    assert parse_plan('presets = ["xap"]\n[goal]\ncut_stuck = "10s"\n').goal.cut_stuck_s == 10.0


def test_where_none_keeps_to_the_goal_the_one_that_exceeds_it_least() -> None:
    goal = Goal(memory_bytes=10_000_000)
    far, near = one("a", memory_peak_bytes=30_000_000), one("b", memory_peak_bytes=20_000_000, hit=9)
    name, sentence = best(far, near, goal=goal)
    assert name == "b"
    assert sentence == "none keeps to the goal; this one exceeds it least"


def test_the_front_is_what_nothing_else_beats() -> None:
    totals = {"a": (1, 9), "b": (2, 5), "c": (2, 9)}
    scores = [one(name, hit=hit, memory_peak_bytes=peak) for name, (hit, peak) in totals.items()]
    _mark_pareto(scores)
    assert [score.candidate for score in scores if score.pareto] == ["a", "b"]


@pytest.mark.parametrize("memory", [64_000_000, 600_000, 10**15])
def test_what_is_recommended_is_a_config_whatever_the_pool(memory: int) -> None:
    run = RecordedRun("r", 0, 60.0, 10, memory, 10**8, 0.25, 0.2, 1.0, (), ({"name": "x\ny", "rule": []},),
              ({"filter": "t/#", "key": "/a"},))  # fmt: skip
    plan = parse_plan('presets = ["xap", "amps"]')
    ran = one("as it ran", "ran")
    for candidate in plan.candidates:
        score = one(candidate.name, candidate.kind)
        limits = judge([score], Goal(), {"r": run})
        text = recommended_toml(recommend([score], limits), candidate, ran, run, "a minute", NOW)
        settings = parse_settings(text)
        assert settings.topics[0].filter == "t/#"
        if candidate.policies:
            assert settings.policies == candidate.policies
        if memory == 64_000_000:
            pool = settings.pools[""]
            assert (pool.memory_bytes, pool.disk_bytes, settings.shares[""].client) == run.limits(candidate.pool)


def test_a_time_to_find_is_told_only_of_who_finds_somebody() -> None:
    """Of others it is how long the missed were behind: no figure of theirs."""
    assert "3 missed, nobody found;" in _predicted(one("nothing", "nothing", missed=3, find_ms=90_000.0))
    assert "3 missed, found in 90 s (median);" in _predicted(one("a", missed=3, noticed=1, find_ms=90_000.0))


def test_names_of_strangers_do_not_break_out_of_the_comments() -> None:
    evil = Candidate('a"\n[[policy]]\nname = "b', "grid", (), policy_toml='[[policy]]\nname = "ok"\n')
    score = one(evil.name)
    limits = judge([score], Goal(), {"r": RUN})
    settings = parse_settings(recommended_toml(recommend([score], limits), evil, one("r", "ran"), RUN, "x", NOW))
    assert [policy.name for policy in settings.policies] == ["ok"]


def test_topics_that_were_recorded_are_there_without_their_journal() -> None:
    """Whoever takes over the file has a [journal] of his own, or none."""
    topics = ({"filter": "a/#", "key": "/n", "keep": "7d"}, {"filter": "b", "keep": ["7d", "1GB"]})
    ran = one("as it ran", "ran")
    candidate = Candidate("as it ran", "ran", policy_toml='[[policy]]\nname = "ok"\n')
    found = recommend([ran], judge([ran], DEFAULT, {"r": RUN}))
    text = recommended_toml(found, candidate, ran, msgspec.structs.replace(RUN, topic_tables=topics), "a lake", NOW)
    assert [topic.filter for topic in parse_settings(text).topics] == ["a/#", "b"]
    assert '# keep = "7d"' in text
    assert '# keep = ["7d", "1GB"]' in text


SERVED = """# the broker of the shop
[server]
name = "shop"   # as on the door

[[policy]]
name = "old"
# why it is so
[[policy.rule]]
when = { lag_age = "9s" }
then = "notify"

# who may come in
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"

[pool]
memory = "70MB"
disk = "1GB"

[[policy]]
name = "older"
rule = []
"""


def test_what_is_served_stays_but_for_its_policies() -> None:
    policies = '[[policy]]\nname = "new"\n\n[[policy.rule]]\nwhen = { lag_age = "5s" }\nthen = "disconnect"\n'
    text = with_policies(SERVED, Candidate("a", "grid", policy_toml=policies))
    settings = parse_settings(text)
    assert [policy.name for policy in settings.policies] == ["new"]
    for line in ("# the broker of the shop", 'name = "shop"   # as on the door', "# who may come in", 'disk = "1GB"'):
        assert line in text
    assert "why it is so" not in text
    pool = Candidate("a", "grid", policy_toml=policies, pool_toml='[pool]\nmemory = "80MB"\n')
    limits = parse_settings(with_policies(SERVED, pool)).pools[""]
    assert (limits.memory_bytes, limits.disk_bytes) == (80_000_000, 10**9)
    assert "policy" not in with_policies(SERVED, Candidate("nothing", "nothing"))
    with pytest.raises(ConfigError, match="cannot be told from the rest"):
        with_policies('policy = [{ name = "x", rule = [] }]\n', Candidate("a", "grid", policy_toml=policies))


def test_the_recommendation_is_the_served_configuration() -> None:
    ran, plan = one("as it ran", "ran"), parse_plan('presets = ["xap"]')
    candidate = plan.candidates[-1]
    for chosen, names in ((candidate, ["xap"]), (plan.candidates[0], ["old", "older"])):
        score = one(chosen.name, chosen.kind)
        found = recommend([score], judge([score], DEFAULT, {"r": RUN}))
        text = recommended_toml(found, chosen, ran, RUN, "a minute", NOW, SERVED)
        assert text.startswith("# Recommended by")
        settings = parse_settings(text)
        assert (settings.server.name, [policy.name for policy in settings.policies]) == ("shop", names)
