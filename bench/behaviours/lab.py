"""The lab's verdicts beside the broker's, for the lakes of a session: tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.behaviours.agreement import NEAR_S, Agreement, Word, compare, summed
from bench.behaviours.report import WIDE
from bench.errors import BenchError
from headway.core.base import ConfigError
from headway.pipeline.session import open_session


def replay(folder: Path, detailed: str) -> int:
    """Compares all lakes in a folder, or the lake that it is. Returns the exit code. ``detailed``: the policy whose
    differences are shown."""
    lakes = sorted(path.parent for path in (*folder.glob("*/configs"), *folder.glob("configs")))
    if not lakes:
        raise BenchError(f"{folder}: has no lake in it; python -m bench.behaviours --lake {folder} makes some")
    found = []
    try:
        with open_session("headway lab", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}) as spark:
            for lake in lakes:
                found.append((lake.name, compare(spark, lake)))
    except ConfigError as error:
        raise BenchError(str(error)) from None
    show(found, detailed)
    return 0


def show(found: Sequence[tuple[str, list[Agreement]]], detailed: str) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    sums = summed(one for _, agreements in found for one in agreements)
    console.print(_table(", ".join(name for name, _ in found), list(sums.values())))
    for name, agreements in found:
        console.print(f"{name}: {_line(agreements)}", highlight=False)
    console.print(f"all: {_line(list(sums.values()))}", highlight=False)
    for one in sums[detailed].differences if detailed in sums else ():
        console.print(f"{one.client} on {one.filter}: the broker {_word(one.broker)}, the lab {_word(one.lab)}",
                      highlight=False, markup=False)  # fmt: skip


def _table(title: str, agreements: Sequence[Agreement]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), title=title)
    table.add_column("policy", no_wrap=True)
    for head in ("consumers", "judged", "alike", "judged alike", f"within {NEAR_S:g} s"):
        table.add_column(head, justify="right")
    for one in agreements:
        table.add_row(
            one.policy, str(one.consumers), str(one.judged), f"{one.neither + one.both}", str(one.both), str(one.near)
        )
    return table


def _line(agreements: Sequence[Agreement]) -> str:
    consumers = sum(one.consumers for one in agreements)
    alike = sum(one.neither + one.both for one in agreements)
    judged, both = sum(one.judged for one in agreements), sum(one.both for one in agreements)
    near = sum(one.near for one in agreements)
    return (
        f"{alike:,} of {consumers:,} consumers alike ({alike / max(1, consumers):.1%}); of {judged:,} judged by either "
        f"{both:,} ({both / max(1, judged):.1%}), {near:,} of them within {NEAR_S:g} s ({near / max(1, both):.1%})"
    )


def _word(word: Word | None) -> str:
    return "nothing" if word is None else f"rule {word.rule}, {word.action} at {word.time_s:.1f} s"
