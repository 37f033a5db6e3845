"""The rows of one topic and its consumers, as the broker's recorder would have written them.

Topics do not touch each other, so all there is to know of the consumers of one is known here: what each of them is
observed to do (``observed.py``), how they share what is held, and what they add to the whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bench.synthetic.consumers import live
from bench.synthetic.lanes import Floats, Ints, SyntheticLane, Traffic, publish
from bench.synthetic.observed import (
    LISTENER,
    MEMORY_LIMIT_BYTES,
    POLICY,
    START,
    Series,
    bursts_of,
    observe,
    subscription_of,
)
from headway.core.policy import Verdict
from headway.core.telemetry import CONSUMER_SAMPLES
from headway.store.rows import arrow_schema

START_US = int(START.timestamp()) * 1_000_000
BROKER, PROTOCOL, POOL = "synthetic", "mqtt5", "global"
COARSE_S = 10
"""The seconds between two rows of a consumer for which no record waits."""


class TopicRows(NamedTuple):
    """All rows of one topic. ``lane`` has one row per second: see ``LANE_SCHEMA``."""

    samples: pa.Table
    verdicts: pa.Table
    lane: pa.RecordBatch


_LANE_FIELDS = (
    "lane", "second", "offered_records", "offered_bytes", "delivered_records", "delivered_bytes", "sessions",
    "consumers", "lagging", "watched", "slow", "held_bytes",
)  # fmt: skip
LANE_SCHEMA = pa.schema([pa.field(name, pa.int64()) for name in _LANE_FIELDS])
"""A topic's share of the whole broker at each second; ``held_bytes``: back to its furthest-back consumer."""


def record(seed: int, lane: SyntheticLane, steps: int, run: str) -> TopicRows:
    """The rows of one topic over so many seconds."""
    traffic = publish(seed, lane.number, steps)
    numbers = range(lane.first, lane.first + lane.consumers)
    series = [observe(life, traffic) for number in numbers for life in live(seed, number, traffic)]
    held, slow_fraction = _shares(series, traffic.record_bytes, steps)
    blocks = [_block(one, traffic, held[i], slow_fraction) for i, one in enumerate(series)]
    return TopicRows(
        _samples(blocks, series, traffic, run),
        _verdicts(series, held, run),
        _lane(series, traffic, lane, steps),
    )


# -- together ---------------------------------------------------------------------------------------------------------


