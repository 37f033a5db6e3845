"""A lab run from a lake to its files: see ``run_lab``."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headway import __version__
from headway.core.base import format_count, format_duration
from headway.pipeline.lab.job import ReplayInput, read_replay_input, recorded_hits, replay_lake
from headway.pipeline.lab.plans.candidates import NOTHING, RAN, Candidate, Plan
from headway.pipeline.lab.recommend import Recommendation, recommend, recommended_toml
from headway.pipeline.lab.score import CANDIDATES, CURVE, OUTCOMES, Score, curve, judge, moment, score
from headway.pipeline.lab.tasks import RecordedRun
from headway.pipeline.output import output
from headway.pipeline.progress import progress
from headway.pipeline.report.lab import lab_report
from headway.store.toml import policy_text

TOLERANCE_S, TOLERANCE_SHARE = 2.0, 0.1
"""The most by which a reproduced hit differs from the recorded time: seconds, or a share of the rule's window."""
LIMITS = (
    "What publishers would have sent had they not been held back is not in a recording.",
    "All listeners' pools are taken as one.",
    "slow_fraction is as it was recorded: what a candidate makes of it is not carried over to others.",
    "How soon a client comes back after it was disconnected is as recorded.",
)


class LabResult(NamedTuple):
    scores: list[Score]
    recommendation: Recommendation
    report: Path
    config: Path
    seconds: float


def run_lab(spark: SparkSession, lake: Path, plan: Plan, out: Path, served: str | None = None) -> LabResult:
    """Replays a lake against a plan and writes the results, the report and the recommended config to ``out``.
    ``served``: the text of the configuration that the broker runs with.

    Raises ConfigError for a lake with nothing in it to replay.
    """
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with progress("looking for who lagged", spark):
        found = read_replay_input(spark, lake)
    candidates = [_with_text(candidate, found) for candidate in plan.candidates]
    with progress(f"replaying {found.clients:,} clients x {len(candidates):,} candidates", spark):
        replayed = replay_lake(spark, lake, candidates, found)
        recorded = recorded_hits(spark, lake)
    scored = score(replayed, candidates, found.runs)
    limits = judge(scored.scores, plan.goal, found.runs)
    best = recommend(scored.scores, limits)
    wanted = {RAN, NOTHING, best.score.candidate}
    tables = {
        "candidates": pa.Table.from_pylist(msgspec.to_builtins(scored.scores), CANDIDATES),
        "outcomes": pa.Table.from_pylist(scored.outcomes, OUTCOMES),
        "curve": pa.Table.from_pylist(curve(replayed.pooled, candidates, found.runs, wanted), CURVE),
    }
    for name, table in tables.items():
        with output(out / f"{name}.parquet") as path:
            pq.write_table(table, path)
    ran = next(one for one in scored.scores if one.kind == "ran")
    chosen = next(candidate for candidate in candidates if candidate.name == best.score.candidate)
    text = recommended_toml(best, chosen, ran, found.last, _recording(found), dt.datetime.now(dt.UTC), served)
    config = out / "recommended.toml"
    with output(config) as path:
        path.write_text(text, encoding="utf-8")
    seconds = time.monotonic() - started
    about = _about(lake, found, candidates, limits, best, scored.outcomes, recorded, seconds)
    with output(out / "lab.json") as path:
        path.write_text(json.dumps(about, indent=2, default=str), encoding="utf-8")
    report = lab_report(tables["candidates"], tables["outcomes"], tables["curve"], about, out / "report.html")
    return LabResult(scored.scores, best, report, config, seconds)


def check_against_recorded(
    outcomes: Sequence[Mapping[str, Any]], recorded: Sequence[Mapping[str, Any]], runs: Mapping[str, RecordedRun]
) -> dict[str, int]:
    """Counts how many recorded hits the replay of what ran reproduces: the same consumers, at about the same time."""
    predicted = {
        (row["run"], row["client"], row["filter"]): row["time"]
        for row in outcomes
        if row["candidate"] == RAN and not row["by_pressure"]
    }
    reproduced = other_time = 0
    hits = {(row["run"], row["client"], row["filter"]) for row in recorded}
    for row in recorded:
        when = predicted.get((row["run"], row["client"], row["filter"]))
        if when is None or row["run"] not in runs:
            continue
        run = runs[row["run"]]
        apart = abs((when - moment(run, (row["time"] - run.origin_us) / 1e6)).total_seconds())
        near = apart <= max(TOLERANCE_S, TOLERANCE_SHARE * row["window_ms"] / 1000)
        reproduced += near
        other_time += not near
    return {
        "recorded_hits": len(recorded), "reproduced": reproduced, "at_another_time": other_time,
        "not_reproduced": len(recorded) - reproduced - other_time,
        "only_in_the_replay": sum(key not in hits for key in predicted),
    }  # fmt: skip


def _with_text(candidate: Candidate, found: ReplayInput) -> Candidate:
    """Gives the candidate that ran its policies, as the last config in force words them."""
    if candidate.kind != "ran":
        return candidate
    return Candidate(candidate.name, candidate.kind, (), candidate.pool, policy_text(found.last.policy_tables))


def _about(
    lake: Path, found: ReplayInput, candidates: Sequence[Candidate], limits: Mapping[str, float], best: Recommendation,
    outcomes: Sequence[Mapping[str, Any]], recorded: Sequence[Mapping[str, Any]], seconds: float,
) -> dict[str, Any]:  # fmt: skip
    runs = found.runs.values()
    return {
        "lake": str(lake),
        "first": min(moment(run, 0.0) for run in runs).isoformat(timespec="seconds"),
        "last": max(moment(run, run.seconds) for run in runs).isoformat(timespec="seconds"),
        "consumers": sum(run.consumers for run in runs),
        "clients that lagged": found.clients,
        "candidates": len(candidates),
        "seconds": round(seconds, 1),
        "version": __version__,
        "goal": {
            "memory_bytes": int(limits["memory_peak_bytes"]), "disk_bytes": int(limits["disk_peak_bytes"]),
            "stall_ms": limits["producer_stall_ms"],
            **({"cut_stuck_ms": limits["cut_stuck_worst_ms"]} if "cut_stuck_worst_ms" in limits else {}),
        },
        "recommended": best.score.candidate,
        "why": best.sentence,
        "check": check_against_recorded(outcomes, recorded, found.runs),
        "limits": [*LIMITS, *found.notes, *_of_no_listener(candidates, found)],
    }  # fmt: skip


def _of_no_listener(candidates: Sequence[Candidate], found: ReplayInput) -> list[str]:
    """Tells which policies are for listeners through which nobody came, so that nothing is known of them."""
    came = {name for run in found.runs.values() for name in run.listeners}
    policies = [(f"candidate {candidate.name!r}", policy) for candidate in candidates for policy in candidate.policies]
    policies += [("what ran", policy) for run in found.runs.values() for policy in run.policies]
    notes = [
        f"{whose}, policy {policy.name!r}: nobody in the recording came through {' or '.join(policy.listeners)}"
        for whose, policy in policies if policy.listeners and not came & set(policy.listeners)
    ]  # fmt: skip
    return list(dict.fromkeys(notes))


def _recording(found: ReplayInput) -> str:
    runs = sorted(found.runs.values(), key=lambda run: run.origin_us)
    seconds, consumers = sum(run.seconds for run in runs), sum(run.consumers for run in runs)
    return (
        f"{format_duration(seconds)} of {format_count(consumers)} consumers, recorded from "
        f"{moment(runs[0], 0.0):%Y-%m-%d %H:%M} UTC"
    )
