"""Hover texts of bars and marks in plots; HTML as far as plotly knows it, names escaped."""

from __future__ import annotations

from typing import Any

from headway.pipeline.report import words


def episode(row: dict[str, Any]) -> str:
    length = (row["end"] - row["start"]).total_seconds()
    done = f"<br>{words.label(words.action(row['action']))}" if row["action"] else ""
    going = ", and still so at the end" if row["open"] else ""
    return (
        f"<b>{words.label(row['client'])}</b> on {words.label(row['filter'])}<br>"
        f"{words.clock(row['start'])} for "
        f"{words.seconds(length)}{going}<br>{words.label(words.cause(row['cause']))}<br>up to "
        f"{words.many(row['lag_records_peak'], 'record')} ({words.size(row['lag_bytes_peak'])}) waited, the oldest "
        f"{words.ms(row['lag_age_peak_ms'])}{done}"
    )


def offender(row: dict[str, Any]) -> str:
    others = f" and {row['filters'] - 1} more" if row["filters"] > 1 else ""
    return (
        f"<b>{words.label(row['client'])}</b> on {words.label(row['filter'])}{others}<br>"
        f"{words.many(row['episodes'], 'episode')}, {words.ms(row['slow_ms'])} in "
        f"all<br>{words.held(row['held_byte_seconds'])} held"
    )


def filling(row: dict[str, Any]) -> str:
    return f"{words.size(row['used_bytes'])} of {words.size(row['limit_bytes'])}, {_when(row)}"


def _when(row: dict[str, Any]) -> str:
    if not words.missing(row["seconds_to_limit"]):
        return f"full in {words.until(row['soonest_s'], row['latest_s'])}" if row["seconds_to_limit"] else "full"
    if row["seen_s"] < words.FORECAST_FROM_S:
        return f"too little seen for a forecast ({words.seconds(row['seen_s'])})"
    return "not growing steadily" if row["growth_bytes_per_s"] >= 1 else "not growing"


def candidate(row: dict[str, Any]) -> str:
    policy = [words.label(line, 70) for line in str(row["policy"]).splitlines()[:24] if line.strip()]
    return (
        f"<b>{words.label(row['candidate'], 70)}</b><br>{words.many(row['hit'], 'consumer')} hit, "
        f"{words.count(row['false_positives'])} of them wrongly<br>at most {words.size(row['memory_peak_bytes'])} in "
        f"memory, {words.size(row['disk_peak_bytes'])} on disk<br>{words.many(row['records_lost'], 'record')} lost, "
        f"publishers held back for {words.ms(row['producer_stall_ms'])}<br><br>" + "<br>".join(policy)
    )
