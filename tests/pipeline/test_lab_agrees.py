"""The lab against the broker: what it predicts of policy B from a recording under policy A, and what B really does.

Both are the real core, with the same traffic past the same consumers; only the recording lies between the two.
"""

from __future__ import annotations

import tomllib
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from tests.core.stage import STUCK, Stage
from tests.sim.record import rows_of

from headway.core.log.lanes.pool import Pool
from headway.core.policy.rules.rule import parse_policies
from headway.core.telemetry.observer import LakeObserver, Recorder
from headway.pipeline.lab.replays.base import Recording
from headway.pipeline.lab.replays.candidate_replay import HITS, Client, Passage
from headway.pipeline.lab.replays.pools import Eviction, Holding, replay_pool
from headway.pipeline.lab.replays.trace import Late, RecordedLateness, late_stretches, read_traces

WATCH = '[[policy]]\nname = "watch"\n[[policy.rule]]\nwhen = { lag_age = "30s" }\nthen = "notify"\n'
SECONDS = 60.0
MEMORY = 50_000_000
TOLERANCE_S = 1.0


class Story(NamedTuple):
    """What a run of the broker left behind. Times in seconds since it began."""

    rows: list[dict[str, Any]]
    hits: dict[str, tuple[str, float]]
    """By client: the first enforced action that changed what it got, and when."""
    pressed: dict[str, tuple[str, float]]
    """By client: why pressure gave it up, and when."""
    lost: dict[str, int]
    """Records left out, by client."""
    stage: Stage
    late: tuple[Late, ...]
    """When the broker was late, as it recorded it."""
    seconds: float


HANGS = {12.0: 3.0, 21.0: 0.7, 42.0: 2.0}
"""Seconds for which the broker's loop does nothing, by when that begins."""


def play(policies: str, hangs: dict[float, float] | None = None, *, group: bool = False, **pool: str) -> Story:
    """A minute of a publisher past consumers that are quick, slow, stuck, stuck for a while, stuck in their window; if
    the broker hangs, or if asked for, also past a group of two of which one is stuck."""
    stage = Stage(policies, **(pool or {"memory": f"{MEMORY}B", "disk": "1GB", "max_client_share": "100%"}))
    stage.checks = False  # they would be half of the work, and other tests are about them
    recorder = Recorder()
    registry = stage.broker.registry
    registry.observer = LakeObserver(registry, recorder, run="r", broker="b")
    began = stage.now
    stage.consumer("quick", "t/#")
    stage.consumer("slow", "t/#", reads=40_000, buffer=20_000)
    stage.consumer("trickle", "t/#", reads=3000, buffer=20_000)
    stuck = stage.consumer("stuck", "t/#", buffer=20_000)
    pauses = stage.consumer("pauses", "t/#", reads=400_000, buffer=20_000)
    window = stage.consumer("window", "t/#", 1, window=10)
    other = stage.consumer("other", "u/#", reads=STUCK, buffer=500)
    for name, reads in (("member", 40_000), ("stuck member", STUCK)) if hangs or group else ():
        stage.consumer(name, "$share/g/t/#", reads=reads, buffer=5000)
    ahead, next_row = dict(hangs or {}), began
    publisher = stage.client("publisher")
    number = 0
    for now in stage.steps(SECONDS):
        at = now - began
        if ahead and at >= min(ahead):
            stage.hang(ahead.pop(min(ahead)))
        if stage.now >= next_row:
            registry.observer.whole(stage.now, late_s=stage.broker.governor.late_s, rss_bytes=0, dropped_rows=0)
            next_row = stage.now + 1.0
        publisher.publish("t/1", number, 10, size=1000, qos=1)
        if at > 30:
            publisher.publish("u/1", number, 5, size=1000)
        number += 10
        if at >= 10 and stuck.reads != STUCK:
            stuck.reads = STUCK
        pauses.reads = STUCK if 15 <= at < 24 or 40 <= at < 46 else 400_000
        window.acks = at < 20
    assert other.seen is not None
    recorded = {batch.table: rows_of(batch) for batch in recorder.take()}
    rows = recorded["consumer_samples"]
    hits: dict[str, tuple[str, float]] = {}
    pressed: dict[str, tuple[str, float]] = {}
    for row in recorded.get("verdicts", ()):
        if row["kind"] == "fire" and row["enforced"] and row["action"] in HITS and row["policy"]:
            hits.setdefault(row["client"], (row["action"], row["time"] / 1e6 - began))
        elif row["kind"] == "fire" and not row["policy"]:
            pressed.setdefault(row["client"], (row["reason"], row["time"] / 1e6 - began))
    lost = {row["client"]: row["skipped_records"] + (row["lag_records"] if row["ended"] else 0) for row in rows}
    broker = [(row["time"] / 1e6 - began, row["loop_late_ms"] / 1000) for row in recorded["broker_samples"]]
    grown = [(t0, t1, late - before) for (t0, before), (t1, late) in pairwise(broker) if late > before]
    return Story(rows, hits, pressed, lost, stage, late_stretches(grown), stage.now - began)


