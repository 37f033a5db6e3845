"""``headway pipeline``: what Spark works out of recorded telemetry and recorded topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.errors import needing, plainly
from headway.cli.options import MasterOption, MemoryOption, VerboseOption
from headway.cli.pipeline.archive import archive
from headway.cli.pipeline.views import views
from headway.console import many, printable
from headway.core.base import format_duration

if TYPE_CHECKING:
    from headway.pipeline.health import Health

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
