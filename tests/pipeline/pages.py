"""Pages of reports, read back."""

from __future__ import annotations

import base64
import datetime as dt
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

AT = dt.datetime(2026, 3, 1, 12, 0, tzinfo=dt.UTC)
VOID = {"meta", "br", "link", "img", "hr", "input"}
TEXT, NUMBER, SHARE, TIME, FLAG = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC"), pa.bool_()
SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "slow_episodes": {
        "run": TEXT, "broker": TEXT, "client": TEXT, "filter": TEXT, "lane": TEXT, "subscription": NUMBER,
        "start": TIME, "end": TIME, "open": FLAG, "cause": TEXT, "reason": TEXT, "action": TEXT,
        "lag_records_peak": NUMBER, "lag_bytes_peak": NUMBER, "lag_age_peak_ms": SHARE, "held_byte_seconds": SHARE,
        "stall_ms": SHARE, "records_skipped": NUMBER, "ended": TEXT,
    },
    "offenders": {
        "client": TEXT, "filter": TEXT, "episodes": NUMBER, "slow_ms": SHARE, "lag_bytes_peak": NUMBER,
        "held_byte_seconds": SHARE, "stall_ms": SHARE, "verdicts": NUMBER, "disconnects": NUMBER,
        "records_skipped": NUMBER, "share_of_cost": SHARE, "last_seen": TIME,
    },
    "costs": {
        "run": TEXT, "client": TEXT, "filter": TEXT, "hour": TIME, "held_byte_seconds": SHARE, "stall_ms": SHARE,
        "skipped_records": NUMBER,
    },
    "isolation": {
        "run": TEXT, "seconds_with": NUMBER, "seconds_without": NUMBER, "p50_with_ms": SHARE, "p99_with_ms": SHARE,
        "max_with_ms": SHARE, "p50_without_ms": SHARE, "p99_without_ms": SHARE, "max_without_ms": SHARE,
        "ratio_p99": SHARE,
    },
    "forecast": {
        "run": TEXT, "kind": TEXT, "client": TEXT, "filter": TEXT, "used_bytes": NUMBER, "limit_bytes": NUMBER,
        "seen_s": SHARE, "growth_bytes_per_s": SHARE, "seconds_to_limit": SHARE, "soonest_s": SHARE, "latest_s": SHARE,
    },
    "candidates": {
        "candidate": TEXT, "kind": TEXT, "consumers": NUMBER, "hit": NUMBER, "noticed": NUMBER, "stuck": NUMBER,
        "by_pressure": NUMBER,
        "false_verdicts": NUMBER, "find_ms": SHARE, "find_worst_ms": SHARE, "cut_stuck_worst_ms": SHARE,
        "false_positives": NUMBER, "unknown": NUMBER, "missed": NUMBER, "records_lost": NUMBER,
        "records_conflated": NUMBER, "memory_peak_bytes": NUMBER, "disk_peak_bytes": NUMBER, "producer_stall_ms": SHARE,
        "within_goal": FLAG, "recommended": FLAG, "pareto": FLAG, "policy": TEXT,
    },
    "outcomes": {
        "candidate": TEXT, "run": TEXT, "client": TEXT, "filter": TEXT, "subscription": NUMBER, "time": TIME,
        "action": TEXT, "reason": TEXT, "policy": TEXT, "rule": NUMBER, "records_lost": NUMBER,
        "records_conflated": NUMBER, "stall_ms": SHARE, "would_catch_up": TEXT, "lag_bytes_peak": NUMBER,
        "by_pressure": FLAG, "extrapolated": FLAG,
    },
    "curve": {"candidate": TEXT, "time": TIME, "memory_bytes": NUMBER, "disk_bytes": NUMBER},
}  # fmt: skip
GOAL = {"memory_bytes": 0, "disk_bytes": 0, "stall_ms": 0.0}
ABOUT: dict[str, Any] = {"goal": GOAL, "check": {}, "why": "", "limits": []}
"""Facts that every run of the lab has."""
EMPTY = {TEXT: "", NUMBER: 0, SHARE: 0.0, TIME: AT, FLAG: False}


def table(name: str, *rows: dict[str, Any]) -> pa.Table:
    """A table of made-up rows; what is not given is nought."""
    schema = pa.schema(SCHEMAS[name])
    assert all(set(row) <= set(schema.names) for row in rows)
    return pa.Table.from_pylist([{f.name: row.get(f.name, EMPTY[f.type]) for f in schema} for row in rows], schema)


def candidate(name: str, kind: str = "grid", **given: Any) -> dict[str, Any]:
    return {"candidate": name, "kind": kind, "policy": f'[[policy]]\nname = "{kind}"\n', "within_goal": True} | given


class Page(HTMLParser):
    """What a reader's browser makes of a report."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.sections: dict[str, str] = {}
        self.scripts: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts[-1] += data
            return
        if "style" in self.open:
            return
        self.text += data
        if "h2" in self.open:
            self.sections[data] = ""
        elif self.sections:
            self.sections[next(reversed(self.sections))] += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def plots(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.scripts[0])
        return found

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0] == first)


def unpacked(values: Any) -> list[float]:
    if not isinstance(values, dict):
        return [float(value) for value in values]
    return [float(value) for value in np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])]
