"""Scores: one line per candidate, and one per consumer that was hit, made of what was replayed.

Rules:
- A consumer is a client's subscription to a filter, through all its traces. It counts as hit once, for the first time.
- Whom pressure gives up before its policy hits it is hit by pressure; what its policy would have done later is void.
- A false positive was hit and would have caught up by itself. Of some nobody can tell: they count as unknown.
- A false verdict is a false positive, or was told of and had caught up by itself within ``TELL_S``.
- Who was hit or told of is found. Missed is who was not, and is still behind when its recording ends.
- The time to find runs from when it fell behind to the first verdict, for all that never caught up; the missed count as
  found when their recording ends.
- Who takes nothing any more is stuck, and has to be cut off; being told of is not enough.
- The Pareto front: no other candidate is at least as good in false verdicts, missed, time to find, consumers hit,
  records lost, memory, disk and stall, and better in one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from statistics import median
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headway.core.policy import ActionKind
from headway.pipeline.lab.job import Replayed
from headway.pipeline.lab.plans.candidates import Candidate, Goal
from headway.pipeline.lab.replays.base import TELL_S
from headway.pipeline.lab.tasks import RecordedRun, columns

OUTCOMES = columns(
    "candidate str, run str, client str, filter str, subscription int, time time, action str, reason str, "
    "policy str, rule int, records_lost int, records_conflated int, stall_ms float, would_catch_up str, "
    "lag_bytes_peak int, by_pressure bool, extrapolated bool"
)
CURVE = columns("candidate str, time time, memory_bytes int, disk_bytes int")
CURVE_POINTS_MAX = 200_000

_LESS_IS_BETTER = (
    "false_verdicts", "missed", "find_ms", "hit", "records_gone",
    "memory_peak_bytes", "disk_peak_bytes", "producer_stall_ms"
)  # fmt: skip


class Score(msgspec.Struct):
    """One candidate's totals. Bytes, milliseconds, consumers."""

    candidate: str
    kind: str
    consumers: int
    hit: int = 0
    noticed: int = 0
    by_pressure: int = 0
    false_positives: int = 0
    unknown: int = 0
    missed: int = 0
    records_lost: int = 0
    records_conflated: int = 0
    memory_peak_bytes: int = 0
    disk_peak_bytes: int = 0
    producer_stall_ms: float = 0.0
    within_goal: bool = False
    recommended: bool = False
    pareto: bool = False
    policy: str = ""
    false_verdicts: int = 0
    find_ms: float = 0.0
    """The median of the times to find."""
    find_worst_ms: float = 0.0
    stuck: int = 0
    cut_stuck_worst_ms: float = 0.0
    """The longest time for which one that was stuck was not cut off."""

    @property
    def found_any(self) -> bool:
        """Tells whether it finds anybody at all; else the time to find is only that of the missed."""
        return self.noticed > 0

    @property
    def records_gone(self) -> int:
        """The records that some consumer was not given."""
        return self.records_lost + self.records_conflated


CANDIDATES = columns(Score)


class Scored(NamedTuple):
    scores: list[Score]
    """Scores in the order of the candidates."""
    outcomes: list[dict[str, Any]]
    """Rows of ``OUTCOMES``."""


def score(replayed: Replayed, candidates: Sequence[Candidate], runs: Mapping[str, RecordedRun]) -> Scored:
    """Adds up totals and outcomes. Does not judge: see ``recommend``."""
    consumers = sum(run.consumers for run in runs.values())
    scores = [Score(candidate.name, candidate.kind, consumers, policy=candidate.toml) for candidate in candidates]
    stalls = [_Stalls() for _ in scores]
    given_up = _pools(replayed.pooled, scores, stalls, runs)
    by_consumer: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in replayed.passages.to_pylist():
        key = row["candidate"], row["run"], row["client"], row["filter"]
        by_consumer.setdefault(key, []).append(row)
    gates_ms = [0.0] * len(scores)
    find_s: list[list[float]] = [[] for _ in scores]
    outcomes = []
    for key in sorted(by_consumer):
        passages = sorted(by_consumer[key], key=lambda row: row["begin_s"])
        one = scores[key[0]]
        pressed = given_up.get(key, _NEVER)
        gates_ms[key[0]] += sum(row["stall_ms"] for row in passages)
        find_s[key[0]] += _find(one, passages, pressed.time_s)
        outcome = _outcome(one, passages, pressed, runs[key[1]])
        if outcome is not None:
            outcomes.append(outcome)
    for one, times in zip(scores, find_s, strict=True):
        if times:
            one.find_ms, one.find_worst_ms = median(times) * 1000, max(times) * 1000
    for one, own_ms, pools in zip(scores, gates_ms, stalls, strict=True):
        # Several may gate one lane at once, which the pools know by buckets; each one's own time is known exactly.
        one.producer_stall_ms = min(own_ms, pools.gates_ms) + pools.full_ms
    _mark_pareto(scores)
    return Scored(scores, outcomes)


