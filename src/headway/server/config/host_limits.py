"""Limits of this machine: the memory and the open files that the broker may have.

A share such as ``"10%"`` is of the lowest of three: the host's memory, the limit of ``ulimit -m``, and the limits of
the process's control groups (a container's limit). If the system tells none of these it is of 1 GB.
"""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path

UNKNOWN_MEMORY_BYTES = 1_000_000_000
"""Memory that is assumed if the system tells nothing: small enough to be safe anywhere."""

CGROUPS = Path("/sys/fs/cgroup")
PROCESS_CGROUPS = Path("/proc/self/cgroup")
SPILL_FOLDER = Path("/var/tmp/headway")


@cache
def memory_bytes() -> int:
    """Returns the memory that this process may have. Asked once: it is the base of every share in the config."""
    limits = [_physical_bytes(), _rlimit_bytes(), cgroup_bytes()]
    return min((limit for limit in limits if limit), default=UNKNOWN_MEMORY_BYTES)


def open_files_max() -> int | None:
    """Returns the most files and sockets that this process can be allowed to open; None: no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def cgroup_bytes(root: Path = CGROUPS, mine: Path = PROCESS_CGROUPS) -> int | None:
    """Returns the lowest memory limit of the process's control groups (version 2 or 1); None: there is none."""
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
    """Returns the limits of a group and of all groups around it. In a container some of these may be invisible."""
    found: list[int] = []
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        try:
            text = root.joinpath(*parts[:depth], name).read_text().strip()
        except OSError:
            continue
        # No limit is "max" in version 2, and a number beyond any memory in version 1.
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


def spill_folder() -> Path:
    """Returns the folder for spill files unless a config names one. The first user's keeps out a second one, who gets
    a folder of his own."""
    if SPILL_FOLDER.exists() and not os.access(SPILL_FOLDER, os.W_OK | os.X_OK):
        return SPILL_FOLDER.with_name(f"{SPILL_FOLDER.name}-{os.geteuid()}")
    return SPILL_FOLDER
