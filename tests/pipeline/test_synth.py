"""Made-up lakes: their rows hold together as a broker's do, and are a function of the seed alone.

The checks know nothing of how the rows were made: they take the files as a reader would, and look for what could not be
true of a broker.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from bench.synthetic import lake as synth
from bench.synthetic import rows as made
from bench.synthetic.consumers import SHARES, live
from bench.synthetic.lake import synthesize
from bench.synthetic.lanes import READERS_MAX, Traffic, deal, publish
from pyspark.sql import SparkSession

from headway.core.base.errors import ConfigError
from headway.core.policy.rules.rule import parse_policies
from headway.core.telemetry.stats import TABLES
from headway.pipeline.lake import check_lake
from headway.store.rows import arrow_schema

CONSUMERS, MINUTES, SEED = 200, 10.0, 11

MADE = [name for name in TABLES if name != "trial_verdicts"]
"""The made-up broker tries no policies."""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "lake"
    synthesize(spark, folder, CONSUMERS, MINUTES, SEED)
    return folder


@pytest.fixture(scope="module")
def samples(lake: Path) -> pd.DataFrame:
    return read(lake, "consumer_samples")


def read(lake: Path, table: str) -> pd.DataFrame:
    """All rows of a table in the order of its key, whatever file they stand in."""
    parts = [pq.ParquetFile(file).read().to_pandas() for file in sorted((lake / table).rglob("*.parquet"))]
    return pd.concat(parts, ignore_index=True).sort_values(list(TABLES[table].key), ignore_index=True)


# -- the rows of consumers ------------------------------------------------------------------------------------------


def test_what_was_offered_is_taken_or_waits(samples: pd.DataFrame) -> None:
    for unit in ("records", "bytes"):
        left = samples[f"offered_{unit}"] - samples[f"drained_{unit}"] - samples[f"skipped_{unit}"]
        assert (left == samples[f"lag_{unit}"]).all()
        assert (samples[f"lag_{unit}"] >= 0).all()


def test_counters_only_grow_and_rows_are_numbered(samples: pd.DataFrame) -> None:
    by = samples.groupby("subscription")
    for counter in ("offered_records", "offered_bytes", "drained_records", "drained_bytes", "slow_count"):
        assert (by[counter].diff().dropna() >= 0).all(), counter
    assert (by["seq"].diff().dropna() == 1).all()
    assert (by["seq"].first() == 1).all()
    assert (by["time"].diff().dropna() > pd.Timedelta(0)).all()


def test_there_is_a_row_each_second_while_it_lags_and_every_ten_otherwise(samples: pd.DataFrame) -> None:
    gap = samples.groupby("subscription")["time"].diff(-1).dt.total_seconds().abs()
    lags = (samples["lag_records"] > 0) | samples["slow"]
    assert (gap[lags].dropna() == 1).all()
    assert gap.max() <= made.COARSE_S
    assert gap[~lags].median() > 5


def test_clocks_run_only_while_records_wait(samples: pd.DataFrame) -> None:
    idle = samples[samples["lag_records"] == 0]
    assert (idle[["lag_age_ms", "blocked_ms", "credit_exhausted_ms"]] == 0).all(axis=None)
    late = samples[samples["lag_records"] > 0]
    assert (late["lag_age_ms"] > 0).all()
    assert (late["blocked_ms"] <= late["lag_age_ms"] + 1000).all()
    assert (samples[samples["in_flight"] == 0]["ack_age_ms"] == 0).all()


def test_who_is_blocked_takes_nothing_and_who_is_not_does(samples: pd.DataFrame) -> None:
    by = samples.groupby("subscription")
    took, second = by["drained_records"].diff(), by["time"].diff() == pd.Timedelta(seconds=1)
    blocked = samples["blocked_ms"] > 0
    assert blocked.sum() > 100
    assert (took[blocked & second] == 0).all()
    waited = by["lag_records"].shift(1) > 0
    stands = (
        second & (took == 0) & waited & (samples["lag_records"] > 0) & samples["connected"] & (samples["prefetch"] == 0)
    )
    assert (samples["blocked_ms"][stands] > 0).all()
    goes_on = stands & stands.shift(1, fill_value=False) & second
    assert np.allclose(by["blocked_ms"].diff()[goes_on], 1000)


def test_the_age_of_the_lag_is_that_of_the_oldest_record(samples: pd.DataFrame) -> None:
    """Found again from the offered counters of a consumer that took nothing: when did its next record come?"""
    checked = 0
    for _, rows in samples[samples["client"].str.startswith("stuck")].groupby("subscription"):
        times = rows["time"].astype("int64").to_numpy() / 1e6
        offered, drained = rows["offered_records"].to_numpy(), rows["drained_records"].to_numpy()
        for at in np.flatnonzero(rows["lag_records"].to_numpy() > 0)[::50]:
            came = int(np.searchsorted(offered, drained[at], side="right"))
            earliest, latest = times[max(0, came - 1)], times[came]
            age = rows["lag_age_ms"].iloc[at] / 1000
            assert times[at] - latest - 1e-6 <= age <= times[at] - earliest + 1e-6
            checked += 1
    assert checked > 5


def test_what_the_kernels_can_hold_is_no_lag() -> None:
    """On a topic with 60 kB in all, nobody whose socket is the limit ever lags, not even who never reads."""
    quiet = Traffic("t", 100, np.arange(601))
    lives = [life for number in range(100) for life in live(1, number, quiet)]
    socket = [life for life in lives if life.acks is None and life.away is None]
    assert {"stuck", "sluggish", "flapping"} <= {life.client.rpartition("-")[0] for life in socket}
    assert not any(life.lag.any() for life in socket)
    busy = Traffic("t", 10_000, np.arange(601))
    stuck = [life for number in range(100) for life in live(1, number, busy) if life.client.startswith("stuck")]
    assert all(life.lag[-1] > 0 for life in stuck)


def test_what_is_held_is_shared_among_those_who_are_behind(samples: pd.DataFrame) -> None:
    """All shares of a topic add up to the lag of the one furthest back, which is what is really held."""
    by = samples.groupby(["lane", "time"])
    held, furthest, sharers = by["held_bytes"].sum(), by["lag_bytes"].max(), by.size()
    assert (held <= furthest).all()
    assert (held >= furthest - sharers).all()
    assert ((samples["held_bytes"] == 0) | (samples["lag_bytes"] > 0)).all()
    assert (by["lag_bytes"].apply(lambda lags: (lags > 0).sum()) > 1).any()


def test_a_full_window_is_full(samples: pd.DataFrame) -> None:
    full = samples[samples["credit_exhausted_ms"] > 0]
    assert len(full)
    assert (full["in_flight"] == full["prefetch"]).all()
    assert (samples["in_flight"] <= samples["prefetch"]).all()


def test_the_end_of_a_subscription_is_told_once_in_its_last_row(samples: pd.DataFrame) -> None:
    ended = samples[samples["ended"] != ""]
    assert len(ended)
    last = samples.groupby("subscription")["seq"].max()
    assert (last[ended["subscription"]].to_numpy() == ended["seq"].to_numpy()).all()
    alive = samples[~samples["subscription"].isin(ended["subscription"])].groupby("subscription")["time"].max()
    assert (alive == samples["time"].max()).all()


# -- verdicts -------------------------------------------------------------------------------------------------------


def test_verdicts_and_slow_marks_say_the_same(lake: Path, samples: pd.DataFrame) -> None:
    verdicts = read(lake, "verdicts")
    assert verdicts["number"].is_unique
    assert verdicts["number"].is_monotonic_increasing
    assert verdicts.sort_values("number")["time"].is_monotonic_increasing
    assert (verdicts["action"] == "notify").all()
    rows = samples.set_index(["subscription", "time"])
    marked = samples["slow"] & ~samples.groupby("subscription")["slow"].shift(1, fill_value=False)
    fires = verdicts[verdicts["kind"] == "fire"]
    assert len(fires) > 5
    assert set(fires["subscription"]) == set(samples["subscription"][marked])
    for verdict in fires.to_dict("records"):
        row = rows.loc[(verdict["subscription"], verdict["time"])]
        assert row["slow"]
        assert row["client"] == verdict["client"]
        for column in ("lag_records", "lag_bytes", "lag_age_ms", "blocked_ms", "credit_exhausted_ms", "held_bytes"):
            assert row[column] == pytest.approx(verdict[column]), column
        assert verdict["value"] > verdict["threshold"]


def test_whoever_breaks_the_rule_is_named(lake: Path, samples: pd.DataFrame) -> None:
    """Not by the policy's code: no byte for 30 seconds is a verdict within two."""
    verdicts = read(lake, "verdicts")
    stuck = samples[samples["blocked_ms"] >= 32_000].groupby("subscription")["time"].min()
    named = verdicts[verdicts["reason"] == "blocked"].groupby("subscription")["time"].min()
    assert len(stuck)
    assert (named[stuck.index] <= stuck).all()