@pytest.fixture(scope="module")
def recorded_group() -> Story:
    return play(WATCH, group=True)


@pytest.fixture(scope="module")
def recorded() -> Story:
    """Under policy A, which only watches."""
    return play(WATCH)


def predict(story: Story, policies: str) -> dict[str, Passage]:
    clients: dict[str, list[dict[str, Any]]] = {}
    for row in story.rows:
        if row["filter"] != "$SYS/headway/#":
            clients.setdefault(row["client"], []).append(row)
    parsed = parse_policies(tomllib.loads(policies).get("policy", []))
    found = {}
    for name, rows in clients.items():
        columns = {column: [row[column] for row in rows] for column in rows[0]}
        lateness = RecordedLateness(story.late)
        client = Client(read_traces(columns, 1_000_000_000, story.seconds, lateness), Recording(story.seconds, MEMORY))
        [[passage]] = client.replay(parsed, MEMORY).values()
        found[name] = passage
    return found


def policy(*rules: str) -> str:
    return '[[policy]]\nname = "b"\n' + "".join(f"[[policy.rule]]\n{rule}\n" for rule in rules)


@pytest.mark.parametrize(
    "rules",
    [
        ['when = { blocked_time = "5s" }\nthen = "disconnect"'],
        ['when = { blocked_time = "15s" }\nthen = "disconnect"'],
        ['when = { lag_age = "3s" }\nthen = "disconnect"'],
        ['when = { lag_records = 600 }\nfor = "2s"\nthen = "disconnect"'],
        ['when = { lag_bytes = "1300kB" }\nthen = "delete_subscription"'],
        ['when = { drain_rate = "<20kB/s" }\nfor = "3s"\nretries = 3\nthen = "disconnect"'],
        ['when = { drain_rate = "<5kB/s" }\nfor = "3s"\nretries = 3\nexcuse_pauses = false\nthen = "disconnect"'],
        ['when = { drain_rate = "<60kB/s" }\nfor = "5s"\nthen = "disconnect"'],
        ['when = { credit_exhausted_time = "4s" }\nthen = "close_consumer"'],
        ['when = { ack_age = "6s" }\nthen = "disconnect"'],
        ['when = { blocked_time = "2s" }\ntimes = 2\nthen = "disconnect"'],
        ['when = { lag_age = "2s" }\nthen = "conflate"', 'when = { blocked_time = "20s" }\nthen = "disconnect"'],
        ['when = { lag_records = 300 }\nthen = { action = "discard", which = "oldest", keep_records = 100 }'],
        ['when = { lag_bytes = "400kB" }\nthen = { action = "discard", which = "oldest", keep_bytes = "200kB" }'],
        ['when = { lag_records = 300 }\nuntil = { lag_records = "< 20" }\n'
         'then = { action = "discard", which = "newest", keep_records = 100 }'],
        ['when = { lag_age = "1s" }\nthen = "notify"', 'when = { slow_count = "> 1" }\nthen = "disconnect"'],
        ['when = { lag_records = 500 }\nthen = "disconnect"\nenforce = false'],
        ['when = { lag_records = "> 20 x prefetch" }\nthen = "disconnect"'],
        ['when = { drain_share = "<70%" }\nthen = "disconnect"'],
        ['when = { catching_up = "30s" }\nfor = "2s"\nthen = "disconnect"'],
    ],
)  # fmt: skip
def test_the_same_consumers_are_hit_at_about_the_same_time(recorded: Story, rules: list[str]) -> None:
    policies = policy(*rules)
    real = play(policies).hits
    predicted = {name: p.hit for name, p in predict(recorded, policies).items()}
    found = {name: (str(hit.action), hit.time) for name, hit in predicted.items() if hit is not None}
    assert set(found) == set(real), (found, real)
    for name, (action, at) in real.items():
        assert found[name][0] == action
        assert found[name][1] == pytest.approx(at, abs=TOLERANCE_S), (name, found, real)


@pytest.fixture(scope="module")
def recorded_late() -> Story:
    """Under policy A, by a broker that was late three times."""
    return play(WATCH, HANGS)


@pytest.mark.parametrize(
    "rule",
    [
        'when = { blocked_time = "5s" }\nthen = "disconnect"',
        'when = { lag_age = "3s" }\nthen = "disconnect"',
        'when = { lag_records = 600 }\nfor = "4s"\nthen = "disconnect"',
        'when = { credit_exhausted_time = "4s" }\nthen = "close_consumer"',
        'when = { ack_age = "6s" }\nthen = "disconnect"',
        'when = { drain_rate = "<20kB/s" }\nfor = "3s"\nthen = "disconnect"',
    ],
)
def test_so_it_is_where_the_broker_is_late(recorded_late: Story, rule: str) -> None:
    real = play(policy(rule), HANGS).hits
    predicted = {name: p.hit for name, p in predict(recorded_late, policy(rule)).items()}
    found = {name: (str(hit.action), hit.time) for name, hit in predicted.items() if hit is not None}
    assert set(found) == set(real), (found, real)
    for name, (action, at) in real.items():
        assert found[name][0] == action
        assert found[name][1] == pytest.approx(at, abs=TOLERANCE_S), (name, found, real)


