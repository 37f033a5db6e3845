"""One run of the bench from the command line: what is chosen, progress, tables, files."""

from __future__ import annotations

import argparse
import resource
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench import results, tables
from bench.errors import BenchError
from bench.machine import machine
from bench.peers.every import EVERY as PEERS
from bench.rounds import perform, steps
from bench.workloads.every import EVERY as WORKLOADS

TINY_S = 0.3
WIDE = 200
COLUMNS_MIN = 6
OURS = [peer.title for peer in PEERS.values() if peer.is_ours]
Chosen = TypeVar("Chosen")


def session(given: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Runs the bench and returns the exit code. Raises BenchError where nothing of it can be done."""
    workloads = list(WORKLOADS.values()) if given.workloads == "all" else choose("workload", given.workloads, WORKLOADS)
    unnamed = [peer for peer in PEERS.values() if not (peer.inside or peer.only_named)]
    wanted = choose("peer", given.peers, PEERS) if given.peers else unnamed
    peers = [peer for peer in wanted if peer.find()]
    missing = {peer.name: peer.install for peer in wanted if peer not in peers}
    progress = Console(stderr=True)
    for name, install in missing.items():
        progress.print(f"left out: {PEERS[name].title} is not installed: {install}", highlight=False)
    if not peers:
        raise BenchError("none of these peers is installed")
    for path in (given.json, given.plots):
        if path is not None and not path.parent.is_dir():
            raise BenchError(f"{path.parent} is no folder")
    raise_file_limit()
    rounds, seconds = (1, TINY_S) if given.tiny else (given.rounds, given.seconds)
    plan = [step for step in steps(workloads, peers, rounds, given.tiny) if given.cases in step.case.name]
    if not plan:
        cases = f" with a case {given.cases!r}" if given.cases else ""
        raise BenchError(f"none of these peers takes part in {given.workloads}{cases}")
    document: results.Document = {
        "schema": results.SCHEMA, "date": datetime.now(UTC).isoformat(timespec="seconds"), "arguments": list(arguments),
        "rounds": rounds, "seconds": seconds, "tiny": given.tiny, "machine": machine(),
        "versions": {peer.name: peer.version() for peer in peers},
        "settings": {peer.name: peer.settings() for peer in peers}, "missing": missing, "runs": [],
    }  # fmt: skip
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=progress, transient=True) as bar:
        task = bar.add_task("", total=len(plan))
        for run in perform(plan, seconds, lambda step: bar.update(task, description=str(step))):
            bar.advance(task)
            if "error" in run:
                progress.print(f"{run['workload']}, {run['case']}: {run['error']}", highlight=False, markup=False)
            document["runs"].append(run)
            if given.json is not None:
                results.save(document, given.json)
    show(document)
    if given.plots is not None:
        from bench.plots import draw

        draw(document, given.plots)
    return 1 if any("error" in run for run in document["runs"]) else 0


def fitting(told: tables.Table, width: int) -> Table:
    """Makes a table of as many columns as there is room for: the first are the ones that matter."""
    widths = [max(len(row[number]) for row in [told.head, *told.rows]) + 2 for number in range(len(told.head))]
    count = len(told.head)
    while sum(widths[:count]) > width and count > COLUMNS_MIN:
        count -= 1
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, head in enumerate(told.head[:count]):
        table.add_column(head, justify="left" if number < 2 else "right", no_wrap=True)
    last = ""
    for row in told.rows:
        if last and row[0] != last:
            table.add_row()
        ours = row[1] in OURS
        table.add_row("" if row[0] == last else row[0], *row[1:count], style="bold" if ours else None)
        last = row[0]
    return table


def choose(what: str, text: str, every: Mapping[str, Chosen]) -> list[Chosen]:
    """Reads names with commas between. Raises BenchError for one that is unknown."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in every:
            raise BenchError(f"there is no {what} {name!r}; there are {', '.join(every)}")
    if not names:
        raise BenchError(f"no {what} is named; there are {', '.join(every)}")
    return [every[name] for name in dict.fromkeys(names)]


def raise_file_limit() -> None:
    """Raises the limit of open files as far as may be, for the driver and, inherited, for the peers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def show(document: results.Document) -> None:
    """Prints the tables on the terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    for line in tables.heading(document):
        console.print(line, highlight=False, markup=False)
    for told in tables.tables(document):
        console.print(f"\n[bold]{told.title}[/bold]: {told.note}", highlight=False)
        console.print(fitting(told, console.width))
        for error in told.errors:
            console.print(f"failed: {error}", highlight=False, markup=False)

