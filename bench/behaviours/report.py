"""The tables of the judge, on the terminal."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.behaviours.judging.score import Score, judge, of_label
from bench.behaviours.run import Run
from bench.machine import machine_line

WIDE = 160


def show(document: dict[str, Any], runs: list[Run], sums: dict[str, Score], detailed: str) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    console.print(machine_line(document["machine"]), highlight=False)
    for run in runs:
        console.print(
            f"seed {run.seed}: {len(run.labels)} consumers, {run.ended_s - run.began_s:.0f} s, "
            f"{run.sent_bytes / (run.ended_s - run.began_s) / 1e6:.1f} MB/s published; the driver took "
            f"{run.driver_cpu:.0%} of a core and was late by {run.driver_late_s * 1000:.0f} ms at most, the broker "
            f"took {run.broker_cpu:.0%}", highlight=False,
        )  # fmt: skip
        for line in run.failed:
            console.print(f"failed: {line}", highlight=False, markup=False)
        for line in run.doubts:
            console.print(f"in doubt: {line}", highlight=False, markup=False)
    console.print(_table(sums))
    kinds = list(dict.fromkeys(label.kind for run in runs for label in run.labels))
    console.print(_by_kind("false verdicts by kind", kinds, {name: one.false for name, one in sums.items()}))
    console.print(_by_kind("missed by kind", kinds, {name: one.missed for name, one in sums.items()}))
    if detailed in sums:
        _details(console, runs, detailed)
        for (kind, true, named), count in sums[detailed].causes_wrong.items():
            console.print(f"cause: {kind}: {true}, called {named} ({count})", highlight=False)


def _table(sums: dict[str, Score]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title="policies")
    table.add_column("policy", no_wrap=True)
    for head in ("false", "of", "missed", "of", "stuck found", "median s", "worst s", "cause right", "of"):
        table.add_column(head, justify="right")
    for one in sums.values():
        table.add_row(
            one.policy, str(one.false.total()), str(one.healthy), str(one.missed.total()), str(one.troubled),
            f"{len(one.times_s)} of {one.stuck}", _seconds(one.median_s), _seconds(one.worst_s),
            str(one.causes_right) if one.found else "–", str(one.found) if one.found else "–",
        )  # fmt: skip
    return table


def _by_kind(title: str, kinds: list[str], counts: dict[str, Counter[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), title=title)
    table.add_column("kind", no_wrap=True)
    for name in counts:
        table.add_column(name, justify="right")
    for kind in kinds:
        row = [one[kind] for one in counts.values()]
        if any(row):
            table.add_row(kind, *(str(count) if count else "" for count in row))
    return table


def _details(console: Console, runs: list[Run], policy: str) -> None:
    for run in runs:
        findings = [one for one in run.findings if one.policy == policy]
        for label in run.labels:
            outcome = judge(label, of_label(label, findings), run.ended_s)
            for one in outcome.false:
                at = one.time_s - label.began_s
                console.print(f"false: seed {run.seed}, {label.client} after {at:.1f} s: {one.text}", highlight=False)
            for spell, finding, after_s in outcome.found:
                if finding is None:
                    console.print(f"missed: seed {run.seed}, {label.client}: {spell.cause}", highlight=False)
                else:
                    console.print(f"found: seed {run.seed}, {label.client} in {after_s:.1f} s: {finding.text}",
                                  highlight=False)  # fmt: skip


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
