"""The rows of ActiveMQ over queues, one story each (test_rows_activemq.py has them over topics)."""

from __future__ import annotations

import pytest
from tests.core.queue_rows import ALL_SLOW, KB, MB, assert_told_why
from tests.core.queues_stage import QueueStage, consumer, owner
from tests.core.stage import STUCK, documented

from headway.core.base.errors import Reason
from headway.core.telemetry import stats

# -- ActiveMQ -------------------------------------------------------------------------------------------------------


def test_a1_the_producer_is_blocked_until_the_consumer_has_caught_up() -> None:
    stage = QueueStage(documented("A1"))
    publisher, elsewhere = owner(stage, "q", "other"), stage.peer("elsewhere")
    publisher.bind("q", "amq.topic", "orders.#")
    slow = consumer(stage, "slow", reads=100 * KB)
    sent = refused = 0
    for number, _ in enumerate(stage.steps(20)):
        if publisher.publish("orders.1", sent, 60, exchange="amq.topic", size=1000):
            sent += 60
        else:
            refused += 1
        assert elsewhere.publish("other", number)
    assert refused > 20, "held back for as long as it takes"
    assert sent < 60 * 200 / 2, "to about the pace of the consumer"
    assert stage.told("fast_producer")[0]["client"] == "owner"
    stage.run(30)
    assert slow.numbers == list(range(sent)), "and nothing is lost"
    assert not publisher.paused
    charged = next(one for one in stats.consumers(stage.broker, stage.now) if one.client == "slow")
    assert charged.producer_stall_ms > 2000


def test_a1_an_mqtt_publisher_is_blocked_by_a_queue_as_well() -> None:
    stage = QueueStage(documented("A1"))
    owner(stage).bind("q", "amq.topic", "orders.#")
    slow = consumer(stage, "slow", reads=100 * KB)
    publisher = stage.client("mqtt")
    sent = 0
    for _ in stage.steps(20):
        if publisher.publish("orders/1", sent, 60, size=1000):
            sent += 60
    assert sent < 60 * 200 / 2
    stage.run(30)
    assert slow.numbers == list(range(sent))


def test_a1_who_blocks_publishers_does_so_no_more_when_its_queue_is_bound_elsewhere() -> None:
    """The lane it read may be gone, and whoever waited for it goes on all the same."""
    stage = QueueStage(documented("A1"))
    publisher, other = owner(stage), stage.peer("other")
    publisher.bind("q", "amq.topic", "orders.#")
    slow = consumer(stage, "slow", reads=STUCK)
    sent = 0
    for _ in stage.steps(4):
        if publisher.publish("orders.1", sent, 60, exchange="amq.topic", size=1000):
            sent += 60
    assert publisher.paused
    other.bind("q", "amq.topic", "orders.1")
    slow.reads = 10 * MB
    stage.run(3)
    assert slow.numbers == list(range(sent))
    assert not publisher.paused
    assert publisher.publish("orders.1", sent, exchange="amq.topic")
    stage.run(1)
    assert slow.numbers == list(range(sent + 1))


def test_a1_who_was_held_back_before_anybody_noted_it_goes_on_when_the_consumer_is_gone() -> None:
    """The only one that did not block publishers leaves, and between two looks somebody publishes."""
    stage = QueueStage(ALL_SLOW % '"block_publishers"')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    idle = consumer(stage, "idle", prefetch=1, acks=False)
    publisher.publish("q", 0, 50, size=100)
    stage.run(3)
    assert not publisher.paused
    idle.leave()
    publisher.publish("q", 50)
    stage.turn()
    assert publisher.paused
    stuck.leave()
    stage.run(1)
    assert not publisher.paused


def test_a2_a_finite_amount_is_spooled_to_disk() -> None:
    stage = QueueStage(documented("A2"), memory="8MB", disk="2MB", max_client_share="100%")
    publisher = owner(stage)
    slow = consumer(stage, "slow", acks=None, reads=STUCK)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("q", number * 10, 10, size=1000)
    assert stage.told("offlined", "slow"), "though there is memory for it"
    assert stage.pool.disk_bytes > 0.8 * MB
    assert stage.pool.memory_bytes < 0.2 * MB
    slow.reads = 10 * MB
    stage.run(1)
    assert slow.numbers == list(range(1000))
    assert stage.pool.disk_bytes == 0
    slow.reads = STUCK
    for number, _ in enumerate(stage.steps(30)):
        publisher.publish("q", 1000 + number * 10, 10, size=1000)
    assert_told_why(slow, Reason.DISK_LIMIT, "disk is over its limit")


