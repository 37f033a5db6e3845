"""Tasks that run on the executors: Arrow in, Arrow out, and no side effects, so that a task may be run again.

A task of the first kind gets all samples of one client and replays them under its slice of the candidates. A task of
the second kind gets what everybody held under some candidates, in order of time, and replays the pools; it keeps only
those who hold something at the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, get_type_hints

import msgspec
import pyarrow as pa

from headway.core.log import Pool
from headway.core.policy import Policy
from headway.pipeline.lab.plans.candidates import Candidate, CandidatePool
from headway.pipeline.lab.replays.base import Bucket, Recording
from headway.pipeline.lab.replays.candidate_replay import Client, Passage
from headway.pipeline.lab.replays.pools import Eviction, Holding, Level, replay_pool
from headway.pipeline.lab.replays.trace import Late, RecordedLateness, read_traces


class RecordedRun(msgspec.Struct, frozen=True):
    """One start of one broker, as recorded."""

    run: str
    origin_us: int
    """The time when its recording began, in microseconds since 1970."""
    seconds: float
    """The length of the recording."""
    consumers: int
    memory_limit: int
    disk_limit: int
    client_share: float
    sweep_s: float
    bucket_s: float
    policies: tuple[Policy, ...]
    policy_tables: tuple[dict[str, Any], ...] = ()
    topic_tables: tuple[dict[str, Any], ...] = ()
    listeners: tuple[str, ...] = ()
    """The listeners through which its consumers came."""
    late: tuple[Late, ...] = ()
    """When the broker's own loop was late, and by how much."""

    def limits(self, pool: CandidatePool) -> tuple[int, int, float]:
        """Returns memory, disk and share under a candidate's pool."""
        return (
            self.memory_limit if pool.memory_bytes is None else pool.memory_bytes,
            self.disk_limit if pool.disk_bytes is None else pool.disk_bytes,
            self.client_share if pool.client_share is None else pool.client_share,
        )

    @property
    def buckets(self) -> int:
        return int(self.seconds // self.bucket_s) + 1

    def policies_of(self, candidate: Candidate) -> tuple[Policy, ...]:
        return self.policies if candidate.kind == "ran" else candidate.policies


_TYPES = {
    "int": pa.int64(), "float": pa.float64(), "str": pa.string(), "bool": pa.bool_(), "Reason": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
}  # fmt: skip


def columns(of: type | str) -> pa.Schema:
    """Makes a schema of a class's fields, or of a text such as ``"run str, number int"``."""
    if isinstance(of, str):
        return pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in of.split(","))])
    return pa.schema([(name, _TYPES[kind.__name__]) for name, kind in get_type_hints(of).items()])


BUCKET = columns(Bucket)
PASSAGES = columns(
    "candidate int, run str, client str, filter str, subscription int, lane str, durable bool, begin_s float, "
    "recorded_end_s float, over_s float, extrapolated bool, noticed bool, behind_at_end bool, caught_up_s float, "
    "hit_s float, action str, reason str, policy str, rule int, would_catch_up str, records_lost int, "
    "records_conflated int, stall_ms float, lag_bytes_peak int, record_bytes float, found_s float, "
    "found_would_catch_up str, soon_over bool, behind_since_s float, stuck_s float, cut_s float, found_rule int, "
    "found_action str"
).append(pa.field("buckets", pa.list_(pa.struct(list(BUCKET)))))
"""One row per candidate and trace, of those to which anything happened."""
HOLDINGS = ("candidate", "run", *Holding._fields)
"""Columns that the second kind of task reads, in this order; sorted by the first three."""
POOLED = pa.unify_schemas([columns("candidate int, run str"), columns(Level), columns(Eviction)])
"""Bytes held in a bucket; or, where ``client`` is not null, a consumer that pressure gave up."""


def replays(
    candidates: Sequence[Candidate], runs: Mapping[str, RecordedRun], slices: int
) -> Callable[[pa.Table], pa.Table]:
    """Makes the first kind of task, for ``applyInArrow``."""
    numbered = list(enumerate(candidates))

    def replay(samples: pa.Table) -> pa.Table:
        run, slice = runs[samples["run"][0].as_py()], samples["slice"][0].as_py()
        return replay_client(samples, run, numbered[slice::slices])

    return replay


