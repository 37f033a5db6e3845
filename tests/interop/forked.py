"""Brokers of tests begin as copies of one process that has imported all a broker needs: a hundred of them start in a
suite, and a second of work each was Python reading modules."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

COPIES = multiprocessing.get_context("forkserver")
COPIES.set_forkserver_preload(["tests.interop.preloaded"])


class Forked:
    """A process of its own, as ``subprocess.Popen`` gives one, in which ``main`` runs with these arguments. All that it
    writes goes to ``log``, or its errors to ``errors``. It does not outlive this process."""

    def __init__(
        self, main: Callable[[], None], arguments: Sequence[str], log: Path, errors: Path | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        # The first process was started some time ago, with what the environment was then.
        told = (main, list(arguments), log, errors, os.environ | dict(environment))
        self._process = COPIES.Process(target=_run, args=told, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Waits for its end. None: it has not ended in this time."""
        self._process.join(timeout_s)
        return self.returncode

    def kill(self) -> None:
        self._process.kill()


def _run(
    main: Callable[[], None], arguments: Sequence[str], log: Path, errors: Path | None, environment: Mapping[str, str]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for path, numbers in ((log, (1, 2)), (errors, (2,))):
        if path is not None:
            with path.open("wb") as file:
                for number in numbers:
                    os.dup2(file.fileno(), number)
    sys.argv[1:] = arguments
    main()
