"""A session of the judge: its runs, their tables, and the files that it writes."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.behaviours import report, results
from bench.behaviours.broker import IN_FORCE, JudgedHeadway, end
from bench.behaviours.consumers.actor import Kind
from bench.behaviours.kinds.every import EVERY
from bench.behaviours.run import Run, perform
from bench.errors import BenchError
from bench.machine import machine
from bench.peers.peer import start
from bench.tables import insert

FIELD = "field: "
"""So begin the names of kinds that a second examiner thought of. They are a set of their own."""


async def session(given: argparse.Namespace, seeds: list[int]) -> int:
    """Returns the exit code."""
    told = results.load(given.read) if given.read else await _judged(given, seeds)
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1))
    runs = results.runs_of(told)
    report.show(told, runs, results.summed(runs, told["policies"]), given.show)
    if given.plot is not None:
        from bench.behaviours.picture import draw

        draw(told, given.plot)
    if given.page is not None:
        insert(results.markdown(told), given.page)
    return 1 if any(run.failed for run in runs) else 0


async def _judged(given: argparse.Namespace, seeds: list[int]) -> dict[str, Any]:
    trials = JudgedHeadway(given.policies, tuple(given.trials)).trials
    kinds = _chosen(given.only)
    runs: list[Run] = []
    machine_before = machine()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        for seed in seeds:
            task = bar.add_task(f"seed {seed}", total=1.0)

            def tell(share: float, task: Any = task) -> None:
                bar.update(task, completed=share)

            lake = None if given.lake is None else given.lake / f"seed-{seed}"
            with start(JudgedHeadway(given.policies, tuple(given.trials), lake, given.remote)) as running:
                runs.append(await perform(running, seed, given.minutes * 60, kinds, tell, given.pauses))
                if lake is not None:
                    await asyncio.to_thread(end, running)
    return results.document(runs, [IN_FORCE, *trials], machine_before)


def _chosen(words: str) -> list[Kind]:
    if not words:
        return [kind for kind in EVERY.values() if not kind.title.startswith(FIELD)]
    wanted = [word.strip() for word in words.split(",")]
    kinds = [kind for kind in EVERY.values() if any(word in kind.title for word in wanted)]
    if not kinds:
        raise BenchError(f"--only: no kind has {words!r} in its name; there are: {', '.join(EVERY)}")
    return kinds
