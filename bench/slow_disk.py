"""Headway on a disk that takes its time: each sync of the journal is so many seconds longer.

    python -m bench.slow_disk SECONDS serve --config FILE

The writer's thread sleeps, as it does while a real disk works; what is synced at start, on the main thread, is not
slowed. For the ``stall`` workload and its test.
"""

from __future__ import annotations

import sys
import threading
import time

from headway.store.journal import files


class SlowFiles(files.RealFiles):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def sync(self, fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(self._seconds)
        super().sync(fd)


def main() -> None:
    files.REAL = SlowFiles(float(sys.argv.pop(1)))
    from headway.cli import main as headway  # only now: whoever imports the server takes the files that are there

    headway()


if __name__ == "__main__":
    main()
