"""What is put on record: who has a row and when, that it adds up, and that it stays within bounds."""

from __future__ import annotations

import tomllib
from collections import Counter
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Stage
from tests.sim.record import rows_of

from headway.core.policy import parse_trials
from headway.core.telemetry.observer import ROWS_PER_TICK, LakeObserver, Recorder
from headway.core.telemetry.stats import TABLES, Histogram

BLOCKED = """
[[policy]]
name = "strict"
[[policy.rule]]
name = "does not read"
when = { blocked_time = "2s" }
then = "disconnect"
"""


KEYED = """
[[policy.rule]]
keyed = true
when = { lag_records = 1000 }
then = "conflate"
[[topic]]
filter = "k/#"
key = "topic"
"""
"""Behind ``BLOCKED``."""


class Scene(Stage):
    """A stage on record."""

    def __init__(self, toml: str = "", sample_s: float = 1.0, idle_s: float = 10.0, **pool: str) -> None:
        super().__init__(toml, **pool)
        self.recorder = Recorder()
        self.broker.registry.wall_offset_s = 1_700_000_000.0 - self.now
        self.broker.registry.observer = self.observer = LakeObserver(
            self.broker.registry, self.recorder, run="r1", broker="b",
            wall_offset_s=self.broker.registry.wall_offset_s, sample_s=sample_s, idle_s=idle_s,
        )  # fmt: skip
        self.began = self.now

    def rows(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """Those since the last time. ``at``: seconds after the beginning."""
        found = [row for batch in self.recorder.take() for row in rows_of(batch) if batch.table == table]
        for row in found:
            row["at"] = row["time"] / 1e6 - 1_700_000_000.0
        return [row for row in found if all(row[name] == value for name, value in where.items())]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_every_row_fits_its_table(scene: Scene) -> None:
    """Each value is of its column's kind, none is missing: in every table."""
    scene = Scene(BLOCKED)
    scene.broker.set_trials(parse_trials(tomllib.loads(BLOCKED.replace("policy", "trial"))["trial"]))
    scene.consumer("stuck", "t/#", reads=STUCK, buffer=100)
    scene.client("publisher").publish("t/a", 0, 10)
    scene.run(4)
    scene.observer.whole(scene.now, late_s=0.0, rss_bytes=1, dropped_rows=2)
    scene.observer.configured(scene.now, version="1", sweep_s=0.2, late_after_s=0.25, config="{}")
    batches = {batch.table: batch for batch in scene.recorder.take()}
    assert set(batches) == set(TABLES)
    kinds = {"text": str, "float": float}
    for name, batch in batches.items():
        for row in rows_of(batch):
            for column in TABLES[name].columns:
                assert isinstance(row[column.name], kinds.get(column.kind, int)), (name, column.name)
            assert (row["run"], row["broker"]) == ("r1", "b")


def test_who_lags_has_a_row_a_second_and_one_more_when_it_has_caught_up(scene: Scene) -> None:
    slow = scene.consumer("slow", "t/#", reads=STUCK, buffer=100)
    scene.run(0.2)
    scene.rows("consumer_samples")
    scene.client("publisher").publish("t/a", 0, 50)
    scene.run(5)
    rows = scene.rows("consumer_samples", client="slow")
    assert [row["lag_records"] for row in rows] == [50] * len(rows)
    gaps = [b["at"] - a["at"] for a, b in pairwise(rows)]
    assert len(rows) in (5, 6)
    assert all(0.9 <= gap <= 1.3 for gap in gaps)
    slow.reads = inf
    scene.run(0.4)
    (last,) = scene.rows("consumer_samples", client="slow")
    assert last["lag_records"] == 0
    assert last["state"] == "ok"
    assert last["drained_records"] == 50


def test_everybody_has_a_row_within_idle_and_no_tick_writes_more_than_its_share() -> None:
    scene = Scene(idle_s=4.0)
    count = 3 * ROWS_PER_TICK
    for number in range(count):
        scene.consumer(f"c{number}", "t/#")
    most = 0
    rows: list[dict[str, Any]] = []
    for _ in scene.steps(9):
        found = scene.rows("consumer_samples", filter="t/#")
        most, rows = max(most, len(found)), rows + found
    assert most == ROWS_PER_TICK
    times: dict[int, list[float]] = {}
    for row in rows:
        times.setdefault(row["subscription"], []).append(row["at"])
    assert len(times) == count
    for seen in times.values():
        assert len(seen) >= 2
        assert all(b - a <= 4.0 + 0.2 + 1e-6 for a, b in pairwise(seen))


def test_offered_is_what_was_published_since_it_came(scene: Scene) -> None:
    publisher = scene.client("publisher")
    scene.consumer("early", "t/#", reads=STUCK, buffer=300)
    publisher.publish("t/a", 0, 30)
    scene.run(1)
    scene.consumer("late", "t/#", reads=STUCK, buffer=300)
    publisher.publish("t/a", 30, 12)
    scene.run(2)
    last = {row["client"]: row for row in scene.rows("consumer_samples", filter="t/#")}
    assert (last["early"]["offered_records"], last["late"]["offered_records"]) == (42, 12)
    assert last["early"]["offered_bytes"] * 12 == last["late"]["offered_bytes"] * 42
    assert last["early"]["drained_bytes"] == last["late"]["drained_bytes"] == 300


@pytest.mark.parametrize("how", ["unsubscribes", "leaves", "is cut", "is replaced"])
def test_who_ends_has_a_last_row_that_says_why_and_what_was_left(how: str) -> None:
    scene = Scene(BLOCKED)
    client = scene.consumer("c", "t/#", reads=STUCK, buffer=100)
    scene.client("publisher").publish("t/a", 0, 20)
    scene.run(0.4)
    match how:
        case "unsubscribes":
            scene.broker.unsubscribe(client.session, "t/#", scene.now)
        case "leaves":
            client.leave()
        case "is replaced":
            client.subscribe("t/#", offsets="true")
    scene.run(3)
    first = [row for row in scene.rows("consumer_samples", client="c") if row["subscription"] == 1]
    assert first[-1]["ended"] == {"unsubscribes": "subscription_ended", "leaves": "client_gone", "is cut": "blocked",
                                  "is replaced": "subscription_ended"}[how]  # fmt: skip
    sent = how == "is cut"  # the record half sent was finished, ahead of the last word
    assert (first[-1]["lag_records"], first[-1]["drained_records"]) == (20 - sent, sent)
    assert [row["ended"] for row in first[:-1]] == [""] * (len(first) - 1)
    assert [row["seq"] for row in first] == list(range(len(first)))


def test_a_row_tells_the_most_and_the_least_that_waited_since_the_row_before() -> None:
    scene = Scene(BLOCKED)
    client = scene.consumer("c", "t/#", reads=STUCK, buffer=100)
    scene.client("publisher").publish("t/a", 0, 20)
    scene.run(0.4)
    first = scene.rows("consumer_samples", client="c")[-1]
    assert first["most_lag_bytes"] == first["least_lag_bytes"] == first["lag_bytes"] > 0
    scene.clients["publisher"].publish("t/a", 20, 20)
    scene.run(0.4)
    client.reads = 1e6
    scene.run(0.4)
    row = scene.rows("consumer_samples", client="c")[-1]
    assert row["seq"] == first["seq"] + 1
    assert (row["least_lag_bytes"], row["least_lag_ago_ms"], row["lag_bytes"]) == (0, 0.0, 0)
    assert row["most_lag_bytes"] > first["lag_bytes"]
    assert 0 < row["most_lag_ago_ms"] < 1000


def test_a_row_has_the_figures_that_meters_go_by() -> None:
    scene = Scene(BLOCKED + KEYED)
    scene.consumer("full", "t/#", 1, options={"patience": "20m"}, window=3, acks=False)
    scene.consumer("keyed", "k/#")
    scene.consumer("latest", "t/#", options={"conflate": "0s"})
    scene.client("publisher").publish("t/a", 0, 20, qos=1)
    scene.run(1.5)
    rows = {row["client"]: row for row in scene.rows("consumer_samples")}
    full, latest = rows["full"], rows["latest"]
    assert full["patience_ms"] == 1_200_000
    assert full["ack_age_ms"] == full["credit_exhausted_ms"] == 0  # it has patience
    assert full["unacked_ms"] == full["window_full_ms"] == pytest.approx(1300, abs=200)
    assert (latest["patience_ms"], latest["unacked_ms"], latest["window_full_ms"]) == (0, 0, 0)
    assert (full["conflates"], latest["conflates"]) == (False, True)
    assert [row["keyed"] for row in (full, latest, rows["keyed"])] == [False, False, True]


def test_a_row_of_a_queues_member_names_the_topics_of_its_policy() -> None:
    stage = QueueStage()
    recorder = Recorder()
    observer = stage.broker.registry.observer = LakeObserver(stage.broker.registry, recorder, run="r1", broker="b")
    peer = stage.peer("peer")
    peer.declare("q")
    peer.consume("q", 1)
    stage.run(1.0)
    observer.tick(stage.now, {})
    (row,) = [row for batch in recorder.take() for row in rows_of(batch) if batch.table == "consumer_samples"]
    assert row["topics"].splitlines()[0] == "$queue/q"
    assert row["topics"].splitlines()[-1] == "#"


def test_every_verdict_has_a_row_and_says_what_the_book_says() -> None:
    scene = Scene(BLOCKED)
    scene.consumer("c", "t/#", reads=STUCK, buffer=100)
    scene.client("publisher").publish("t/a", 0, 20)
    scene.run(3)
    (row,) = scene.rows("verdicts")
    verdict = scene.broker.verdicts.last("c")
    assert verdict is not None
    assert (row["number"], row["reason"], row["text"]) == (verdict.number, "blocked", verdict.text)
    assert (row["policy"], row["rule"], row["rule_name"]) == ("strict", 1, "does not read")
    assert (row["meter"], row["op"], row["threshold"]) == ("blocked_time", ">", 2.0)
    assert row["value"] == verdict.readings[0].value
    assert row["subscription"] == 1
    assert row["at"] == pytest.approx(verdict.time_s - scene.began)


def test_a_lane_has_a_name_of_its_own_also_when_it_comes_again(scene: Scene) -> None:
    for _ in range(2):
        client = scene.consumer("c", "t/#")
        scene.client("publisher").publish("t/a", 0, 3)
        scene.run(0.4)
        client.leave()
    scene.consumer("old", "t/#", version=4)
    scene.consumer("new", "t/#", version=5)
    scene.run(0.4)
    lanes = Counter(row["lane"] for row in scene.rows("topic_samples", filter="t/#"))
    assert len(lanes) == 4
    assert all(name.startswith("t/#|") for name in lanes)


def test_a_lane_says_for_how_long_publishers_were_held_back() -> None:
    scene = Scene('[[policy]]\nname = "p"\n[[policy.rule]]\nwhen = { lag_records = 5 }\nthen = "block_publishers"\n')
    client = scene.consumer("c", "t/#", reads=STUCK, buffer=100)
    scene.client("publisher").publish("t/a", 0, 20)
    scene.run(3)
    held = scene.rows("topic_samples", filter="t/#")[-1]
    assert (held["gating"], held["slow"]) == (1, 1)
    assert held["stalled_ms"] == pytest.approx(scene.stats(client).producer_stall_ms, abs=1200)
    assert held["stalled_ms"] > 1500
    client.reads = inf
    scene.run(15)
    after = scene.rows("topic_samples", filter="t/#")[-1]
    assert (after["gating"], after["slow"], after["lagging"]) == (0, 0, 0)
    assert after["stalled_ms"] == pytest.approx(scene.stats(client).producer_stall_ms, abs=1)


def test_the_broker_row_adds_up_what_the_consumers_were_given(scene: Scene) -> None:
    scene.consumer("a", "t/#")
    gone = scene.consumer("b", "t/#")
    scene.client("publisher").publish("t/a", 0, 7)
    scene.run(0.4)
    gone.leave()
    scene.run(0.4)
    scene.observer.turned(0.004)
    scene.observer.whole(scene.now, late_s=1.5, rss_bytes=5, dropped_rows=3)
    scene.observer.whole(scene.now, late_s=1.5, rss_bytes=5, dropped_rows=3)
    first, second = scene.rows("broker_samples")
    assert (first["delivered_records"], first["published_records"]) == (14, 7)
    assert (first["sessions"], first["subscriptions"], first["loop_late_ms"]) == (3, 1, 1500.0)
    assert (first["turns"], first["delivery_max_ms"], first["dropped_rows"]) == (1, 4.0, 3)
    assert (second["seq"], second["turns"], second["delivery_p99_ms"]) == (1, 0, 0.0)


def test_nothing_is_gathered_and_the_broker_does_the_same_without_an_observer() -> None:
    seen = []
    for stage in (Stage(BLOCKED), Scene(BLOCKED)):
        client = stage.consumer("c", "t/#", reads=STUCK, buffer=100)
        healthy = stage.consumer("healthy", "t/#")
        stage.client("publisher").publish("t/a", 0, 20)
        stage.run(4)
        verdict = stage.broker.verdicts.last("c")
        assert verdict is not None
        seen.append((healthy.numbers, client.goodbye is not None, verdict.text, verdict.time_s))
    assert seen[0] == seen[1]


# -- the recorder -----------------------------------------------------------------------------------------------------


def test_beyond_its_limit_the_recorder_drops_and_counts() -> None:
    recorder = Recorder(rows_max=300)
    scene = Stage()
    observer = LakeObserver(scene.broker.registry, recorder, run="r", broker="b")
    for number in range(310):
        observer.configured(float(number), version="v", sweep_s=0.2, late_after_s=0.25, config="{}")
    assert (recorder.rows, recorder.dropped_rows) == (300, 10)
    (batch,) = recorder.take()
    assert batch.rows == 300
    assert [row["seq"] for row in rows_of(batch)] == list(range(300))
    assert recorder.take() == []
    observer.configured(0.0, version="v", sweep_s=0.2, late_after_s=0.25, config="{}")
    assert recorder.rows == 1, "there is room again"
    assert batch.rows == 300, "what was taken is left alone"


def test_a_quantile_is_at_most_a_tenth_too_long() -> None:
    histogram = Histogram()
    for ms in range(1, 1001):
        histogram.add(ms / 1000)
    assert 0.5 <= histogram.quantile(0.5) <= 0.55
    assert 0.99 <= histogram.quantile(0.99) <= 1.0
    assert histogram.longest_s == 1.0
    assert Histogram().quantile(0.99) == 0.0
    histogram.add(500.0)
    assert histogram.quantile(1.0) == 500.0


def test_members_of_a_queue_that_goes_on_elsewhere_stay_on_record() -> None:
    stage, recorder = QueueStage(), Recorder()
    registry = stage.broker.registry
    registry.observer = observer = LakeObserver(registry, recorder, run="r1", broker="b", idle_s=1.0)
    owner = stage.peer("owner")
    owner.declare("q")
    members = [stage.peer(name) for name in ("one", "two")]
    for member in members:
        member.consume("q")
    stage.run(2)
    owner.bind("q", "amq.topic", "a.b")
    stage.run(2)
    lanes = {row["lane"] for batch in recorder.take() for row in rows_of(batch) if batch.table == "consumer_samples"}
    assert len(lanes) == 2, "the old one and the new one"
    assert [(lane.consumers, feed is stage.queue("q").feed) for feed, lane in observer._lanes.items()] == [(2, True)]
    for member in members:
        member.cancel("q")
    assert not observer._lanes
