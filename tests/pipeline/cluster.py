"""A real standalone Spark cluster on loopback, out of the pip package: one master, two workers of one core each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pyspark

HOME = Path(pyspark.__file__).parent
SPARK_S = 300.0
"""On a machine that has much else to do."""


class Daemon:
    """A master or a worker: a child process whose log is read until it says that it is ready."""

    def __init__(self, kind: str, *arguments: str, folder: Path, ready: str) -> None:
        """``ready``: the pattern of the line that says so."""
        folder.mkdir()
        # What its executors run is this Python; they listen on loopback only, and keep all they write in the folder.
        environment = {
            **os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_WORKER_DIR": str(folder), "SPARK_LOG_DIR": str(folder), "SPARK_DAEMON_MEMORY": "256m",
        }  # fmt: skip
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--webui-port", "0", *arguments],
            env=environment, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._ready = ready

    def wait(self) -> str:
        """Until it is ready; what the first group of ``ready`` matches."""
        assert self.process.stdout is not None
        try:
            told = self._read_until(self.process.stdout, self._ready)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return told

    def _read_until(self, log: IO[str], ready: str) -> str:
        lines = []
        for line in log:
            lines.append(line)
            if found := re.search(ready, line):
                return found[1]
        raise AssertionError("it ended before it was ready:\n" + "".join(lines[-20:]))

    def kill(self) -> None:
        """The worker and its executors, with all they started, gone at once as in a power cut."""
        family = [self.process.pid, *descendants(self.process.pid)]
        for pid in family:
            _tell(pid, signal.SIGSTOP)
        for pid in [*family, *descendants(self.process.pid)]:
            _tell(pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


def _tell(pid: int, word: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # executors end processes of theirs all the time
        os.kill(pid, word)


class Cluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[Daemon] = []
        self.url = self._add("master.Master", ready=r"Starting Spark master at (spark://\S+)").wait()

    def _add(self, kind: str, *arguments: str, ready: str) -> Daemon:
        folder = self._folder / str(len(self._daemons))
        self._daemons.append(Daemon(kind, *arguments, folder=folder, ready=ready))
        return self._daemons[-1]

    def workers(self, count: int) -> list[Daemon]:
        """So many living workers of one core; those that are missing are started, at once."""
        alive = [daemon for daemon in self._daemons[1:] if daemon.process.poll() is None]
        arguments, ready = ("--cores", "1", "--memory", "900m", self.url), "Successfully registered with master (.*)"
        new = [self._add("worker.Worker", *arguments, ready=ready) for _ in range(count - len(alive))]
        for daemon in new:
            daemon.wait()
        return alive + new

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.close()


@contextmanager
def start_cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()


def descendants(pid: int) -> list[int]:
    """The processes it started, and those they started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found
