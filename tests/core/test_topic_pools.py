"""Pools of topics: what is under the filter of one takes up room there alone, and its trouble stays there."""

from __future__ import annotations

import pytest
from tests.core.pressure_stage import publish_while_read
from tests.core.queue_wire import PLAIN
from tests.core.queues_stage import QueueStage
from tests.core.stage import STUCK, Stage, run_to

from headway.core.base.errors import Reason
from headway.core.log.lanes.pool import Pool
from headway.core.telemetry import stats


def with_pool(filter: str, memory: str = "200KB", disk: str = "0B") -> str:
    return f'[[topic]]\nfilter = "{filter}"\npool = {{ memory = "{memory}", disk = "{disk}" }}\n'


def pool_of(stage: Stage, filter: str) -> Pool:
    return stage.broker.registry.pools[f"topic {filter}"]


def test_a_full_topic_pool_costs_its_own_consumers_and_nobody_else() -> None:
    stage = Stage(with_pool("orders/#"), memory="200KB", disk="0B", max_client_share="100%")
    stuck = stage.consumer("stuck", "orders/+", reads=STUCK, buffer=500)
    also = stage.consumer("also stuck", "other", reads=STUCK, buffer=500)
    publisher, other = stage.client("publisher"), stage.client("other publisher")
    other.publish("other", 0, 100, size=1000)
    for turn in range(40):
        publisher.publish("orders/new", turn * 10, 10, size=1000)
        stage.run(0.1)
    last = stage.broker.verdicts.last("stuck")
    assert stuck.goodbye is not None
    assert last is not None
    assert last.reason == Reason.MEMORY_LIMIT
    assert also.connected
    assert not other.paused
    assert 180_000 <= pool_of(stage, "orders/#").memory_peak_bytes <= 200_000
    assert stage.pool.memory_peak_bytes <= 110_000


def test_a_topic_pool_goes_to_its_own_disk_in_full() -> None:
    stage = Stage(with_pool("orders/#", disk="4MB"), memory="1MB", disk="1MB")
    stuck = stage.consumer("stuck", "orders/#", reads=STUCK, buffer=500)
    published = publish_while_read(stage.client("publisher"), 100, "orders/new")
    assert stuck.connected, "it holds more than half of the other pool's memory, which is not where it holds it"
    topic = pool_of(stage, "orders/#")
    assert topic.disk_bytes > 800_000 < stage.pool.memory_limit
    assert topic.memory_bytes <= 200_000
    assert stage.pool.memory_peak_bytes < 1000, "what advisories take for a moment"
    told = {pool.name: pool for pool in stats.whole(stage.broker).pools}["topic orders/#"]
    assert (told.memory_limit_bytes, told.disk_bytes) == (200_000, topic.disk_bytes)
    stuck.reads = 1e9
    stage.run(1)
    assert stuck.numbers == list(range(published))


def test_a_full_topic_pool_holds_back_only_publishers_to_it() -> None:
    stage = QueueStage(with_pool("$queue/orders/#"), memory="4MB", disk="0B")
    publisher, other = stage.peer("publisher"), stage.peer("other")
    for name in ("orders.new", "others"):
        publisher.declare(name, durable=True)
    for turn in range(100):
        publisher.publish("orders.new", turn * 10, 10, size=1000)
        other.publish("others", turn * 10, 10, size=1000)
        stage.run(0.1)
    assert publisher.paused
    assert not other.paused
    assert pool_of(stage, "$queue/orders/#").memory_bytes <= 220_000
    assert stage.queue("others").backlog.lag_records == 1000
    reader = stage.peer("reader")
    reader.consume("orders.new")
    stage.run(1)
    assert not publisher.paused, "there is room again"


def test_a_strained_pool_takes_nothing_from_a_topic_pool() -> None:
    """The client holds more than anybody, and most of it where it helps nobody to take it away."""
    stage = Stage(with_pool("orders", "2MB", "2MB"), memory="200KB", disk="0B", max_client_share="100%")
    both = stage.client("both", reads=STUCK, buffer=500)
    both.subscribe("orders")
    both.subscribe("other")
    stuck = stage.consumer("stuck", "more", reads=STUCK, buffer=500)
    publisher = stage.client("publisher")
    publisher.publish("other", 0, 10, size=1000)
    publisher.publish("orders", 0, 1000, size=1000)
    for turn in range(40):
        publisher.publish("more", turn * 10, 10, size=1000)
        stage.run(0.1)
    assert (both.connected, stuck.connected) == (True, False)
    assert pool_of(stage, "orders").disk_bytes == 0


