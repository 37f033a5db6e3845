"""The ways to a queue: exchanges, and MQTT beyond amq.topic."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.queue_wire import Delivered
from tests.core.queues_stage import Peer, QueueStage, drained, reader
from tests.core.stage import STUCK

from headway.core.routing.matching.bindings import Binding, Destination


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


@pytest.fixture
def peer(stage: QueueStage) -> Peer:
    return stage.peer("peer")


# -- ways -----------------------------------------------------------------------------------------------------------


def test_every_queue_can_be_published_to_by_its_name(stage: QueueStage, peer: Peer) -> None:
    """Also when it shares a lane: from then on it has one of its own, and loses nothing of the other's."""
    for name in ("q", "r"):
        peer.declare(name)
        peer.bind(name, "amq.topic", "a.*")
        peer.bind(name, "amq.direct", "k")
    peer.publish("a.b", 0, exchange="amq.topic")
    peer.publish("k", 1, exchange="amq.direct")
    assert len(stage.lanes) == 1
    peer.publish("q", 2)
    assert len(stage.lanes) == 2
    peer.publish("a.b", 3, exchange="amq.topic")
    peer.publish("k", 4, exchange="amq.direct")
    peer.publish("q", 5)
    peer.publish("r", 6)
    peer.publish("a.b", 7, exchange="amq.topic")
    peer.publish("k", 8, exchange="amq.direct")
    assert drained(stage, "q") == [0, 1, 2, 3, 4, 5, 7, 8]
    assert drained(stage, "r") == [0, 1, 3, 4, 6, 7, 8]
    stage.turn()
    assert len(stage.lanes) == 2
    assert stage.pool.memory_bytes == 0


def test_from_exchange_to_exchange_and_to_the_alternate(stage: QueueStage, peer: Peer) -> None:
    peer.exchange("in", "topic", alternate="rest")
    peer.exchange("rest", "fanout")
    peer.exchange("next", "direct")
    peer.chain("in", "next", "to.next.#")
    for name, source, key in (("q", "in", "to.q"), ("n", "next", "to.next.1"), ("lost", "rest", "")):
        peer.declare(name)
        peer.bind(name, source, key)
    for number, key in enumerate(("to.q", "to.next.1", "to.next.2", "elsewhere")):
        peer.publish(key, number, exchange="in")
    assert drained(stage, "q") == [0]
    assert drained(stage, "n") == [1]
    assert drained(stage, "lost") == [3], "what goes to an exchange has been routed, wherever it ends"


def test_by_headers(stage: QueueStage, peer: Peer) -> None:
    for name in ("both", "any"):
        peer.declare(name)
    peer.bind("both", "amq.headers", "", a=1, b="x")
    peer.bind("any", "amq.headers", "", x_match="any", a=1, b="x")
    sent: tuple[dict[str, Any], ...] = ({"a": 1, "b": "x"}, {"a": 1}, {"b": "y"}, {"b": "x", "c": 1})
    for number, headers in enumerate(sent):
        peer.publish("k", number, exchange="amq.headers", **headers)
    assert drained(stage, "both") == [0]
    assert drained(stage, "any") == [0, 1, 3]


