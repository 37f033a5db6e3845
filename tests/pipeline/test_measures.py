"""The measures, each on a few rows whose result can be worked out by hand."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.lakes import at, row, write

from headway.core.base.errors import Cause
from headway.core.policy.meters.sample import Sample
from headway.core.policy.verdicts import find_cause
from headway.pipeline import measures as causes
from headway.pipeline.lake import each_once, read_table, spark_schema
from headway.pipeline.measures import costs, forecast, isolation, offenders, slow_episodes
from headway.store.rows import arrow_schema

Rows = Iterable[Mapping[str, Any]]


def frame(spark: SparkSession, table: str, rows: Rows) -> DataFrame:
    """Rows (see ``lakes.row``) as a DataFrame."""
    whole = [row(table, **one) for one in rows]
    if not whole:
        return spark.createDataFrame([], spark_schema(table))
    return spark.createDataFrame(pa.Table.from_pylist(whole, arrow_schema(table)))


def result(found: DataFrame, *by: str) -> list[dict[str, Any]]:
    """Rows as dictionaries, in order of these columns, or of all."""
    rows = found.toArrow().to_pylist()
    return sorted(rows, key=lambda one: tuple(str(one[name]) for name in by or found.columns))


def lagging(start: int, end: int, *, subscription: int = 1, seq: int = 1, **given: Any) -> list[dict[str, Any]]:
    """One sample per second from ``start`` to ``end``, both included; 10 records, 1000 bytes wait."""
    full = {"subscription": subscription, "lag_records": 10, "lag_bytes": 1000, "held_bytes": 1000, **given}
    return [{**full, "time": time, "seq": seq + time - start} for time in range(start, end + 1)]


# Episodes


def test_an_episode_is_a_stretch_of_lag_with_its_peaks_and_what_it_cost(spark: SparkSession) -> None:
    samples = [
        {"time": 0, "seq": 1, "held_bytes": 0},
        {"time": 10, "seq": 2, "lag_records": 5, "lag_bytes": 500, "held_bytes": 400, "lag_age_ms": 900.0},
        {"time": 11, "seq": 3, "lag_records": 9, "lag_bytes": 900, "held_bytes": 800, "lag_age_ms": 1900.0,
         "producer_stall_ms": 300.0, "blocked_ms": 900.0},
        {"time": 13, "seq": 4, "lag_records": 1, "lag_bytes": 100, "held_bytes": 200, "lag_age_ms": 100.0,
         "producer_stall_ms": 450.0, "blocked_ms": 2900.0},
        {"time": 14, "seq": 5, "producer_stall_ms": 500.0, "skipped_records": 7},
        {"time": 24, "seq": 6, "producer_stall_ms": 500.0, "skipped_records": 7},
    ]  # fmt: skip
    found = result(slow_episodes(frame(spark, "consumer_samples", samples), frame(spark, "verdicts", [])), "start")
    assert found == [
        {
            "run": "run-1", "broker": "test", "client": "c", "filter": "t/#", "lane": "t/#|mqtt", "subscription": 0,
            "start": at(10), "end": at(13), "open": False, "cause": causes.NOT_TOLD, "reason": "", "action": "",
            "lag_records_peak": 9, "lag_bytes_peak": 900, "lag_age_peak_ms": 1900.0,
            # 400 for the second before (it was idle until then) and half of the one after, and so on.
            "held_byte_seconds": 400 * (1 + 1) / 2 + 800 * (1 + 2) / 2 + 200 * (2 + 1) / 2,
            "stall_ms": 500.0, "records_skipped": 7, "verdicts": 0, "ended": "",
        }
    ]  # fmt: skip


def test_a_gap_splits_an_episode_and_nothing_is_charged_for_the_time_between(spark: SparkSession) -> None:
    samples = lagging(0, 5) + lagging(36, 40, seq=7) + lagging(70, 75, seq=12)
    found = result(slow_episodes(frame(spark, "consumer_samples", samples), frame(spark, "verdicts", [])), "start")
    assert [(one["start"], one["end"], one["open"]) for one in found] == [
        (at(0), at(5), False),
        (at(36), at(75), True),
    ]
    # Within the second one nothing is missing: 30 s is no gap yet. Each edge of the gap of 31 s is worth half a second.
    assert [one["held_byte_seconds"] for one in found] == pytest.approx([5_500.0, 39_500.0])


def test_what_is_over_at_once_is_an_episode_only_if_something_came_of_it(spark: SparkSession) -> None:
    brief = [{"time": 5, "seq": 2, "lag_records": 3}, {"time": 5.5, "seq": 3}]
    samples = [{"subscription": n, **one} for n in (1, 2, 3) for one in [{"time": 0, "seq": 1}, *brief]]
    samples[-1]["skipped_records"] = 3
    verdicts = [{"number": 1, "time": 5.2, "subscription": 2, "action": "notify", "reason": "lag_age"}]
    found = slow_episodes(frame(spark, "consumer_samples", samples), frame(spark, "verdicts", verdicts))
    assert [one["subscription"] for one in result(found, "subscription")] == [2, 3]


def test_the_severest_verdict_speaks_for_its_episode(spark: SparkSession) -> None:
    samples = [*lagging(0, 20), {"time": 20.4, "seq": 22, "subscription": 1, "lag_records": 3, "ended": "blocked"}]
    samples += lagging(0, 20, subscription=2) + lagging(60, 70, subscription=2, seq=22)
    verdicts = [
        {"number": 1, "time": 4, "subscription": 1, "action": "notify", "reason": "lag_age", "cause": "network"},
        {"number": 2, "time": 9, "subscription": 1, "action": "delete_subscription", "reason": "lag_bytes",
         "cause": "network", "enforced": False},
        {"number": 3, "time": 20.3, "subscription": 1, "action": "disconnect", "reason": "blocked",
         "cause": "application"},
        {"number": 4, "time": 20.3, "subscription": 1, "action": "disconnect", "reason": "flapping", "cause": ""},
        {"number": 5, "time": 62, "subscription": 2, "action": "conflate", "reason": "lag_records", "cause": "broker"},
        {"number": 6, "time": 69, "subscription": 2, "action": "conflate", "reason": "lag_records", "cause": "broker",
         "kind": "clear"},
        {"number": 7, "time": 40, "subscription": 2, "action": "disconnect", "reason": "blocked"},
    ]  # fmt: skip
    found = slow_episodes(frame(spark, "consumer_samples", samples), frame(spark, "verdicts", verdicts))
    told = [
        (one["subscription"], one["action"], one["reason"], one["cause"], one["verdicts"], one["ended"], one["open"])
        for one in result(found, "subscription", "start")
    ]
    assert told == [
        (1, "disconnect", "blocked", "application", 4, "blocked", False),
        (2, "", "", "application", 0, "", False),  # drains nothing, and is not blocked
        (2, "conflate", "lag_records", "broker", 1, "", True),
    ]


def test_subscriptions_and_runs_are_kept_apart_and_order_is_by_number(spark: SparkSession) -> None:
    """A clock set back by 5 s within the episode; another run with the same subscription's number."""
    samples = [*lagging(0, 9), *({**one, "time": one["time"] - 5} for one in lagging(10, 20, seq=11))]
    samples += lagging(3, 8, run="run-2") + lagging(3, 8, subscription=2)
    found = slow_episodes(frame(spark, "consumer_samples", samples), frame(spark, "verdicts", []))
    told = [(one["run"], one["subscription"], one["start"], one["end"]) for one in result(found)]
    assert sorted(told) == [("run-1", 1, at(0), at(15)), ("run-1", 2, at(3), at(8)), ("run-2", 1, at(3), at(8))]
    assert min(one["held_byte_seconds"] for one in result(found)) > 0


