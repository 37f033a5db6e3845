"""A made-up lake: samples of any number of consumers, to plan beyond the machine one has (`python -m bench.synthetic`).

Theory of operation. Topics do not touch each other, so a task makes the rows of some topics and all who read them
(`rows.py`), writes them, and hands on what these topics add to the whole at each second. Summed over all
topics that becomes the broker's own rows, and says how much of what is held is on disk; with that known, the tasks
write the topics' rows.

Rules:
- The same seed, consumers, topics and minutes make the same rows, whatever the parallelism: which topics are made
  together is part of the recording, not of the machine, and all chance is a function of the seed and a number.
- A file is written under another name and renamed when it is whole. A task that is run again replaces what it wrote.
- A task holds one topic at a time: some 20 MB for an hour of ``READERS_MAX`` consumers, and in proportion.

What is not known of a broker that never ran is plausible and no more: how long deliveries took, turns, resident
memory. Its name is ``synthetic`` so that nobody takes it for one that did.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import StorageLevel, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headway
from bench.synthetic.lanes import READERS_USUAL, Floats, Ints, SyntheticLane, chance, deal
from bench.synthetic.observed import MEMORY_LIMIT_BYTES, POLICY_TABLE
from bench.synthetic.rows import (
    BROKER,
    COARSE_S,
    LANE_SCHEMA,
    POOL,
    START_US,
    lane_name,
    record,
)
from headway.core.base import ConfigError
from headway.core.log import HIGH_WATER
from headway.store.atomic_write import atomic_write
from headway.store.rows import arrow_schema

CONSUMERS_MAX, MINUTES_MAX = 10_000_000, 7 * 24 * 60
GROUP_CONSUMER_MINUTES = 15_000
"""The part of the recording that is one task and, unless it is long, one file of each table."""
FILE_ROWS_MAX = 1_000_000
PARTIAL = "_partial"
_DAY_US = 86_400_000_000
_DISK_MIN_BYTES = 1_000_000_000

# A worker does not have the checkout in its path: tasks bring this code along.
cast(Any, cloudpickle).register_pickle_by_value(sys.modules[__package__])


class SynthInfo(NamedTuple):
    """Totals of the written lake. ``seconds``: how long it took."""

    consumers: int
    topics: int
    minutes: float
    rows: int
    files: int
    bytes: int
    seconds: float


class _Plan(NamedTuple):
    """Parameters of every task."""

    lake: str
    run: str
    seed: int
    steps: int
    groups: list[list[SyntheticLane]]

    def name(self, group: int) -> str:
        return f"part-{self.run}-{group:06d}"


def synthesize(
    spark: SparkSession, lake: str | Path, consumers: int, minutes: float, seed: int, topics: int | None = None
) -> SynthInfo:
    """Writes a recording of so many consumers over so many minutes into ``lake``, a folder that is empty or not there.

    ``topics``: how many topics they read; one for every ``READERS_USUAL`` consumers if not given. Executors need to
    see the folder under the same path. Raises ConfigError for numbers that make no sense and for a folder in use.
    """
    began = time.monotonic()
    lake = Path(lake).absolute()
    topics = topics if topics is not None else max(1, -(-consumers // READERS_USUAL))
    steps = round(minutes * 60)
    if not 1 <= consumers <= CONSUMERS_MAX:
        raise ConfigError(f"consumers: from 1 to {CONSUMERS_MAX:,}, not {consumers:,}")
    if not 1 <= steps <= MINUTES_MAX * 60:
        raise ConfigError(f"minutes: from one second to {MINUTES_MAX:,} minutes, not {minutes:g}")
    if seed < 0:
        raise ConfigError(f"seed: a whole number that is not negative, not {seed}")
    groups = _grouped(deal(consumers, topics), minutes)
    _claim(lake)
    plan = _Plan(str(lake), f"synthetic-{seed}-{consumers}-{topics}-{steps}", seed, steps, groups)
    try:
        lanes = spark.range(0, len(groups), 1, len(groups)).mapInArrow(_recorder(plan), _LANE_DDL)
        lanes = lanes.persist(StorageLevel.DISK_ONLY)
        try:
            whole = _summed(lanes)
            on_disk = _write_broker(plan, whole)
            written = lanes.mapInArrow(_topic_recorder(plan, on_disk), "files long").agg(F.sum("files"))
            written.collect()
        finally:
            lanes.unpersist()
    finally:
        shutil.rmtree(lake / PARTIAL, ignore_errors=True)
    files = sorted(lake.rglob("*.parquet"))
    return SynthInfo(
        consumers, topics, minutes, sum(pq.read_metadata(file).num_rows for file in files), len(files),
        sum(file.stat().st_size for file in files), time.monotonic() - began,
    )  # fmt: skip


def _claim(lake: Path) -> None:
    """The folder is ours: it is made, or was there and empty."""
    try:
        lake.mkdir(parents=True, exist_ok=True)
        if any(lake.iterdir()):
            raise ConfigError(f"{lake} is not empty; made-up samples get a folder of their own")
        (lake / PARTIAL).mkdir()
    except OSError as error:
        raise ConfigError(f"{lake}: cannot be written to: {(error.strerror or str(error)).lower()}") from None


def _grouped(lanes: list[SyntheticLane], minutes: float) -> list[list[SyntheticLane]]:
    """Groups topics that are made together; each group costs about the same."""
    groups: list[list[SyntheticLane]] = []
    room = 0.0
    for lane in lanes:
        cost = lane.consumers * minutes
        if not groups or cost > room:
            groups.append([])
            room = GROUP_CONSUMER_MINUTES
        groups[-1].append(lane)
        room -= cost
    return groups


# -- in tasks ---------------------------------------------------------------------------------------------------------

_LANE_DDL = ", ".join(f"`{name}` long" for name in LANE_SCHEMA.names)


def _recorder(plan: _Plan) -> Any:
    """Makes the rows of the groups it is given, writes them, and hands on what they add to the whole."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for group in (number for batch in batches for number in batch.column(0).to_pylist()):
            name = plan.name(group)
            with (
                _Files(plan.lake, "consumer_samples", name) as samples,
                _Files(plan.lake, "verdicts", name) as verdicts,
            ):
                for lane in plan.groups[group]:
                    made = record(plan.seed, lane, plan.steps, plan.run)
                    samples.write(made.samples)
                    verdicts.write(made.verdicts)
                    yield made.lane

    return make