class _Pressed(NamedTuple):
    """How pressure gave a consumer up, for the first time."""

    time_s: float
    subscription: int
    reason: str
    lag_bytes: int


_NEVER = _Pressed(inf, 0, "", 0)


class _Stalls(msgspec.Struct):
    """Times for which publishers were held back: by consumers' gates, and by a full memory."""

    gates_ms: float = 0.0
    full_ms: float = 0.0


def _pools(
    pooled: pa.Table, scores: list[Score], stalls: list[_Stalls], runs: Mapping[str, RecordedRun]
) -> dict[tuple[Any, ...], _Pressed]:
    """Adds peaks and stalls to the scores; returns the consumers that pressure gave up."""
    given_up: dict[tuple[Any, ...], _Pressed] = {}
    for row in pooled.to_pylist():
        one = scores[row["candidate"]]
        if row["client"] is None:
            one.memory_peak_bytes = max(one.memory_peak_bytes, row["memory_bytes"])
            one.disk_peak_bytes = max(one.disk_peak_bytes, row["disk_bytes"])
            stalls[row["candidate"]].gates_ms += row["gates_ms"]
            stalls[row["candidate"]].full_ms += row["full_ms"]
            continue
        key = row["candidate"], row["run"], row["client"], row["filter"]
        time_s = row["number"] * runs[row["run"]].bucket_s
        if time_s < given_up.get(key, _NEVER).time_s:
            given_up[key] = _Pressed(time_s, row["subscription"], row["reason"], row["lag_bytes"])
    return given_up


def _find(one: Score, passages: list[dict[str, Any]], pressed_s: float) -> list[float]:
    """Counts whether one consumer was found, rightly, in time, and cut off if it was stuck. Returns the time to find,
    in seconds, if it never caught up."""
    first = next((row for row in passages if row["found_s"] is not None), None)
    found_s = min(pressed_s, inf if first is None else first["found_s"])
    last, stuck = passages[-1], next((row for row in passages if row["stuck_s"] is not None), None)
    if stuck is not None:
        cut_s = min(pressed_s, stuck["recorded_end_s"] if stuck["cut_s"] is None else stuck["cut_s"])
        one.stuck += 1
        one.cut_stuck_worst_ms = max(one.cut_stuck_worst_ms, (cut_s - stuck["stuck_s"]) * 1000)
    if found_s == inf:
        one.missed += last["behind_at_end"]
        return [last["recorded_end_s"] - last["behind_since_s"]] if last["behind_at_end"] else []
    if first is None or pressed_s < first["found_s"]:
        row = first or last
        wrongly = _would_catch_up(row, pressed_s) == "yes"
        one.false_verdicts += wrongly
        return [] if wrongly or row["behind_since_s"] > pressed_s else [pressed_s - row["behind_since_s"]]
    hit = next((row for row in passages if row["hit_s"] is not None), None)
    one.false_verdicts += first["soon_over"] or (hit is not None and hit["would_catch_up"] == "yes")
    return [] if first["found_would_catch_up"] == "yes" else [found_s - first["behind_since_s"]]


