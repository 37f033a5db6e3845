"""The default policy says who falls behind, and leaves those alone who are only late."""

from __future__ import annotations

import tomllib
from math import inf
from pathlib import Path

import pytest

from headway.core.policy import PolicyState, Sample, evaluate, parse_policies

FILE = Path(__file__).parents[2] / "src" / "headway" / "server" / "config" / "defaults.toml"
BEHIND = {"lag_records": 535, "lag_bytes": 1_090_000, "drain_share": 0.88, "catching_up": inf}


@pytest.mark.parametrize(("figures", "found"), [
    pytest.param({"lag_age": 8.5}, True, id="it reads steadily an eighth less than it is offered"),
    pytest.param({"lag_age": 6.5}, False, id="not for long"),
    pytest.param({"lag_age": 8.5, "drain_share": 0.95, "catching_up": 400.0}, False, id="it takes nearly all"),
    pytest.param({"lag_age": 8.5, "catching_up": 60.0}, False, id="it catches up"),
    pytest.param({"lag_age": 8.5, "lag_records": 40}, False, id="a few records"),
    pytest.param({"lag_age": 21.0, "lag_records": 3}, True, id="a few records for long"),
])  # fmt: skip
def test_who_falls_behind_is_told_of(figures: dict[str, float], found: bool) -> None:
    policy = parse_policies(tomllib.loads(FILE.read_text())["policy"])[-1]
    state, told = PolicyState(), []
    for look in range(40):
        told += evaluate(policy, state, Sample(**(BEHIND | figures)), look * 0.2)  # type: ignore[arg-type]
    assert [policy.rules[decision.rule].name for decision in told] == (["falls behind"] if found else [])