def test_a3_discarded_until_slow_no_more_what_comes_by_selector_or_by_topic() -> None:
    stage = QueueStage(documented("A3"))
    publisher = owner(stage, "ticks", "orders", "quotes")
    consumers = {}
    for name in ("ticks", "orders", "quotes"):
        publisher.bind(name, "amq.topic", f"{name}.#")
        consumers[name] = consumer(stage, name, name, acks=None, reads=STUCK)
    everything: list[int] = []

    def publish(number: int) -> None:
        odd = bool(number % 2)
        publisher.publish("ticks.a", number, exchange="amq.topic")
        publisher.publish("orders.a", number, exchange="amq.topic", priority=2 if odd else 7)
        publisher.publish("quotes.minor.a" if odd else "quotes.major.a", number, exchange="amq.topic")
        everything.append(number)

    for number, _ in enumerate(stage.steps(20)):
        publish(number)
    for peer in consumers.values():
        peer.reads = 100 * KB
    stage.run(2)
    for number, _ in enumerate(stage.steps(2), 200):
        publish(number)
    stage.run(1)
    for name, peer in consumers.items():
        left_out = sorted(set(everything) - set(peer.numbers))
        assert left_out, name
        assert peer.numbers == sorted(peer.numbers)
        assert set(range(200, 220)) <= set(peer.numbers), f"{name}: slow no more, it gets everything again"
        assert stage.counts(name) == {"discarded": len(left_out)}
        if name != "ticks":
            assert left_out == [number for number in left_out if number % 2], f"{name}: only what is marked"
            assert {n for n in everything if not n % 2} <= set(peer.numbers)
    kept = [number for number in consumers["ticks"].numbers if number < 200]
    assert kept == list(range(len(kept))), "what waited stays, what comes is left out"
    assert 50 <= len(kept) <= 80
    assert stage.pool.memory_bytes == 0


def test_a5_few_are_slow_they_go_most_are_slow_the_publisher_waits() -> None:
    """Of the consumers of all queues that are bound alike."""
    for stuck in (3, 6):
        stage = QueueStage(documented("A5"))
        names = [f"q{number}" for number in range(10)]
        publisher = owner(stage, *names)
        for name in names:
            publisher.bind(name, "amq.fanout")
        consumers = [
            consumer(stage, name, name, acks=None, reads=STUCK if number < stuck else float("inf"))
            for number, name in enumerate(names)
        ]
        sent = 0
        for _ in stage.steps(10):
            sent += 10 if publisher.publish("", sent, 10, exchange="amq.fanout", size=100) else 0
        if stuck == 3:
            assert [one.connected for one in consumers] == [False] * 3 + [True] * 7
            assert_told_why(consumers[0], Reason.LAG_AGE, "had waited")
            assert sent == 1000, "nobody holds it back"
            assert len(consumers[9].seen) == 1000
            continue
        assert publisher.paused
        assert all(one.connected for one in consumers)
        for one in consumers:
            one.reads = 1 * MB
        stage.run(3)
        assert not publisher.paused, "they are slow no more"
        assert all(one.numbers == list(range(sent)) for one in consumers)


def test_a7_one_slow_consumer_of_a_queue_is_no_problem() -> None:
    stage = QueueStage(ALL_SLOW % '"block_publishers"')
    publisher = owner(stage)
    slow, fast = consumer(stage, "slow", acks=None, reads=STUCK), consumer(stage, "fast", acks=None)
    for number, _ in enumerate(stage.steps(10)):
        assert publisher.publish("q", number, size=500)
    assert stage.told("slow") == []
    assert len(slow.seen) + len(fast.seen) >= 96
    assert stage.pool.memory_bytes == 0


