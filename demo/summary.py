"""The summary: for each consumer what was decided and why; that the healthy noticed nothing; what it cost."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.judgement import Outcome, gaps_in_words
from demo.reports import ActorReport
from headway.core.base import format_size

STALE_MS = 500.0


def show(
    console: Console, outcomes: list[Outcome], broker: dict[str, Any], publisher: ActorReport, limit_ms: float
) -> None:
    healthy = [outcome for outcome in outcomes if outcome.part.healthy]
    troubled = [outcome for outcome in outcomes if not outcome.part.healthy]
    console.print()
    console.print("[bold]The troubled ones: what was decided, and why[/bold]")
    for outcome in troubled:
        _show_troubled(console, outcome)
    console.print()
    console.print("[bold]The healthy ones, beside them[/bold]")
    console.print(_healthy_table(healthy))
    console.print(_cost(broker, publisher))
    console.print()
    for outcome in healthy:
        for complaint in outcome.complaints:
            console.print(Text(f"{outcome.part.name} {complaint}", style="bold red"))
    if not any(outcome.complaints for outcome in healthy):
        records = sum(outcome.report.records for outcome in healthy)
        worst = max((outcome.report.p99_ms for outcome in healthy), default=0.0)
        console.print(Text(
            f"{len(healthy)} healthy consumers got all of their {records:,} records in order, 99 % of them within "
            f"{worst:,.0f} ms (limit {limit_ms:,.0f} ms), without a verdict.", style="bold green",
        ))  # fmt: skip


def _show_troubled(console: Console, outcome: Outcome) -> None:
    part, report = outcome.part, outcome.report
    head = Text(f"{part.name}", style="bold yellow")
    head.append(f"  reads {part.filter}; {part.about}", style="default not bold")
    console.print(head)
    console.print(_line("decided", " -> ".join(outcome.deeds) or "nothing"))
    if outcome.decisive is not None:
        console.print(_line("why", outcome.decisive["text"]))
    got = f"{report.records:,} of {outcome.published:,} records"
    if report.p50_ms >= STALE_MS:
        got += f", half of them older than {report.p50_ms / 1000:.1f} s"
    skipped = gaps_in_words(outcome.gap_records)
    announced = gaps_in_words(report.gap_records)
    if skipped:
        got += f"; skipped: {skipped}" + ("" if announced == skipped else f" (announced: {announced or 'none yet'})")
    console.print(_line("got", got))
    if part.behaviour is not None and report.connects > 1:
        console.print(_line("came back", f"connected {report.connects} times, turned away {report.refusals} times"))
    for said in report.told[-1:]:
        console.print(_line("was told", said))


def _line(label: str, text: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=11, justify="right", style="dim")
    grid.add_column()
    grid.add_row(label, Text(text))
    return grid


def _healthy_table(outcomes: list[Outcome]) -> Table:
    table = Table()
    for name in ("consumer", "reads", "published", "received", "lost", "p50", "p99", "longest", "verdicts"):
        table.add_column(name, justify="left" if name in ("consumer", "reads") else "right")
    for outcome in outcomes:
        report = outcome.report
        lost = max(0, outcome.published - report.records)
        table.add_row(
            Text(outcome.part.name, style="bold red" if outcome.complaints else "bold green"), outcome.part.filter,
            f"{outcome.published:,}", f"{report.records:,}", f"{lost:,}", f"{report.p50_ms:.1f} ms",
            f"{report.p99_ms:.1f} ms", f"{report.max_ms:.0f} ms", str(len(outcome.verdicts)),
        )  # fmt: skip
    return table


def _cost(broker: dict[str, Any], publisher: ActorReport) -> str:
    pool = (broker.get("pools") or [{}])[0]
    gaps = gaps_in_words(broker.get("gap_records", {})) or "none"
    return (
        f"The broker took {publisher.records:,} records and delivered {broker.get('delivered_records', 0):,}; "
        f"skipped and counted: {gaps}.\n"
        f"Its process needed {format_size(broker.get('memory_peak_bytes', 0))} at most; for records it held at most "
        f"{format_size(pool.get('memory_peak_bytes', 0))} in memory (limit "
        f"{format_size(pool.get('memory_limit_bytes', 0))}), and "
        f"{format_size(pool.get('disk_peak_bytes', 0))} on disk.\n"
        f"The publisher was never more than {publisher.late_s * 1000:,.0f} ms behind its own schedule."
    )
