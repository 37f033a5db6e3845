"""Queues that are bound once more, to get what is recorded (``from``): they go on in the lane they read before."""

from __future__ import annotations

import pytest
from tests.core.queue_wire import run_of
from tests.server.journal_stage import JournalStage, Publisher

from headway.core.consumer import SubscriptionOptions, parse_options
from headway.core.message import TOPICS
from headway.core.routing import Binding, Destination, Exchange
from headway.server.journal import compaction as snapshot_schedule

CONFIG = '[[topic]]\nfilter = "rec/#"\nkeep = "7d"\n'
EARLIEST: SubscriptionOptions = parse_options([("from", "earliest")])


def bind(stage: JournalStage, queue: str, options: SubscriptionOptions = EARLIEST) -> None:
    binding = Binding(TOPICS, Destination("queue", queue), "#")
    stage.broker.queues.bind(stage.session, binding, stage.now, options=options)


def publish(stage: JournalStage, number: int, key: str = "rec.a") -> None:
    stage.broker.intake.publish_to(stage.session, run_of(key, [b"%d " % number], exchange=TOPICS), stage.now)
    stage.turn()


def bytes_of_lanes(stage: JournalStage) -> int:
    pool = stage.broker.registry.pools[""]
    return pool.memory_bytes - pool.state_bytes


def test_a_queue_reads_a_feed_that_the_router_knows() -> None:
    stage = JournalStage(config=CONFIG)
    stage.declare("q")
    publish(stage, 1)
    for _ in range(2):
        bind(stage, "q")
        stage.turn()
        queue, feeds = stage.broker.queues.queue(stage.session, "q"), stage.broker.registry.router.feeds
        assert feeds.get(queue.feed.key) is queue.feed
    publish(stage, 2)
    assert stage.all_of("q") == [1, 1, 2]
    stage.broker.queues.delete(queue, stage.now)
    stage.turn()
    assert (feeds, bytes_of_lanes(stage)) == ({}, 0)


def test_a_queue_that_a_copy_calls_by_name_for_the_first_time_is_sent_it_once() -> None:
    """It reads another feed from then on, and the record's first key has led to the one before."""
    stage = JournalStage(config=CONFIG)
    stage.declare("q")
    queues = stage.broker.queues
    queues.declare_exchange(Exchange("e", "topic", durable=True, alternate=""))
    queues.bind(stage.session, Binding("e", Destination("queue", "q"), "k"))
    stage.turn()
    run = run_of("k", [b"1 "], exchange="e", headers={"CC": ["q"]})
    assert stage.broker.intake.publish_to(stage.session, run, stage.now).taken == 1
    stage.turn()
    assert stage.all_of("q") == [1]
    queues.delete(queues.queue(stage.session, "q"), stage.now)
    stage.turn()
    assert bytes_of_lanes(stage) == 0


def test_a_queue_that_was_bound_again_keeps_its_records_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are behind an older one, among others that came and went."""
    monkeypatch.setattr(snapshot_schedule, "METADATA_BYTES", 4000)
    stage = JournalStage(config=CONFIG)
    publisher = Publisher(stage)
    for name in ("old", "q", "talk"):
        stage.declare(name)
    publish(stage, 0)
    bind(stage, "q", parse_options([]))
    publisher.publish("old", 1)
    stage.turn()
    bind(stage, "q")
    for number in range(2, 600):
        if number % 100 == 2:
            publish(stage, number, "not.recorded")
        publisher.publish("talk", number, size=1000)
        stage.loop.pass_time(1.0)
        stage.turn()
        while (got := stage.get("talk")) is not None:
            stage.ack(got[1])
    assert publisher.told == list(range(1, 600))
    stage.journal.close()
    again = JournalStage(stage.files, config=CONFIG)
    assert again.all_of("old") == [1]
    assert again.all_of("q") == [2, 102, 202, 302, 402, 502]
