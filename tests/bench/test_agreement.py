"""How the verdicts of the lab are compared with those of the broker."""

from __future__ import annotations

import pytest
from bench.behaviours.agreement import NEAR_S, Word, agreement, summed

SAID = Word(1, "notify", 20.0)


@pytest.mark.parametrize(("broker", "lab", "neither", "both", "near", "different"), [
    pytest.param(None, None, 1, 0, 0, 0, id="nobody says anything"),
    pytest.param(SAID, SAID, 0, 1, 1, 0, id="the same"),
    pytest.param(SAID, SAID._replace(time_s=20.0 + NEAR_S), 0, 1, 1, 0, id="near enough"),
    pytest.param(SAID, SAID._replace(time_s=20.1 + NEAR_S), 0, 1, 0, 1, id="too late"),
    pytest.param(SAID, SAID._replace(time_s=19.9 - NEAR_S), 0, 1, 0, 1, id="too early"),
    pytest.param(SAID, SAID._replace(rule=2), 0, 0, 0, 1, id="another rule"),
    pytest.param(SAID, SAID._replace(action="disconnect"), 0, 0, 0, 1, id="another action"),
    pytest.param(SAID, None, 0, 0, 0, 1, id="only the broker"),
    pytest.param(None, SAID, 0, 0, 0, 1, id="only the lab"),
])  # fmt: skip
def test_what_agrees(
    broker: Word | None, lab: Word | None, neither: int, both: int, near: int, different: int
) -> None:
    key = "p", "run", "c", "t/#"
    others = {("p", "run", "d", "t/#"): SAID, ("q", "run", "c", "t/#"): SAID}
    found = agreement(
        "p", [("run", "c", "t/#")], others | ({key: broker} if broker else {}), others | ({key: lab} if lab else {})
    )
    assert (found.neither, found.both, found.near, len(found.differences)) == (neither, both, near, different)
    assert (found.consumers, found.judged) == (1, 1 - neither)
    twice = summed([found, found])["p"]
    assert (twice.consumers, twice.both, twice.near, len(twice.differences)) == (2, 2 * both, 2 * near, 2 * different)
