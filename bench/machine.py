"""The machine that is measured on, in a line."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Returns CPU model, cores, memory in bytes, kernel, Python, and its load before the bench began (1 minute's
    average)."""
    cpu = _field(Path("/proc/cpuinfo"), "model name") or platform.machine()
    memory = _field(Path("/proc/meminfo"), "MemTotal") or "0 kB"
    return {
        "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory_bytes": int(memory.split()[0]) * 1024,
        "kernel": f"{platform.system()} {platform.release()}", "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def machine_line(told: dict[str, Any]) -> str:
    return (
        f"{told['cores']} cores of {told['cpu']}, {told['memory_bytes'] / 2**30:.0f} GiB, {told['kernel']}, "
        f"CPython {told['python']}; load before: {told['load']:g}"
    )


def _field(path: Path, name: str) -> str | None:
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