def test_a7_all_slow_blocks_the_producer() -> None:
    stage = QueueStage(ALL_SLOW % '"block_publishers"')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    other = consumer(stage, "other", acks=None, reads=2500)
    sent = 0
    for _ in stage.steps(10):
        sent += bool(publisher.publish("q", sent, size=500))
    assert sent == 100, "one of them still takes records, if too few"
    assert {one["client"] for one in stage.told("slow")} == {"stuck"}
    assert stage.queue("q").backlog.lag_records > 30
    other.reads = STUCK
    stage.run(3)
    publisher.publish("q", sent)
    sent += 1
    stage.turn()
    assert publisher.paused
    stage.run(1)
    assert not publisher.publish("q", sent)
    third = consumer(stage, "third", prefetch=1, acks=False)  # who is not slow is enough
    stage.run(1)
    assert not publisher.paused
    sent += bool(publisher.publish("q", sent))
    stage.run(1)
    assert not publisher.paused
    third.leave()
    stage.run(1)
    publisher.publish("q", sent)
    sent += 1
    stage.turn()
    assert publisher.paused
    for peer in (stuck, other):
        peer.reads = 10 * MB
    stage.run(1)
    assert not publisher.paused
    assert sorted(stuck.numbers + other.numbers) == list(range(sent)), "what the third had came back"


def test_a7_all_slow_discards() -> None:
    stage = QueueStage(ALL_SLOW % '{ action = "discard", which = "oldest", keep_records = 5 }')
    publisher = owner(stage)
    stuck = consumer(stage, "stuck", acks=None, reads=STUCK)
    other = consumer(stage, "other", acks=None, reads=2500)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("q", number, size=500)
    assert stage.counts("q") == {}
    other.reads = STUCK
    for number, _ in enumerate(stage.steps(6), 100):
        publisher.publish("q", number, size=500)
    assert stage.queue("q").backlog.lag_records <= 7
    dropped = stage.counts("q")["discarded"]
    assert dropped > 50
    for peer in (stuck, other):
        peer.reads = 10 * MB
    stage.run(1)
    assert len(set(stuck.numbers + other.numbers)) == 160 - dropped
    assert set(range(155, 160)) <= set(stuck.numbers + other.numbers), "the newest"
    assert sorted(stuck.numbers) == stuck.numbers
    assert sorted(other.numbers) == other.numbers


@pytest.mark.parametrize("company", ["who asked once", "who stands by"])
@pytest.mark.parametrize("then", ['"block_publishers"', '{ action = "discard", which = "oldest", keep_records = 5 }'])
def test_a7_who_is_given_nothing_is_no_consumer_that_could_help(company: str, then: str) -> None:
    stage = QueueStage(ALL_SLOW % then)
    publisher = owner(stage, single_active=company == "who stands by")
    consumer(stage, "stuck", acks=None, reads=STUCK)
    if company == "who asked once":
        stage.peer("company").get("q")
    else:
        consumer(stage, "company")
    for number, _ in enumerate(stage.steps(6)):
        publisher.publish("q", number, size=500)
    if "discard" in then:
        assert stage.counts("q")["discarded"] > 20
    else:
        assert publisher.paused


def test_who_stands_by_is_not_judged_by_what_waits_for_another() -> None:
    stage = QueueStage(documented("M4"))
    publisher = owner(stage, single_active=True)
    active = consumer(stage, "active", acks=None, reads=STUCK)
    standby = consumer(stage, "standby")
    publisher.publish("q", 0, 100)
    stage.run(31)
    assert_told_why(active, Reason.LAG_AGE)
    assert standby.connected
    stage.run(1)
    assert standby.numbers == list(range(100 - len(standby.seen), 100))
    assert len(standby.seen) > 50


def test_nobody_is_judged_by_what_came_back_at_the_same_look() -> None:
    """One is cut, and what it held is old at once for the next who is looked at; who may never have seen it."""
    stage = QueueStage("""
    [[policy]]
    name = "age"

    [[policy.rule]]
    when = { any = [{ ack_age = "2s" }, { lag_age = "1s" }] }
    then = "disconnect"
    """)
    publisher = owner(stage)
    holds, works = consumer(stage, "holds", prefetch=1, acks=False), consumer(stage, "works", prefetch=5, acks=False)
    for number, _ in enumerate(stage.steps(4)):
        publisher.publish("q", number)
        stage.turn()
        for delivery_id in works.ids()[:-1]:
            works.ack(delivery_id)
    assert_told_why(holds, Reason.ACK_AGE)
    assert works.connected
    works.acks[1, "q"] = True
    works.ack_upto(0)
    stage.run(1)
    assert sorted(works.numbers) == list(range(40))
    assert works.again == holds.numbers == [0]