# -- topics and the broker ------------------------------------------------------------------------------------------


def test_the_broker_is_the_sum_of_its_topics(lake: Path, samples: pd.DataFrame) -> None:
    broker = read(lake, "broker_samples").set_index("time")
    assert len(broker) == MINUTES * 60 + 1
    topics = read(lake, "topic_samples")
    last = topics.groupby("lane").last()
    assert last["offered_records"].sum() == broker["published_records"].iloc[-1]
    ends = samples.groupby("subscription").last()
    assert ends["drained_records"].sum() == broker["delivered_records"].iloc[-1]
    assert ends["drained_bytes"].sum() == broker["delivered_bytes"].iloc[-1]
    held = (topics["resident_bytes"] + topics["spilled_bytes"]).groupby(topics["time"]).sum()
    whole = broker["memory_bytes"] + broker["disk_bytes"]
    assert (held == whole[held.index]).all()
    live = samples[samples["ended"] == ""].groupby("time")
    assert (live["slow"].sum().reindex(broker.index, fill_value=0) == broker["slow"]).all()
    furthest = samples[samples["ended"] == ""].groupby(["time", "lane"])["lag_bytes"].max().groupby("time").sum()
    assert (furthest.reindex(broker.index, fill_value=0) == whole).all()


def test_nobody_had_to_be_cut(lake: Path) -> None:
    """A pool over its limit would have cut somebody, and nobody was."""
    broker, config = read(lake, "broker_samples"), read(lake, "configs").iloc[0]
    assert (broker["memory_bytes"] <= broker["memory_limit_bytes"]).all()
    assert broker["disk_bytes"].max() <= config["disk_limit_bytes"] * config["client_share"]
    assert parse_policies(json.loads(config["config"])["policy"])[0].name == "watch"


