"""Health end to end: the command, on a lake that grows, loses its oldest files, and has the wrong ones in it."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from tests.pipeline.commands import Done, commands
from tests.pipeline.lakes import at, write

from headway.core.base.errors import ConfigError
from headway.pipeline.health import RESULTS, result_folder, run_health

LIMITS = {"memory_limit_bytes": 1_000_000, "disk_limit_bytes": 9_000_000}
HOUR_S = 3600


def headway(*arguments: object) -> Done:
    command = [sys.executable, "-m", "headway", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def measure(lake: Path, out: Path, *more: str, run: Callable[..., Done] = headway) -> Done:
    return run("pipeline", "health", "--lake", lake, "--out", out, "--master", "local[2]", "--memory", "1g", *more)


def said(done: Done) -> list[str]:
    """What it wrote to stderr, but for the progress."""
    progress = ("Measuring health", "Checking the lake")
    return [line for line in done.stderr.splitlines() if not line.startswith(progress)]


def results(out: Path) -> dict[str, list[dict[str, Any]]]:
    """What any reader of Parquet finds, without Spark."""
    tables = {name: pq.read_table(result_folder(out, name)).to_pylist() for name in RESULTS}
    return {name: sorted(rows, key=lambda row: [str(value) for value in row.values()]) for name, rows in tables.items()}


def read_by_run(out: Path, table: str) -> list[list[str]]:
    """Which files of the lake were read, batch by batch, as the stream's own log has it."""
    logs = (out / "_state").glob(f"_checkpoints/*/*/{table}/{table}/0/sources/0/[0-9]*")
    batches = [[json.loads(line) for line in log.read_text().splitlines()[1:]] for log in sorted(logs)]
    return [sorted(unquote(entry["path"]).rpartition("/")[2] for entry in batch) for batch in batches]


def record(lake: Path, hour: int, name: str) -> list[Path]:
    """A minute of a recording: three consumers, of whom one lags for 40 s, is judged, and goes on lagging after it."""
    start, seq = hour * HOUR_S, hour * 1000
    samples = [
        {"subscription": s, "client": f"c{s}", "seq": seq + t + 1, "time": start + t, "held_bytes": 100 * s,
         "lag_records": 5 if s == 2 and t >= 20 else 0, "lag_age_ms": 2000.0 if s == 2 and t >= 20 else 0.0,
         "producer_stall_ms": float(hour * 60 + t) if s == 2 else 0.0}
        for s in (1, 2, 3) for t in range(60)
    ]  # fmt: skip
    broker = [
        {"seq": seq + t, "time": start + t, "turns": 10, "delivery_p99_ms": 1.0 + t, "memory_bytes": 1000 * t, **LIMITS}
        for t in range(60)
    ]
    verdict = {"number": hour + 1, "time": start + 30, "subscription": 2, "client": "c2", "action": "notify",
               "reason": "lag_age", "cause": "application"}  # fmt: skip
    return [
        *write(lake, "consumer_samples", samples, name),
        *write(lake, "broker_samples", broker, name),
        *write(lake, "verdicts", [verdict], name),
        *write(lake, "configs", [{"seq": hour, "time": start, **LIMITS}], name),
    ]


def test_a_lake_that_grows_is_read_once_and_gives_what_a_fresh_look_gives(tmp_path: Path) -> None:
    lake, out, attic = (tmp_path / name for name in ("the lake ü", "out %", "attic"))
    first = record(lake, 0, "a")

    with commands() as run:
        done = measure(lake, out, run=run)
        assert (done.returncode, said(done)) == (0, []), done.stderr
        assert "1 slow episode of 1 offender, among 3 consumers." in done.stdout
        assert "Worst: c2 on t/#, slow for 39 s" in done.stdout
        assert (out / "report.html").stat().st_size > 1000
        (episode,) = results(out)["slow_episodes"]
        assert (episode["client"], episode["start"], episode["end"]) == ("c2", at(20), at(59))
        assert (episode["cause"], episode["action"]) == ("application", "notify")

        # The broker has deleted its oldest files; there are new ones, one that comes late, and a copy of a new one.
        second = record(lake, 1, "b")
        attic.mkdir()
        for number, path in enumerate(first):
            shutil.copy(path, attic / f"{number}.parquet")
            path.unlink()
        late = write(lake, "consumer_samples", [{"subscription": 4, "client": "late", "seq": 1, "time": 5}], "late")
        shutil.copy(second[0], second[0].with_name("copy.parquet"))
        done = measure(lake, out, run=run)
        assert (done.returncode, said(done)) == (0, []), done.stderr
        assert read_by_run(out, "consumer_samples") == [["a.parquet"], ["b.parquet", "copy.parquet", "late.parquet"]]
        assert read_by_run(out, "broker_samples") == [["a.parquet"], ["b.parquet"]]

        # The same from nothing: all files at once, each once.
        for number, path in enumerate(first):
            shutil.copy(attic / f"{number}.parquet", path)
        second[0].with_name("copy.parquet").unlink()
        assert late[0].exists()
        found = results(out)
        done = measure(lake, out, "--full-refresh", run=run)
        assert (done.returncode, said(done)) == (0, []), done.stderr
    assert results(out) == found
    assert {name: len(rows) for name, rows in found.items()} == {
        "slow_episodes": 2, "offenders": 1, "costs": 6, "isolation": 2, "forecast": 3,
    }  # fmt: skip


def test_a_bad_lake_is_one_line_and_exit_2(tmp_path: Path) -> None:
    done = measure(tmp_path / "none", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"headway: {tmp_path / 'none'}: there is no such folder\n"
    assert not (tmp_path / "out").exists()


def refusal(lake: Path, out: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        run_health(lake, out)
    return str(caught.value)


def test_a_folder_with_other_things_in_it_is_not_touched(tmp_path: Path) -> None:
    lake, out = tmp_path / "lake", tmp_path / "out"
    record(lake, 0, "a")
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    told = f"{out} holds other things; give a folder that is new or empty"
    assert refusal(lake, out) == told
    assert refusal(lake, lake) == told.replace(str(out), str(lake))
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]
    assert refusal(lake, out / "thesis.txt") == f"{out / 'thesis.txt'} is not a folder"
    (out / "health.json").write_text("{}")
    assert refusal(lake, out).startswith(f"{out / 'health.json'} is not what a run wrote")


def test_a_folder_made_from_another_lake_is_not_mixed_with_it(tmp_path: Path) -> None:
    record(tmp_path / "lake", 0, "a")
    out = tmp_path / "out"
    out.mkdir()
    (out / "health.json").write_text('{"lake": "/somewhere/else"}')
    told = f"{out} was made from /somewhere/else; give another folder, or --full-refresh to begin anew"
    assert refusal(tmp_path / "lake", out) == told


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    record(tmp_path / "lake", 0, "a")
    out = tmp_path / "out"
    out.mkdir()
    (out / "health.json").write_text(f'{{"lake": "{tmp_path / "lake"}"}}')
    with (out / "_lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert refusal(tmp_path / "lake", out) == f"{out} is in use by another run; wait for its end"
