"""Limits of this machine: how much memory, and how many open files the broker may have.

The memory a share such as ``"10%"`` is taken of is the lowest of what the host has, what ``ulimit -m`` allows, and what
the control groups above the process allow (a container's limit). On a system that tells none of these it is 1 GB.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path

UNKNOWN_MEMORY_BYTES = 1_000_000_000
"""Assumed where the system says nothing: small enough to be safe anywhere a broker is run."""

CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")


@cache
def memory_bytes() -> int:
    """The memory there is for this process, in bytes. Asked once: it is the base of every share in the config."""
    limits = [_physical_bytes(), _rlimit_bytes(), cgroup_bytes()]
    return min((limit for limit in limits if limit), default=UNKNOWN_MEMORY_BYTES)


def open_files_max() -> int | None:
    """The most files and sockets this process can be allowed to open; None: without limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def cgroup_bytes(root: Path = CGROUPS, mine: Path = PROCESS_CGROUPS) -> int | None:
    """The lowest memory limit of the process's control groups, of version 2 or 1; None: there is none."""
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        return None
    limits: list[int] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            limits += _limits_upwards(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits_upwards(root / "memory", path, "memory.limit_in_bytes")
    return min(limits, default=None)


def _limits_upwards(root: Path, path: str, name: str) -> list[int]:
    """The limits of a group and all groups around it. In a container the path may lie outside what it can see."""
    found: list[int] = []
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        try:
            text = root.joinpath(*parts[:depth], name).read_text().strip()
        except OSError:
            continue
        # "max" in version 2, and in version 1 a number beyond any memory, say that there is no limit.
        if text.isdecimal() and int(text) < 1 << 60:
            found.append(int(text))
    return found


def _physical_bytes() -> int | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return pages * size if pages > 0 and size > 0 else None


def _rlimit_bytes() -> int | None:
    soft = resource.getrlimit(resource.RLIMIT_RSS)[0]
    return None if soft == resource.RLIM_INFINITY else soft