# -- variety --------------------------------------------------------------------------------------------------------


def test_every_kind_is_there_in_its_share(samples: pd.DataFrame) -> None:
    kinds = samples.groupby("client").size().index.str.rsplit("-", n=1).str[0].value_counts()
    assert set(kinds.index) <= set(SHARES)
    for kind, share in SHARES.items():
        there = kinds.get(kind, 0)
        assert there == share * CONSUMERS / 100 or (kind == "passing" and there > 0), kind


def test_kinds_behave_as_they_are_called(samples: pd.DataFrame) -> None:
    by = samples.groupby("subscription")
    end = by.last()
    kind = end["client"].str.rsplit("-", n=1).str[0]
    lagged = by["lag_records"].max() > 0
    assert end["lag_records"][kind == "healthy"].gt(0).mean() < 0.05
    assert end["lag_records"][(kind == "stuck") & lagged].gt(0).all()
    assert (lagged & (end["lag_records"] == 0))[kind.isin(("stalling", "flapping", "away"))].any()
    assert (~by["connected"].all())[kind == "away"].all()


def test_a_few_topics_carry_most_of_the_bytes() -> None:
    rates = []
    for number in range(300):
        traffic = publish(3, number, 60)
        rates.append(traffic.ends[-1] * traffic.record_bytes)
    ranked = np.sort(np.array(rates, dtype=float))[::-1]
    assert ranked[:30].sum() > 0.4 * ranked.sum()
    assert ranked[0] > 20 * np.median(ranked)


@pytest.mark.parametrize(("consumers", "topics"), [(1, 1), (10, 10), (1000, 7), (10_000, 500), (400, 2)])
def test_every_consumer_has_one_topic_and_every_topic_a_reader(consumers: int, topics: int) -> None:
    lanes = deal(consumers, topics)
    assert [lane.number for lane in lanes] == list(range(topics))
    assert sum(lane.consumers for lane in lanes) == consumers
    assert all(1 <= lane.consumers <= READERS_MAX for lane in lanes)
    assert [lane.first for lane in lanes] == list(np.cumsum([0, *(lane.consumers for lane in lanes[:-1])]))


# -- the same for ever ----------------------------------------------------------------------------------------------


