"""Headway on a slow disk: each sync of the journal takes so many seconds longer.

    python -m bench.slow_disk SECONDS serve --config FILE

The writer's thread sleeps, as it does while a real disk works; what is synced at start, on the main thread, is not
slowed. For the ``stall`` workload and its test.
"""

from __future__ import annotations

import sys
import threading
import time

from headway.cli import main as headway
from headway.store.journal import RealFiles


def slow_down(seconds: float) -> None:
    """Makes each sync of a file take longer, from now on."""
    sync = RealFiles.sync

    def slow_sync(files: RealFiles, fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)
        sync(files, fd)

    RealFiles.sync = slow_sync  # type: ignore[method-assign, assignment]


def main() -> None:
    slow_down(float(sys.argv.pop(1)))
    headway()


if __name__ == "__main__":
    main()
