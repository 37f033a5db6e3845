"""``headway lab``: what other policies would have done."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.cli.options import MasterOption, MemoryOption, VerboseOption, needing, plainly
from headway.console import printable
from headway.core.base import ConfigError, format_count, format_duration, format_size, parse_duration
from headway.server.loop import called_as
from headway.store.toml import read_text

if TYPE_CHECKING:
    from headway.pipeline.lab.plans.candidates import Plan
    from headway.pipeline.lab.run import LabResult
    from headway.pipeline.lab.score import Score

SHOWN_MAX = 12
WIDTH = 140
"""Width of a table that is not printed on a terminal."""

lab = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="What other policies would have done with the traffic that was recorded.",
)  # fmt: skip


@lab.command(short_help="Replay a lake against candidate policies.")
@plainly
def run(
    lake: Annotated[Path, typer.Option("--lake", metavar="DIR", help="Where the broker's telemetry is.")],
    candidates: Annotated[Path, typer.Option("--candidates", metavar="FILE", help="What to compare, in TOML.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the results go.")],
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="What the broker runs with: the base of the result.")
    ] = None,
    cut_stuck: Annotated[
        str | None, typer.Option("--cut-stuck", metavar="TIME", help="A goal: cut off who takes nothing within TIME.")
    ] = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    verbose: VerboseOption = False,
) -> None:
    """Replay recorded samples against many candidate policies, and recommend one.

    Each consumer is judged by the broker's own code. For each candidate: consumers hit, those of them that would have
    caught up by themselves, those that were missed, the time to find them, records lost, peak memory and disk, how long
    publishers were held back. Writes to --out: report.html, recommended.toml (for headway check and serve: the file
    given with --config, with only its policies changed), candidates.parquet, outcomes.parquet, curve.parquet and
    lab.json.

    \b
    A file of candidates:
      presets = ["headway", "xap", "amps", "activemq", "a-mq", "qpid"]
      [goal]                                     # optional; left out: the recorded memory, half of the disk
      memory = "64MB"
      cut_stuck = "10s"                          # or --cut-stuck 10s
      [[candidate]]
      name = "cut the blocked"
      [[candidate.policy]]                       # as in headway.toml
      name = "all"
      [[candidate.policy.rule]]
      when = { blocked_time = { one_of = ["5s", "15s", "30s"] } }
      for = { range = ["500ms", "8s"], steps = 3 }
      then = "disconnect"

    \b
    Examples:
      headway lab run --lake /var/lib/headway/lake --candidates candidates.toml --out lab
      headway check lab/recommended.toml --against http://127.0.0.1:9883
    """
    with needing("spark", "the lab"):
        from headway.pipeline.lab.plans.candidates import load_plan, with_policies
        from headway.pipeline.lab.run import run_lab
        from headway.pipeline.lake import check_lake
        from headway.pipeline.session import open_session

    plan = _with_goal(load_plan(candidates), cut_stuck)
    served = None if config is None else read_text(config)
    if served is not None:
        with_policies(served, plan.candidates[-1])  # a mistake is told before the work
    check_lake(lake)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is not a folder")
    with open_session("headway lab", master=master, memory=memory, verbose=verbose) as spark:
        found = run_lab(spark, lake, plan, out, served)
    _print(found)


def _with_goal(plan: Plan, cut_stuck: str | None) -> Plan:
    """Returns the plan with the goal of ``--cut-stuck``, if that is given."""
    if cut_stuck is None:
        return plan
    try:
        seconds = parse_duration(cut_stuck)
    except ConfigError as error:
        raise ConfigError(f"--cut-stuck: {error}") from None
    return msgspec.structs.replace(plan, goal=msgspec.structs.replace(plan.goal, cut_stuck_s=seconds))


def _print(found: LabResult) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(_table(found.scores))
    best = found.recommendation
    typer.echo(printable(f"Recommended: {best.score.candidate} ({best.sentence})."))
    check = shlex.join([*called_as(), "check", str(found.config)])
    typer.echo(printable(f"{found.config}  try it: {check}"))
    typer.echo(printable(f"{found.report}  took {format_duration(found.seconds)}"))


def _table(scores: Sequence[Score]) -> Table:
    """Prints the policy that ran, the recommended one, and the best of the others."""
    columns = ("CANDIDATE", "FALSE", "MISSED", "FOUND IN", "HIT", "WRONGLY", "UNKNOWN", "NOT GIVEN", "MEMORY", "DISK",
               "STALL")  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column == "CANDIDATE" else "right", no_wrap=column != "CANDIDATE")
    from headway.pipeline.lab.run import rank

    shown = [one for one in scores if one.recommended or one.kind in ("ran", "nothing", "preset")]
    rest = [one for one in scores if one not in shown]
    rest.sort(key=lambda one: (not one.within_goal, rank(one)))
    shown += rest[: max(0, SHOWN_MAX - len(shown))]
    for one in shown:
        style = "bold green" if one.recommended else "" if one.within_goal else "dim"
        cells = (
            printable(one.candidate),
            *map(format_count, (one.false_verdicts, one.missed)),
            format_duration(one.find_ms / 1000) if one.found_any else "–",
            *map(format_count, (one.hit, one.false_positives, one.unknown, one.records_gone)),
            format_size(one.memory_peak_bytes), format_size(one.disk_peak_bytes),
            format_duration(one.producer_stall_ms / 1000),
        )  # fmt: skip
        table.add_row(*(Text(cell) for cell in cells), style=style)
    left_out = len(scores) - len(shown)
    table.caption = "dim: beyond the goal" + (f"; {left_out} more in the report" if left_out else "")
    return table
