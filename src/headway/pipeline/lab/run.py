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
from headway.core.base import format_count, format_duration, format_size
from headway.core.policy import HTTP_LISTENER
from headway.pipeline.lab.job import ReplayInput, read_replay_input, recorded_hits, replay_lake
from headway.pipeline.lab.plans.candidates import NOTHING, RAN, Candidate, Plan, with_policies
from headway.pipeline.lab.score import CANDIDATES, CURVE, OUTCOMES, Score, curve, judge, moment, score
from headway.pipeline.lab.tasks import RecordedRun
from headway.pipeline.lake import output
from headway.pipeline.report.lab import lab_report
from headway.pipeline.session import progress
from headway.server.config import parse_settings
from headway.store.toml import BadConfig, policy_text, quoted, toml_key, value

# -- recommend ---------------------------------------------------------------------------------------------------------
#
# The recommendation: the candidate to take, and a config that the broker takes as it is.
#
# Of those that keep to the goal (peak memory and disk, producer stall, how soon the stuck are cut off) the one with the
# fewest false verdicts, then with the fewest missed, then the quickest to find, then the cheapest: fewest consumers
# hit, fewest records not given, least held. If none keeps to the goal, the one that exceeds it least. Of equals, what
# ran. ``nothing`` may win: then nobody is missed, or nobody can be found without a false verdict.


NO_LIMIT = 60_000.0
"""The stall, ms, that counts as one multiple of a goal of no stall at all."""


class Recommendation(NamedTuple):
    score: Score
    sentence: str
    """The reason for this one."""


def recommend(scores: Sequence[Score], limits: Mapping[str, float]) -> Recommendation:
    """Returns the candidate to take, and marks it. ``limits``: see ``score.judge``."""
    within = [one for one in scores if one.within_goal]
    if within:
        best = min(within, key=rank)
        sentence = _why(best, [one for one in within if one is not best])
    else:
        best = min(scores, key=lambda one: (_excess(one, limits), rank(one)))
        sentence = "none keeps to the goal; this one exceeds it least"
    best.recommended = True
    return Recommendation(best, sentence)


def rank(one: Score) -> tuple[int, ...]:
    """Returns by what candidates are compared; less is better. Times to find differ if they do by whole seconds."""
    return (
        one.false_verdicts, one.missed, round(one.find_ms / 1000), one.hit, one.records_gone,
        one.memory_peak_bytes + one.disk_peak_bytes,
    )  # fmt: skip


_BETTER = (
    ("the fewest false verdicts", format_count),
    ("the fewest missed", format_count),
    ("the shortest time to find who never catches up", format_duration),
    ("the fewest consumers hit", format_count),
    ("the fewest records not given", format_count),
    ("the least held", format_size),
)
"""The advantages of a candidate over the next best, in the order of ``rank``, and how their figures are written."""


def _why(best: Score, others: Sequence[Score]) -> str:
    """Returns what sets the best apart from the next best."""
    if not others:
        return "it is the only one that keeps to the goal"
    among = f"of the {len(others) + 1} that keep to the goal"
    if best.kind == "nothing" and not best.missed:
        return f"{among} no policy does better than none: nobody is missed"
    following = min(map(rank, others))
    apart = [index for index, (mine, other) in enumerate(zip(rank(best), following, strict=True)) if mine != other]
    if best.kind == "ran":
        if not apart:
            return f"{among} none does better than what ran: leave it as it is"
        among, whose = f"{among}, what ran", ": leave it as it is"
    else:
        among, whose = f"{among}, it", ""
    if not apart:
        return f"{among} comes first, and others are as good"
    what, form = _BETTER[apart[0]]
    equal = ", and no more false verdicts than the next" if apart[0] == 1 and best.false_verdicts else ""
    return f"{among} has {what} ({form(rank(best)[apart[0]])}; the next {form(following[apart[0]])}){equal}{whose}"


def _excess(one: Score, limits: Mapping[str, float]) -> float:
    """Returns by how much it exceeds its limits, in multiples of each; of ``NO_LIMIT`` where a limit is 0."""
    return sum(max(0.0, float(getattr(one, name)) - limit) / (limit or NO_LIMIT) for name, limit in limits.items())


