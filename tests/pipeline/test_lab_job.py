"""The lab on Spark: the same as without it, however the work is divided; and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.lakes import row, write
from tests.pipeline.recordings import rate, samples, total

from headway.core.base.errors import ConfigError
from headway.core.log.lanes.pool import Pool
from headway.pipeline.lab.job import lagging_clients, pool_passages, read_replay_input, read_samples, replay_samples
from headway.pipeline.lab.plans.candidates import Plan, parse_plan
from headway.pipeline.lab.replays.pools import Eviction, Holding, replay_pool
from headway.pipeline.lab.replays.trace import COLUMNS
from headway.pipeline.lab.run import run_lab
from headway.pipeline.lab.score import OUTCOMES
from headway.pipeline.lab.tasks import RecordedRun, replay_client
from headway.server.config.reading import load_settings

CANDIDATES = """
presets = ["xap", "a-mq", "qpid", "amps"]
[goal]
memory = "500kB"
[[candidate]]
name = "cut"
[[candidate.policy]]
name = "cut"
[[candidate.policy.rule]]
when = { blocked_time = { one_of = ["3s", "10s"] } }
then = "disconnect"
[[candidate]]
name = "tell"
[[candidate.policy]]
name = "tell"
[[candidate.policy.rule]]
when = { blocked_time = "12s" }
then = "notify"
[[candidate]]
name = "tiny"
pool = { memory = "600kB", disk = "0B" }
"""
RAN = [{"name": "ran", "topics": ["#"], "rule": [{"when": {"blocked_time": "20s"}, "then": "disconnect"}]}]


def rows() -> list[dict[str, Any]]:
    """Twelve consumers for a minute: four healthy, four stuck (two of them cut off at 30 s), four that recover."""
    found = []
    for number in range(12):
        pace = 100 + 10 * number
        taken = rate(pace)
        extra: dict[str, Any] = {}
        upto = 60.0
        if 4 <= number < 8:
            taken, extra = rate(pace, until=10), {"blocked_from": 10.0}
            if number < 6:
                upto, extra = 30.0, extra | {"ended": "blocked"}
        elif number >= 8:
            taken, extra = total(rate(pace, until=10), rate(5 * pace, since=15 + number)), {"blocked_from": 10.0}
        found += samples(rate(pace), taken, upto, client=f"c{number}", subscription=number + 1,
                         lane=f"t/{number % 3}|1", filter=f"t/{number % 3}", **extra)  # fmt: skip
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In several files, some rows in two of them."""
    folder = tmp_path_factory.mktemp("lake")
    everything = rows()
    write(folder, "consumer_samples", everything[::2])
    write(folder, "consumer_samples", everything[1::2])
    write(folder, "consumer_samples", everything[::5])
    config = json.dumps({"policy": RAN, "topic": [{"filter": "t/#", "key": "topic"}]})
    write(folder, "configs", [row("configs", config=config, memory_limit_bytes=10_000_000, disk_limit_bytes=10**8)])
    write(folder, "broker_samples", [
        row("broker_samples", time=float(second), seq=second, loop_late_ms=0.0 if second < 6 else 3500.0)
        for second in (0, 1, 2, 6, 7, 8)
    ])  # fmt: skip
    write(folder, "verdicts", [
        row("verdicts", time=30.2, number=n, client=f"c{n}", filter=f"t/{n % 3}", action="disconnect",
            window_ms=20_000.0) for n in (4, 5)
    ])  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def plan() -> Plan:
    return parse_plan(CANDIDATES)


def by_hand(lake: Path, plan: Plan, runs: dict[str, RecordedRun]) -> list[dict[str, Any]]:
    """The same without Spark: one client after the other."""
    table = ds.dataset(lake / "consumer_samples", format="parquet").to_table(columns=list(COLUMNS))
    table = table.set_column(table.schema.get_field_index("time"), "time", pc.cast(table["time"], "int64"))
    found = []
    for client in sorted(set(table["client"].to_pylist())):
        mine = table.filter(pc.equal(table["client"], client))
        found += replay_client(mine, runs["run-1"], list(enumerate(plan.candidates))).to_pylist()
    return ordered(found)


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["candidate"], row["client"], row["subscription"]))


def test_only_those_who_ever_lagged_are_replayed(spark: SparkSession, lake: Path) -> None:
    found = {r["client"] for r in lagging_clients(read_samples(spark, lake)).toArrow().to_pylist()}
    assert found == {f"c{number}" for number in range(4, 12)}


def test_the_brokers_lateness_is_read(spark: SparkSession, lake: Path) -> None:
    [(at, seconds)] = read_replay_input(spark, lake).runs["run-1"].late
    assert (at, seconds) == (pytest.approx(5.75), 3.5), "in the middle between the rows at 2 s and at 6 s"


