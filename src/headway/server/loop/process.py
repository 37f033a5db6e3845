"""Facts about this process from the operating system, and its command line."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def memory_rss_bytes() -> int:
    """Returns the resident memory now."""
    return _status_bytes("VmRSS:")


def memory_peak_bytes() -> int:
    """Returns the highest resident memory so far."""
    return _status_bytes("VmHWM:")


def called_as() -> list[str]:
    """Returns the command that starts this program again, from the same place."""
    program = Path(sys.argv[0])
    if program.name != "headway":
        return [sys.executable, "-m", "headway"]
    found = shutil.which("headway")
    return ["headway" if found is not None and Path(found).resolve() == program.resolve() else sys.argv[0]]
