"""This checkout beside another commit: ratios, when a row is measured again, and what is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.compare import Compared, checked_out, git, main, rows
from bench.errors import BenchError
from bench.peers.headway import Headway
from bench.peers.peer import start
from rich.console import Console
from tests.bench.copied import Copied

from bench import compare

if not (compare.ROOT / ".git").exists():
    pytest.skip("not a git checkout", allow_module_level=True)

QOS1 = next(row for row in rows(True) if row.title.startswith("QoS 1"))
ALONE = next(row for row in rows(True) if row.title.startswith("one message"))


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny run is not worth a minute of compiling."""
    monkeypatch.setattr("compileall.compile_dir", lambda *_, **__: True)


def compared(*ratios: float) -> Compared:
    """Returns a row of rates with these ratios."""
    one = Compared(QOS1)
    one.pairs = [(figures(1000.0), figures(1000.0 * ratio)) for ratio in ratios]
    return one


def figures(rate: float) -> dict[str, Any]:
    return {"acknowledged_per_s": rate, "acknowledged_per_cpu_s": 2 * rate}


class Scripted:
    """In the place of a real round: appends one pair with the row's next ratio."""

    def __init__(self, **ratios: Sequence[float]) -> None:
        self.left = {name: list(found) for name, found in ratios.items()}

    def __call__(self, one: Compared, other: Path, seconds: float, starts: Compared, first: int) -> None:
        one.pairs += compared(self.left[one.row.workload].pop(0)).pairs


def fake_rows(*names: str) -> list[compare.Row]:
    return [QOS1._replace(workload=name) for name in names]


def test_ratio_is_above_one_where_this_checkout_is_better() -> None:
    alone = Compared(ALONE)
    alone.pairs = [({"p50_ns": 100, "p99_ns": 400}, {"p50_ns": 50, "p99_ns": 800})]
    assert [alone.ratios(figure) for figure in ALONE.figures] == [[2.0], [0.5]]
    assert compared(1.25).ratios(QOS1.figures[0]) == [1.25]
    assert alone.is_slower, "its p99 doubled"


def test_row_is_slower_by_the_median_of_its_pairs() -> None:
    assert not compared(0.5, 0.96, 1.5).is_slower
    assert compared(0.5, 0.94, 1.5).is_slower


def test_row_below_the_bound_is_measured_again_before_it_counts_as_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Scripted(fine=[1.0, 1.0], noisy=[0.7, 0.8, 1.0, 1.0, 1.0], slower=[0.9] * 8)
    monkeypatch.setattr(compare, "one_round", script)
    told: list[tuple[int, int]] = []
    every = compare.compare(
        fake_rows("fine", "noisy", "slower"), Path(), 0.1, 2, 6, lambda text, done, total: told.append((done, total))
    )
    assert [(one.row.workload, len(one.pairs), one.is_slower) for one in every] == [
        ("fine", 2, False), ("noisy", 5, False), ("slower", 8, True),
    ]  # fmt: skip
    assert told[-1] == (15, 15)


def test_exit_code_is_one_where_a_row_is_slower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "one_round", Scripted(acknowledged=[0.9, 1.0]))
    assert main(["HEAD", "--tiny", "--rows", "QoS 1"]) == 1
    told = capsys.readouterr().out
    assert "slower than " in told
    assert told.splitlines()[-1].split(": ")[1].startswith("QoS 1, 1 to 1 ("), "the other row is as fast as before"


def test_row_that_the_other_commit_cannot_do_is_no_failure() -> None:
    one = Compared(QOS1)
    one.error = "the other commit: no such queue"
    assert not one.is_slower
    console = Console(width=200)
    with console.capture() as shown:
        console.print(compare.table([one], "4f3d37a"))
    assert "the other commit: no such queue" in shown.get()


def test_another_commit_is_measured_and_its_worktree_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bench.peers.peer.RunningProcess", Copied)
    seen: list[Path] = []
    real = compare.compare

    def seeing(chosen: Any, other: Path, *rest: Any) -> list[Compared]:
        assert (other / "headway/__main__.py").is_file()
        seen.append(other)
        return real(chosen, other, *rest)

    monkeypatch.setattr(compare, "compare", seeing)
    result = tmp_path / "compared.json"
    assert main(["HEAD", "--tiny", "--rows", "itself,serve", "--json", str(result)]) in (0, 1)
    alone, starts = json.loads(result.read_text())["rows"]
    assert [len(alone["pairs"]), len(starts["pairs"])] == [2, 2]
    assert all(half["published"] > 0 for pair in alone["pairs"] for half in pair)
    assert not seen[0].exists()
    assert str(seen[0].parent) not in git("worktree", "list")


def test_worktree_is_removed_on_ctrl_c() -> None:
    def interrupted() -> Iterator[Path]:
        with checked_out("HEAD") as (_, source):
            yield source
            raise KeyboardInterrupt

    steps = interrupted()
    source = next(steps)
    assert source.is_dir()
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert not source.exists()
    assert str(source.parent) not in git("worktree", "list")


def test_broker_runs_from_another_source_folder(tmp_path: Path) -> None:
    (tmp_path / "headway").mkdir()
    (tmp_path / "headway/__init__.py").touch()
    (tmp_path / "headway/__main__.py").write_text("exit('I am the other one')")
    with pytest.raises(BenchError, match="the other commit: headway did not start: I am the other one"):
        compare.one_round(Compared(QOS1), tmp_path, 0.1, Compared(rows(True)[-1]), 0)
    with start(Headway()) as running:
        assert Headway().env(running.instance) is None


def test_each_is_the_one_that_is_measured_twice_in_a_row_in_every_second_round(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    one, starts = Compared(QOS1), Compared(rows(True)[-1])

    def measure(broker: SimpleNamespace, *_: object) -> dict[str, Any]:
        measured.append(broker.name)
        return figures(float(len(measured)))

    monkeypatch.setattr(compare, "start", lambda peer: nullcontext(
        SimpleNamespace(name="this" if peer.source is None else "other", start_s=1.0)))
    monkeypatch.setitem(compare.WORKLOADS, QOS1.workload, SimpleNamespace(run=measure))
    for number in range(2):
        compare.one_round(one, Path("other"), 0.1, starts, number)
    assert measured[2:6] == ["other", "this", "this", "other"]
    assert measured[8:] == ["this", "other", "other", "this"]
    assert [[ours["acknowledged_per_s"] for ours in pair] for pair in one.pairs] == [[3, 4], [6, 5], [10, 9], [11, 12]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no commit '' here; say which one: make compare REV=main"),
        (["no-such-branch"], "there is no commit 'no-such-branch' here"),
        (["HEAD", "--rows", "nix"], "no row has 'nix' in its name; there are: QoS 0 to 1; "),
    ],
)
def test_mistake_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