def test_what_a_client_holds_in_a_topic_pool_is_not_spilled_for_others() -> None:
    stage = Stage(with_pool("orders", "2MB", "2MB"), memory="400KB", disk="2MB", max_client_share="100%")
    both, publisher = stage.client("both", reads=STUCK, buffer=500), stage.client("publisher")
    both.subscribe("orders")
    publisher.publish("orders", 0, 1000, size=1000)
    for number in range(8):
        both.subscribe(f"other/{number}")
        publisher.publish(f"other/{number}", 0, 60, size=1000)
        stage.run(0.2)
    assert stage.pool.disk_bytes > 0
    assert pool_of(stage, "orders").disk_bytes == 0


def test_what_a_client_that_left_published_is_not_taken_where_a_topic_pool_is_crowded() -> None:
    stage = Stage(with_pool("orders"), memory="20MB", disk="20MB")
    for topic in ("orders", "other"):
        stage.consumer(topic, topic, reads=STUCK, buffer=500)
    assert not stage.broker.intake.crowds(run_to("orders"))
    stage.client("publisher").publish("orders", 0, 300, size=1000)
    assert stage.broker.intake.crowds(run_to("orders"))
    assert not stage.broker.intake.crowds(run_to("other"))


def test_a_durable_queue_is_back_in_its_pool_after_a_restart() -> None:
    stage = QueueStage(with_pool("$queue/orders"))
    terms, dialect = stage.peer("peer").declare("jobs", durable=True).terms, PLAIN
    found = stage.broker.queues.restore("orders", terms, dialect, "", 7, stage.now)
    assert found.feed.lane.pool is pool_of(stage, "$queue/orders")
    assert stage.queue("jobs").feed.lane.pool is stage.pool


def test_a_client_beyond_its_share_is_told_of_what_it_holds_there() -> None:
    stage = Stage(with_pool("orders", "2MB", "2MB"), memory="200KB", disk="0B")
    both = stage.client("both", reads=STUCK, buffer=500)
    for topic, count in (("orders", 1000), ("other", 120)):
        both.subscribe(topic)
        stage.client("publisher").publish(topic, 0, count, size=1000)
    stage.run(2)
    last = stage.broker.verdicts.last("both")
    assert last is not None
    assert (last.reason, last.filter) == (Reason.CLIENT_SHARE, "other")


def test_pool_share_is_of_the_topic_pool() -> None:
    rule = '[[policy.rule]]\nwhen = { pool_share = "50%" }\nthen = "notify"'
    stage = Stage(f'{with_pool("orders")}[[policy]]\nname = "half"\n{rule}', memory="20MB", disk="20MB")
    for topic in ("orders", "other"):
        stage.consumer(topic, topic, reads=STUCK, buffer=500)
        stage.client("publisher").publish(topic, 0, 120, size=1000)
    stage.run(1)
    assert [one["client"] for one in stage.told("slow")] == ["orders"]


@pytest.mark.parametrize(
    ("pool", "bindings", "there"),
    [
        ("$queue/jobs", [], True),
        ("$queue/job/#", [], False),
        ("#", [], True),
        ("a/#", [("amq.topic", "a.b"), ("amq.topic", "a.*.c")], True),
        ("a/#", [("amq.topic", "a.b"), ("amq.topic", "b")], False),
        ("a/#", [("amq.direct", "a.b")], False),
        ("$exchange/amq.direct/#", [("amq.direct", "a.b")], True),
        ("$exchange/amq.direct/#", [("amq.direct", "a.b"), ("amq.topic", "a.b")], False),
    ],
)
def test_a_queue_is_in_the_pool_that_has_its_name_or_all_of_its_bindings(
    pool: str, bindings: list[tuple[str, str]], there: bool
) -> None:
    stage = QueueStage(with_pool(pool))
    peer = stage.peer("peer")
    peer.declare("jobs")
    for source, key in bindings:
        peer.bind("jobs", source, key)
    assert stage.queue("jobs").feed.lane.pool is (pool_of(stage, pool) if there else stage.pool)
    if bindings and there:
        peer.publish("jobs", 0)
        assert stage.queue("jobs").feed.lane.pool is stage.pool, "now it may get records from elsewhere"


def test_the_first_topic_pool_that_covers_all_of_a_filter_has_its_lane() -> None:
    stage = Stage(with_pool("a/b/#") + with_pool("a/#"))
    found = {}
    for filter in ("a/b/c", "a/+/c", "a", "+/b", "#", "$share/g/a/b"):
        client = stage.consumer(filter, filter)
        (one,) = client.session.subscriptions.values()
        found[filter] = one.feed.lane.pool.topic
    assert found == {"a/b/c": "a/b/#", "a/+/c": "a/#", "a": "a/#", "+/b": "", "#": "", "$share/g/a/b": "a/b/#"}