def test_a_seed_means_the_same_rows_however_they_are_made(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tasks, one task; which file a row stands in may differ, the rows may not."""
    monkeypatch.setattr(synth, "GROUP_CONSUMER_MINUTES", 20)
    many = synthesize(spark, tmp_path / "many", 60, 2, seed=5, topics=6)
    monkeypatch.setattr(synth, "GROUP_CONSUMER_MINUTES", 1_000_000)
    one = synthesize(spark, tmp_path / "one", 60, 2, seed=5, topics=6)
    assert many.files > one.files
    assert many.rows == one.rows
    for table in MADE:
        pd.testing.assert_frame_equal(read(tmp_path / "many", table), read(tmp_path / "one", table))
    other = synthesize(spark, tmp_path / "other", 60, 2, seed=6, topics=6)
    assert other.rows != one.rows or not read(tmp_path / "other", "broker_samples")["published_bytes"].equals(
        read(tmp_path / "one", "broker_samples")["published_bytes"]
    )


def test_the_rows_of_a_seed_do_not_change_from_version_to_version() -> None:
    """A recording is quoted by its seed: a change of these figures is a change of every quoted result."""
    traffic = publish(1, 0, 600)
    assert (traffic.record_bytes, int(traffic.ends[-1])) == (672, 5383)


# -- files ----------------------------------------------------------------------------------------------------------


def test_files_are_whole_dated_and_say_what_they_are(lake: Path) -> None:
    assert sorted(path.name for path in lake.iterdir()) == sorted(MADE)
    files = [path for path in lake.rglob("*") if path.is_file()]
    assert all(file.suffix == ".parquet" for file in files)
    for file in files:
        assert file.parent.name == "date=2026-01-05"
        assert pq.read_schema(file).equals(arrow_schema(file.parts[-3]), check_metadata=True)


def test_the_pipeline_takes_it(lake: Path, samples: pd.DataFrame) -> None:
    info = check_lake(lake)
    assert info.tables["consumer_samples"].rows == len(samples)
    assert set(info.tables) == set(TABLES)
    columns = [pq.read_table(file, columns=["time"])["time"] for file in lake.rglob("*.parquet")]
    times = [time for column in columns for time in column.to_pylist()]
    assert (min(times), max(times)) == (made.START, made.START + dt.timedelta(minutes=MINUTES))


def test_what_it_says_it_wrote_is_there(spark: SparkSession, tmp_path: Path) -> None:
    info = synthesize(spark, tmp_path / "lake", 3, 0.5, seed=0, topics=2)
    files = list((tmp_path / "lake").rglob("*.parquet"))
    assert (info.consumers, info.topics, info.minutes) == (3, 2, 0.5)
    assert info.files == len(files)
    assert info.bytes == sum(file.stat().st_size for file in files)
    assert info.rows == sum(pq.read_metadata(file).num_rows for file in files)


def test_a_day_that_begins_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth, "FILE_ROWS_MAX", 5)
    (tmp_path / synth.PARTIAL).mkdir()
    times = np.array([synth._DAY_US * 20_000 - 1_000_000 * (5 - i) for i in range(12)])
    with synth._Files(str(tmp_path), "broker_samples", "part-x") as files:
        for part in (times[:6], times[6:]):
            files.write(synth._table("broker_samples", 6, {"run": "r", "time": part, "seq": part // 1_000_000}))
    found = sorted((tmp_path / "broker_samples").rglob("*.parquet"))
    assert [path.parent.name for path in found] == ["date=2024-10-03", "date=2024-10-04"]
    rows = read(tmp_path, "broker_samples")
    assert sorted(rows["seq"]) == sorted(times // 1_000_000)
    for path in found:
        dates = pq.ParquetFile(path).read().to_pandas()["time"].dt.date.astype(str)
        assert set("date=" + dates) == {path.parent.name}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"consumers": 0}, "consumers: from 1"),
        ({"minutes": 0.0}, "minutes: from one second"),
        ({"minutes": 1e9}, "minutes: from one second"),
        ({"seed": -1}, "seed: a whole number"),
        ({"topics": 0}, "topics: from 1"),
        ({"topics": 51}, "topics: from 1 to the number of consumers"),
        ({"consumers": 1000, "topics": 4}, "so at least 5"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_and_nothing_is_made(
    tmp_path: Path, given: dict[str, float], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        synthesize(None, tmp_path / "lake", **({"consumers": 50, "minutes": 1.0, "seed": 1} | given))  # type: ignore[arg-type]
    assert not (tmp_path / "lake").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="is not empty"):
        synthesize(None, tmp_path, 5, 1, 1)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
