"""Headway under the bench, and the bench's own processes, as copies of one that has imported all
(tests/interop/forked.py). Most of what a tiny workload took was their start."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.running_process import RunningProcess
from tests.interop.forked import Forked

from bench import slow_disk
from headway.cli import main

MAINS = {"headway": main, "bench.slow_disk": slow_disk.main}
"""By the module that a command runs."""


class Copied(RunningProcess):
    """Like any running process; of Headway it is a copy whose keeper is one, too."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        if list(command[:2]) == [sys.executable, "-m"] and command[2] in MAINS:
            self._keeper = Keeper([str(log.parent), *command[2:]], log, env or {})  # type: ignore[assignment]
        else:
            super().__init__(command, log, env)


class Keeper:
    """What the bench asks of its keeper: when its input is closed, it ends with all that it has started."""

    def __init__(self, arguments: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self._process = Forked(_keep, arguments, log, environment=env)
        self.pid = self._process.pid
        self.stdin = self

    def close(self) -> None:
        """May be called again, as of a file."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self) -> None:
        self._process.wait()


def _keep() -> None:
    """The broker in a process of its own. Nobody waits for it: its end is to be seen."""
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    broker = os.fork()
    if not broker:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(sys.argv.pop(1))
        MAINS[sys.argv.pop(1)]()
    while True:
        signal.pause()