@pytest.mark.parametrize(("slices", "tasks"), [(1, 1), (1, 3), (3, 4)])
def test_the_job_is_the_loop_over_clients_and_candidates(
    spark: SparkSession, lake: Path, plan: Plan, slices: int, tasks: int
) -> None:
    runs = read_replay_input(spark, lake).runs
    passages = replay_samples(read_samples(spark, lake), plan.candidates, runs, slices, tasks)
    found = ordered(passages.toArrow().to_pylist())
    wanted = by_hand(lake, plan, runs)
    assert len(found) == len(wanted) > 50
    assert found == wanted


def test_pools_are_replayed_in_order_of_time(spark: SparkSession, lake: Path, plan: Plan) -> None:
    runs = read_replay_input(spark, lake).runs
    run = runs["run-1"]
    wanted = []
    for index, candidate in enumerate(plan.candidates):
        holdings = sorted(
            Holding(*(bucket["number"], p["client"], p["filter"], p["subscription"], p["begin_s"], p["lane"],
                      p["durable"], bucket["lag_bytes"], bucket["oldest_s"], bucket["end_bytes"], bucket["flags"]))
            for p in by_hand(lake, plan, runs) if p["candidate"] == index
            for bucket in p["buckets"]
        )  # fmt: skip
        found = replay_pool(Pool("", *run.limits(candidate.pool)), run.bucket_s, run.buckets, holdings)
        wanted += [(index, one.number, one.client if isinstance(one, Eviction) else one.memory_bytes) for one in found]
    passages = replay_samples(read_samples(spark, lake), plan.candidates, runs, 1, 4)
    got = [
        (r["candidate"], r["number"], r["client"] or r["memory_bytes"])
        for r in pool_passages(passages, plan.candidates, runs).toArrow().to_pylist()
    ]
    assert sorted(got, key=str) == sorted(wanted, key=str)
    assert any(isinstance(what, str) for _, _, what in got), "somebody is given up for the tiny pool"


def test_a_run_writes_all_there_is_to_know(spark: SparkSession, lake: Path, plan: Plan, tmp_path: Path) -> None:
    result = run_lab(spark, lake, plan, tmp_path / "out")
    by_name = {one.candidate: one for one in result.scores}
    ran, nothing = by_name["as it ran"], by_name["nothing"]
    assert (ran.consumers, ran.hit, nothing.hit) == (12, 4, 0)
    assert ran.unknown == 2, "the two that were really cut: nobody can tell"
    assert by_name["cut: blocked_time=3s"].false_positives == 4, "those that recover"
    assert by_name["cut: blocked_time=10s"].false_positives == 4
    assert nothing.missed == 4
    assert (nothing.stuck, nothing.false_verdicts) == (4, 0)
    cut = by_name["cut: blocked_time=3s"]
    assert (cut.missed, cut.false_verdicts, cut.stuck) == (0, 4, 4)
    assert 3000 <= cut.find_ms <= cut.cut_stuck_worst_ms <= 3600
    assert nothing.cut_stuck_worst_ms == pytest.approx(50_000, abs=300)
    told = by_name["tell"]
    assert (told.hit, told.missed, told.false_verdicts) == (0, 0, 4)
    assert 12_000 <= told.find_ms <= 12_600
    assert told.cut_stuck_worst_ms > 49_000, "to tell is not to cut"
    assert by_name["tiny"].by_pressure > 0
    assert by_name["AMPS's defaults"].hit == 0
    assert nothing.memory_peak_bytes > by_name["cut: blocked_time=3s"].memory_peak_bytes > 0
    about = json.loads((tmp_path / "out" / "lab.json").read_text())
    assert about["check"] == {
        "recorded_hits": 2, "reproduced": 2, "at_another_time": 0, "not_reproduced": 0, "only_in_the_replay": 2,
    }  # fmt: skip
    outcomes = pq.read_table(tmp_path / "out" / "outcomes.parquet")
    assert outcomes.schema.equals(OUTCOMES)
    assert outcomes.num_rows == sum(one.hit for one in result.scores)
    curve = pq.read_table(tmp_path / "out" / "curve.parquet").to_pylist()
    assert max(p["memory_bytes"] for p in curve if p["candidate"] == "nothing") == nothing.memory_peak_bytes
    assert result.report.read_text().startswith("<!")
    settings = load_settings(result.config)
    best = result.recommendation.score
    assert best.within_goal
    chosen = next(candidate for candidate in plan.candidates if candidate.name == best.candidate)
    if chosen.policies:
        assert settings.policies == chosen.policies
    assert settings.topics[0].filter == "t/#"
    assert not [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def test_a_lake_without_a_configuration_is_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "consumer_samples", rows()[:5])
    with pytest.raises(ConfigError, match="does not say how the broker was configured"):
        read_replay_input(spark, tmp_path)


def test_a_candidates_pool_stands_in_for_the_recorded_one() -> None:
    run = RecordedRun("run-1", 0, 60.0, 1, 10**7, 10**8, 0.5, 0.2, 1.0, ())
    assert run.limits(parse_plan(CANDIDATES).candidates[-1].pool) == (600_000, 0, 0.5)
    assert run.limits(parse_plan(CANDIDATES).candidates[0].pool) == (10**7, 10**8, 0.5)
