"""A process of the driver, told what to do through a pipe; it dies with the bench."""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from bench.errors import BenchError, PeerFailed

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
READY_S = 180.0
PROCESSES: BaseContext = mp.get_context("spawn")
"""The maker of workers: each begins with nothing that the bench has imported or opened."""


class Worker:
    """A process that runs ``work(pipe, *arguments)``. It sends ``"ready"`` once, and its result is a dict."""

    def __init__(self, work: Callable[..., dict[str, Any]], *arguments: Any) -> None:
        self.pipe, far = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=_run, args=(far, work, arguments), daemon=True)  # type: ignore[attr-defined]
        self._process.start()
        far.close()

    def ready(self) -> None:
        """Waits until it has its connections."""
        self.answer(READY_S)

    def go(self, word: Any = "go") -> None:
        self.pipe.send(word)

    def has_answered(self, within_s: float) -> bool:
        return self.pipe.poll(within_s)

    def answer(self, within_s: float) -> Any:
        """Returns what the process sends next. Raises BenchError where it failed."""
        if not self.pipe.poll(within_s):
            raise BenchError(f"the driver's process did not answer within {within_s:g} s")
        try:
            kind, what = self.pipe.recv()
        except EOFError:
            raise BenchError("a process of the driver died") from None
        if kind == "failed":
            raise PeerFailed(what)
        return what

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def say(pipe: Connection, what: Any) -> None:
    """Sends something to the bench, while at work."""
    pipe.send(("said", what))


def cpu_s() -> float:
    """Returns the CPU seconds that this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _run(pipe: Connection, work: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_TIMERSLACK, 1)
    try:
        pipe.send(("result", work(pipe, *arguments)))
    except (BenchError, OSError) as error:
        pipe.send(("failed", str(error) or type(error).__name__))
