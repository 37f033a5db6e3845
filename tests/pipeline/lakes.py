"""Lakes for tests: rows given as dictionaries, the rest filled in, written as the broker writes them."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headway.core.telemetry.stats import TABLES
from headway.store.rows import arrow_schema

START = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
EMPTY: dict[str, Any] = {"time": START, "text": "", "int": 0, "float": 0.0, "flag": False}
DEFAULTS: dict[str, Any] = {
    "run": "run-1", "broker": "test", "client": "c", "filter": "t/#", "lane": "t/#|mqtt", "listener": "mqtt",
    "protocol": "mqtt5", "policy": "all", "connected": True, "state": "ok", "offered_burst": 1.0, "enforced": True,
    "pool": "global", "kind": "fire", "sweep_ms": 200.0, "late_after_ms": 250.0, "client_share": 0.5, "config": "{}",
}  # fmt: skip
_numbers = itertools.count(1)


def at(seconds: float) -> dt.datetime:
    """So many seconds after ``START``."""
    return START + dt.timedelta(seconds=seconds)


def row(table: str, **given: Any) -> dict[str, Any]:
    """A row of the table: what is not given is a default, or empty. ``time`` may be seconds after ``START``."""
    unknown = set(given) - set(TABLES[table].names)
    assert not unknown, f"{table} has no column {unknown}"
    full = {c.name: given.get(c.name, DEFAULTS.get(c.name, EMPTY[c.kind])) for c in TABLES[table].columns}
    if not isinstance(full["time"], dt.datetime):
        full["time"] = at(full["time"])
    return full


def write(lake: Path, table: str, rows: Iterable[Mapping[str, Any]], name: str = "") -> list[Path]:
    """Write rows (see ``row``) as one file per date; returns the files."""
    by_date: dict[str, list[Mapping[str, Any]]] = {}
    for one in rows:
        full = row(table, **one)
        by_date.setdefault(full["time"].date().isoformat(), []).append(full)
    files = []
    for date, part in by_date.items():
        folder = lake / table / f"date={date}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name or f'part-{next(_numbers):06d}'}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(one) for one in part], arrow_schema(table)), path)
        files.append(path)
    return files
