"""Commands of ``headway pipeline`` one after the other in one process, which begins as any would and keeps its Spark
session for those that follow: half of what a command does on a few rows is start Spark and compile.

Usage: python -m tests.pipeline.commands. Each line read is the arguments of a command, as JSON; each line written is
its exit code, and what it wrote to stdout and stderr.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from headway.cli.app import app
from headway.pipeline import health
from headway.pipeline.session import open_session

Done = subprocess.CompletedProcess[str]


@contextmanager
def commands() -> Iterator[Callable[..., Done]]:
    """Gives what runs ``headway`` with these arguments, in a process that all of them share."""
    command = [sys.executable, "-m", "tests.pipeline.commands"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def run(*arguments: object) -> Done:
            print(json.dumps([str(argument) for argument in arguments]), file=asked, flush=True)
            return Done(["headway", *map(str, arguments)], *json.loads(told.readline()))

        yield run


def main() -> None:
    with ExitStack() as stack:
        opened: list[Any] = []

        @contextmanager
        def kept(*arguments: Any, **more: Any) -> Iterator[Any]:
            if not opened:
                opened.append(stack.enter_context(open_session(*arguments, **more)))
            yield opened[0]

        health.open_session = kept
        for line in sys.stdin:
            code, out, err = 0, StringIO(), StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    app(json.loads(line))
                except SystemExit as end:
                    code = int(end.code or 0)
            print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    main()