def _topic_recorder(plan: _Plan, on_disk: Floats) -> Any:
    """Writes the rows of the topics; ``on_disk`` is the share of what is held that is on disk, at each second."""
    firsts = {group[0].number: number for number, group in enumerate(plan.groups)}

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches, schema=LANE_SCHEMA)
        if rows.num_rows:
            group = firsts[pc.min(rows["lane"]).as_py()]
            with _Files(plan.lake, "topic_samples", plan.name(group)) as files:
                for lane in plan.groups[group]:
                    files.write(_topic_rows(plan, lane, rows.filter(pc.equal(rows["lane"], lane.number)), on_disk))
        yield pa.RecordBatch.from_pydict({"files": [1]})

    return write


def _topic_rows(plan: _Plan, lane: SyntheticLane, rows: pa.Table, on_disk: Floats) -> pa.Table:
    """The ``topic_samples`` of one topic: each second while somebody lags there, coarser otherwise."""
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    second = columns["second"]
    noted = columns["watched"] > 0
    kept = noted | np.concatenate([[False], noted[:-1]]) | ((second + lane.number) % COARSE_S == 0)
    kept[[0, -1]] = True
    held = columns["held_bytes"][kept]
    spilled = (held * on_disk[second[kept]]).astype(np.int64)
    filter = f"synthetic/{lane.number:05d}"
    return _table("topic_samples", int(kept.sum()), {
        "run": plan.run, "broker": BROKER, "time": START_US + second[kept] * 1_000_000, "lane": lane_name(filter),
        "seq": np.arange(1, int(kept.sum()) + 1), "filter": filter, "pool": POOL,
        "offered_records": columns["offered_records"][kept], "offered_bytes": columns["offered_bytes"][kept],
        "consumers": columns["consumers"][kept], "lagging": columns["lagging"][kept], "slow": columns["slow"][kept],
        "resident_bytes": held - spilled, "spilled_bytes": spilled,
    })  # fmt: skip


