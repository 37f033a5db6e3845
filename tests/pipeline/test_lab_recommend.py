"""Scoring and recommending, on totals made up for the purpose."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from headway.pipeline.lab.plans.candidates import Candidate, Goal, parse_plan
from headway.pipeline.lab.recommend import recommend, recommended_toml
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


def test_of_those_within_the_goal_the_one_that_wrongs_the_fewest() -> None:
    ran = one("as it ran", "ran", disk_peak_bytes=600_000_000)
    assert best(ran, one("a", false_positives=1), one("b", hit=2)) == (
        "b", "of the 2 that keep to the goal, it wrongs the fewest",
    )  # fmt: skip
    assert best(ran, one("a", hit=2, records_lost=5), one("b", hit=2, records_conflated=4))[0] == "b"
    assert best(ran, one("a", hit=2, memory_peak_bytes=5), one("b", hit=2, memory_peak_bytes=4))[0] == "b"
    assert best(ran, one("a", producer_stall_ms=1.0), one("b", hit=9))[0] == "b", "no stall, unless it is allowed"
    assert best(ran, one("a", producer_stall_ms=1.0), one("b", hit=9), goal=Goal(stall_s=1.0))[0] == "a"


def test_nothing_may_win_and_so_may_what_ran() -> None:
    assert best(one("as it ran", "ran", hit=1), one("nothing", "nothing"), one("a", hit=1)) == (
        "nothing", "no policy is needed to stay within these limits",
    )  # fmt: skip
    assert "leave it as it is" in best(one("as it ran", "ran"), one("nothing", "nothing"))[1]


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
            assert (pool.memory_bytes, pool.disk_bytes, pool.client_share) == run.limits(candidate.pool)


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