@pytest.mark.parametrize(
    "rule",
    [
        'when = { lag_records = 300 }\nthen = { action = "discard", which = "oldest", keep_records = 100 }',
        'when = { lag_bytes = "400kB" }\nthen = { action = "discard", which = "oldest", keep_bytes = "200kB" }',
        'when = { lag_records = 300 }\nuntil = { lag_records = "< 20" }\n'
        'then = { action = "discard", which = "newest", keep_records = 100 }',
        'when = { blocked_time = "5s" }\nthen = "delete_subscription"',
    ],
)  # fmt: skip
def test_as_much_is_lost(recorded: Story, rule: str) -> None:
    policies = policy(rule)
    real = play(policies).lost
    for name, passage in predict(recorded, policies).items():
        if "newest" in rule and name != "pauses":
            continue  # the broker counts what is left out when the consumer gets there; the others do not
        assert passage.records_lost == pytest.approx(real[name], rel=0.05, abs=60), (name, real)


def pressed(story: Story, pool: Pool) -> tuple[dict[str, tuple[str, float]], int, int]:
    """Whom the lab has pressure give up, with reason and time, and the peaks of memory and disk."""
    holdings = [
        Holding(bucket.number, p.trace.client, p.trace.filter, p.trace.subscription, p.begin, p.trace.lane,
                p.trace.durable, bucket.lag_bytes, bucket.oldest_s, bucket.end_bytes, bucket.flags)
        for p in predict(story, "").values()
        for bucket in p.buckets
    ]  # fmt: skip
    gone: dict[str, tuple[str, float]] = {}
    memory = disk = 0
    for one in replay_pool(pool, 1.0, int(SECONDS) + 1, sorted(holdings)):
        if isinstance(one, Eviction):
            gone.setdefault(one.client, (str(one.reason), float(one.number)))
        else:
            memory, disk = max(memory, one.memory_bytes), max(disk, one.disk_bytes)
    return gone, memory, disk


@pytest.mark.parametrize(
    ("memory", "disk", "share", "within_s"),
    [
        ("50MB", "1GB", "100%", 0.0),
        ("3MB", "100MB", "100%", 0.0),
        ("3MB", "0B", "100%", 3.0),
        ("2500KB", "2500KB", "100%", 3.0),
        ("3400KB", "6MB", "30%", 1.0),  # two are over their share at once, and the second still is without the first
        ("3MB", "5MB", "30%", 1.0),
    ],
)
def test_pressure_gives_up_the_same_consumers(
    recorded: Story, memory: str, disk: str, share: str, within_s: float
) -> None:
    real = play("", memory=memory, disk=disk, max_client_share=share)
    pool = Pool("", real.stage.pool.memory_limit, real.stage.pool.disk_limit, real.stage.pool.client_share)
    gone, memory_peak, disk_peak = pressed(recorded, pool)
    assert {name: reason for name, (reason, _) in gone.items()} == {
        name: reason for name, (reason, _) in real.pressed.items()
    }
    for name, (_, at) in real.pressed.items():
        assert gone[name][1] == pytest.approx(at, abs=within_s), (gone, real.pressed)
    assert memory_peak == pytest.approx(real.stage.pool.memory_peak_bytes, rel=0.15, abs=70_000)
    assert disk_peak == pytest.approx(real.stage.pool.disk_peak_bytes, rel=0.15, abs=70_000)


@pytest.mark.parametrize(
    ("memory", "disk", "share"),
    [
        ("3MB", "100MB", "100%"),
        ("3MB", "0B", "100%"),
        ("2500KB", "2500KB", "100%"),
        ("3400KB", "6MB", "30%"),
        ("3MB", "5MB", "30%"),
    ],
)
def test_pressure_gives_up_no_members_for_what_waits_for_their_group(
    recorded_group: Story, memory: str, disk: str, share: str
) -> None:
    """Its bytes are held all the same, so others are given up for them."""
    real = play("", group=True, memory=memory, disk=disk, max_client_share=share)
    pool = Pool("", real.stage.pool.memory_limit, real.stage.pool.disk_limit, real.stage.pool.client_share)
    gone, _, disk_peak = pressed(recorded_group, pool)
    reasons = {name: reason for name, (reason, _) in gone.items()}
    assert reasons == {name: reason for name, (reason, _) in real.pressed.items()}
    assert not {"member", "stuck member"} & set(reasons)
    assert disk_peak == pytest.approx(real.stage.pool.disk_peak_bytes, rel=0.15, abs=70_000)
