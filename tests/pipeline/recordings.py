"""Recordings made by hand: samples of a consumer that is offered and takes what a test says, as rows of the lake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.pipeline.lakes import row

from headway.core.policy.rules.rule import Policy, parse_policies
from headway.pipeline.lab.replays.base import Recording
from headway.pipeline.lab.replays.candidate_replay import Client, Passage
from headway.pipeline.lab.replays.trace import COLUMNS, ON_TIME, ConsumerTrace, RecordedLateness

RECORD_BYTES = 100
MEMORY = 100_000_000
Curve = Callable[[float], float]


def rate(per_second: float, since: float = 0.0, until: float = 1e9) -> Curve:
    """So many a second, from a time to a time."""
    return lambda t: per_second * max(0.0, min(t, until) - since)


def total(*curves: Curve) -> Curve:
    return lambda t: sum(curve(t) for curve in curves)


def samples(offered: Curve, taken: Curve, upto: float, *, blocked_from: float | None = None, every: float = 1.0,
            ended: str = "", **columns: Any) -> list[dict[str, Any]]:
    """Rows each second: offered and taken are in records of 100 bytes. What is blocked stays so to the end."""
    rows = []
    count = round(upto / every)
    for seq in range(count + 1):
        t = seq * every
        has, took = offered(t), min(offered(t), taken(t))
        lag = round(has - took)
        oldest = t
        while lag and oldest > 0 and offered(oldest - 0.01) > took:
            oldest -= 0.01
        blocked = t - blocked_from if blocked_from is not None and lag and t > blocked_from else 0.0
        rows.append(
            row("consumer_samples", time=t, seq=seq + 1, **({"subscription": 1} | columns),
                offered_records=round(has), offered_bytes=round(has) * RECORD_BYTES,
                drained_records=round(took), drained_bytes=round(took) * RECORD_BYTES,
                lag_records=lag, lag_bytes=lag * RECORD_BYTES, lag_age_ms=(t - oldest) * 1000,
                blocked_ms=blocked * 1000, ended=ended if seq == count else "")
        )  # fmt: skip
    return rows


def trace(
    rows: Sequence[dict[str, Any]], horizon: float | None = None, lateness: RecordedLateness = ON_TIME
) -> ConsumerTrace:
    origin = rows[0]["time"].timestamp()
    plain = [{name: one[name] for name in COLUMNS} | {"time": one["time"].timestamp() - origin} for one in rows]
    return ConsumerTrace(plain, plain[-1]["time"] if horizon is None else horizon, lateness)


def policy(*rules: dict[str, Any], **table: Any) -> tuple[Policy, ...]:
    return parse_policies([{"name": "p", "topics": ["#"], "rule": list(rules), **table}])


def client(*traces: ConsumerTrace) -> Client:
    chains: dict[str, list[ConsumerTrace]] = {}
    for one in traces:
        chains.setdefault(one.filter, []).append(one)
    return Client(chains, Recording(max(one.end for one in traces), MEMORY))


def replay(one: ConsumerTrace, *rules: dict[str, Any], **table: Any) -> Passage:
    """The passage of the only trace under one policy with these rules."""
    [[passage]] = client(one).replay(policy(*rules, **table), MEMORY).values()
    return passage