def test_the_cause_is_the_brokers_own_answer_wherever_samples_can_tell(spark: SparkSession) -> None:
    """Every combination of meters around the thresholds, against core/policy/verdicts.py itself."""
    values = {
        "drain_rate": (0.0, 40.0, 60.0, 1050.0, 2000.0),
        "offered_rate": (0.0, 1000.0),
        "blocked_time": (0.0, 0.5, 1.0, 3.0),
        "usual_pause": (0.0, 0.6),
        "credit_exhausted_time": (0.0, 0.1, 1.0),
        "ack_age": (0.0, 5.0),
        "in_flight": (0, 3),
        "offered_burst": (1.0, 3.5),
    }
    samples = [
        Sample(lag_records=5, **dict(zip(values, combined, strict=True)), credit_exhausted=combined[4] > 0)  # type: ignore[arg-type]
        for combined in itertools.product(*values.values())
    ]
    rows = [
        {
            "seq": number, "drain_rate": one.drain_rate, "offered_rate": one.offered_rate,
            "blocked_ms": one.blocked_time * 1000, "usual_pause_ms": one.usual_pause * 1000,
                "credit_exhausted_ms": one.credit_exhausted_time * 1000,
            "ack_age_ms": one.ack_age * 1000, "in_flight": one.in_flight, "offered_burst": one.offered_burst,
        }
        for number, one in enumerate(samples)
    ]  # fmt: skip
    told = frame(spark, "consumer_samples", rows).select("seq", causes.find_cause().alias("cause"))
    mine = {one["seq"]: one["cause"] for one in result(told)}
    theirs = {n: str(find_cause(one)).replace(Cause.NETWORK, causes.NOT_TOLD) for n, one in enumerate(samples)}
    assert mine == theirs
    assert set(mine.values()) == {causes.NOT_TOLD, "application", "producer_burst", "over_subscription"}