class _Files:
    """The files of one table that one task writes: by date, none with more than ``FILE_ROWS_MAX`` rows or so."""

    def __init__(self, lake: str, table: str, name: str) -> None:
        self._folder, self._partial = Path(lake) / table, Path(lake) / PARTIAL
        self._schema, self._name, self._number = arrow_schema(table), name, 0
        self._waiting: dict[int, list[pa.Table]] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for day in sorted(self._waiting):
                self._flush(day)

    def write(self, rows: pa.Table) -> None:
        days = pc.floor(pc.divide(rows["time"].cast(pa.int64()), _DAY_US))
        for day in sorted(pc.unique(days).to_pylist()):
            self._waiting.setdefault(day, []).append(rows.filter(pc.equal(days, day)))
            if sum(table.num_rows for table in self._waiting[day]) >= FILE_ROWS_MAX:
                self._flush(day)

    def _flush(self, day: int) -> None:
        rows = pa.concat_tables(self._waiting.pop(day)).cast(self._schema)
        date = dt.date(1970, 1, 1) + dt.timedelta(days=day)
        folder = self._folder / f"date={date.isoformat()}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self._name}-{self._number:03d}.parquet"
        with atomic_write(path, self._partial / f"{self._name}-{uuid.uuid4().hex}") as partial:
            pq.write_table(rows, partial, compression="zstd")
        self._number += 1


# -- the whole --------------------------------------------------------------------------------------------------------


def _summed(lanes: DataFrame) -> dict[str, Ints]:
    """Sums over all topics at each second."""
    names = [name for name in LANE_SCHEMA.names if name not in ("lane", "second")]
    rows = lanes.groupBy("second").agg(*(F.sum(name).alias(name) for name in names)).orderBy("second").toArrow()
    return {name: rows[name].to_numpy() for name in rows.column_names}


def _write_broker(plan: _Plan, whole: dict[str, Ints]) -> Floats:
    """Writes the broker's rows and its config; returns the share of held bytes that is on disk, at each second."""
    held, rows = whole["held_bytes"], plan.steps + 1
    memory = np.minimum(held, int(MEMORY_LIMIT_BYTES * HIGH_WATER))
    disk = held - memory
    # Room for all of it, also under the share of one client: a recording in which nobody was cut.
    disk_limit = max(_DISK_MIN_BYTES, int(-(-2.5 * int(disk.max()) // 1e9) * 1e9))
    dice = chance(plan.seed, "broker")
    busy = np.diff(whole["delivered_records"], prepend=0)
    median = 0.3 + 0.2 * dice.random(rows) + busy / 2e6 + 0.02 * np.sqrt(whole["watched"])
    p99 = median * (3 + 2 * dice.random(rows)) + 0.05 * np.sqrt(whole["slow"])
    same: dict[str, Any] = {"run": plan.run, "broker": BROKER}
    broker = _table("broker_samples", rows, same | {
        "time": START_US + whole["second"] * 1_000_000, "seq": whole["second"] + 1, "sessions": whole["sessions"],
        "subscriptions": whole["consumers"], "watched": whole["watched"], "slow": whole["slow"],
        "published_records": whole["offered_records"], "published_bytes": whole["offered_bytes"],
        "delivered_records": whole["delivered_records"], "delivered_bytes": whole["delivered_bytes"],
        "turns": (200 + 200 * dice.random(rows)).astype(np.int64), "delivery_p50_ms": median,
        "delivery_p99_ms": p99, "delivery_max_ms": p99 * (1.5 + 2 * dice.random(rows)), "memory_bytes": memory,
        "memory_limit_bytes": MEMORY_LIMIT_BYTES, "disk_bytes": disk, "disk_limit_bytes": disk_limit,
        "rss_bytes": memory + 120_000_000,
    })  # fmt: skip
    config = _table("configs", 1, same | {
        "time": START_US, "seq": 1, "version": headway.__version__, "sweep_ms": 200.0, "late_after_ms": 250.0,
        "memory_limit_bytes": MEMORY_LIMIT_BYTES, "disk_limit_bytes": disk_limit, "client_share": 0.5,
        "config": json.dumps({"policy": [POLICY_TABLE], "topic": []}),
    })  # fmt: skip
    for table, made in (("broker_samples", broker), ("configs", config)):
        with _Files(plan.lake, table, f"part-{plan.run}") as files:
            files.write(made)
    on_disk: Floats = disk / np.maximum(1, held)
    return on_disk


def _table(table: str, rows: int, given: dict[str, Any]) -> pa.Table:
    """A lake table of so many rows; one value stands for all rows, and what is not given is nought."""
    arrays = []
    for field in arrow_schema(table):
        value = given.get(field.name, "" if field.type == pa.string() else 0)
        values = value if isinstance(value, np.ndarray) else [value] * rows
        arrays.append(pa.array(values).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table))
