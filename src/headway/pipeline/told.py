"""What runs until it is told to stop: Ctrl-C, or SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Set when the process is told to stop; the second time it ends as it stands."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def told(number: int, frame: object) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        stop.set()

    for number in before:
        signal.signal(number, told)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