def _shares(series: list[Series], record_bytes: int, steps: int) -> tuple[Ints, Floats]:
    """Returns (held bytes per life and second, share of slow ones per second).

    The furthest back alone needs the oldest stretch, the two furthest back share the next, and so on.
    """
    held = np.zeros((len(series), steps + 1), dtype=np.int64)
    slow, there = np.zeros(steps + 1), np.zeros(steps + 1)
    for row, one in zip(held, series, strict=True):
        row[one.life.start : one.life.stop + 1] = one.life.lag * record_bytes
        slow[one.life.start : one.life.stop + 1] += one.slow
        there[one.life.start : one.life.stop + 1] += 1
    for at in np.array_split(np.arange(steps + 1), max(1, steps // 600)):
        lag = held[:, at]
        order = np.argsort(-lag, axis=0, kind="stable")
        ranked = np.take_along_axis(lag, order, axis=0)
        stretches = ranked - np.concatenate([ranked[1:], np.zeros((1, len(at)), dtype=np.int64)])
        parts = stretches / np.arange(1, len(series) + 1)[:, None]
        shares = np.cumsum(parts[::-1], axis=0)[::-1].astype(np.int64)
        block = np.empty_like(lag)
        np.put_along_axis(block, order, shares, axis=0)
        held[:, at] = block
    return held, slow / np.maximum(1, there)


def _block(series: Series, traffic: Traffic, held: Ints, slow_fraction: Floats) -> dict[str, Any]:
    """The columns of one subscription that are not the same in all of its rows, for the seconds that are recorded."""
    life, size = series.life, traffic.record_bytes
    noted = (life.lag > 0) | series.slow
    kept = noted | np.concatenate([[False], noted[:-1]])
    seconds = np.arange(life.start, life.stop + 1)
    kept |= (seconds + life.subscription) % COARSE_S == 0
    kept[[0, -1]] = True
    at = np.flatnonzero(kept)
    watched = noted[at]
    zeros = np.zeros(len(at))
    away = life.away[at] if life.away is not None else np.zeros(len(at), dtype=bool)
    ended = np.zeros(len(at), dtype=bool)
    ended[-1] = bool(life.ended)
    lag, slow = life.lag[at], series.slow[at]
    acks = life.acks
    return {
        "time": START_US + seconds[at] * 1_000_000,
        "subscription": np.full(len(at), life.subscription),
        "seq": np.arange(1, len(at) + 1),
        "durable": np.full(len(at), life.durable),
        "connected": ~(away | ended),
        "state": np.where(away | ended, _AWAY, np.where(slow, _SLOW, np.where(lag > 0, _BEHIND, _OK))),
        "ended": ended,
        "slow": slow,
        "offered_records": series.offered[at],
        "offered_bytes": series.offered[at] * size,
        "drained_records": series.drained[at],
        "drained_bytes": series.drained[at] * size,
        "lag_records": lag,
        "lag_bytes": lag * size,
        "lag_age_ms": series.lag_age[at] * 1000,
        "drain_rate": np.where(watched, np.diff(series.drained, prepend=0)[at] * float(size), 0.0),
        "offered_rate": np.where(watched, np.diff(series.offered, prepend=0)[at] * float(size), 0.0),
        "offered_burst": bursts_of(series)[at],
        "blocked_ms": series.blocked[at] * 1000,
        "credit_exhausted_ms": acks.exhausted_s[at] * 1000 if acks is not None else zeros,
        "ack_age_ms": acks.age_s[at] * 1000 if acks is not None else zeros,
        "in_flight": acks.in_flight[at] if acks is not None else np.zeros(len(at), dtype=np.int64),
        "prefetch": np.full(len(at), life.window),
        "slow_count": series.slow_count[at],
        "pool_share": lag * size / MEMORY_LIMIT_BYTES,
        "slow_fraction": slow_fraction[seconds[at]],
        "held_bytes": held[seconds[at]],
    }


# -- tables -----------------------------------------------------------------------------------------------------------

_STATES = ("ok", "behind", "slow", "away")
_OK, _BEHIND, _SLOW, _AWAY = range(len(_STATES))


def _samples(blocks: list[dict[str, Any]], series: list[Series], traffic: Traffic, run: str) -> pa.Table:
    """The ``consumer_samples`` of one topic, by subscription and time."""
    schema = arrow_schema(CONSUMER_SAMPLES.name)
    counts = [len(block["seq"]) for block in blocks]
    rows = sum(counts)
    owner = np.repeat(np.arange(len(blocks), dtype=np.int32), counts)
    same = {
        "run": run, "broker": BROKER, "filter": traffic.filter, "lane": lane_name(traffic.filter),
        "listener": LISTENER, "protocol": PROTOCOL, "policy": POLICY.name, "policy_asked": "", "topics": "",
    }  # fmt: skip
    nought = {
        "skipped_records", "skipped_bytes", "producer_stall_ms", "usual_pause_ms", "most_lag_ago_ms",
        "least_lag_ago_ms", "excused_ms", "conflates", "unacknowledged_bytes", "lump_bytes", "patience_ms",
        "keyed", "unread_pause_ms", "unacknowledged_ms", "ack_pause_ms",
    }  # fmt: skip
    unknown = {"drain_share": 1}
    alike = {
        "most_lag_bytes": "lag_bytes", "least_lag_bytes": "lag_bytes", "unacked_ms": "ack_age_ms",
        "window_full_ms": "credit_exhausted_ms", "unread_ms": "blocked_ms",
    }  # fmt: skip
    arrays = []
    for field in schema:
        if field.name in same:
            arrays.append(_texts(np.zeros(rows, dtype=np.int32), [same[field.name]]))
        elif field.name == "client":
            arrays.append(_texts(owner, [one.life.client for one in series]))
        elif field.name in nought:
            arrays.append(pa.array(np.zeros(rows), field.type))
        elif field.name in unknown:
            arrays.append(pa.array(np.full(rows, unknown[field.name]), field.type))
        else:
            name = alike.get(field.name, field.name)
            values = np.concatenate([block[name] for block in blocks]) if blocks else np.zeros(0)
            if field.name == "state":
                arrays.append(_texts(values, _STATES))
            elif field.name == "ended":
                arrays.append(_texts(np.where(values, owner + 1, 0), ["", *(one.life.ended for one in series)]))
            else:
                arrays.append(pa.array(values).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _texts(indexes: Any, words: Any) -> pa.Array:
    dictionary = pa.array(list(words) or [""], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(np.asarray(indexes, dtype=np.int32)), dictionary).cast(pa.string())


def _verdicts(series: list[Series], held: Ints, run: str) -> pa.Table:
    """The ``verdicts`` of one topic, in the order of their numbers."""
    rows = [
        _verdict(verdict, run, int(held[i, round(verdict.time_s)]))
        for i, one in enumerate(series)
        for verdict in one.verdicts
    ]
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["number"]), arrow_schema("verdicts"))


def _verdict(verdict: Verdict, run: str, held_bytes: int) -> dict[str, Any]:
    sample = verdict.sample
    leading = next((reading for reading in verdict.readings if reading.held), verdict.readings[0])
    return {
        "run": run, "broker": BROKER, "time": round(verdict.wall_s * 1e6), "number": verdict.number,
        "subscription": subscription_of(verdict), "client": verdict.client,
        "filter": verdict.filter, "listener": verdict.listener, "policy": verdict.policy, "rule": verdict.rule,
        "rule_name": POLICY.rules[verdict.rule - 1].name, "kind": str(verdict.kind),
        "action": str(verdict.action.kind), "reason": str(verdict.reason), "cause": str(verdict.cause or ""),
        "enforced": verdict.enforced, "window_ms": verdict.window_s * 1000, "held_ms": verdict.held_s * 1000,
        "meter": leading.meter, "value": float(leading.value), "op": leading.op,
        "threshold": float(leading.threshold), "lag_records": sample.lag_records, "lag_bytes": sample.lag_bytes,
        "lag_age_ms": sample.lag_age * 1000, "drain_rate": float(sample.drain_rate),
        "offered_rate": float(sample.offered_rate), "blocked_ms": sample.blocked_time * 1000,
        "credit_exhausted_ms": sample.credit_exhausted_time * 1000, "ack_age_ms": sample.ack_age * 1000,
        "in_flight": sample.in_flight, "held_bytes": held_bytes, "text": verdict.text,
    }  # fmt: skip


def _lane(series: list[Series], traffic: Traffic, lane: SyntheticLane, steps: int) -> pa.RecordBatch:
    """Returns this topic's share of the whole, second by second."""
    columns = {name: np.zeros(steps + 1, dtype=np.int64) for name in _LANE_FIELDS}
    columns["lane"][:] = lane.number
    columns["second"] = np.arange(steps + 1)
    columns["offered_records"], columns["offered_bytes"] = traffic.ends, traffic.ends * traffic.record_bytes
    for one in series:
        life = one.life
        alive = slice(life.start, life.stop if life.ended else life.stop + 1)
        columns["consumers"][alive] += 1
        waits = (life.lag > 0)[: alive.stop - alive.start]
        slow = one.slow[: alive.stop - alive.start]
        columns["lagging"][alive] += waits
        columns["slow"][alive] += slow
        columns["watched"][alive] += waits | slow
        columns["held_bytes"][alive] = np.maximum(
            columns["held_bytes"][alive], life.lag[: alive.stop - alive.start] * traffic.record_bytes
        )
        columns["delivered_records"][life.start : life.stop + 1] += one.drained
        columns["delivered_records"][life.stop + 1 :] += one.drained[-1]
    columns["sessions"] = columns["consumers"]
    columns["delivered_bytes"] = columns["delivered_records"] * traffic.record_bytes
    return pa.RecordBatch.from_arrays([pa.array(columns[name]) for name in _LANE_FIELDS], schema=LANE_SCHEMA)


def lane_name(filter: str) -> str:
    return f"{filter}|{PROTOCOL}"
