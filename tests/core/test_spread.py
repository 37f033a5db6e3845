"""A record to very many lanes is appended to some of them in each turn. Nobody can tell that from one that took its
time to come. Here three lanes are very many, and a turn has work for one or two."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from tests.core.queues_stage import QueueStage, purged
from tests.core.receipts_stage import asks, only
from tests.core.stage import STUCK, Client, Socket, Stage

from headway.core.consumer.request import Will
from headway.core.delivery import fanout
from headway.core.log import Lane
from headway.core.message import Record
from headway.core.routing import publishing
from headway.core.routing import publishing as appending
from headway.core.routing.matching import router

LANES = 20


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "WIDE_WORK", 2)
    monkeypatch.setattr(appending, "LANE_WORK", 1500)


def readers(stage: Stage, count: int = LANES, qos: int = 0) -> list[Client]:
    """Clients with a lane each: their filters differ."""
    found = []
    for number in range(count):
        client = stage.client(f"reader {number}")
        levels = "/".join("+" if number >> bit & 1 else "a" for bit in range(5))
        client.subscribe(f"{levels}/#", qos)
        found.append(client)
    return found


TOPIC = "a/a/a/a/a"


def lanes(stage: Stage) -> list[Lane]:
    return [feed.lane for feed in stage.broker.registry.router.route(TOPIC).feeds]


def coming(stage: Stage) -> int:
    """How many lanes do not have it yet."""
    return sum(lane.coming is not None for lane in lanes(stage))


def test_some_lanes_get_it_in_each_turn() -> None:
    stage = Stage()
    all_readers, publisher = readers(stage), stage.client("publisher")
    publisher.publish(TOPIC, 0, 3)
    left = [coming(stage)]
    while left[-1]:
        assert stage.broker.has_work
        stage.broker.flush(stage.now)
        left.append(coming(stage))
    assert left[0] >= LANES - 2
    assert all(before - after <= 2 for before, after in pairwise(left))
    stage.turn()
    assert all(reader.numbers == [0, 1, 2] for reader in all_readers)
    assert not stage.broker.registry.backpressure.wide.coming
    assert not stage.pool.coming_bytes


@pytest.mark.parametrize("topic", [TOPIC, "b/b/a/a/b"], ids=["to all", "to the last"])
def test_what_another_publishes_meanwhile_comes_behind_it(topic: str) -> None:
    stage = Stage()
    all_readers, publisher, other = readers(stage), stage.client("publisher"), stage.client("other")
    last = all_readers[-1]
    publisher.publish(TOPIC, 0)
    assert all(one.feed.lane.coming is not None for one in last.session.subscriptions.values())
    other.publish(topic, 1)  # as the broker itself does, who does not wait
    stage.turn()
    assert last.numbers == [0, 1]
    assert all(reader.numbers in ([0], [0, 1]) for reader in all_readers)


def test_publishers_to_very_many_wait_and_take_turns() -> None:
    """And whose records go to few do not."""
    stage = Stage()
    readers(stage)
    narrow = stage.consumer("narrow", "b")
    publishers = [stage.client(f"publisher {number}") for number in range(4)]
    order = []

    def may(publisher: Client) -> bool:
        run = Record(TOPIC, b"0").run()
        return not stage.broker.intake.must_wait(publisher.session, run, stage.now)

    publishers[0].publish(TOPIC, 0)
    assert publishers[0].session.paused_by, "its own next record waits"
    assert not any(may(publisher) for publisher in publishers)
    publishers[1].publish("b", 7)
    for _ in range(12 * LANES):
        stage.broker.flush(stage.now)
        for publisher in publishers:
            if not publisher.session.paused_by and may(publisher):
                order.append(publisher.name[-1])
                publisher.publish(TOPIC, 1)
    assert "".join(order[:8]) == "01230123"
    stage.turn()
    assert narrow.numbers == [7]


def test_whoever_comes_meanwhile_does_not_get_it_and_whoever_goes_had_it_counted() -> None:
    stage = Stage()
    all_readers, publisher = readers(stage), stage.client("publisher")
    publisher.publish(TOPIC, 0)
    last = lanes(stage)[-1]
    leaver = next(reader for reader in all_readers for one in reader.session.subscriptions.values() if
                  one.feed.lane is last)  # fmt: skip
    (left,) = leaver.session.subscriptions.values()
    late = stage.client("late")
    late.subscribe(left.filter)
    assert last.coming is None, "who begins at its end begins behind it"
    lone = lanes(stage)[-2]
    (goer,) = [reader for reader in all_readers for one in reader.session.subscriptions.values() if
               one.feed.lane is lone]  # fmt: skip
    stage.broker.unsubscribe(goer.session, next(iter(goer.session.subscriptions)), stage.now)
    stage.turn()
    assert late.numbers == goer.numbers == []
    assert publisher.session.lost_records.total() == 1
    assert all(reader.numbers == [0] for reader in all_readers if reader is not goer)


def test_a_durable_reader_has_not_had_it() -> None:
    stage = Stage()
    readers(stage, qos=1)
    publisher = stage.client("publisher")
    publisher.publish(TOPIC, 0, qos=1)
    first = stage.broker.registry.sequence
    waiting = [lane for lane in lanes(stage) if lane.coming is not None]
    cursors = [cursor for lane in waiting for cursor in lane.tail.cursors_here]
    assert {cursor.unsettled_sequence() for cursor in cursors} == {first}
    assert {range_ for cursor in cursors for range_ in cursor.unsettled_ranges(first)} == {(first, first)}


def test_wills_wait_for_each_other() -> None:
    stage = Stage()
    all_readers = readers(stage)
    for number in range(5):
        client = stage.client(f"dying {number}")
        client.session.will = Will(Record(TOPIC, str(number).encode()))
        client.leave()
    together = []
    for _ in range(100):
        together.append(len(stage.broker.registry.backpressure.wide.coming))
        stage.broker.flush(stage.now)
    assert max(together) == 1
    stage.run(3)
    assert all(sorted(reader.numbers) == list(range(5)) for reader in all_readers)


def test_who_does_not_wait_pays_for_what_comes_first() -> None:
    stage = Stage()
    readers(stage)
    announce = stage.broker.admission._publishing.announce
    announce(Record(TOPIC, b"0").run(), stage.now)
    assert announce(Record(TOPIC, b"1").run(), stage.now) >= (LANES - 2) * publishing.LANE_WORK


def test_a_view_is_not_told_that_it_has_it() -> None:
    stage = Stage()
    last = readers(stage)[-1]
    (subscription,) = last.session.subscriptions.values()
    before = stage.broker.registry.sequence
    stage.client("publisher").publish(TOPIC, 0)
    assert stage.broker.registry.sequence > before
    assert subscription.sent_upto(stage.broker.registry.sequence, stage.now) == (before, 0.0)


def test_publisher_that_leaves_has_published() -> None:
    stage = Stage()
    all_readers, publisher = readers(stage), stage.client("publisher")
    publisher.publish(TOPIC, 0, 2)
    publisher.leave()
    stage.turn()
    assert all(reader.numbers == [0, 1] for reader in all_readers)


def test_all_have_it_when_the_broker_stops() -> None:
    stage = Stage()
    readers(stage)
    stage.client("publisher").publish(TOPIC, 0)
    stage.broker.registry.deferred.finish()
    assert not coming(stage)


def test_it_counts_in_the_pool_before_it_comes() -> None:
    stage = Stage(memory="1MB", disk="0B")
    for reader in readers(stage):
        reader.reads = STUCK
    before = stage.pool.memory_bytes
    stage.client("publisher").publish(TOPIC, 0, size=1000)
    assert coming(stage) > LANES // 2
    assert stage.pool.memory_bytes - before >= LANES * 1000


def test_a_receipt_counts_all_who_are_to_have_it() -> None:
    stage = Stage()
    readers(stage)
    asks(stage, topic=TOPIC)
    only(stage, owed=LANES, got=LANES)


def test_who_replaces_a_subscription_has_it_once() -> None:
    stage = Stage()
    last = readers(stage)[-1]
    (before,) = last.session.subscriptions.values()
    stage.client("publisher").publish(TOPIC, 0)
    last.subscribe(before.filter, 1)
    stage.turn()
    assert last.numbers == [0]


def test_a_queue_that_goes_on_elsewhere_has_it_once() -> None:
    stage = QueueStage()
    names = [f"q{number}" for number in range(LANES)]
    owner = stage.peer("owner")
    for name in names:
        owner.declare(name)
        owner.bind(name, "amq.fanout")
        owner.bind(name, "amq.direct", name)
    stage.turn()
    owner.publish("any", 0, exchange="amq.fanout")
    name = next(name for name in names if stage.queue(name).feed.lane.coming is not None)
    before = stage.queue(name).feed
    owner.bind(name, "amq.topic", "other")
    assert stage.queue(name).feed is not before
    consumer = stage.peer("consumer")
    consumer.consume(name)
    stage.turn()
    assert consumer.numbers == [0]


def test_a_conflated_reader_gets_it_once() -> None:
    """The state has it before the lane."""
    stage = Stage('[[topic]]\nfilter = "a/#"\nkey = "topic"\n')
    readers(stage)
    slow = stage.client("slow", reads=STUCK, buffer=0)
    slow.subscribe("a/a/#", conflate="1s")
    stage.turn()
    publisher = stage.client("publisher")
    publisher.publish(TOPIC, 0)
    slow.reads = 1e9
    slow.outlet.capacity = 10**6
    stage.run(5)
    publisher.publish(TOPIC, 1)
    stage.run(5)
    assert slow.numbers == [0, 1]


@pytest.mark.parametrize("how", ["get", "purge", "delete", "count", "has_some_for"])
def test_a_queue_has_it_when_somebody_asks(how: str) -> None:
    stage = QueueStage()
    owner, names = stage.peer("owner"), [f"q{number}" for number in range(LANES)]
    for name in names:
        owner.declare(name, records_max=1000, refuses=True)
        owner.bind(name, "amq.fanout")
    stage.turn()
    owner.publish("any", 0, exchange="amq.fanout")
    name = next(name for name in names if stage.queue(name).feed.lane.coming is not None)
    if how == "get":
        got = owner.get(name)
        assert got is not None
        assert got[0].number == 0
    elif how == "purge":
        assert purged(stage.queue(name)) == 1
    elif how == "delete":
        assert owner.delete(name) == 1
    elif how == "count":
        assert len(stage.queue(name).waiting(9, 10**6, stage.now)) == 1
    else:
        member = owner.consume(name)
        owner.publish("any", 1, exchange="amq.fanout")
        assert stage.queue(name).has_some_for(member, stage.now)


def test_what_is_small_is_joined_for_a_client_of_many_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it has kept up or has fallen behind. And each of its filters has its records in order."""
    monkeypatch.setattr(router, "WIDE_WORK", 512)
    stage = Stage()
    reader, publisher = stage.client("reader", buffer=10**6), stage.client("publisher")
    for number in range(1000):
        reader.subscribe(f"t/{number}")
    stage.turn()
    sends: list[int] = []
    send = type(reader.outlet).send

    def counted(outlet: Socket, views: Sequence[bytes], total: int) -> int:
        sends.append(total)
        return send(outlet, views, total)

    monkeypatch.setattr(Socket, "send", counted)
    for number in range(1000):
        publisher.publish(f"t/{number}", number)
    stage.broker.flush(stage.now)
    assert len(sends) <= 1 + 1000 * 140 // (fanout.OUT_BYTES - fanout.JOINED_BYTES) + 1
    assert max(sends) <= fanout.OUT_BYTES
    stage.turn()
    reader.outlet.capacity = 0
    for number in range(1000, 3000):
        publisher.publish(f"t/{number % 1000}", number)
    stage.turn()
    assert len(reader.session.lagging) == 1000, "what a blocked client is not sent stays in its lanes"
    del sends[:]
    reader.outlet.capacity = 10**7
    stage.broker.writable(reader.session, stage.now)
    stage.turn()
    assert not reader.session.lagging
    assert len(sends) < 50
    assert sorted(reader.numbers) == list(range(3000))
    of_one = [number for number in reader.numbers if number % 1000 == 7]
    assert of_one == [7, 1007, 2007]