def test_by_headers_though_another_exchange_is_deleted(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("other")
    peer.bind("q", "other", "k")
    peer.bind("q", "amq.headers", "", a=1)
    list(peer.broker.queues.delete_exchange("other", if_unused=False))
    for number in (1, 2, 1):
        peer.publish("k", number, exchange="amq.headers", a=number)
    assert drained(stage, "q") == [1, 1]


def test_headers_are_nobodys_business_when_their_exchange_is_deleted(stage: QueueStage, peer: Peer) -> None:
    """What routes are remembered for does not depend on them any more."""
    peer.declare("q")
    peer.exchange("headers", "headers")
    peer.exchange("front", "fanout")
    peer.bind("q", "headers", "", a=1)
    peer.bind("q", "front", "")
    exchanges = stage.broker.registry.router.exchanges
    exchanges.bind(Binding("front", Destination("exchange", "headers"), ""))
    assert exchanges.looks_at("front") == ({"a": 1},)
    list(peer.broker.queues.delete_exchange("headers", if_unused=False))
    assert exchanges.looks_at("front") == ()


def test_where_nobody_is_nothing_is_taken(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    for key, exchange in (("other", ""), ("k", "amq.direct"), ("k", "amq.topic"), ("k", "no such exchange")):
        published = peer.publish(key, 0, exchange=exchange)
        assert published is not None
        assert published.taken == 0
    assert stage.pool.memory_bytes == 0


# -- MQTT on the other side -----------------------------------------------------------------------------------------


def test_what_is_published_to_amq_topic_reaches_mqtt(stage: QueueStage, peer: Peer) -> None:
    subscriber = stage.consumer("mqtt", "plant/+/temperature")
    old = stage.consumer("mqtt 3.1.1", "plant/#", version=4)
    peer.exchange("in", "direct")
    peer.chain("in", "amq.topic", "plant.3.temperature")
    peer.publish("plant.1.temperature", 1, exchange="amq.topic")
    peer.publish("plant.2.pressure", 2, exchange="amq.topic")
    peer.publish("plant.3.temperature", 3, exchange="in")
    peer.publish("plant.4.temperature", 4, exchange="amq.direct")
    stage.turn()
    assert subscriber.numbers == [1, 3]
    assert [seen.topic for seen in old.seen] == ["plant/1/temperature", "plant/2/pressure", "plant/3/temperature"]


def test_what_is_published_over_mqtt_reaches_queues(stage: QueueStage, peer: Peer) -> None:
    publisher = stage.client("mqtt")
    for name, key in (("star", "plant.*.temperature"), ("hash", "plant.#"), ("exact", "a.b"), ("dotted", "v1/2.x")):
        peer.declare(name)
        peer.bind(name, "amq.topic", key)
    peer.exchange("next", "fanout")
    peer.chain("amq.topic", "next", "a.#")
    peer.declare("chained")
    peer.bind("chained", "next")
    for number, topic in enumerate(("plant/1/temperature", "plant", "a/b", "a", "v1.2/x", "v1/2/x")):
        publisher.publish(topic, number, qos=1)
    stage.turn()
    got = {name: drained(stage, name) for name in ("star", "hash", "exact", "dotted", "chained")}
    assert got == {"star": [0], "hash": [0, 1], "exact": [2], "dotted": [4], "chained": [2, 3]}


def test_a_queue_bound_to_all_topics_is_not_told_of_the_brokers_own(stage: QueueStage, peer: Peer) -> None:
    peer.declare("all")
    peer.bind("all", "amq.topic", "#")
    peer.declare("own")
    peer.bind("own", "amq.topic", "$SYS.headway.slow.#")
    stage.broker.intake.advisories.tell("slow", "somebody", stage.now, text="")
    assert stage.queue("all").backlog.lag_records == 0
    assert stage.queue("own").backlog.lag_records == 1


def test_one_record_for_both_worlds(stage: QueueStage, peer: Peer) -> None:
    """Facts and payload are the same, whichever way it came and went."""
    subscriber = stage.consumer("mqtt", "t/#")
    publisher = stage.client("publisher")
    peer.declare("q")
    peer.bind("q", "amq.topic", "t.#")
    consumer = reader(stage, "q")
    publisher.publish("t/1", 1, priority=7)
    peer.publish("t.2", 2, exchange="amq.topic", priority=3)
    stage.turn()
    found: list[Delivered] = consumer.seen
    assert [(one.record.topic, one.key, one.record.properties.user_value("priority")) for one in found] == [
        ("t/1", "t.1", "7"), ("t/2", "t.2", "3"),
    ]  # fmt: skip
    assert [one.record.payload for one in found] == [seen.payload for seen in subscriber.seen]
    assert [seen.topic for seen in subscriber.seen] == ["t/1", "t/2"]


def test_a_stuck_mqtt_subscriber_and_a_stuck_queue_do_not_hold_each_other(stage: QueueStage, peer: Peer) -> None:
    publisher = stage.client("publisher")
    stage.consumer("stuck", "t", reads=STUCK)
    healthy = stage.consumer("healthy", "t")
    peer.declare("q")
    peer.bind("q", "amq.topic", "t")
    peer.declare("nobody's")
    peer.bind("nobody's", "amq.topic", "t")
    consumer = reader(stage, "q")
    for number, _ in enumerate(stage.steps(5)):
        publisher.publish("t", number, size=500)
        stage.turn()
        assert len(healthy.seen) == len(consumer.seen) == number + 1
