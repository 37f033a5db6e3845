"""Flap control: the first time costs nothing, then it is ever longer, up to a limit, until it is forgiven."""

from __future__ import annotations

import pytest

from headway.core.policy import evaluation as flap
from headway.core.policy.evaluation import FlapControl


@pytest.mark.parametrize(
    ("at", "out_s"),
    [
        ([0], [0]),
        ([0, 10, 20, 30], [0, 1, 2, 4]),
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 4, 5, 5]),
        ([0, 10, 711], [0, 1, 0]),
        ([0, 10, 700], [0, 1, 2]),
        ([0] + [1] * 50, [0, 1, 2, 4] + [5] * 47),
    ],
)
def test_shut_out_ever_longer(at: list[float], out_s: list[float]) -> None:
    control = FlapControl(base_s=1, max_s=5, forgive_s=700)
    assert [control.strike("c", now) for now in at] == out_s


def test_the_wait_runs_down() -> None:
    control = FlapControl(base_s=2)
    assert control.wait_s("c", 0) == 0
    control.strike("c", 0)
    control.strike("c", 0)
    assert [control.wait_s("c", now) for now in (0, 0.5, 1.95, 2, 3)] == [2, 1.5, pytest.approx(0.1), 0, 0]
    assert control.strikes("c") == 2
    assert control.strikes("d") == 0


def test_it_remembers_no_more_than_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flap, "CLIENTS_MAX", 3)
    control = FlapControl()
    for client in "abcad":
        control.strike(client, 0)
    assert [control.strikes(client) for client in "abcd"] == [2, 0, 1, 1], "the stalest is forgotten"
