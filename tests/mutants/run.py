"""Running the tests on a changed core.

Each change is made in a copy of the source, and the tests run on that copy, the quick ones first, until one fails. A
change that every test lets pass has *survived*: either it changes nothing that anybody was promised, or a test is
missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.mutants.change import Change

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"
STAGES = (("tests/core", "tests/wire"), ("tests/sim",), ("tests/server",), ("tests/crash",))
TIMES_LONGER = 5.0
"""A stage that takes this many times as long as without a change has hung: that is noticed too."""
TIME_LEAST_S = 30.0


class Outcome(NamedTuple):
    change: Change
    noticed_by: str
    """The first test that failed; empty: the change survived."""
    seconds: float


class Copy:
    """A copy of the source that one worker changes and runs tests on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "src"
        self._scratch = folder / "tmp"
        shutil.copytree(SOURCE, self._folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, stage: tuple[str, ...], limit_s: float) -> str:
        """The first test of a stage that fails; empty: all pass."""
        # What is installed points at the source as it is; this path comes before it.
        environment = os.environ | {"PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-rfE",
                     f"--basetemp={self._scratch}", *stage]  # fmt: skip
        # A session of its own: brokers that a hung test has started end with it.
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"{stage[0]}: it hangs"
        if process.returncode == 0:
            return ""
        lines = said.splitlines() or ["nothing ran"]
        failed = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
        return failed[0] if failed else f"{stage[0]}: {lines[-1]}"

    def outcome(self, change: Change, usual_s: list[float]) -> Outcome:
        """Run the stages on a changed source, and put it back. ``usual_s``: how long each takes without a change."""
        file = self._folder / change.file.relative_to(SOURCE)
        source = file.read_text()
        began = time.monotonic()
        file.write_text(change.applied(source))
        try:
            for stage, usual in zip(STAGES, usual_s, strict=True):
                noticed = self.run(stage, max(TIME_LEAST_S, usual * TIMES_LONGER))
                if noticed:
                    return Outcome(change, noticed, time.monotonic() - began)
            return Outcome(change, "", time.monotonic() - began)
        finally:
            file.write_text(source)

    def usual_s(self) -> list[float]:
        """Raises RuntimeError where a test fails without any change."""
        found = []
        for stage in STAGES:
            began = time.monotonic()
            failed = self.run(stage, 1200.0)
            if failed:
                raise RuntimeError(f"without any change: {failed}")
            found.append(time.monotonic() - began)
        return found
