"""`headway lab`: mistakes are one line each and exit 2, before Spark is started; what is shown fits and is safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from tests.pipeline.lakes import write
from typer.testing import CliRunner

from headway.cli.app import app
from headway.cli.lab import _table
from headway.pipeline.lab.score import Score

GOOD = 'presets = ["xap"]\n'


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["lab", *args])
    return result.exit_code, result.stderr


@pytest.mark.parametrize(
    ("candidates", "lines"),
    [
        ("presets = ['xp']\nx = 1\n", ["unknown key 'x'", "unknown preset 'xp' (did you mean xap?)"]),
        ("", ["there is nothing to compare"]),
        (None, ["cannot be read"]),
        (GOOD, ["none"]),
    ],
)
def test_a_mistake_is_told_at_once(tmp_path: Path, candidates: str | None, lines: list[str]) -> None:
    file = tmp_path / "candidates.toml"
    if candidates is not None:
        file.write_text(candidates)
    code, errors = run("run", "--lake", str(tmp_path / "none"), "--candidates", str(file), "--out", str(tmp_path))
    assert code == 2
    told = errors.splitlines()
    assert all(line.startswith("headway: ") for line in told)
    assert len(told) == len(lines)
    for line in lines:
        assert any(line in one for one in told), errors


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "candidates.toml"
    file.write_text(GOOD)
    write(tmp_path / "lake", "consumer_samples", [{"seq": 1}])
    code, errors = run("run", "--lake", str(tmp_path / "lake"), "--candidates", str(file), "--out", str(file))
    assert (code, len(errors.splitlines())) == (2, 1), errors
    assert "--out" in errors


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--cut-stuck", "soon", "--cut-stuck: "),
        ("--config", "[server]\nname = [", "--config: "),
        ("--config", 'policy = [{ name = "x", rule = [] }]', "--config: its policies cannot be told from the rest"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, option: str, value: str, line: str) -> None:
    file, config = tmp_path / "candidates.toml", tmp_path / "headway.toml"
    file.write_text(GOOD)
    config.write_text(value)
    write(tmp_path / "lake", "consumer_samples", [{"seq": 1}])
    given = value if option == "--cut-stuck" else str(config)
    code, errors = run("run", "--lake", str(tmp_path / "lake"), "--candidates", str(file), "--out", str(tmp_path / "o"),
                       option, given)  # fmt: skip
    assert (code, len(errors.splitlines())) == (2, 1), errors
    assert line in errors


def test_the_table_has_what_ran_what_is_recommended_and_the_best_few() -> None:
    scores = [
        Score("as it ran", "ran", 10, hit=3, within_goal=True), Score("nothing", "nothing", 10),
        Score("best", "grid", 10, hit=1, within_goal=True, recommended=True),
        *(Score(f"other {n}", "grid", 10, hit=n, within_goal=True) for n in range(30, 0, -1)),
        Score("\x1b[31mevil", "preset", 10),
    ]  # fmt: skip
    console = Console(width=160, force_terminal=True, no_color=True)
    with console.capture() as capture:
        console.print(_table(scores))
    text = capture.get()
    assert all(name in text for name in ("as it ran", "nothing", "best", "other 1", "22 more in the report"))
    assert "other 30" not in text
    assert "\x1b[31mevil" not in text