def _outcome(
    one: Score, passages: list[dict[str, Any]], pressed: _Pressed, run: RecordedRun
) -> dict[str, Any] | None:
    """Counts one consumer in; returns its row of ``OUTCOMES`` if it was hit."""
    pressed_s = pressed.time_s
    one.noticed += pressed_s < inf or any(row["noticed"] for row in passages)
    hit = next((row for row in passages if row["hit_s"] is not None), None)
    by_pressure = pressed_s < (inf if hit is None else hit["hit_s"])
    if hit is None and not by_pressure:
        one.records_lost += sum(row["records_lost"] for row in passages)
        return None
    lost = conflated = 0
    for row in passages:
        if by_pressure and row["hit_s"] is not None and row["over_s"] > pressed_s and row["begin_s"] <= pressed_s:
            continue  # void: it was gone by then
        lost += row["records_lost"]
        conflated += row["records_conflated"]
    first = hit
    if by_pressure:
        first = next((row for row in passages if row["subscription"] == pressed.subscription), passages[0])
        lost += round(pressed.lag_bytes / first["record_bytes"]) if first["record_bytes"] else 0
    assert first is not None
    would = _would_catch_up(first, pressed_s) if by_pressure else first["would_catch_up"]
    one.hit += 1
    one.by_pressure += by_pressure
    one.false_positives += would == "yes"
    one.unknown += would == "unknown"
    one.records_lost += lost
    one.records_conflated += conflated
    time_s = pressed_s if by_pressure else first["hit_s"]
    kept = first["durable"] and by_pressure
    return {
        "candidate": one.candidate, "run": first["run"], "client": first["client"], "filter": first["filter"],
        "subscription": first["subscription"], "time": moment(run, time_s),
        "action": str(ActionKind.DISCARD if kept else ActionKind.DISCONNECT) if by_pressure else first["action"],
        "reason": pressed.reason if by_pressure else first["reason"],
        "policy": "" if by_pressure else first["policy"], "rule": 0 if by_pressure else first["rule"],
        "records_lost": lost, "records_conflated": conflated,
        "stall_ms": sum(row["stall_ms"] for row in passages), "would_catch_up": would,
        "lag_bytes_peak": max(row["lag_bytes_peak"] for row in passages), "by_pressure": by_pressure,
        "extrapolated": first["extrapolated"] and time_s > first["recorded_end_s"],
    }  # fmt: skip


def _would_catch_up(row: Mapping[str, Any], time_s: float) -> str:
    """Answers the question of ``Base.catches_up`` for the trace as a whole."""
    if row["caught_up_s"] is not None and row["caught_up_s"] > time_s:
        return "yes"
    return "unknown" if row["extrapolated"] or row["recorded_end_s"] - time_s < TELL_S else "no"


def moment(run: RecordedRun, seconds: float) -> dt.datetime:
    """Returns the time so many seconds after the run's recording began."""
    return dt.datetime.fromtimestamp(run.origin_us / 1e6, dt.UTC) + dt.timedelta(seconds=seconds)


def _mark_pareto(scores: Sequence[Score]) -> None:
    values = [tuple(getattr(one, name) for name in _LESS_IS_BETTER) for one in scores]
    distinct = set(values)
    front = {
        value for value in distinct
        if not any(other != value and all(o <= v for o, v in zip(other, value, strict=True)) for other in distinct)
    }  # fmt: skip
    for one, value in zip(scores, values, strict=True):
        one.pareto = value in front


def judge(scores: Iterable[Score], goal: Goal, runs: Mapping[str, RecordedRun]) -> dict[str, float]:
    """Marks the candidates that keep to the goal; returns the goal's limits by the names of the columns they are
    for."""
    limits = goal_limits(goal, runs)
    for one in scores:
        one.within_goal = all(getattr(one, name) <= limit for name, limit in limits.items())
    return limits


def goal_limits(goal: Goal, runs: Mapping[str, RecordedRun]) -> dict[str, float]:
    """The goal leaves out the recorded pool's memory (what does not fit goes to disk, so it is used up
    before much does), half of its disk, and no stall."""
    memory = max(run.memory_limit for run in runs.values())
    disk = max(run.disk_limit for run in runs.values())
    return {
        "memory_peak_bytes": memory if goal.memory_bytes is None else goal.memory_bytes,
        "disk_peak_bytes": disk // 2 if goal.disk_bytes is None else goal.disk_bytes,
        "producer_stall_ms": goal.stall_s * 1000,
        **({} if goal.cut_stuck_s is None else {"cut_stuck_worst_ms": goal.cut_stuck_s * 1000}),
    }


def curve(
    pooled: pa.Table, candidates: Sequence[Candidate], runs: Mapping[str, RecordedRun], wanted: set[str]
) -> list[dict[str, Any]]:
    """Makes rows of ``CURVE``: of all candidates if they are few, else of those that are wanted by name."""
    levels = pooled.filter(pc.is_null(pooled["client"]))
    if levels.num_rows > CURVE_POINTS_MAX:
        chosen = [number for number, candidate in enumerate(candidates) if candidate.name in wanted]
        levels = levels.filter(pc.is_in(levels["candidate"], value_set=pa.array(chosen, pa.int64())))
    rows = [
        {
            "candidate": candidates[row["candidate"]].name,
            "time": moment(runs[row["run"]], row["number"] * runs[row["run"]].bucket_s),
            "memory_bytes": row["memory_bytes"], "disk_bytes": row["disk_bytes"],
        }
        for row in levels.to_pylist()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row["candidate"], row["time"]))
