"""The judge's files: JSON of labels, verdicts and scores, and the tables of a page in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from bench.behaviours.consumers.labels import Label, Spell, to_json
from bench.behaviours.judging.findings import Finding
from bench.behaviours.judging.score import Score, added, scores
from bench.behaviours.run import Run
from bench.errors import BenchError
from bench.machine import machine_line

SCHEMA = 1


def summed(runs: Sequence[Run], policies: Sequence[str]) -> dict[str, Score]:
    """Returns the score of each policy over all runs."""
    sums: dict[str, Score] = {}
    for run in runs:
        for policy, score in scores(run.labels, run.findings, policies, run.ended_s).items():
            sums[policy] = added(sums[policy], score) if policy in sums else score
    return sums


def document(runs: Sequence[Run], policies: Sequence[str], machine: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine,
        "policies": list(policies), "scores": [_score(one) for one in summed(runs, policies).values()],
        "runs": [_run(run) for run in runs],
    }  # fmt: skip


def load(paths: Sequence[Path]) -> dict[str, Any]:
    """Reads the files of several sessions as one document; all is counted anew. BenchError: a file is not one."""
    runs: list[Run] = []
    policies: dict[str, None] = {}
    machine: dict[str, Any] = {}
    for path in paths:
        try:
            told = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise BenchError(f"{path}: {error}") from None
        if not isinstance(told, dict) or told.get("schema") != SCHEMA:
            raise BenchError(f"{path}: no file of this judge")
        runs += runs_of(told)
        policies |= dict.fromkeys(told["policies"])
        machine = machine or told["machine"]
    return document(runs, list(policies), machine)


def runs_of(told: dict[str, Any]) -> list[Run]:
    """Returns the runs of a document."""
    return [
        Run(**{
            **one, "labels": [_label(label) for label in one["labels"]],
            "findings": [Finding(**finding) for finding in one["findings"]],
        })
        for one in told["runs"]
    ]  # fmt: skip


def _run(run: Run) -> dict[str, Any]:
    return {
        **asdict(run), "labels": [to_json(label) for label in run.labels],
        "findings": [one._asdict() for one in run.findings],
    }  # fmt: skip


def _label(told: dict[str, Any]) -> Label:
    spells = [
        Spell(one["start_s"], one["cause"], inf if one["end_s"] is None else one["end_s"]) for one in told["spells"]
    ]
    return Label(**{**told, "spells": spells})


def _score(one: Score) -> dict[str, Any]:
    return {
        "policy": one.policy, "healthy": one.healthy, "false": one.false.total(), "false_by_kind": one.false,
        "troubled": one.troubled, "missed": one.missed.total(), "missed_by_kind": one.missed,
        "stuck": one.stuck, "stuck_found": len(one.times_s), "median_s": one.median_s, "worst_s": one.worst_s,
        "times_s": sorted(one.times_s), "causes_right": one.causes_right, "found": one.found,
        "causes_wrong": [[*what, count] for what, count in one.causes_wrong.items()],
    }  # fmt: skip


# -- Markdown -------------------------------------------------------------------------------------------------------


def markdown(told: dict[str, Any]) -> str:
    """Returns the tables of a page."""
    seeds = ", ".join(str(run["seed"]) for run in told["runs"])
    parts = [f"Seeds {seeds}; {machine_line(told['machine'])}.", _policies(told["scores"])]
    for title, key in (("False verdicts", "false_by_kind"), ("Missed", "missed_by_kind")):
        parts += [f"**{title}**, by kind:", _by_kind(told, key)]
    return "\n\n".join(parts) + "\n"


def _policies(found: list[dict[str, Any]]) -> str:
    lines = [
        "| Policy | false verdicts | missed | stuck: found | median, s | worst, s | cause right |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        right = f"{one['causes_right']} of {one['found']}" if one["found"] else "–"
        lines.append(
            f"| {one['policy']} | {one['false']} of {one['healthy']} | {one['missed']} of {one['troubled']} | "
            f"{one['stuck_found']} of {one['stuck']} | {_seconds(one['median_s'])} | {_seconds(one['worst_s'])} | "
            f"{right} |"
        )
    return "\n".join(lines)


def _by_kind(told: dict[str, Any], key: str) -> str:
    """Returns a table with a row for each kind that some policy is wrong about; policies that never are, are left
    out."""
    found = [one for one in told["scores"] if one[key]]
    kinds = dict.fromkeys(label["kind"] for run in told["runs"] for label in run["labels"])
    lines = [f"| Kind | {' | '.join(one['policy'] for one in found)} |", "|---" * (len(found) + 1) + "|"]
    for kind in kinds:
        counts = [one[key].get(kind, 0) for one in found]
        if any(counts):
            lines.append(f"| {kind} | {' | '.join(str(count) if count else '' for count in counts)} |")
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
