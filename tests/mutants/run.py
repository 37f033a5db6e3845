"""Running the tests on a changed core.

Each change is made in a copy of the source, and the tests run on that copy, the quick ones first, until one fails. A
change that every test lets pass has *survived*: either it changes nothing that anybody was promised, or a test is
missing.

Of the tests that run in one process (``TRACED``) only those run that call the changed function (callers.py), the
quickest first. What the import of the core calls, every test does, so to speak: for that they run whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import NamedTuple

from tests.mutants.callers import IMPORT
from tests.mutants.change import Change

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src"
TRACED = ("tests/core", "tests/wire", "tests/sim")
WHOLE = ("tests/server", "tests/crash")
TIMES_LONGER = 5.0
"""Tests that take this many times as long as without a change have hung: that is noticed too."""
TIME_LEAST_S = 60.0


class Outcome(NamedTuple):
    change: Change
    noticed_by: str
    """The first test that failed; empty: the change survived."""
    seconds: float


class Usual(NamedTuple):
    """What the tests do without a change."""

    callers: dict[tuple[str, int, int], list[str]]
    """By function: the tests that call it."""
    seconds: dict[str, float]
    """By test, and by folder."""

    def of(self, change: Change) -> list[list[str]]:
        """The tests that call the function, the quickest first; then the others, if need be."""
        found = {
            test for (name, first, last), tests in self.callers.items()
            if name == change.file.name and first <= change.line <= last for test in tests
        }  # fmt: skip
        callers = sorted(found - {IMPORT}, key=self.seconds.__getitem__)
        return [callers, [*TRACED]] if IMPORT in found else [callers]


class Copy:
    """A copy of the source that one worker changes and runs tests on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "src"
        self._scratch = folder / "tmp"
        self._callers = folder / "callers.json"
        copytree(SOURCE, self._folder, ignore=ignore_patterns("__pycache__"))

    def run(self, tests: list[str], limit_s: float, *options: str) -> str:
        """The first of the tests that fails; empty: all pass."""
        # What is installed points at the source as it is; this path comes before it.
        environment = os.environ | {
            "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1", "HEADWAY_CALLERS": str(self._callers),
        }  # fmt: skip
        arguments = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-rfE",
                     f"--basetemp={self._scratch}", *options, *tests]  # fmt: skip
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
            return f"{tests[0]}: it hangs"
        if process.returncode == 0:
            return ""
        lines = said.splitlines() or ["nothing ran"]
        # Where the change keeps a file of tests from being read, its tests are not found: that is an error, too.
        failed = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
        return failed[0] if failed else f"{tests[0]}: {lines[-1]}"

    def outcome(self, change: Change, usual: Usual) -> Outcome:
        """Run the tests on a changed source, and put it back."""
        file = self._folder / change.file.relative_to(SOURCE)
        source = file.read_text()
        began = time.monotonic()
        file.write_text(change.applied(source))
        try:
            for tests in (*usual.of(change), *([folder] for folder in WHOLE)):
                limit_s = max(TIME_LEAST_S, TIMES_LONGER * sum(map(usual.seconds.__getitem__, tests)))
                noticed = self.run(tests, limit_s) if tests else ""
                if noticed:
                    return Outcome(change, noticed, time.monotonic() - began)
            return Outcome(change, "", time.monotonic() - began)
        finally:
            file.write_text(source)

    def usual(self) -> Usual:
        """Raises RuntimeError where a test fails without any change."""
        seconds: dict[str, float] = {}
        for tests, *options in (list(TRACED), "-p", "tests.mutants.callers"), *([[folder]] for folder in WHOLE):
            began = time.monotonic()
            failed = self.run(tests, 1200.0, *options)
            if failed:
                raise RuntimeError(f"without any change: {failed}")
            seconds |= dict.fromkeys(tests, time.monotonic() - began)
        callers: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        for test, (took, functions) in json.loads(self._callers.read_text()).items():
            seconds[test] = took
            for name, first, last in functions:
                callers[name, first, last].append(test)
        return Usual(callers, seconds)
