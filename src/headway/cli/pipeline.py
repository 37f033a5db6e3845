"""`headway pipeline`: what telemetry says of slow consumers; views of topics."""

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

from headway.cli.options import ConfiguredAdminOption, MasterOption, MemoryOption, VerboseOption, needing, plainly, say
from headway.console import many, printable
from headway.core.base import ConfigError, format_count, format_duration, format_size, parse_duration
from headway.core.message import covers
from headway.server.config import Settings, load_settings

if TYPE_CHECKING:
    from headway.pipeline.archive import Archived
    from headway.pipeline.health import Health
    from headway.pipeline.views.publish import Status


# -- archive -----------------------------------------------------------------------------------------------------------
#
# ``headway pipeline archive``: recorded topics into an archive of Parquet.


@plainly
def archive(
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE", help="The broker's config, with recorded topics.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The archive.")],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="The filters of these [[topic]] tables only.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Again and again, so long apart, until it is stopped."),
    ] = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    admin: ConfiguredAdminOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Keep what is recorded, also after the broker has deleted it.

    Each recorded topic has a folder of plain Parquet files in OUT, by day, with every record once. Run it again to add
    what came since: the broker keeps it until it is archived. Small files become large ones.

    \b
    Examples:
      headway pipeline archive -c headway.toml --out archive
      headway pipeline archive -c headway.toml --out archive --every 1m "flights/#"
      python -c 'import pandas; print(pandas.read_parquet("archive/flights"))'
    """
    with needing("spark", "the pipeline"):
        from headway.pipeline.admin import admin_url
        from headway.pipeline.archive import run_archive

    settings = load_settings(config)
    every_s = None if every is None else parse_duration(every)
    run_archive(
        _chosen(settings, topics or []), admin_url(settings, admin), out, _say, every_s=every_s, master=master,
        memory=memory, verbose=verbose,
    )  # fmt: skip


def _chosen(settings: Settings, wanted: list[str]) -> list[str]:
    """Returns the filters to archive. Raises ConfigError."""
    recorded = [topic.filter for topic in settings.topics if topic.keep is not None]
    if not recorded:
        raise ConfigError('nothing is recorded: add [journal], and a [[topic]] with keep = "7d", or so')
    for filter in wanted:
        if filter not in recorded:
            near = next((one for one in recorded if covers(one, filter)), None)
            hint = f"; it is a part of {near}" if near else ""
            raise ConfigError(f"{filter} is not what a [[topic]] with keep says: {', '.join(recorded)}{hint}")
    return wanted or recorded


def _say(archived: list[Archived]) -> None:
    for one in archived:
        upto = f"all before offset {one.end}" if one.end else "nothing yet"
        files = f"{many(one.files, 'file')}, {format_size(one.bytes)}"
        typer.echo(printable(f"{one.filter}: {upto}, {files} in {one.folder}"))


# -- views -------------------------------------------------------------------------------------------------------------
#
# ``headway pipeline views``: queries over recorded topics, and how each of them stands.


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


# -- command -----------------------------------------------------------------------------------------------------------
#
# ``headway pipeline``: what Spark works out of recorded telemetry and recorded topics.


pipeline = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="What recorded telemetry says of slow consumers, and what is made of recorded topics.",
)  # fmt: skip
pipeline.command(short_help="Keep queries over recorded topics up to date, and publish their results.")(views)
pipeline.command(short_help="Keep what is recorded: Parquet by topic and day.")(archive)


@pipeline.callback()
def _pipeline() -> None:
    """Analyses recorded telemetry for slow consumers; archives recorded topics and runs views over them."""


@pipeline.command(short_help="Who was slow, what it cost, did the others notice.")
@plainly
def health(
    lake: Annotated[Path, typer.Option("--lake", metavar="DIR", help="Where the broker's telemetry is.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the results are kept, and the report.")],
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Forget what was read before, and read the whole lake anew.")
    ] = False,
    verbose: VerboseOption = False,
) -> None:
    """Reports slow consumers: when, why, at what cost, and whether the others noticed.

    Works out slow episodes, offenders, costs, isolation and a forecast, and writes report.html. Run it again when
    there is more telemetry: only new files are read. The results are plain Parquet files in OUT/health.db/TABLE/.

    \b
    Examples:
      headway pipeline health --lake /var/lib/headway/lake --out health
      headway pipeline health --lake lake --out health --master spark://10.0.0.1:7077
      python -c 'import pandas; print(pandas.read_parquet("health/health.db/offenders"))'
    """
    with needing("spark", "the pipeline"):
        from headway.pipeline.health import run_health

    found = run_health(lake, out, master=master, memory=memory, full_refresh=full_refresh, verbose=verbose)
    for line in _summary(found):
        typer.echo(printable(line))


def _summary(found: Health) -> list[str]:
    episodes, offenders = found.tables["slow_episodes"], found.tables["offenders"].to_pylist()
    lines = [
        f"{many(episodes.num_rows, 'slow episode')} of {many(len(offenders), 'offender')}, "
        f"among {many(int(found.about['consumers']), 'consumer')}."
    ]
    if offenders:
        worst = max(offenders, key=lambda one: (one["held_byte_seconds"], one["slow_ms"]))
        lines.append(
            f"Worst: {worst['client']} on {worst['filter']}, slow for {format_duration(worst['slow_ms'] / 1000)}, "
            f"{worst['share_of_cost']:.0%} of all that was held."
        )
    ratio = next((row["ratio_p99"] for row in found.tables["isolation"].to_pylist() if not row["run"]), None)
    if ratio is not None:
        lines.append(f"Deliveries with slow peers took {ratio:.2f} times as long as without (99 % of them).")
    lines.append(f"{found.report}  took {format_duration(found.about['seconds'])}")
    return lines