def recommended_toml(
    best: Recommendation, candidate: Candidate, ran: Score, run: RecordedRun, recording: str, made: dt.datetime,
    served: str | None = None,
) -> str:  # fmt: skip
    """Writes a config with the recommended policies and pool. ``run``: the last one recorded; ``recording``: in
    words; ``served``: the text of the configuration that the broker runs with, of which only the policies change, and
    the limits of the pool that the candidate sets. Raises ConfigError where these cannot be told from the rest."""
    if served is not None:
        head = "\n".join(f"# {line}".rstrip() for line in _head(best, ran, recording, made, served=True))
        same = candidate.kind == "ran"
        return f"{head}\n\n{served if same else with_policies(served, candidate)}"
    body = _pool_text(run, candidate) + "\n" + candidate.policy_toml
    topics = "".join(f"[[topic]]\n{_topic(table)}\n" for table in run.topic_tables)
    head = "\n".join(f"# {line}" for line in _head(best, ran, recording, made))
    policies = run.policies_of(candidate)
    listeners = "".join(
        f'[listeners.{toml_key(name)}]\nurl = "mqtt://127.0.0.1:0"  # its address is not in the recording\n\n'
        for name in dict.fromkeys(name for policy in policies for name in policy.listeners) if name != HTTP_LISTENER
    )  # fmt: skip
    text = f"{head}\n\n{listeners}{topics}{body}"
    try:
        parse_settings(text)
    except BadConfig as error:
        # The recorded pool does not fit this machine or the default listener; the policies do.
        text = _without_pool(text, error.lines[0])
        parse_settings(text)
    return text


def _head(
    best: Recommendation, ran: Score, recording: str, made: dt.datetime, *, served: bool = False
) -> list[str]:
    one = best.score
    lines = [
        f"Recommended by `headway lab run` ({__version__}, {made:%Y-%m-%d}) from {recording}:",
        f"{quoted(one.candidate)}: {best.sentence}.",
        "",
        f"It predicts   {_predicted(one)}",
    ]
    if one.kind != "ran":
        lines.append(f"What ran       {_predicted(ran)}")
    if served:
        lines += ["", "The rest is the configuration that was given with --config."]
    else:
        lines += ["", "Whatever is not here is as in the default (headway serve --print-config)."]
    if one.kind == "nothing":
        lines.append("A config without policies has the default one, which only tells who does not read.")
    return [line.rstrip() for line in lines]


def _predicted(one: Score) -> str:
    stall = format_duration(one.producer_stall_ms / 1000)
    found = f"found in {format_duration(one.find_ms / 1000)} (median)" if one.found_any else "nobody found"
    return (
        f"{format_count(one.hit)} of {format_count(one.consumers)} consumers hit, "
        f"{format_count(one.false_positives)} of them wrongly; {format_count(one.false_verdicts)} false verdicts, "
        f"{format_count(one.missed)} missed, {found}; "
        f"{format_count(one.records_gone)} records not given; "
        f"at most {format_size(one.memory_peak_bytes)} in memory, {format_size(one.disk_peak_bytes)} on disk; "
        f"publishers held back for {stall}"
    )


def _pool_text(run: RecordedRun, candidate: Candidate) -> str:
    """Writes the candidate's pool; limits that it leaves out are as recorded."""
    memory, disk, share = run.limits(candidate.pool)
    pool: dict[str, Any] = {"memory": f"{memory}B", "disk": f"{disk}B", "max_client_share": share}
    return policy_text((), pool)


def _topic(table: Mapping[str, Any]) -> str:
    """Leaves out recorded topics: they are no policy's affair, and need a journal, which is not here."""
    lines = [f"{'# ' if key == 'keep' else ''}{key} = {value(item)}\n" for key, item in table.items()]
    return "".join(lines)


def _without_pool(text: str, why: str) -> str:
    """Turns the ``[pool]`` table into comments."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line == "[pool]"
            if inside:
                lines.append(f"# Not in force where this was written: {why}")
        lines.append(f"# {line}" if inside and line else line)
    return "\n".join(lines) + "\n"


# -- run ---------------------------------------------------------------------------------------------------------------


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