# Costs and offenders


def test_costs_add_up_to_the_integral_however_the_hours_fall(spark: SparkSession) -> None:
    """A triangle of held bytes, 0 to 600 kB and back in 40 minutes, across the full hour: area 600 kB × 1200 s."""
    samples = [
        {"time": 40 * 60 + t, "seq": 1 + t, "lag_records": 1, "held_bytes": 500 * min(t, 2400 - t),
         "producer_stall_ms": 10.0 * t, "skipped_records": t // 600}
        for t in range(2401)
    ]  # fmt: skip
    found = result(costs(frame(spark, "consumer_samples", samples)), "hour")
    assert [one["hour"] for one in found] == [at(0), at(3600)]
    assert sum(one["held_byte_seconds"] for one in found) == pytest.approx(600_000 * 1200)
    assert sum(one["stall_ms"] for one in found) == pytest.approx(24_000)
    assert [one["skipped_records"] for one in found] == [1, 3]


def test_what_was_before_the_lake_begins_is_not_charged(spark: SparkSession) -> None:
    """The oldest files are gone: the first sample there is is number 100. A lost file in the middle loses nothing."""
    samples = [
        {"time": 0, "seq": 100, "producer_stall_ms": 9000.0, "skipped_records": 50},
        {"time": 1, "seq": 101, "producer_stall_ms": 9500.0, "skipped_records": 50},
        {"time": 900, "seq": 150, "producer_stall_ms": 9900.0, "skipped_records": 60},
        {"time": 0, "seq": 1, "subscription": 2, "producer_stall_ms": 70.0},
    ]
    (found,) = result(costs(frame(spark, "consumer_samples", samples)))
    assert (found["stall_ms"], found["skipped_records"]) == (970.0, 10)


def test_offenders_are_who_had_episodes_and_their_share_is_of_everybodys_costs(spark: SparkSession) -> None:
    samples = lagging(0, 10, client="slow") + lagging(60, 80, client="slow", seq=100)
    samples += lagging(0, 10, client="slow", run="run-2", held_bytes=5000, lag_bytes=7000)
    samples += [{"time": t, "seq": 1 + t, "subscription": 3, "client": "fine", "held_bytes": 1000} for t in range(21)]
    verdicts = [
        {"number": 1, "time": 70, "client": "slow", "subscription": 1, "action": "disconnect"},
        {"number": 2, "time": 71, "client": "slow", "subscription": 1, "action": "disconnect", "enforced": False},
        {"number": 3, "time": 72, "client": "slow", "subscription": 1, "action": "notify", "kind": "clear"},
    ]
    rows, judged = frame(spark, "consumer_samples", samples), frame(spark, "verdicts", verdicts)
    (found,) = result(offenders(slow_episodes(rows, judged), costs(rows), judged))
    held = 1000 * 10.5 + 1000 * 20.5 + 5000 * 10
    assert found == {
        "client": "slow", "filter": "t/#", "episodes": 3, "slow_ms": 40_000.0, "lag_bytes_peak": 7000,
        "held_byte_seconds": held, "stall_ms": 0.0, "verdicts": 2, "disconnects": 1, "records_skipped": 0,
        "share_of_cost": pytest.approx(held / (held + 20_000)), "last_seen": at(80),
    }  # fmt: skip


def test_no_costs_at_all_is_a_share_of_nothing(spark: SparkSession) -> None:
    rows = frame(spark, "consumer_samples", lagging(0, 10, held_bytes=0))
    judged = frame(spark, "verdicts", [])
    (found,) = result(offenders(slow_episodes(rows, judged), costs(rows), judged))
    assert found["share_of_cost"] == 0.0


# Isolation


def test_isolation_weighs_seconds_by_their_turns(spark: SparkSession) -> None:
    def second(time: float, turns: int, p99: float, slow: int = 0) -> dict[str, Any]:
        timings = {"delivery_p50_ms": p99 / 10, "delivery_p99_ms": p99, "delivery_max_ms": p99 * 2}
        return {"time": time, "seq": int(time), "turns": turns, "slow": slow, **timings}

    broker = [
        second(1.2, 100, 1.0), second(2.2, 300, 3.0), second(3.2, 0, 99.0),
        second(4.2, 10, 2.0, slow=1), second(5.2, 30, 4.0), second(6.2, 20, 1.0),
    ]  # fmt: skip
    samples = [{"time": 4.9, "seq": 1, "lag_age_ms": 1500.0}, {"time": 1.1, "seq": 2, "lag_age_ms": 900.0}]
    found = result(isolation(frame(spark, "broker_samples", broker), frame(spark, "consumer_samples", samples)), "run")
    expected = {
        "seconds_with": 2, "seconds_without": 4,
        "p50_with_ms": pytest.approx(0.35), "p99_with_ms": pytest.approx(3.5), "max_with_ms": 8.0,
        "p50_without_ms": pytest.approx(1020 / 4200), "p99_without_ms": pytest.approx(1020 / 420),
        "max_without_ms": 6.0, "ratio_p99": pytest.approx(3.5 / (1020 / 420)),
    }  # fmt: skip
    assert found == [{"run": "", **expected}, {"run": "run-1", **expected}]


def test_isolation_does_not_compare_with_nothing(spark: SparkSession) -> None:
    broker = [{"time": 1, "seq": 1, "turns": 5, "delivery_p99_ms": 2.0}]
    samples = frame(spark, "consumer_samples", [])
    found = result(isolation(frame(spark, "broker_samples", broker), samples), "run")
    assert [(one["p99_with_ms"], one["p99_without_ms"], one["ratio_p99"]) for one in found] == [(None, 2.0, None)] * 2
    assert result(isolation(frame(spark, "broker_samples", []), samples)) == []


# Forecast


def test_the_forecast_of_linear_growth_is_exact_and_looks_only_at_the_last_minutes(spark: SparkSession) -> None:
    limits = {"memory_limit_bytes": 1_000_000, "disk_limit_bytes": 50_000}
    broker = [
        # For 100 s it falls; then memory grows by 1000 bytes a second from 100 kB on, and the disk not at all.
        {"time": t, "seq": t, "memory_bytes": 900_000 - t if t < 100 else 1000 * t, "disk_bytes": 40_000, **limits}
        for t in range(401)
    ]
    samples = [
        {"time": t, "seq": t, "subscription": s, "client": "c", "filter": f"t/{s}", "lag_records": 1,
         "lag_bytes": 1000 + s * 10 * t}
        for s in (1, 2) for t in range(201, 400)
    ]  # fmt: skip
    samples += lagging(300, 390, subscription=3, client="gone")
    samples += [{"time": 391, "seq": 100, "subscription": 3, "client": "gone", "lag_records": 9, "ended": "blocked"}]
    samples += [{"time": 390, "seq": 1, "subscription": 4, "client": "recovered"}]
    configs = [
        {"seq": 1, "client_share": 0.9, **limits},
        {"time": 50, "seq": 2, "client_share": 0.5, **limits},
    ]
    found = forecast(
        frame(spark, "broker_samples", broker), frame(spark, "consumer_samples", samples),
        frame(spark, "configs", configs),
    )  # fmt: skip
    told = {one.pop("kind"): one for one in result(found)}
    of_pool = {"run": "run-1", "client": "", "filter": ""}
    used = 2 * 1000 + 30 * 399
    assert told == {
        "memory": {**of_pool, "used_bytes": 400_000, "limit_bytes": 1_000_000,
                   "seen_s": 300.0, "growth_bytes_per_s": pytest.approx(1000), "seconds_to_limit": pytest.approx(600),
                   "soonest_s": pytest.approx(600), "latest_s": pytest.approx(600)},
        "disk": {**of_pool, "used_bytes": 40_000, "limit_bytes": 50_000,
                 "seen_s": 300.0, "growth_bytes_per_s": pytest.approx(0), "seconds_to_limit": None, "soonest_s": None,
                 "latest_s": None},
        "client": {"run": "run-1", "client": "c", "filter": "t/2", "used_bytes": used, "limit_bytes": 25_000,
                   "seen_s": 198.0, "growth_bytes_per_s": pytest.approx(30),
                   "seconds_to_limit": pytest.approx((25_000 - used) / 30),
                   "soonest_s": pytest.approx((25_000 - used) / 30),
                   "latest_s": pytest.approx((25_000 - used) / 30)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("upto", "used", "soonest", "latest"),
    [
        (300, lambda t: 1000 * t + (2000 * (t - 150) if t > 150 else 0), 1 / 3000, 1 / 1000),  # it grows faster
        (300, lambda t: 1000 * min(t, 150), None, None),  # it grows no more
        (300, lambda t: 500_000 - 900 * t if t < 150 else 2000 * t, None, None),  # it fell at first
        (90, lambda t: 5000 * t, None, None),  # a minute and a half says nothing
    ],
)
def test_a_forecast_says_how_sure_it_is_and_there_is_none_where_nobody_can_tell(
    spark: SparkSession, upto: int, used: Any, soonest: float | None, latest: float | None
) -> None:
    limit = 10_000_000
    broker = [{"time": t, "seq": t, "memory_bytes": used(t), "memory_limit_bytes": limit} for t in range(upto + 1)]
    (found,) = result(forecast(
        frame(spark, "broker_samples", broker), frame(spark, "consumer_samples", []), frame(spark, "configs", []),
    ))  # fmt: skip
    left = limit - used(upto)
    expected = [None if part is None else pytest.approx(left * part, rel=0.02) for part in (soonest, latest)]
    assert [found["soonest_s"], found["latest_s"]] == expected
    assert (found["seconds_to_limit"] is None) == (soonest is None)
    if soonest is not None:
        assert found["soonest_s"] < found["seconds_to_limit"] < found["latest_s"]


def test_what_is_over_its_limit_has_no_seconds_left_and_no_disk_is_no_limit(spark: SparkSession) -> None:
    broker = [{"time": t, "seq": t, "memory_bytes": 1200, "memory_limit_bytes": 1000} for t in range(1, 4)]
    nobody, nothing = frame(spark, "consumer_samples", []), frame(spark, "configs", [])
    (found,) = result(forecast(frame(spark, "broker_samples", broker), nobody, nothing))
    assert (found["kind"], found["seconds_to_limit"]) == ("memory", 0.0)


# Late and duplicate rows


def test_late_and_duplicate_rows_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The same rows in order in one file, and in pieces, backwards, some of them twice and under another date."""
    samples = lagging(0, 40, producer_stall_ms=5.0) + lagging(80, 95, seq=100, producer_stall_ms=9.0)
    verdicts = [{"number": n, "time": n, "subscription": 1, "action": "notify"} for n in (3, 4, 85)]
    broker = [{"time": t, "seq": t, "turns": t, "delivery_p99_ms": float(t), "slow": t % 2} for t in range(1, 90)]
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    tables = {"consumer_samples": samples, "verdicts": verdicts, "broker_samples": broker}
    for table, rows in tables.items():
        write(whole, table, rows)
        for start in range(len(rows) // 7 * 7, -1, -7):
            write(pieces, table, rows[start : start + 9])
        (copy,) = write(pieces, table, rows[:3])
        (other := pieces / table / "date=2026-03-02").mkdir()
        copy.rename(other / "moved.parquet")

    def measured(lake: Path) -> list[list[dict[str, Any]]]:
        rows, judged, of_broker, configs = (read_table(spark, lake, name) for name in (*tables, "configs"))
        episodes, spent = slow_episodes(rows, judged), costs(rows)
        found = [episodes, spent, offenders(episodes, spent, judged), isolation(of_broker, rows)]
        return [result(one) for one in [*found, forecast(of_broker, rows, configs)]]

    expected = measured(whole)
    assert [len(rows) for rows in expected] == [2, 1, 1, 2, 0]
    assert measured(pieces) == expected


def test_rows_are_told_apart_by_their_key_only(spark: SparkSession) -> None:
    rows = [{"seq": 1}, {"seq": 1, "time": 5}, {"seq": 2}, {"seq": 1, "run": "run-2"}, {"seq": 1, "subscription": 2}]
    assert each_once(frame(spark, "consumer_samples", rows), "consumer_samples").count() == 4


def test_times_are_utc(spark: SparkSession) -> None:
    found = result(frame(spark, "consumer_samples", [{"time": 0}]).select("time"))
    assert found == [{"time": dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)}]
