"""Queues and exchanges by name: declared, refused, and ended."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.queues_stage import Peer, QueueStage, drained, purged, reader
from tests.core.refusals import refused

from headway.core.base.errors import Reason, Refused
from headway.core.clients.queues import QUEUES_MAX, Queues
from headway.core.consumer.request import QueueTerms
from headway.core.routing.matching.bindings import Binding, Destination


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


@pytest.fixture
def peer(stage: QueueStage) -> Peer:
    return stage.peer("peer")


# -- declaring ------------------------------------------------------------------------------------------------------


def test_a_queue_declared_again_is_the_same_one(stage: QueueStage, peer: Peer) -> None:
    made = peer.declare("q", ttl_s=5.0)
    peer.publish("q", 0)
    assert stage.peer("other").declare("q", ttl_s=5.0) is made
    assert stage.broker.queues.queue(peer.session, "q") is made
    assert made.backlog.lag_records == 1


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"durable": True}, "durable"), ({"auto_delete": True}, "auto-delete"),
        ({"ttl_s": 1.0}, "x-message-ttl"), ({"idle_s": 1.0}, "x-expires"), ({"records_max": 5}, "x-max-length"),
        ({"bytes_max": 5}, "x-max-length-bytes"), ({"refuses": True}, "x-overflow"),
        ({"dead_letter_exchange": "x"}, "x-dead-letter-exchange"),
        ({"dead_letter_key": "x"}, "x-dead-letter-routing-key"), ({"dead_letter_refused": True}, "x-overflow"),
        ({"priorities": 3}, "x-max-priority"), ({"single_active": True}, "x-single-active-consumer"),
    ],
)  # fmt: skip
def test_a_queue_is_not_declared_otherwise_than_it_is(peer: Peer, other: dict[str, Any], words: str) -> None:
    made = peer.declare("q")
    with refused(Reason.PRECONDITION_FAILED, f"with another {words}$"):
        peer.declare("q", **other)
    assert made.terms == QueueTerms()


@pytest.mark.parametrize("exclusive", [True, False])
def test_whether_a_queue_is_exclusive_is_not_changed_by_declaring_it_again(peer: Peer, exclusive: bool) -> None:
    """Not even by its owner; that comes first, whatever else differs (as RabbitMQ has it)."""
    made = peer.declare("q", exclusive=exclusive)
    assert peer.declare("q", exclusive=exclusive) is made
    with refused(Reason.RESOURCE_LOCKED, "^cannot obtain exclusive access to locked queue 'q' in vhost '/'"):
        peer.declare("q", exclusive=not exclusive, durable=True)


@pytest.mark.parametrize("what", ["acknowledge", "requeue", "reject"])
def test_a_delivery_that_never_was_is_refused_in_the_words_that_clients_match(
    stage: QueueStage, peer: Peer, what: str
) -> None:
    queues, channel = stage.broker.queues, peer.channel(1)
    with refused(Reason.PRECONDITION_FAILED, "^unknown delivery tag 7$"):
        if what == "acknowledge":
            queues.acknowledge(channel, [7])
        else:
            queues.refuse(channel, [7], requeue=what == "requeue")


def test_what_is_not_there(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    for ask in (
        lambda: stage.broker.queues.queue(peer.session, "other"),
        lambda: stage.broker.queues.exchange("other"),
        lambda: peer.bind("other", "amq.direct", "k"),
        lambda: peer.bind("q", "other", "k"),
        lambda: peer.chain("amq.direct", "other", "k"),
    ):
        with refused(Reason.NOT_FOUND, "'other'"):
            ask()
    assert stage.broker.registry.router.exchanges.by_name["amq.direct"].bindings.all == {}


def test_exchanges_declared_again_and_otherwise(peer: Peer) -> None:
    peer.exchange("e", "topic", alternate="amq.fanout")
    peer.exchange("e", "topic", alternate="amq.fanout")
    with refused(Reason.PRECONDITION_FAILED, "another kind"):
        peer.exchange("e", "direct", alternate="amq.fanout")
    with refused(Reason.PRECONDITION_FAILED, "another alternate"):
        peer.exchange("e", "topic")
    with refused(Reason.NOT_AUTHORIZED, "broker's own"):
        peer.exchange("amq.mine")


def test_the_brokers_own_exchanges_stay(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    for name in ("", "amq.topic"):
        with refused(Reason.NOT_AUTHORIZED):
            list(stage.broker.queues.delete_exchange(name, if_unused=False))
    with refused(Reason.NOT_AUTHORIZED):
        peer.bind("q", "", "other name")
    with refused(Reason.NOT_AUTHORIZED):
        peer.unbind("q", "", "q")


def test_an_exchange_in_use_and_one_that_is_gone(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("e")
    peer.bind("q", "e", "k")
    with refused(Reason.PRECONDITION_FAILED, "in use"):
        list(stage.broker.queues.delete_exchange("e", if_unused=True))
    list(stage.broker.queues.delete_exchange("e", if_unused=False))
    list(stage.broker.queues.delete_exchange("e", if_unused=True))
    peer.exchange("e")
    assert peer.publish("k", 0, exchange="e").taken == 0  # type: ignore[union-attr]
    peer.publish("q", 1)
    assert drained(stage, "q") == [1]


def test_there_is_an_end_of_queues(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.core.clients.queues.QUEUES_MAX", 2)
    peer.declare("a")
    peer.declare("b")
    peer.declare("a")
    with refused(Reason.TOO_MANY_QUEUES):
        peer.declare("c")
    assert QUEUES_MAX > 2


def test_a_tag_is_given_once_and_consumers_are_limited(stage: QueueStage, peer: Peer, monkeypatch: pytest.MonkeyPatch
                                                       ) -> None:
    peer.declare("q")
    peer.consume("q", tag="t")
    with refused(Reason.NOT_ALLOWED, "tag"):
        peer.consume("q", tag="t")
    peer.consume("q", tag="t", channel=2)
    for number in range(9998):
        peer.consume("q", tag=f"t{number}")
    with refused(Reason.TOO_MANY_SUBSCRIPTIONS, "10000"):
        peer.consume("q", tag="one more")


# -- refusing -------------------------------------------------------------------------------------------------------


def test_a_queue_that_refuses_what_is_too_much(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=5, refuses=True)
    accepted = [peer.publish("q", first, 2).accepted for first in range(0, 10, 2)]  # type: ignore[union-attr]
    assert accepted == [2, 2, 1, 0, 0]
    assert drained(stage, "q") == [0, 1, 2, 3, 4]
    assert stage.counts("q") == {}
    assert stage.dead == []


def test_refused_by_bytes(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", bytes_max=5000, refuses=True)
    accepted = [peer.publish("q", first, 2, size=900).accepted for first in range(0, 10, 2)]  # type: ignore[union-attr]
    assert sum(accepted) == 5
    assert accepted == sorted(accepted, reverse=True)
    assert stage.queue("q").backlog.lag_bytes < 5500


def test_what_a_consumer_takes_at_once_is_not_refused(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=2, refuses=True)
    consumer = reader(stage, "q", acks=None)
    stage.turn()
    assert [peer.publish("q", n).accepted for n in range(5)] == [1] * 5  # type: ignore[union-attr]
    stage.turn()
    assert consumer.numbers == list(range(5))


def test_what_it_takes_at_once_makes_room_for_the_next_run(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=2, refuses=True)
    consumer = reader(stage, "q", acks=None)
    stage.turn()
    assert [peer.publish("q", first, 2).accepted for first in range(0, 6, 2)] == [2] * 3  # type: ignore[union-attr]
    stage.turn()
    assert consumer.numbers == list(range(6))


def test_what_one_queue_refuses_the_others_get(stage: QueueStage, peer: Peer) -> None:
    peer.declare("refusing", records_max=1, refuses=True)
    peer.declare("plain")
    for name in ("refusing", "plain"):
        peer.bind(name, "amq.fanout")
    accepted = [peer.publish("", first, 2, exchange="amq.fanout").accepted for first in (0, 2)]  # type: ignore[union-attr]
    assert accepted == [1, 0], "how many nobody refused"
    assert drained(stage, "refusing") == [0]
    assert drained(stage, "plain") == [0, 1, 2, 3]


def test_what_comes_over_mqtt_is_refused_as_well(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=2, refuses=True)
    peer.bind("q", "amq.topic", "t")
    with pytest.raises(Refused):
        stage.client("mqtt").publish("t", 0, 5)
    stage.turn()
    assert drained(stage, "q") == [0, 1]


def test_refused_ones_may_go_to_the_dead(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", records_max=1, refuses=True, dead_letter_refused=True, dead_letter_exchange="dlx")
    assert peer.publish("q", 0, 3).accepted == 1  # type: ignore[union-attr]
    stage.turn()
    assert [(one.queue, one.reason, one.record.payload.split()[0]) for one in stage.dead] == [
        ("q", Reason.QUEUE_LENGTH, b"1"), ("q", Reason.QUEUE_LENGTH, b"2"),
    ]  # fmt: skip


# -- ending ---------------------------------------------------------------------------------------------------------


def test_deleting_says_how_many_waited_and_tells_consumers(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", dead_letter_exchange="dlx")
    other = stage.peer("other")
    other.consume("q", 3, acks=False)
    peer.publish("q", 0, 10)
    stage.turn()
    assert peer.delete("q") == 7
    stage.turn()
    assert other.cancelled == ["q"]
    assert stage.pool.memory_bytes == 0
    assert stage.lanes == []
    assert stage.dead == []
    with refused(Reason.NOT_FOUND):
        peer.delete("q")
    other.ack(other.ids()[0])
    other.nack(other.ids()[0], requeue=True)
    other.nack(other.ids()[0], requeue=False)
    stage.turn()
    assert not other.ids()
    assert peer.publish("q", 0).taken == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["if_unused", "if_empty"])
def test_deleting_on_conditions(stage: QueueStage, peer: Peer, how: str) -> None:
    peer.declare("q")
    other = stage.peer("other")
    other.consume("q", 1, acks=False)
    peer.publish("q", 0, 2)
    stage.turn()
    with refused(Reason.PRECONDITION_FAILED):
        peer.delete("q", **{how: True})
    assert other.connected
    assert stage.queue("q").backlog.lag_records == 1
    if how == "if_unused":
        other.cancel("q")
    else:
        purged(stage.queue("q"))
    peer.delete("q", **{how: True})
    stage.turn()
    assert stage.lanes == []


def test_an_exclusive_queue_is_its_sessions_alone_and_goes_with_it(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", exclusive=True)
    other = stage.peer("other")
    for ask in (
        lambda: other.declare("q", exclusive=True), lambda: other.consume("q"), lambda: other.get("q"),
        lambda: other.bind("q", "amq.direct", "k"), lambda: other.unbind("q", "amq.direct", "k"),
        lambda: other.delete("q"),
    ):  # fmt: skip
        with refused(Reason.RESOURCE_LOCKED):
            ask()
    other.publish("q", 0, 3)
    peer.consume("q", 1, acks=False)
    stage.turn()
    assert peer.numbers == [0]
    peer.leave()
    stage.turn()
    assert "q" not in stage.broker.registry.router.queues
    assert stage.pool.memory_bytes == 0
    assert stage.lanes == []
    assert not stage.broker.registry.owned


@pytest.mark.parametrize("how", ["cancel", "close", "leave"])
def test_a_queue_may_end_with_its_last_consumer(stage: QueueStage, peer: Peer, how: str) -> None:
    peer.declare("q", auto_delete=True)
    peer.publish("q", 0, 4)
    stage.run(1)
    assert stage.queue("q").backlog.lag_records == 4, "not before it had one"
    one, two = reader(stage, "q", acks=False), stage.peer("two")
    two.consume("q", acks=False)
    stage.turn()
    two.cancel("q")
    stage.turn()
    assert "q" in stage.broker.registry.router.queues
    if how == "cancel":
        one.cancel("q")
    elif how == "close":
        one.close()
    else:
        one.leave()
    stage.turn()
    assert "q" not in stage.broker.registry.router.queues
    assert stage.pool.memory_bytes == 0
    two.ack(*two.ids())
    stage.turn()
    assert stage.lanes == []


def test_a_queue_nobody_uses_for_so_long_ends(stage: QueueStage, peer: Peer) -> None:
    peer.declare("used", idle_s=2.0)
    peer.declare("asked", idle_s=2.0)
    peer.declare("left", idle_s=2.0)
    consumer = peer.consume("used")
    peer.publish("left", 0, 10)
    for _ in stage.steps(5):
        if stage.now < 1003:
            peer.get("asked")
            peer.publish("left", 10, 1)
    queues = stage.broker.registry.router.queues
    assert "left" not in queues, "publishing is no use of it"
    stage.run(0.4)
    assert list(queues) == ["used"]
    stage.broker.queues.cancel(consumer, stage.now)
    stage.run(1.8)
    assert "used" in queues
    stage.run(0.4)
    assert not queues
    assert stage.pool.memory_bytes == 0


def test_a_lifetime_renewed_by_declaring_again(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q", idle_s=1.0)
    stage.run(0.8)
    peer.declare("q", idle_s=1.0)
    stage.run(0.8)
    assert "q" in stage.broker.registry.router.queues
    stage.run(0.6)
    assert "q" not in stage.broker.registry.router.queues


# -- when all is over -----------------------------------------------------------------------------------------------


def test_a_connection_cut_with_its_window_full_ends_like_any_other(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.channel(1, limit=2)
    peer.consume("q", acks=False)
    peer.publish("q", 0, 5)
    stage.turn()
    stage.broker.expel(peer.session, Reason.ADMIN, "go", stage.now)
    stage.turn()
    assert not peer.connected
    assert drained(stage, "q") == [0, 1, 2, 3, 4]


def test_nothing_is_left(stage: QueueStage, peer: Peer) -> None:
    registry = stage.broker.registry
    before = len(registry.router.feeds)
    for name in ("a", "b"):
        peer.declare(name)
        peer.bind(name, "amq.topic", "x")
        peer.consume(name, 2, acks=False)
    peer.get("a")
    peer.publish("x", 0, 10, exchange="amq.topic")
    peer.publish("a", 10, 10)
    stage.run(1)
    peer.leave()
    stage.run(1)
    other = stage.peer("other")
    for name in ("a", "b"):
        other.delete(name)
    other.leave()
    stage.run(1)
    assert len(registry.router.feeds) == before
    assert stage.pool.memory_bytes == 0
    assert not registry.router.queues
    assert not registry.ready_queues
    assert not registry.unused
    assert not registry.watched
    assert set(registry.totals.consumers.elements()) == {"$SYS/headway/#"}
    assert isinstance(stage.broker.queues, Queues)
    assert not stage.broker.queues.feeds.homes
    assert registry.router.exchanges.leading_to.get(Destination("queue", "a"), {}) == {}
    assert Binding("amq.topic", Destination("queue", "a"), "x") not in registry.router.exchanges.by_name[
        "amq.topic"
    ].bindings.all
