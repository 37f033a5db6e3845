"""A replay: the last hour under other policies. The console's own samples are judged again, by the broker's own code.

It is the code that the lab runs, on less: one sample every ``EVERY_S`` (hour.py), of those consumers only that were in
trouble. What a rule would have changed is not played on: a consumer that would have been cut stays as it was. So it
finds who would have been hit first, and the lab says what would have followed. A step makes ``AT_ONCE``
comparisons, or little more, and the loop goes on between two steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from headway.core.policy import (
    METERS,
    Decision,
    DecisionKind,
    Policy,
    PolicyState,
    Sample,
    evaluate,
    policy_for_any,
    policy_named,
)
from headway.server.console.hour import METERS as KEPT
from headway.server.console.hour import Hour, Series
from headway.server.console.rows import Known, cut
from headway.server.http import work_of_choosing

AT_ONCE = 500
HITS_MAX = 200
_COUNTS = ("lag_bytes", "lag_records", "in_flight")


async def replay(hour: Hour, known: Known, policies: tuple[Policy, ...]) -> dict[str, Any]:
    """Returns the first hit of each rule on each consumer, in the order of time."""
    hits: list[dict[str, Any]] = []
    looked = work = 0
    choosing = work_of_choosing(policies)
    everybody = list(hour.consumers.items())
    for name, series in everybody:
        policy = _policy(series, policies)
        work += choosing
        seen: set[int] = set()
        comparisons = 1 + sum(len(rule.when.leaves()) for rule in policy.rules)
        for wall_s, decision, sample in _decisions(policy, series):
            looked += 1
            work += comparisons
            if work >= AT_ONCE:
                work = 0
                await asyncio.sleep(0)
            if decision is None or decision.kind is not DecisionKind.FIRE or decision.rule in seen:
                continue
            seen.add(decision.rule)
            hits.append({
                "wall_s": round(wall_s, 1), "key": known.key(name), "client": cut(name.client),
                "filter": cut(name.filter), "policy": policy.name, "rule": decision.rule + 1,
                "action": decision.action.word, "enforced": decision.enforced, "text": _finding(decision, sample),
            })  # fmt: skip
    hits.sort(key=lambda hit: hit["wall_s"])
    return {
        "hits": hits[:HITS_MAX], "total": len(hits), "consumers": len(everybody), "samples": looked,
        "since": min((series.times[0] for _, series in everybody), default=None),
    }  # fmt: skip


def _policy(series: Series, policies: tuple[Policy, ...]) -> Policy:
    terms = series.terms
    asked = policy_named(policies, terms.policy) if terms.policy else None
    return asked or policy_for_any(policies, terms.names, terms.durable, terms.listener)


def _finding(decision: Decision, sample: Sample) -> str:
    """Says what the rule found. Where the trouble lay is not known any more: the peer is not asked for the past."""
    reading = decision.leading
    if reading is None:
        return ""
    meter = METERS[reading.meter]
    return meter.finding(meter.unit.format(reading.value), meter.unit.format(reading.threshold), sample)


def _decisions(policy: Policy, series: Series) -> Iterator[tuple[float, Decision | None, Sample]]:
    """Yields each sample with each decision on it, and None where there is none."""
    state = PolicyState()
    state.keyed = series.terms.keyed
    for at, wall_s in enumerate(series.times):
        values = {name: column[at] for name, column in zip(KEPT, series.columns, strict=True)}
        values |= {name: int(values[name]) for name in _COUNTS}
        sample = msgspec.convert({**values, "waited": values["lag_age"]}, Sample)
        decisions = evaluate(policy, state, sample, wall_s)
        for decision in decisions:
            yield wall_s, decision, sample
        if not decisions:
            yield wall_s, None, sample
