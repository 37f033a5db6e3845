"""A running process that ends with the bench, and the memory and CPU time that it takes.

The peer is started by a small shell of its own session that waits for the end of its standard input, which only the
bench holds open: when the bench closes it, is interrupted or is killed, the shell kills its process group, itself
included. So nothing a peer starts (an Erlang node's port mapper, say) is left behind, whatever became of the bench.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

KEEPER = '"$@" </dev/null & read _; kill -KILL 0'
RESET_PEAK = "5"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class RunningProcess:
    """A process of ``command``, and all that it starts; its output goes to ``log``."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        with log.open("wb") as out:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", KEEPER, "keeper", *command],
                stdin=subprocess.PIPE, stdout=out, stderr=out, env=env, start_new_session=True, cwd=log.parent,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The living processes: the command and all it started."""
        return family(self._keeper.pid)[0]

    @property
    def ended(self) -> bool:
        """Whether the command was started and nothing of it lives any more."""
        living, dead = family(self._keeper.pid)
        return bool(dead) and not living

    def rss_bytes(self) -> int:
        return sum(_status_bytes(pid, "VmRSS:") for pid in self.pids)

    def peak_bytes(self) -> int:
        """Returns the most memory each of its processes has had since ``forget_peak``, summed."""
        return sum(_status_bytes(pid, "VmHWM:") for pid in self.pids)

    def forget_peak(self) -> None:
        """Has the peak counted anew, from the memory of this moment."""
        for pid in self.pids:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)

    def cpu_s(self) -> float:
        """Returns user and system time of its processes so far, seconds."""
        return cpu_s(self.pids)

    def stop(self) -> None:
        """Ends all of it, now."""
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        self._keeper.wait()


def family(root: int) -> tuple[list[int], list[int]]:
    """Returns all that descend from a process: the living, and those of its own children that nobody has waited for."""
    children: dict[int, list[int]] = {}
    dead: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            parent, pid = int(fields[1]), int(entry)
            if fields[0] != "Z":
                children.setdefault(parent, []).append(pid)
            elif parent == root:
                dead.append(pid)
    living: list[int] = []
    waiting = children.get(root, [])
    while waiting:
        pid = waiting.pop()
        living.append(pid)
        waiting.extend(children.get(pid, []))
    return living, dead


def cpu_s(pids: Iterable[int]) -> float:
    """Returns user and system time so far, seconds."""
    return sum((int(fields[11]) + int(fields[12])) / TICKS_PER_S for pid in pids if (fields := _stat(pid)))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name (state first); empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _status_bytes(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)
