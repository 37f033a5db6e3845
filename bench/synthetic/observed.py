"""Samples and verdicts that a broker would have recorded of made-up consumers.

The policy in force only says who is slow (``POLICY``); nobody is cut, conflated or given up, so the recording shows
what every consumer would have done by itself, which is the best a lab can be given. Whom it named, when and why is not
made up: the broker's own ``evaluate`` and ``judge`` look at each lagging consumer once a second.

Within a second records come evenly spread; what is observed is observed at the end of the second.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from bench.synthetic.consumers import Flags, Life
from bench.synthetic.lanes import Floats, Ints, Traffic
from headway.core.policy import DecisionKind, PolicyState, Sample, Verdict, evaluate, judge, parse_policy

START = dt.datetime(2026, 1, 5, 9, 0, tzinfo=dt.UTC)
"""A Monday morning, always the same one: a seed means the same rows for ever."""
LISTENER = "mqtt"
MEMORY_LIMIT_BYTES = 256_000_000
POLICY_TABLE: dict[str, Any] = {
    "name": "watch",
    "topics": ["#"],
    "rule": [
        {
            "name": "does not read",
            "when": {"any": [{"blocked_time": "30s"}, {"credit_exhausted_time": "30s"}]},
            "then": "notify",
        },
        {"name": "far behind", "when": {"lag_age": "20s"}, "for": "10s", "then": "notify"},
    ],
}
POLICY = parse_policy(POLICY_TABLE)
_PATIENCE_S = 20.0
"""The reading below which no rule can hold for a consumer."""
_BURST_LONG_S = 15
_VERDICTS_PER_SECOND = 1_000_000_000
_VERDICTS_PER_CONSUMER = 10


class Series(NamedTuple):
    """Observations of one subscription at each second of its life; times in seconds."""

    life: Life
    offered: Ints
    drained: Ints
    lag_age: Floats
    waited: Floats
    blocked: Floats
    slow: Flags
    slow_count: Ints
    verdicts: list[Verdict]


def observe(life: Life, traffic: Traffic) -> Series:
    """Measures a life second by second, and judges it."""
    ends = traffic.ends
    offered = ends[life.start : life.stop + 1] - ends[life.start]
    drained = offered - life.lag
    seconds = np.arange(life.start, life.stop + 1)
    waits = life.lag > 0
    oldest = drained + ends[life.start]
    second = np.minimum(np.searchsorted(ends, oldest, side="right"), len(ends) - 1)
    arrived = second - 1 + (oldest - ends[second - 1] + 0.5) / np.maximum(1, ends[second] - ends[second - 1])
    lag_age = np.where(waits, np.maximum(0.0, seconds - arrived), 0.0)

    begins = waits & ~np.concatenate([[False], waits[:-1]])
    waiting_since = np.maximum.accumulate(np.where(begins, arrived, life.start))
    took = np.concatenate([[True], np.diff(drained) > 0])
    progress = np.maximum.accumulate(np.where(took, seconds, life.start))
    stands = waits & ~took
    if life.away is not None:
        stands &= ~life.away
    if life.acks is not None:
        stands[:] = False
    blocked = np.where(stands, seconds - np.maximum(progress, waiting_since), 0.0)
    waited = np.where(waits, seconds - waiting_since, 0.0)
    bare = Series(life, offered, drained, lag_age, waited, blocked, np.zeros(0, bool), np.zeros(0, np.int64), [])
    return _judge(bare, traffic)


def _judge(series: Series, traffic: Traffic) -> Series:
    """Lets the policy look at it each second while records wait, or it is in flight, or is slow."""
    life, rows = series.life, len(series.offered)
    slow, slow_count = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=np.int64)
    verdicts: list[Verdict] = []
    exhausted = life.acks.exhausted_s if life.acks is not None else np.zeros(rows)
    patience = max(series.lag_age.max(), series.blocked.max(), exhausted.max())
    if patience < _PATIENCE_S:
        return series._replace(slow=slow, slow_count=slow_count)
    state, marked, times = PolicyState(), False, 0
    for at, sample in _samples_of(series, traffic, exhausted):
        for decision in evaluate(POLICY, state, sample, float(at)):
            if decision.kind is DecisionKind.FIRE and not marked:
                marked, times = True, times + 1
            number = (life.start + at) * _VERDICTS_PER_SECOND + life.subscription * _VERDICTS_PER_CONSUMER
            verdicts.append(judge(
                decision, sample, number=number + decision.rule, now=float(life.start + at),
                wall_s=START.timestamp() + life.start + at, client=life.client, filter=traffic.filter,
                policy=POLICY.name, listener=LISTENER,
            ))  # fmt: skip
        marked = marked and any(True for _ in state.active())
        slow[at], slow_count[at] = marked, times
    return series._replace(slow=slow, slow_count=np.maximum.accumulate(slow_count), verdicts=verdicts)


def _samples_of(series: Series, traffic: Traffic, exhausted: Floats) -> Iterator[tuple[int, Sample]]:
    """Makes samples for the governor: at each second while something waits, and at the first when nothing does."""
    life, size = series.life, traffic.record_bytes
    taken = np.diff(series.drained, prepend=0) * size
    published = np.diff(series.offered, prepend=0) * size
    bursts = bursts_of(series)
    waits = life.lag > 0
    looks = np.flatnonzero(waits | np.concatenate([[False], waits[:-1]]))
    acks, away = life.acks, life.away
    columns = [life.lag, series.lag_age, taken, published, bursts, series.blocked, exhausted, series.waited]
    for at, lag, age, rate, offer, burst, blocked, full, waited in zip(
        looks.tolist(), *(column[looks].tolist() for column in columns), strict=True
    ):
        in_flight = int(acks.in_flight[at]) if acks is not None else 0
        yield at, Sample(
            lag_records=lag, lag_bytes=lag * size, lag_age=age, drain_rate=rate, offered_rate=offer,
            blocked_time=blocked, unread_time=blocked, credit_exhausted_time=full,
            in_flight=in_flight, prefetch=life.window, offered_burst=burst,
            ack_age=float(acks.age_s[at]) if acks is not None else 0.0,
            pool_share=lag * size / MEMORY_LIMIT_BYTES, credit_exhausted=full > 0, waited=waited,
            peer_window_closed=blocked > 0 and not life.network and (away is None or not away[at]),
            retransmitting=blocked > 0 and life.network,
        )  # fmt: skip


def bursts_of(series: Series) -> Floats:
    """The offered rate of the last second, as a multiple of the usual; 1 while nothing waits or it is unknown."""
    offered = series.offered
    bursts = np.ones(len(offered))
    if len(offered) > _BURST_LONG_S:
        usual = (offered[_BURST_LONG_S:] - offered[:-_BURST_LONG_S]) / _BURST_LONG_S
        known = (series.life.lag[_BURST_LONG_S:] > 0) & (usual > 0)
        bursts[_BURST_LONG_S:][known] = np.diff(offered)[_BURST_LONG_S - 1 :][known] / usual[known]
    return bursts


def subscription_of(verdict: Verdict) -> int:
    """The consumer that a verdict of this recording is about: its number says so."""
    return verdict.number % _VERDICTS_PER_SECOND // _VERDICTS_PER_CONSUMER
