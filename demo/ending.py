"""How a program of the demo ends: its exit codes, and one line for whatever stopped it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

from demo.broker import BrokerFailed
from demo.company import ActorFailed
from demo.live import ViewFailed

EXIT_UNHEALTHY, EXIT_CANNOT, EXIT_INTERRUPTED = 1, 2, 130


class Stopped(Exception):
    """Somebody asked it to end."""


def run_to_its_end(name: str, out: Path, work: Callable[[], int]) -> int:
    """Does the work, and returns the exit code: the work's own, or that of what stopped it. ``out``: the folder that a
    file error is about unless it names another."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        return work()
    except OSError as error:
        print(f"{name}: {error.filename or out}: {error.strerror}", file=sys.stderr)
        return EXIT_CANNOT
    except (BrokerFailed, ActorFailed, ViewFailed) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_CANNOT
    except (KeyboardInterrupt, Stopped):
        print("ended early; nothing is left running", file=sys.stderr)
        return EXIT_INTERRUPTED


def _stop(_number: int, _frame: object) -> None:
    raise Stopped
