"""What a peer started is gone when the bench is: ended, interrupted or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.running_process import RunningProcess
from tests.interop.waiting import PATIENCE_S, until

FAMILY = ["/bin/sh", "-c", "sleep 1000 & sleep 1000"]


def gone(pid: int) -> bool:
    """No such process, or nobody has waited for it yet."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_all_that_it_started_is_counted_and_ended(tmp_path: Path) -> None:
    with RunningProcess(FAMILY, tmp_path / "log") as process:
        until(lambda: len(process.pids) == 3, PATIENCE_S, "the shell and both its children run")
        pids = process.pids
        assert 0 < process.rss_bytes() <= process.peak_bytes()
        assert not process.ended
    until(lambda: all(map(gone, pids)), PATIENCE_S, "all three are gone")


def test_it_is_known_when_it_has_ended_by_itself(tmp_path: Path) -> None:
    with RunningProcess(["/bin/sh", "-c", "echo that was all"], tmp_path / "log") as process:
        until(lambda: process.ended, PATIENCE_S, "it has ended")
        assert (tmp_path / "log").read_text() == "that was all\n"


def test_nothing_outlives_a_bench_that_was_killed(tmp_path: Path) -> None:
    script = f"""
import signal
from pathlib import Path
from bench.running_process import RunningProcess
from tests.interop.waiting import until
process = RunningProcess({FAMILY!r}, Path({str(tmp_path)!r}) / "log")
until(lambda: len(process.pids) == 3)
print(*process.pids, flush=True)
signal.pause()
"""
    bench = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert bench.stdout is not None
    pids = [int(pid) for pid in bench.stdout.readline().split()]
    assert len(pids) == 3
    assert not any(map(gone, pids))
    os.kill(bench.pid, signal.SIGKILL)
    bench.wait()
    bench.stdout.close()
    until(lambda: all(map(gone, pids)), PATIENCE_S, "all three are gone")
