"""A session of the judge: its runs, their tables, and the files that it writes."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.behaviours import report
from bench.behaviours.actor import Kind
from bench.behaviours.broker import IN_FORCE, JudgedHeadway
from bench.behaviours.kinds.every import EVERY
from bench.behaviours.labels import to_json
from bench.behaviours.run import Run, perform
from bench.behaviours.score import Score, added, scores
from bench.errors import BenchError
from bench.machine import machine
from bench.peers.peer import start


async def session(given: argparse.Namespace, seeds: list[int]) -> int:
    """Returns the exit code."""
    peer = JudgedHeadway(given.policies, tuple(given.trials))
    kinds = _chosen(given.only)
    policies = [IN_FORCE, *peer.trials]
    runs: list[Run] = []
    sums: dict[str, Score] = {}
    console = Console(stderr=True)
    machine_before = machine()
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), console=console,
                  transient=True) as bar:  # fmt: skip
        for seed in seeds:
            task = bar.add_task(f"seed {seed}", total=1.0)
            with start(peer) as running:
                run = await perform(running, seed, given.minutes * 60, kinds,
                                    lambda share, task=task: bar.update(task, completed=share))  # type: ignore[misc]
            runs.append(run)
            for policy, score in scores(run.labels, run.findings, policies, run.ended_s).items():
                sums[policy] = added(sums[policy], score) if policy in sums else score
            for line in run.failed:
                console.print(f"seed {seed}, failed: {line}", highlight=False, markup=False)
    document = _document(runs, sums, given.minutes, machine_before)
    if given.json is not None:
        given.json.write_text(json.dumps(document, indent=1))
    report.show(document, runs, sums, given.show)
    if given.plot is not None:
        from bench.behaviours.picture import draw

        draw(document, given.plot)
    return 1 if any(run.failed for run in runs) else 0


def _chosen(words: str) -> list[Kind] | None:
    if not words:
        return None
    wanted = [word.strip() for word in words.split(",")]
    kinds = [kind for kind in EVERY.values() if any(word in kind.title for word in wanted)]
    if not kinds:
        raise BenchError(f"--only: no kind has {words!r} in its name; there are: {', '.join(EVERY)}")
    return kinds


def _document(runs: list[Run], sums: dict[str, Score], minutes: float, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": 1, "date": datetime.now(UTC).isoformat(timespec="seconds"), "minutes": minutes, "machine": told,
        "scores": [
            {
                "policy": one.policy, "healthy": one.healthy, "false": one.false.total(), "false_by_kind": one.false,
                "troubled": one.troubled, "missed": one.missed.total(), "missed_by_kind": one.missed,
                "stuck": one.stuck, "stuck_found": len(one.times_s), "median_s": one.median_s, "worst_s": one.worst_s,
                "times_s": sorted(one.times_s), "causes_right": one.causes_right, "found": one.found,
                "causes_wrong": [[*what, count] for what, count in one.causes_wrong.items()],
            }
            for one in sums.values()
        ],
        "runs": [
            {
                "seed": run.seed, "began_s": run.began_s, "ended_s": run.ended_s, "driver_late_s": run.driver_late_s,
                "driver_cpu": run.driver_cpu, "broker_cpu": run.broker_cpu, "sent_bytes": run.sent_bytes,
                "failed": run.failed, "labels": [to_json(label) for label in run.labels],
                "findings": [one._asdict() for one in run.findings],
            }
            for run in runs
        ],
    }  # fmt: skip
