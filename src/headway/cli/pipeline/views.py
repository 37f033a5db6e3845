"""``headway pipeline views``: queries over recorded topics, and how each of them stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli.errors import needing, plainly, say
from headway.cli.options import ConfiguredAdminOption, MasterOption, MemoryOption, VerboseOption
from headway.console import printable
from headway.core.base import format_count, format_duration
from headway.server.config import load_settings

if TYPE_CHECKING:
    from headway.pipeline.views.status import Status

FAILED = 1
SAID_S = 10.0
"""The shortest time between two lines about a view."""
_STYLES = {"starting": "cyan", "running": "green", "ended": "bold red"}

Shown = Callable[[Sequence["Status"]], None]


@plainly
def views(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="The broker's config, with [views].")],
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="DIR", help="Where it is kept how far each view is, and its state.")
    ],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="These only.")] = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    admin: ConfiguredAdminOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Keep the views of a config up to date, and publish what changes.

    Each [views.NAME] is a query in SQL over recorded topics. Its result is published to the view's topic, keyed, so
    that subscribers can have it with snapshot. Runs until it is stopped (Ctrl-C), and goes on from there the next time.

    \b
    Examples:
      headway pipeline views -c headway.toml --checkpoint views
      mosquitto_sub -V 5 -t views/delay -D subscribe user-property snapshot true
    """
    with needing("spark", "the pipeline"):
        from headway.pipeline.views.run import run_views

    settings = load_settings(config)
    with _screen() as show:
        found = run_views(
            settings, checkpoint, show, names=names or (), admin=admin, master=master, memory=memory, verbose=verbose
        )
    if any(one.error for one in found):
        raise typer.Exit(FAILED)


@contextmanager
def _screen() -> Iterator[Shown]:
    """A live table on a terminal, lines elsewhere; what ended a view is a line on stderr in either case."""
    console, troubles = Console(), Troubles()
    if not console.is_terminal:
        yield Plain()
        return
    live = Live(console=console, auto_refresh=False)

    def show(views: Sequence[Status]) -> None:
        live.start()  # not before there is something: until then the start says how far it is
        troubles(views)
        live.update(draw(views), refresh=True)

    try:
        yield show
    finally:
        live.stop()


class Troubles:
    """Says on stderr what ended a view, and now and then what it left out."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._misfits: dict[str, tuple[float, int]] = {}

    def __call__(self, views: Sequence[Status]) -> None:
        now = time.monotonic()
        for one in views:
            if one.error and one.name not in self._ended:
                self._ended.add(one.name)
                say(f"view {one.name}: {one.error}")
            due, told = self._misfits.get(one.name, (0.0, 0))
            if one.misfits > told and now >= due:
                self._misfits[one.name] = now + SAID_S, one.misfits
                say(f"view {one.name}: {format_count(one.misfits)} left out; the last: {one.last_misfit}")


class Plain(Troubles):
    """Says also on stdout how a view stands, when that has changed."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, tuple[float, str]] = {}

    def __call__(self, views: Sequence[Status]) -> None:
        super().__call__(views)
        now = time.monotonic()
        for one in views:
            due, before = self._lines.get(one.name, (0.0, ""))
            line = in_words(one)
            if one.state == "running" and line != before and now >= due:
                self._lines[one.name] = now + SAID_S, line
                print(printable(line), flush=True)


def in_words(one: Status) -> str:
    read = f"{format_count(one.records)} records read, {format_count(one.published)} published"
    rest = [f"the last batch took {format_duration(one.batch_ms / 1000)}"] if one.batches else []
    rest += [f"{format_count(one.behind)} behind"] if one.behind else []
    rest += [f"{format_count(one.late)} too late"] if one.late else []
    rest += [f"{format_count(one.deletes)} deletes left out"] if one.deletes else []
    rest += [f"{format_count(one.misfits)} misfits left out"] if one.misfits else []
    return ", ".join([f"{one.name} to {one.view.topic}: {one.state}", read, *rest])


def draw(views: Sequence[Status]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("VIEW", "TOPIC", "STATE"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for name in ("READ", "PUBLISHED", "BATCHES", "LAST TOOK", "BEHIND", "LATE", "DELETES", "MISFITS"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in views:
        table.add_row(
            Text(one.name), Text(printable(one.view.topic)), Text(one.state, style=_STYLES[one.state]),
            format_count(one.records), format_count(one.published), format_count(one.batches),
            format_duration(one.batch_ms / 1000),
            *(format_count(value) for value in (one.behind, one.late, one.deletes)),
            Text(format_count(one.misfits), style="yellow" if one.misfits else ""),
        )  # fmt: skip
    return table