def replay_client(samples: pa.Table, run: RecordedRun, candidates: Sequence[tuple[int, Candidate]]) -> pa.Table:
    """Replays one client: its passages (``PASSAGES``). ``samples``: ``trace.COLUMNS``, time in microseconds."""
    traces = read_traces(samples.to_pydict(), run.origin_us, run.seconds, RecordedLateness(run.late))
    client = Client(traces, Recording(run.seconds, run.memory_limit, run.sweep_s, run.bucket_s))
    rows = []
    for index, candidate in candidates:
        memory, _, _ = run.limits(candidate.pool)
        for passages in client.replay(run.policies_of(candidate), memory).values():
            rows += [_row(index, passage) for passage in passages if _matters(passage)]
    return pa.Table.from_pylist(rows, PASSAGES)


def _matters(passage: Passage) -> bool:
    return bool(passage.events or passage.buckets or passage.behind_at_end)


def _row(index: int, passage: Passage) -> dict[str, Any]:
    trace, hit, found = passage.trace, passage.hit, passage.found
    records = trace.records[-1] - trace.records[0]
    return {
        "candidate": index, "run": trace.run, "client": trace.client, "filter": trace.filter,
        "subscription": trace.subscription, "lane": trace.lane, "durable": trace.durable, "begin_s": passage.begin,
        "recorded_end_s": trace.recorded_end, "over_s": passage.over_at, "extrapolated": trace.extrapolated,
        "noticed": bool(passage.events), "behind_at_end": passage.behind_at_end, "caught_up_s": passage.caught_up_s,
        "hit_s": hit.time if hit else None, "action": str(hit.action) if hit else None,
        "reason": str(hit.reason) if hit else None, "policy": passage.policy, "rule": hit.rule if hit else None,
        "would_catch_up": passage.would_catch_up, "records_lost": passage.records_lost,
        "records_conflated": passage.records_conflated, "stall_ms": passage.stall_ms,
        "lag_bytes_peak": passage.lag_bytes_peak,
        "record_bytes": (trace.offered[-1] - trace.offered[0]) / records if records else 0.0,
        "found_s": found.time if found else None, "found_would_catch_up": passage.found_would_catch_up,
        "soon_over": passage.soon_over, "behind_since_s": passage.behind_since_s, "stuck_s": passage.stuck_s,
        "cut_s": passage.cut_s, "found_rule": found.rule if found else None,
        "found_action": str(found.action) if found else None,
        "buckets": [bucket._asdict() for bucket in passage.buckets],
    }  # fmt: skip


def pools(
    candidates: Sequence[Candidate], runs: Mapping[str, RecordedRun], thin: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the second kind of task, for ``mapInArrow``. ``thin``: of so many buckets in a row, only the highest levels
    are handed on."""

    def levels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (index, name), part in groupby(_rows(batches), key=lambda row: (row[0], row[1])):
            run = runs[name]
            pool = Pool("", *run.limits(candidates[index].pool))
            found = replay_pool(pool, run.bucket_s, run.buckets, (Holding(*row[2:]) for row in part))
            yield _pooled(index, name, thinned(found, thin))

    return levels


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def thinned(found: Iterator[Level | Eviction], every: int) -> Iterator[Level | Eviction]:
    """Merges every so many buckets into one, with their highest levels and all their stalls."""
    kept: Level | None = None
    for one in found:
        if isinstance(one, Eviction):
            yield one
        elif kept is not None and one.number // every == kept.number // every:
            kept = Level(
                kept.number, max(kept.memory_bytes, one.memory_bytes), max(kept.disk_bytes, one.disk_bytes),
                kept.gates_ms + one.gates_ms, kept.full_ms + one.full_ms,
            )  # fmt: skip
        else:
            if kept is not None:
                yield kept
            kept = one
    if kept is not None:
        yield kept


def _pooled(index: int, run: str, found: Iterator[Level | Eviction]) -> pa.RecordBatch:
    rows = [{"candidate": index, "run": run, **one._asdict()} for one in found]
    return pa.RecordBatch.from_pylist(rows, POOLED)
