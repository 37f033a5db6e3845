"""Progress: one line on stderr that says what is being done.

On a terminal it is one live line that is gone at the end. Elsewhere (a log, CI) it is a plain line now and then, and
nothing at all for what is done at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.text import Text

from headway.console import printable
from headway.core.base import format_duration

QUIET_S = 2.0
"""The time before a step is first reported where there is no terminal."""
EVERY_S = 10.0

Tell = Callable[[str], None]
"""Tells how far it is; may be called as often as one likes."""


@contextmanager
def progress(what: str, spark: SparkSession | None = None) -> Iterator[Tell]:
    """Reports ``what``, and what is told of it, until the block ends.

    With ``spark``, each of its jobs is reported by itself: ``what: 12 of 64 tasks``.
    """
    console = Console(stderr=True)
    with _live(what, console) if console.is_terminal else _plain(what) as tell:
        if spark is None:
            yield tell
            return
        handler: Any = _tasks(tell)
        spark.registerProgressHandler(handler)
        try:
            yield tell
        finally:
            spark.removeProgressHandler(handler)


@contextmanager
def _live(what: str, console: Console) -> Iterator[Tell]:
    started = time.monotonic()

    def line(text: str) -> Text:
        took = time.monotonic() - started
        ago = f" ({format_duration(int(took))})" if took >= QUIET_S else ""
        return Text(_joined(what, text) + ago, overflow="ellipsis", no_wrap=True)

    with console.status(line("")) as status:
        yield lambda text: status.update(line(text))


@contextmanager
def _plain(what: str) -> Iterator[Tell]:
    due = time.monotonic() + QUIET_S

    def tell(text: str) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + EVERY_S
            print(_joined(what, text), file=sys.stderr, flush=True)

    yield tell


def _joined(what: str, text: str) -> str:
    return printable(f"{what}: {text}" if text else what)


def _tasks(tell: Tell) -> Callable[..., None]:
    """A handler as ``registerProgressHandler`` wants it."""

    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        total = sum(stage.num_tasks for stage in stages or ())
        if total and not done:
            tell(f"{sum(stage.num_completed_tasks for stage in stages)} of {total} tasks")

    return handle
